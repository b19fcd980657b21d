//! Where an embedded client stores its changes.

use std::sync::Arc;

use crate::rules::change::ObjectChange;
use homeostat::run::BoxError;

/// Stores changes before they are applied to the state.
pub(crate) trait ChangeJournal: Send + Sync {
    /// Checks that this process may store changes. A process that was forked from the owner of the file must not.
    fn check(&self) -> Result<(), Arc<str>>;

    /// Stores all of these changes or none.
    fn store(&self, changes: &[Arc<ObjectChange>]) -> Result<(), BoxError>;
}
