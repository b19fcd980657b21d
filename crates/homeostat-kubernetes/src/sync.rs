//! Locks and atomics: the only file that names them.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic;
