//! The locks and atomics of unit tests, with the interface of `parking_lot` and of the standard library.
//!
//! The locks check the order in which a thread takes them. In a build with `--cfg loom` they are those of the model
//! checker, so that the models run the shipped code.

#![allow(missing_docs, reason = "parking_lot documents them")]

#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod ordered;

#[cfg(loom)]
pub use self::modelled::{Condvar, Mutex, MutexGuard, RwLock, atomic};
#[cfg(not(loom))]
pub use self::ordered::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(loom))]
pub use std::sync::atomic;
