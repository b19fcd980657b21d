//! The answer of a watch to the question whether it has shown a write.

use std::any::Any;

/// Knows which writes a watch has shown.
pub(crate) trait WriteView: Send + Sync {
    /// Returns whether the watch has not shown this write yet, but is to show it.
    fn is_to_show(&self, write: &(dyn Any + Send + Sync)) -> bool;
}
