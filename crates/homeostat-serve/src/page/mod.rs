//! The status page for people, and the handler for all pages about a manager.

mod attention;
mod chart;
mod controllers;
mod data;
mod escape;
mod history;
mod key_page;
mod objects;
mod pages;
mod shell;
mod sources;
mod summary;
#[cfg(all(test, not(loom)))]
mod tests;
mod timeline;
mod units;

pub use self::pages::StatusPages;
