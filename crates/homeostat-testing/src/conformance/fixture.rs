//! The tools of the cases: the client under test, a reader of watches, and checks.

use std::fmt::Debug;
use std::panic::Location;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::objects::{WIDGET, ZONE, brief, is_deleting, key, kind_of, meta};
use homeostat::base::{CancellationToken, ThreadOptions};
use homeostat::rt::Chain;
use homeostat_objects::{
    Capabilities, Cause, Client, ClientError, ClientErrorKind, DeleteOptions, Deletion, FieldOwner, ObjectStream,
    Patch, PatchTarget, Propagation, Query, SharedObject, WatchEvent,
};

/// The longest time that a client may take for a watch event. If the client works, no case waits this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// The most changes that a case makes without reading its watch, unless the case says otherwise.
const LIVELY: usize = 60;

/// The reason that a case did not pass.
#[derive(Debug)]
pub(super) enum NotPassed {
    /// A check failed: its place and its message.
    Failed(String),
    /// The case does not apply, for this reason.
    Skipped(String),
}

pub(super) type CaseResult<T = ()> = Result<T, NotPassed>;

#[track_caller]
pub(super) fn failed(why: impl std::fmt::Display) -> NotPassed {
    let at = Location::caller();
    NotPassed::Failed(format!("{}:{}: {why}", at.file(), at.line()))
}

/// Adds the failed part of a case to its message.
pub(super) trait InPart {
    fn in_part(self, part: &str) -> Self;
}

impl<T> InPart for CaseResult<T> {
    fn in_part(self, part: &str) -> Self {
        self.map_err(|stop| match stop {
            NotPassed::Failed(why) => NotPassed::Failed(format!("{part}: {why}")),
            skipped @ NotPassed::Skipped(_) => skipped,
        })
    }
}

impl From<ClientError> for NotPassed {
    /// An unexpected error fails the case.
    #[track_caller]
    fn from(error: ClientError) -> Self {
        failed(Chain(&error))
    }
}

/// Fails unless both values are equal.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "most are made in the call")]
pub(super) fn same<T: PartialEq<U> + Debug, U: Debug>(what: &str, found: T, expected: U) -> CaseResult {
    if found == expected {
        return Ok(());
    }
    Err(failed(format_args!("{what}: {found:?}, expected {expected:?}")))
}

/// Fails unless a condition holds.
#[track_caller]
pub(super) fn holds(what: &str, so: bool) -> CaseResult {
    if so { Ok(()) } else { Err(failed(format_args!("expected: {what}"))) }
}

/// The kind of an error that a client returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    AlreadyExists,
    Conflict,
    Invalid,
    Forbidden,
    Unauthorized,
    TooManyRequests,
    KindNotServed,
    Gone,
    Transport,
}

impl Refusal {
    pub(super) fn of(error: &ClientError) -> Self {
        match error.kind() {
            ClientErrorKind::NotFound => Self::NotFound,
            ClientErrorKind::AlreadyExists => Self::AlreadyExists,
            ClientErrorKind::Conflict { .. } => Self::Conflict,
            ClientErrorKind::Invalid { .. } => Self::Invalid,
            ClientErrorKind::Forbidden => Self::Forbidden,
            ClientErrorKind::Unauthorized => Self::Unauthorized,
            ClientErrorKind::TooManyRequests { .. } => Self::TooManyRequests,
            ClientErrorKind::KindNotServed => Self::KindNotServed,
            ClientErrorKind::Gone { .. } => Self::Gone,
            _ => Self::Transport,
        }
    }
}

/// The client under test, and the properties of its back end.
#[derive(Clone)]
pub(super) struct TestedClient {
    pub(super) inner: Arc<dyn Client>,
    pub(super) history: Option<usize>,
    capabilities: Capabilities,
}

type CallResult = Result<Value, ClientError>;
pub(super) type DeleteResult = Result<Deletion<Value>, ClientError>;

impl TestedClient {
    pub(super) fn new(inner: Arc<dyn Client>, history: Option<usize>, capabilities: Capabilities) -> Self {
        Self { inner, history, capabilities }
    }

    /// Skips the case unless the client cascades.
    pub(super) fn needs_cascading(&self) -> CaseResult {
        if self.capabilities.cascading {
            Ok(())
        } else {
            Err(NotPassed::Skipped("the client does not cascade".to_owned()))
        }
    }

    /// Skips the case unless the client can purge objects.
    pub(super) fn needs_purge(&self) -> CaseResult {
        if self.can_purge() { Ok(()) } else { Err(NotPassed::Skipped("the client cannot purge".to_owned())) }
    }

    pub(super) fn can_purge(&self) -> bool {
        self.capabilities.purge
    }

    pub(super) fn selects_fields(&self) -> bool {
        self.capabilities.field_selectors
    }

    /// Skips the case unless a watch can go back this many changes.
    pub(super) fn needs_history(&self, changes: usize) -> CaseResult {
        match self.history {
            Some(history) if history < changes => {
                Err(NotPassed::Skipped(format!("the back end keeps {history} changes, and the case needs {changes}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn create(&self, object: Value) -> CallResult {
        owned_answer(self.inner.create(&kind_of(&object), object))
    }

    pub(super) fn update(&self, object: Value) -> CallResult {
        owned_answer(self.inner.update(&kind_of(&object), object))
    }

    pub(super) fn update_status(&self, object: Value) -> CallResult {
        owned_answer(self.inner.update_status(&kind_of(&object), object))
    }

    pub(super) fn apply(&self, object: Value, owner: &FieldOwner) -> CallResult {
        owned_answer(self.inner.apply(&kind_of(&object), object, owner))
    }

    /// Returns a widget of the namespace `default`.
    pub(super) fn get(&self, name: &str) -> CallResult {
        owned_answer(self.inner.get(&WIDGET, &key(name)))
    }

    pub(super) fn patch(&self, name: &str, patch: &Patch) -> CallResult {
        owned_answer(self.inner.patch(&WIDGET, &key(name), patch, PatchTarget::Object))
    }

    pub(super) fn merge(&self, name: &str, patch: Value) -> CallResult {
        self.patch(name, &Patch::Merge(patch))
    }

    pub(super) fn merge_status(&self, name: &str, patch: Value) -> CallResult {
        owned_answer(self.inner.patch(&WIDGET, &key(name), &Patch::Merge(patch), PatchTarget::Status))
    }

    pub(super) fn delete(&self, name: &str) -> DeleteResult {
        self.delete_with(name, &DeleteOptions::default())
    }

    pub(super) fn delete_with(&self, name: &str, options: &DeleteOptions) -> DeleteResult {
        self.inner.delete(&WIDGET, &key(name), options)?.try_map(|object| Ok(object.to_value()))
    }

    pub(super) fn delete_in(&self, name: &str, propagation: Propagation) -> DeleteResult {
        self.delete_with(name, &DeleteOptions::default().propagation(propagation))
    }

    /// Begins the deletion of a widget that has finalizers, and returns it.
    #[track_caller]
    pub(super) fn begin_deletion(&self, name: &str) -> CaseResult<Value> {
        held_back(self.delete(name)?)
    }

    pub(super) fn purge(&self, name: &str) -> DeleteResult {
        self.delete_with(name, &DeleteOptions::default().purge())
    }

    /// Removes a widget and its finalizers.
    pub(super) fn remove(&self, name: &str) -> Result<(), ClientError> {
        self.release(name)?;
        self.delete(name).map(drop)
    }

    /// Removes all finalizers of a widget.
    pub(super) fn release(&self, name: &str) -> CallResult {
        self.merge(name, json!({"metadata": {"finalizers": null}}))
    }

    /// Returns the version and the items of a list.
    pub(super) fn list(&self, query: &Query) -> Result<(String, Vec<Value>), ClientError> {
        let list = self.inner.list(&WIDGET, query)?;
        Ok((list.version, list.items.iter().map(SharedObject::to_value).collect()))
    }

    /// Returns the current version.
    pub(super) fn version(&self) -> Result<String, ClientError> {
        Ok(self.inner.list(&WIDGET, &Query::all())?.version)
    }

    /// Returns all objects.
    pub(super) fn all(&self) -> Result<Vec<SharedObject>, ClientError> {
        let mut all = self.inner.list(&WIDGET, &Query::all())?.items;
        all.extend(self.inner.list(&ZONE, &Query::all())?.items);
        Ok(all)
    }

    /// Fails unless the call returns this error, the error and its message name the object, and no object changes.
    #[track_caller]
    pub(super) fn refused<T: Debug>(
        &self,
        refusal: Refusal,
        object: &str,
        call: impl FnOnce() -> Result<T, ClientError>,
    ) -> CaseResult<ClientError> {
        let before = self.all()?;
        let error = match call() {
            Ok(done) => return Err(failed(format_args!("succeeded, expected {refusal:?}: {done:?}"))),
            Err(error) => error,
        };
        same(&format!("the kind of the error \"{}\"", Chain(&error)), Refusal::of(&error), refusal)?;
        same("the object of the error", error.object().to_string(), object)?;
        holds(&format!("the message {:?} names {object}", error.to_string()), error.to_string().contains(object))?;
        same("the objects after a refusal", self.all()?, before)?;
        Ok(error)
    }

    /// Fails unless the call returns `Invalid` for a field at or below this path, and the message shows the field and
    /// the value.
    #[track_caller]
    pub(super) fn invalid<T: Debug>(
        &self,
        object: &str,
        path: &str,
        shown: &str,
        call: impl FnOnce() -> Result<T, ClientError>,
    ) -> CaseResult {
        let error = self.refused(Refusal::Invalid, object, call)?;
        let below = |cause: &&Cause| {
            cause.field.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let Some(Cause { field, rule, .. }) = error.causes().iter().find(below) else {
            return Err(failed(format_args!("no cause has a field at or below {path:?}: {error}")));
        };
        holds("the error has a rule", !rule.is_empty())?;
        let message = error.to_string();
        // A message quotes its values.
        let quoted = format!("{shown:?}");
        let is_shown = message.contains(shown) || message.contains(&quoted[1..quoted.len() - 1]);
        holds(&format!("the message {message:?} shows {shown:?}"), is_shown)?;
        holds(&format!("the message {message:?} names the field {field:?}"), message.contains(field))
    }

    /// Watches widgets. Skips the case if the history is shorter than the changes of a case.
    #[track_caller]
    pub(super) fn watch(&self, query: &Query, from: Option<&str>) -> CaseResult<WatchReader> {
        self.needs_history(LIVELY)?;
        let stop = CancellationToken::new();
        let stream = self.inner.watch(&WIDGET, query, from, &stop)?;
        WatchReader::of(stream, stop)
    }

    /// Waits until the widget no longer exists.
    #[track_caller]
    pub(super) fn vanishes(&self, name: &str) -> CaseResult {
        self.becomes(name, |object| object.is_none())
    }

    /// Waits until the widget has a deletion time.
    #[track_caller]
    pub(super) fn is_deleted_soon(&self, name: &str) -> CaseResult {
        self.becomes(name, |object| object.is_some_and(is_deleting))
    }

    /// Waits until the widget, or its absence, meets a condition.
    #[track_caller]
    pub(super) fn becomes(&self, name: &str, condition: impl Fn(Option<&Value>) -> bool) -> CaseResult {
        let watch = self.watch(&Query::all().namespace("default").field("metadata.name", name), None)?;
        let mut object: Option<Value> = None;
        let mut complete = false;
        while !complete || !condition(object.as_ref()) {
            match watch.event() {
                Ok(WatchEvent::Bookmark(_)) => complete = true,
                Ok(WatchEvent::Deleted(_)) => object = None,
                Ok(WatchEvent::Added(now) | WatchEvent::Modified(now)) => object = Some(now),
                Err(NotPassed::Failed(why)) => {
                    return Err(failed(format_args!("waited for {name}, which is {object:?}: {why}")));
                }
                Err(skipped @ NotPassed::Skipped(_)) => return Err(skipped),
            }
        }
        Ok(())
    }
}

/// Returns the object of a deletion that finalizers delay.
#[track_caller]
pub(super) fn held_back(deletion: Deletion<Value>) -> CaseResult<Value> {
    deletion.into_object().ok_or_else(|| failed("the object is gone, but a finalizer must hold it"))
}

pub(super) fn owned_answer(answer: Result<SharedObject, ClientError>) -> CallResult {
    answer.map(|object| object.to_value())
}

pub(super) type ObjectEvent = WatchEvent<Value>;

/// A watch, and a thread that reads its events.
pub(super) struct WatchReader {
    events: Receiver<Result<ObjectEvent, ClientError>>,
    pub(super) stop: CancellationToken,
}

impl WatchReader {
    #[track_caller]
    pub(super) fn of(stream: ObjectStream, stop: CancellationToken) -> CaseResult<Self> {
        let (sender, events) = channel();
        let event = |item: Result<WatchEvent<SharedObject>, ClientError>| item?.try_map(|object| Ok(object.to_value()));
        let read = move || stream.map(|item| sender.send(event(item))).take_while(Result::is_ok).for_each(drop);
        ThreadOptions::new().spawn("conformance-watch".to_owned(), read).map_err(failed)?;
        Ok(Self { events, stop })
    }

    /// Returns the next item of the stream, or `None` when the stream ends.
    #[track_caller]
    pub(super) fn item(&self) -> CaseResult<Option<Result<ObjectEvent, ClientError>>> {
        match self.events.recv_timeout(PATIENCE) {
            Ok(item) => Ok(Some(item)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(failed(format_args!("the watch had no event for {PATIENCE:?}"))),
        }
    }

    #[track_caller]
    pub(super) fn event(&self) -> CaseResult<ObjectEvent> {
        match self.item()? {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(failed(error)),
            None => Err(failed("the watch ended")),
        }
    }

    /// Returns the next event that is not a bookmark.
    #[track_caller]
    pub(super) fn change(&self) -> CaseResult<ObjectEvent> {
        loop {
            let event = self.event()?;
            if !matches!(event, WatchEvent::Bookmark(_)) {
                return Ok(event);
            }
        }
    }

    /// Returns all changes up to and including the first change of this object.
    #[track_caller]
    pub(super) fn changes_until(&self, name: &str) -> CaseResult<Vec<ObjectEvent>> {
        let mut changes = Vec::new();
        loop {
            changes.push(self.change()?);
            if changes.last().and_then(WatchEvent::object).is_some_and(|object| meta(object, "name") == name) {
                return Ok(changes);
            }
        }
    }

    /// Fails unless the watch begins with these existing objects and a bookmark. Later changes may follow: a client may
    /// begin the watch only some time after the call.
    #[track_caller]
    pub(super) fn begins_with(&self, existing: &[&str]) -> CaseResult {
        self.expect_changes(existing)?;
        match self.event()? {
            WatchEvent::Bookmark(_) => Ok(()),
            other => Err(failed(format_args!("expected a bookmark after the existing objects: {other:?}"))),
        }
    }

    /// Fails unless the next changes are these, in the form of [`brief`].
    #[track_caller]
    pub(super) fn expect_changes(&self, expected: &[&str]) -> CaseResult<Vec<ObjectEvent>> {
        let mut changes = Vec::new();
        for expected in expected {
            let change = self.change()?;
            same(&format!("change {} of the watch", changes.len() + 1), brief(&change), *expected)?;
            changes.push(change);
        }
        Ok(changes)
    }
}

impl Drop for WatchReader {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
