//! The rules for objects, as one kind of transaction that all stores of this crate run.
//!
//! A transaction (`txn`) reads a store (`stored`), and collects the changes that a call makes (`change`). `write` has
//! the write methods of clients, with `check`, `limits`, `patch` and `apply`; `cascade` has the consequences for
//! dependents. Nothing here stores anything. The embedded clients run whole transactions on their state. The client of
//! NATS runs one transaction for each entry.

mod apply;
pub(crate) mod cascade;
pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod cost;
pub(crate) mod distinct_queue;
pub(crate) mod event;
pub(crate) mod expiry;
pub(crate) mod index;
pub(crate) mod limits;
pub(crate) mod names;
mod patch;
pub(crate) mod stored;
pub(crate) mod txn;
mod write;
