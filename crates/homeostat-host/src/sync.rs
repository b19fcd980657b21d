//! Locks: the only file that names them.

pub(crate) use parking_lot::Mutex;
