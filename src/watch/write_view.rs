//! The answer of a watch to the question whether it has shown a write.

use std::any::Any;
use std::sync::Weak;

/// The part of a store that may have changed.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "objects"), expect(dead_code, reason = "only watches of objects show writes"))]
pub(crate) enum Shown {
    /// The object whose key has this hash.
    Object(u64),
    /// Any number of objects.
    Any,
}

/// Learns of the steps of a watch.
pub(crate) trait ShownListener: Send + Sync {
    /// Called after each step of the watch, when the answer of [`WriteView::is_to_show`] includes that step.
    #[cfg_attr(not(feature = "objects"), expect(dead_code, reason = "only watches of objects show writes"))]
    fn shown(&self, shown: Shown);
}

/// Knows which writes a watch has shown.
pub(crate) trait WriteView: Send + Sync {
    /// Returns whether the watch has not shown this write yet, but is to show it.
    fn is_to_show(&self, write: &(dyn Any + Send + Sync)) -> bool;

    /// Adds a listener, unless it was added before. It is forgotten once it was dropped.
    fn on_shown(&self, listener: Weak<dyn ShownListener>);
}
