//! The status pages for people, and the handler for all pages about a manager.

mod actions;
mod active_run;
mod attention;
mod chart;
mod checks;
mod clock_times;
mod controller_page;
mod controllers;
mod data;
mod effects;
mod escape;
mod event_pages;
mod forms;
mod handler;
mod history;
mod key_page;
mod known_keys;
mod load;
mod object_pages;
mod object_parts;
mod objects;
mod pages;
mod past_actions;
mod program;
mod reasons;
mod runs;
mod search;
mod shell;
mod sources;
mod summary;
mod suspension;
mod tab;
#[cfg(all(test, not(loom)))]
mod tests;
mod timeline;
mod traffic;
mod units;

pub use self::pages::StatusPages;
