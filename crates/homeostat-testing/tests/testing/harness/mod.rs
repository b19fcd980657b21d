//! Tests of the tables: passing cases, failing cases, and their reports.

mod admission;
mod bad_input;
mod cases;
mod child;
mod client;
mod configs;
mod factories;
mod runs;
mod support;
mod tables;
