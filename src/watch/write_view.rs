//! The answer of a watch to the question whether it has shown a write.

use std::any::Any;

/// The part of a store that may have changed.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "objects"), expect(dead_code, reason = "only watches of objects show writes"))]
pub(crate) enum Shown {
    /// The object whose key has this hash.
    Object(u64),
    /// Any number of objects.
    Any,
}

/// Called after each step of a watch. Returns whether it is to be called again.
pub(crate) type ShownListener = Box<dyn Fn(Shown) -> bool + Send + Sync>;

/// Knows which writes a watch has shown.
pub(crate) trait WriteView: Send + Sync {
    /// Returns whether the watch has not shown this write yet, but is to show it.
    fn is_to_show(&self, write: &(dyn Any + Send + Sync)) -> bool;

    /// Calls `listener` after each step of the watch, when the answer of [`is_to_show`](Self::is_to_show) includes that step.
    fn on_shown(&self, listener: ShownListener);
}
