//! One run for the key of a primary.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::super::dependents::ExternalResource;
use super::super::selection::{Selected, Selection};
use crate::{
    Api, ClientError, DynamicObject, EventRecorder, EventType, LASTING_CONFLICT, Object, ObjectKey, ObjectRef,
    is_conflict, reasons,
};
use homeostat::queue::Reasons;
use homeostat::rt::{Chain, one_line};
use homeostat::run::{Action, BoxError, Context, Reconciler, RequeueAfter, Terminal};

/// The main reason of a run for a primary.
///
/// | operation | the primary exists | the primary is gone |
/// |---|---|---|
/// | [`Put`](Self::Put) | it was created or updated, or deleted and created again | |
/// | [`Delete`](Self::Delete) | it is being deleted, and a finalizer holds it | it was deleted |
/// | [`Purge`](Self::Purge) | | it vanished although it had finalizers, and no deletion was visible |
/// | [`Secondary`](Self::Secondary) | a secondary or tertiary has changed | the same, or it has left a secondary |
/// | [`Resync`](Self::Resync) | a resync of all primaries | it has left an external resource |
/// | [`Other`](Self::Other) | a retry, a requeue or a manual request, see [`Context::reasons`] | the same |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// The primary was created or updated.
    Put,
    /// The primary was deleted or is being deleted.
    Delete,
    /// The primary has vanished, but its finalizers were not removed.
    Purge,
    /// A secondary or tertiary has changed.
    Secondary,
    /// All primaries run, changed or not.
    Resync,
    /// Another reason.
    Other,
}

impl Operation {
    /// The operation for a primary that exists.
    fn sync(reasons: Reasons, is_deleting: bool) -> Self {
        let put = [Reasons::CREATED, Reasons::UPDATED, Reasons::DELETED, Reasons::PURGED];
        if is_deleting {
            Self::Delete
        } else if put.iter().any(|put| reasons.contains(*put)) {
            Self::Put
        } else {
            Self::of_related(reasons)
        }
    }

    /// The operation for a primary that is gone.
    fn gone(reasons: Reasons) -> Self {
        if reasons.contains(Reasons::PURGED) {
            Self::Purge
        } else if reasons.contains(Reasons::DELETED) {
            Self::Delete
        } else {
            Self::of_related(reasons)
        }
    }

    fn of_related(reasons: Reasons) -> Self {
        if reasons.contains(Reasons::SECONDARY) {
            Self::Secondary
        } else if reasons.contains(Reasons::RESYNC) || reasons.contains(Reasons::POLL) {
            Self::Resync
        } else {
            Self::Other
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Purge => "purge",
            Self::Secondary => "secondary",
            Self::Resync => "resync",
            Self::Other => "other",
        })
    }
}

/// The [`Context`] of a run, and its operation.
#[derive(Debug)]
pub struct PrimaryContext<'a> {
    cx: &'a Context,
    operation: Operation,
}

impl<'a> PrimaryContext<'a> {
    /// Creates a context, to call a reconciler in a test.
    #[must_use]
    pub fn new(cx: &'a Context, operation: Operation) -> Self {
        Self { cx, operation }
    }

    /// Returns the main reason of the run.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }
}

impl Deref for PrimaryContext<'_> {
    type Target = Context;

    fn deref(&self) -> &Context {
        self.cx
    }
}

/// Reconciles a primary with its secondaries. Like a [`Reconciler`], but it gets the object instead of the key.
///
/// A closure is a reconciler that does nothing for a primary that is gone. Write out the types of its parameters:
/// `|cx: &PrimaryContext<'_>, site: &Site| -> Result<Action, BoxError> { … }`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a reconciler of primaries of type `{T}`",
    label = "not a reconciler of `{T}`",
    note = "a closure needs the types of its parameters written out, `|cx: &PrimaryContext<'_>, primary: &{T}|`, and returns `Result<Action, E>` with `E: Into<BoxError>`",
    note = "it is shared by threads: what it captures must be `Send + Sync + 'static`"
)]
pub trait PrimaryReconciler<T: Object>: Send + Sync + 'static {
    /// Reconciles a primary that exists. It may be [being deleted](super::super::ObjectMeta::is_deleting) while a
    /// finalizer keeps it.
    ///
    /// # Errors
    ///
    /// The same as for [`Reconciler::reconcile`]. A [conflict](crate::ClientErrorKind::Conflict) is not a failure: the
    /// key runs again after a second, or as soon as a watch shows the change. The sixth conflict in a row is a failure.
    fn sync(&self, cx: &PrimaryContext<'_>, primary: &T) -> Result<Action, BoxError>;

    /// Handles a primary that is gone. Its secondaries have been deleted, but finalizers may still keep them.
    ///
    /// Called at least once for each primary that disappears while the controller runs, and whenever one of its
    /// resources is found later. Not called for the deletion events of its secondaries.
    ///
    /// # Errors
    ///
    /// The same as for [`sync`](Self::sync).
    fn gone(&self, cx: &PrimaryContext<'_>, key: &ObjectKey) -> Result<(), BoxError> {
        let _ = (cx, key);
        Ok(())
    }
}

impl<T, E, F> PrimaryReconciler<T> for F
where
    T: Object,
    E: Into<BoxError>,
    F: Fn(&PrimaryContext<'_>, &T) -> Result<Action, E> + Send + Sync + 'static,
{
    fn sync(&self, cx: &PrimaryContext<'_>, primary: &T) -> Result<Action, BoxError> {
        self(cx, primary).map_err(Into::into)
    }
}

/// The secondaries of one type.
pub(super) trait SecondaryOf<T>: Send + Sync {
    /// Restores the labels of the primary's secondaries, so that lists find them.
    fn relabel(&self, cx: &Context, primary: &T) -> Result<(), ClientError>;

    /// Deletes the secondaries that a primary has left. Returns whether there were any.
    fn collect(&self, cx: &Context, gone: &DynamicObject) -> Result<bool, ClientError>;
}

/// The reconciler of a [`PrimaryController`](super::PrimaryController).
pub(super) struct PrimaryRun<T: Object> {
    /// The name of the controller, for log lines.
    pub(super) name: String,
    pub(super) api: Api<T>,
    pub(super) selection: Selection<T>,
    pub(super) reconciler: Box<dyn PrimaryReconciler<T>>,
    pub(super) secondaries: Vec<Box<dyn SecondaryOf<T>>>,
    pub(super) externals: Arc<[ExternalResource<T>]>,
    pub(super) recorder: Option<EventRecorder>,
}

impl<T: Object> PrimaryRun<T> {
    fn sync(&self, cx: &Context, primary: &T) -> Result<Action, BoxError> {
        let is_deleting = primary.meta().is_deleting();
        let operation = Operation::sync(cx.reasons(), is_deleting);
        let relabelled =
            self.secondaries.iter().map(|secondaries| secondaries.relabel(cx, primary)).fold(Ok(()), Result::and);
        let action = self.reconciler.sync(&PrimaryContext::new(cx, operation), primary)?;
        // External resources of a primary are removed once it is gone.
        if !is_deleting {
            all(
                &primary.object_ref(),
                self.externals.iter().map(|external| {
                    let converged = external.sync(cx, primary)?;
                    if converged {
                        self.synced(primary, &reasons::converged(&external.name));
                    }
                    Ok(converged)
                }),
            )?;
        }
        // Reported last, so that an object that cannot be changed does not stop the other steps.
        relabelled?;
        Ok(action)
    }

    fn gone(&self, cx: &Context, key: &ObjectKey) -> Result<Action, BoxError> {
        let gone = DynamicObject::new(self.api.kind(), key.namespace(), key.name());
        let collected =
            self.secondaries.iter().map(|secondaries| secondaries.collect(cx, &gone).map_err(BoxError::from));
        let removed = self.externals.iter().map(|external| {
            let removed = external.remove(cx, &gone.object_ref())?;
            if removed {
                self.synced(&gone, &reasons::removed(&external.name));
            }
            Ok(removed)
        });
        let found = all(&gone.object_ref(), collected.chain(removed))?;
        // If nothing was found, these reasons stem from the deletions of an earlier run, which called `gone`. A request
        // without a reason is not related.
        let related = Reasons::SECONDARY | Reasons::RESYNC | Reasons::POLL;
        if found || cx.reasons().is_empty() || !related.contains(cx.reasons()) {
            self.reconciler.gone(&PrimaryContext::new(cx, Operation::gone(cx.reasons())), key)?;
        }
        Ok(Action::await_change())
    }

    fn synced(&self, primary: &impl Object, message: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.event(primary, EventType::Normal, reasons::SYNCED, message);
        }
    }
}

impl<T: Object> Reconciler<ObjectKey> for PrimaryRun<T> {
    type Error = BoxError;

    fn reconcile(&self, cx: &Context, key: &ObjectKey) -> Result<Action, BoxError> {
        let result = match self.selection.get(&self.api, key)? {
            Selected::Object(primary) => self.sync(cx, &primary),
            Selected::Gone => self.gone(cx, key),
            Selected::Other => Ok(Action::await_change()),
        };
        match result {
            Err(error) if is_mere_conflict(&*error) && cx.attempt() <= LASTING_CONFLICT => {
                let (controller, shown) = (self.name.as_str(), Chain(&*error));
                log::debug!(
                    controller, key:?, error:% = shown;
                    "{controller}: {key:?} met a conflict and runs again: {shown}"
                );
                Ok(Action::retry_after(CONFLICT_DELAY))
            }
            other => other,
        }
    }
}

/// The delay after a conflict. A watch usually enqueues the key earlier. A secondary that is being deleted may need
/// this delay several times.
const CONFLICT_DELAY: Duration = Duration::from_secs(1);

/// Returns whether the error is a conflict that leaves the delay to the controller.
fn is_mere_conflict(error: &(dyn Error + 'static)) -> bool {
    is_conflict(error) && Terminal::find(error).is_none() && RequeueAfter::find(error).is_none()
}

/// Runs all steps, even after a failure. Returns whether a step has changed something, or the first error, preferably
/// one that is not a conflict.
///
/// The other errors are logged.
fn all(object: &ObjectRef, steps: impl Iterator<Item = Result<bool, BoxError>>) -> Result<bool, BoxError> {
    let mut result = Ok(false);
    for step in steps {
        result = match (result, step) {
            (Ok(before), Ok(now)) => Ok(before | now),
            (Err(first), Err(other)) => {
                // A conflict resolves soon, so it must not hide another error.
                let hides = is_mere_conflict(&*first) && !is_mere_conflict(&*other);
                let (first, other) = if hides { (other, first) } else { (first, other) };
                let level = if is_mere_conflict(&*other) { log::Level::Debug } else { log::Level::Warn };
                let shown = one_line(Chain(&*other));
                log::log!(level, object:%, error:% = shown; "{object}: the run has failed with another error too: {shown}");
                Err(first)
            }
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        };
    }
    result
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn a_conflict_of_one_step_does_not_hide_the_error_of_another() {
        let object = ObjectRef::new(&Kind::namespaced("example.com", "v1", "Site"), &ObjectKey::new("default", "a"));
        let conflict = || ClientError::conflict(object.clone(), "it has changed");
        let steps: [fn(BoxError) -> [BoxError; 2]; 2] =
            [|other| ["no such host".into(), other], |other| [other, "no such host".into()]];
        for order in steps {
            let error = all(&object, order(conflict().into()).into_iter().map(Err)).unwrap_err();
            assert_eq!(error.to_string(), "no such host");
        }
    }
}
