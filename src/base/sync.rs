//! Locks and atomics: the only file that names them.
//!
//! They are `parking_lot`'s locks and condition variable, and the standard library's atomics. Unit tests have types
//! with the same interface, which check the order of the locks. In a build with `--cfg loom` they are those of the
//! model checker, so that the models run the shipped code. No kind poisons: a panic under a lock releases it. Code
//! under a lock therefore keeps its state consistent at every call that may panic.

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(test)]
pub(crate) use homeostat_test_support::locks::{Condvar, Mutex, MutexGuard, RwLock, atomic};
#[cfg(not(test))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(test))]
pub(crate) use std::sync::atomic;
