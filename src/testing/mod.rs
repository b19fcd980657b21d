//! For tests of back ends, and of what is built on them. Feature `testing`.

pub mod conformance;
