//! One run for the key of a primary.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::super::api::Api;
use super::super::dependents::ExternalResource;
use super::super::dynamic::DynamicObject;
use super::super::error::{ClientError, LASTING_CONFLICT, ObjectRef, is_conflict};
use super::super::events::{EventRecorder, EventType};
use super::super::key::ObjectKey;
use super::super::object::Object;
use super::super::reasons;
use super::super::selection::{Selected, Selection};
use crate::queue::Reasons;
use crate::run::context::Context;
use crate::run::error::{BoxError, Chain, RequeueAfter, Terminal};
use crate::run::reconciler::{Action, Reconciler};

/// What a run of a primary is about: the most telling of its reasons.
///
/// | | the primary is there | it is gone |
/// |---|---|---|
/// | [`Put`](Self::Put) | created, updated, or deleted and there again | |
/// | [`Delete`](Self::Delete) | its deletion has been asked for, and something holds it | it was deleted |
/// | [`Purge`](Self::Purge) | | it vanished without a deletion that could be seen |
/// | [`Secondary`](Self::Secondary) | a secondary or tertiary has changed | the same, or a secondary is left of it |
/// | [`Resync`](Self::Resync) | a sweep over all | an external resource is left of it |
/// | [`Other`](Self::Other) | the run before has failed or asked for it, or a person: see [`Context::reasons`] | the same |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// The primary was created or updated.
    Put,
    /// The primary was deleted, or is to be.
    Delete,
    /// The primary has vanished.
    Purge,
    /// Something around the primary has changed.
    Secondary,
    /// Nothing says that anything has changed.
    Resync,
    /// Another reason.
    Other,
}

impl Operation {
    /// Of a primary that is there.
    fn sync(reasons: Reasons, is_deleting: bool) -> Self {
        let put = [Reasons::CREATED, Reasons::UPDATED, Reasons::DELETED, Reasons::PURGED];
        if is_deleting {
            Self::Delete
        } else if put.iter().any(|put| reasons.contains(*put)) {
            Self::Put
        } else {
            Self::around(reasons)
        }
    }

    /// Of one that is gone.
    fn gone(reasons: Reasons) -> Self {
        if reasons.contains(Reasons::PURGED) {
            Self::Purge
        } else if reasons.contains(Reasons::DELETED) {
            Self::Delete
        } else {
            Self::around(reasons)
        }
    }

    fn around(reasons: Reasons) -> Self {
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

/// The [`Context`] of a run, and what it is about.
#[derive(Debug)]
pub struct PrimaryContext<'a> {
    cx: &'a Context,
    operation: Operation,
}

impl<'a> PrimaryContext<'a> {
    /// For calling a reconciler by hand or in a test.
    #[must_use]
    pub fn new(cx: &'a Context, operation: Operation) -> Self {
        Self { cx, operation }
    }

    /// What the run is about.
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

/// Brings what belongs to a primary to where the primary says it should be. As a [`Reconciler`], but it is given
/// the object, as the client has it.
///
/// A closure is one, that has nothing to do for a primary that is gone. Its parameters need their types written out:
/// `|cx: &PrimaryContext<'_>, site: &Site| -> Result<Action, BoxError> { … }`.
pub trait PrimaryReconciler<T: Object>: Send + Sync + 'static {
    /// One run for a primary that is there; perhaps it is [being deleted](super::super::ObjectMeta::is_deleting), and something
    /// holds it.
    ///
    /// # Errors
    ///
    /// As [`Reconciler::reconcile`]. A [conflict](ClientError::Conflict) is no failure: the key runs again after a second, or as soon
    /// as a watch shows the change. After five in a row the next one is a failure.
    fn sync(&self, cx: &PrimaryContext<'_>, primary: &T) -> Result<Action, BoxError>;

    /// The primary is gone, and what belonged to it has been deleted, or will be when nothing holds it any more. Called at least
    /// once for each primary that goes while the controller runs, and whenever something is found that belonged to one; not for
    /// what is heard of what has been deleted along with it.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
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

/// Deletes the secondaries of a type that a primary has left. Returns whether there were any.
pub(super) type Collect = Box<dyn Fn(&DynamicObject) -> Result<bool, ClientError> + Send + Sync>;

/// The reconciler that a [`PrimaryController`](super::PrimaryController) runs, as its
/// [builder](super::PrimaryController::controller) has it.
pub struct PrimaryRun<T: Object> {
    /// Of the controller, in log lines.
    pub(super) name: String,
    pub(super) api: Api<T>,
    pub(super) selection: Selection<T>,
    pub(super) reconciler: Box<dyn PrimaryReconciler<T>>,
    pub(super) collectors: Vec<Collect>,
    pub(super) externals: Arc<[ExternalResource<T>]>,
    pub(super) recorder: Option<EventRecorder>,
}

impl<T: Object> PrimaryRun<T> {
    fn sync(&self, cx: &Context, primary: &T) -> Result<Action, BoxError> {
        let is_deleting = primary.meta().is_deleting();
        let operation = Operation::sync(cx.reasons(), is_deleting);
        let action = self.reconciler.sync(&PrimaryContext::new(cx, operation), primary)?;
        // What is going needs nothing more; what it has outside is removed once it is gone.
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
        Ok(action)
    }

    fn gone(&self, cx: &Context, key: &ObjectKey) -> Result<Action, BoxError> {
        let gone = DynamicObject::new(self.api.kind(), key.namespace(), key.name());
        let collected = self.collectors.iter().map(|collect| collect(&gone).map_err(BoxError::from));
        let removed = self.externals.iter().map(|external| {
            let removed = external.remove(cx, &gone.object_ref())?;
            if removed {
                self.synced(&gone, &reasons::removed(&external.name));
            }
            Ok(removed)
        });
        let found = all(&gone.object_ref(), collected.chain(removed))?;
        // Nothing but an echo of what has been deleted, or a sweep: it was said before that the primary is gone.
        let around = Reasons::SECONDARY | Reasons::RESYNC | Reasons::POLL;
        if found || !around.contains(cx.reasons()) {
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
                    "{controller}: {key:?} met a conflict, to run again: {shown}"
                );
                Ok(Action::retry_after(CONFLICT_DELAY))
            }
            other => other,
        }
    }
}

impl<T: Object> fmt::Debug for PrimaryRun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrimaryRun").field("name", &self.name).field("primaries", &self.api).finish_non_exhaustive()
    }
}

/// How long a key waits that has met a conflict: mostly its watch calls it sooner. It may be that a secondary is being deleted, which
/// takes as long as something holds it.
const CONFLICT_DELAY: Duration = Duration::from_secs(1);

/// Whether somebody else was faster to write, which is ordinary, and the error does not say itself what follows.
fn is_mere_conflict(error: &(dyn Error + 'static)) -> bool {
    is_conflict(error) && Terminal::find(error).is_none() && RequeueAfter::find(error).is_none()
}

/// Takes all of the steps, whatever one of them says. Returns whether one has done something, or the first error that is no
/// conflict, or the first conflict; the others are logged.
fn all(object: &ObjectRef, steps: impl Iterator<Item = Result<bool, BoxError>>) -> Result<bool, BoxError> {
    let mut result = Ok(false);
    for step in steps {
        result = match (result, step) {
            (Ok(before), Ok(now)) => Ok(before | now),
            (Err(first), Err(other)) => {
                // A conflict is soon over, so it must not hide another error.
                let hides = is_mere_conflict(&*first) && !is_mere_conflict(&*other);
                let (first, other) = if hides { (other, first) } else { (first, other) };
                let shown = Chain(&*other);
                log::warn!(object:%, error:% = shown; "{object}: the run has failed in a further way: {shown}");
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
    use crate::objects::Kind;

    #[test]
    fn a_conflict_of_one_step_does_not_hide_the_error_of_another() {
        let object = ObjectRef::new(&Kind::namespaced("example.com", "v1", "Site"), &ObjectKey::new("default", "a"));
        let conflict = || ClientError::Conflict { object: object.clone(), reason: "it has changed".to_owned() };
        let steps: [fn(BoxError) -> [BoxError; 2]; 2] =
            [|other| ["no such host".into(), other], |other| [other, "no such host".into()]];
        for order in steps {
            let error = all(&object, order(conflict().into()).into_iter().map(Err)).unwrap_err();
            assert_eq!(error.to_string(), "no such host");
        }
    }
}
