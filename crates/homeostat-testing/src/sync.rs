//! Locks: the only file that names them. The locks of unit tests check their order.

#[cfg(test)]
pub(crate) use homeostat_test_support::locks::Mutex;
#[cfg(not(test))]
pub(crate) use parking_lot::Mutex;
