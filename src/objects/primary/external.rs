//! What a primary has outside all clients.

use std::error::Error;
use std::fmt;

use super::super::error::ObjectRef;
use super::super::key::ObjectKey;
use super::super::object::Object;
use crate::run::context::Context;
use crate::run::error::BoxError;

/// What a primary has outside all clients: files, a name in a registry, something rented. Nothing tells when it changes, so it is
/// looked at behind each run of the primary, and at a resync.
///
/// All of it may be called again, for other primaries at once, and after a call that has failed halfway.
pub trait External<T: Object>: Send + Sync + 'static {
    /// Whether it is as the primary wants it. Changes nothing.
    ///
    /// # Errors
    ///
    /// If that cannot be said.
    fn observe(&self, cx: &Context, primary: &T) -> Result<bool, BoxError>;

    /// Makes it as the primary wants it: called if it is not.
    ///
    /// # Errors
    ///
    /// If it could not be done; the run has failed then.
    fn converge(&self, cx: &Context, primary: &T) -> Result<(), BoxError>;

    /// The keys of all primaries that it has something of, so that what is left of those that are gone is found.
    ///
    /// # Errors
    ///
    /// If that cannot be said. It is logged, and asked again with the next resync.
    fn list(&self, cx: &Context) -> Result<Vec<ObjectKey>, BoxError>;

    /// Removes what it has of a primary that is gone. Returns whether it had something.
    ///
    /// # Errors
    ///
    /// If it could not be done; the run has failed then.
    fn remove(&self, cx: &Context, owner: &ObjectKey) -> Result<bool, BoxError>;
}

/// An external resource with the name that it has in events, errors and log lines.
pub(super) struct Named<T> {
    pub(super) name: String,
    pub(super) external: Box<dyn External<T>>,
}

impl<T: Object> Named<T> {
    /// Returns whether it was out of step.
    pub(super) fn sync(&self, cx: &Context, primary: &T) -> Result<bool, BoxError> {
        let seen = self.external.observe(cx, primary);
        let synced =
            seen.and_then(|good| if good { Ok(false) } else { self.external.converge(cx, primary).map(|()| true) });
        synced.map_err(|error| self.failed(primary.object_ref(), error))
    }

    /// Returns whether there was something.
    pub(super) fn remove(&self, cx: &Context, owner: &ObjectRef) -> Result<bool, BoxError> {
        self.external.remove(cx, owner.key()).map_err(|error| self.failed(owner.clone(), error))
    }

    fn failed(&self, owner: ObjectRef, source: BoxError) -> BoxError {
        ExternalError { external: self.name.clone(), owner, source }.into()
    }
}

/// An external resource of a primary could not be brought in step.
#[derive(Debug)]
struct ExternalError {
    external: String,
    owner: ObjectRef,
    source: BoxError,
}

impl fmt::Display for ExternalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.external, self.owner)
    }
}

impl Error for ExternalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
