//! The one face of every back end: objects as JSON, by kind and key.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use serde_json::Value;

use super::error::{ClientError, Ignore};
use super::json::key_of;
use super::key::ObjectKey;
use super::kind::Kind;
use super::query::{ObjectList, Query};
use crate::base::cancel::CancellationToken;

/// Where objects are kept: what an API server does, whatever does it. [`Api`](super::Api) is its typed face.
///
/// Objects go in and out as JSON; what comes out is shared, not copied.
///
/// # The rules that every client keeps
///
/// - Each change of an object gives it a `resourceVersion` that no object had before. Writing what is there already changes
///   nothing, and the version stays.
/// - The client sets `uid`, `resourceVersion`, `generation`, `creationTimestamp` and `deletionTimestamp`; what a writer says there is
///   ignored, but for a version or uid that is not the object's: a conflict.
/// - `generation` is 1 at first. It rises with each change outside `metadata` and `status`, and when a deletion begins.
/// - `status` is written by [`update_status`](Self::update_status) alone (or a patch of [`PatchTarget::Status`]), which changes nothing
///   else; a new object has none.
/// - An object with finalizers is not removed by a deletion but gets a `deletionTimestamp` and
///   `deletionGracePeriodSeconds: 0`; it takes no further finalizers, and is
///   removed by the update that takes the last one away. The last state of a deleted object, in an event too, has a
///   `deletionTimestamp`; that of a [purged](DeleteOptions::purge) one has none, unless its deletion had begun.
/// - An object whose owners are all gone is deleted, in the background, where the client
///   [cascades](Propagation). Owners are objects of the same client, in the same namespace or in none, whatever version of their
///   kind the reference names.
/// - Fields of `metadata` that are empty (`annotations: {}`) are the same as none, and are not kept.
/// - A watch tells each change once, in the order of the versions.
///
/// The suite in [`testing`](crate::testing) shows whether a client keeps them.
pub trait Client: Send + Sync {
    /// The object of this key.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ClientError::NotFound), [`Transport`](ClientError::Transport).
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<Arc<Value>, ClientError>;

    /// All objects that the query selects, in the order of their keys, as they were at one version.
    ///
    /// If the query has a [limit](Query::limit) and more objects are left, the list has a
    /// [continue token](ObjectList::continue_token). The same query with that token lists the next page. All pages show the objects
    /// as they were at the version of the first page.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ClientError::Invalid) for a selector or token that makes no sense, [`Gone`](ClientError::Gone) if the version of
    /// the token is no longer known, [`Transport`](ClientError::Transport).
    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError>;

    /// Creates an object, and returns it as it is then. Without a name it gets one of at most 63 characters that begins with its
    /// `generateName`, or with the first 58 characters of it.
    ///
    /// # Errors
    ///
    /// [`AlreadyExists`](ClientError::AlreadyExists), [`Invalid`](ClientError::Invalid), also if it has a `resourceVersion`,
    /// [`Transport`](ClientError::Transport).
    fn create(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError>;

    /// Writes all but `status`, and returns the object as it is then: its last state, if this has removed it.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ClientError::NotFound), [`Conflict`](ClientError::Conflict) if the object's `resourceVersion` or `uid` is
    /// another, [`Invalid`](ClientError::Invalid), also without a `resourceVersion`, [`Transport`](ClientError::Transport).
    fn update(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError>;

    /// Writes `status` alone, and returns the object as it is then.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    fn update_status(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError>;

    /// Changes a part of an object, whatever version it has, and returns it as it is then.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update). A patch that names a `resourceVersion` is a conflict with any other. A JSON patch whose test
    /// fails, or whose path does not exist, is [`Invalid`](ClientError::Invalid).
    fn patch(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        patch: &Patch,
        target: PatchTarget,
    ) -> Result<Arc<Value>, ClientError>;

    /// Sees to it that the object is there and has these fields, as those of this owner: creates it, or changes it, and returns it
    /// as it is then. What the owner had applied before and no longer does is removed. Of an array, all or nothing is owned. A field
    /// that is written otherwise than by applying it has no owner any more.
    ///
    /// # Errors
    ///
    /// [`Conflict`](ClientError::Conflict) if another owner has applied another value to one of the fields, unless the owner
    /// [forces](FieldOwner::force) it: it owns the field alone then. [`Conflict`](ClientError::Conflict) also if the fields have the
    /// `uid` of an object that is not there. Else as [`patch`](Self::patch).
    fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Result<Arc<Value>, ClientError>;

    /// Asks for the deletion of an object, and returns its last state: it has been removed if that has no finalizers.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ClientError::NotFound), [`Conflict`](ClientError::Conflict) if a precondition fails,
    /// [`Transport`](ClientError::Transport).
    fn delete(&self, kind: &Kind, key: &ObjectKey, options: &DeleteOptions) -> Result<Arc<Value>, ClientError>;

    /// Deletes all objects that the query selects, each as [`delete`](Self::delete) does, and returns their last states. Objects
    /// that are gone by then are left out.
    ///
    /// The deletions are not one transaction: after an error, some objects have been deleted.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list) and [`delete`](Self::delete), but for [`NotFound`](ClientError::NotFound).
    fn delete_collection(
        &self,
        kind: &Kind,
        query: &Query,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Value>>, ClientError> {
        let mut deleted = Vec::new();
        for object in self.list(kind, query)?.items {
            deleted.extend(self.delete(kind, &key_of(&object), options).ignore_not_found()?);
        }
        Ok(deleted)
    }

    /// All changes after the version `from` of what the query selects, as they happen. Without `from`, or from version `""` or `"0"`: first
    /// all that exists, each as [`Added`](WatchEvent::Added), and a [`Bookmark`](WatchEvent::Bookmark). A
    /// [limit](Query::limit) of the query has no effect.
    ///
    /// The stream blocks for the next one. It ends when `stop` is cancelled, and after an error.
    ///
    /// # Errors
    ///
    /// Here or in the stream: [`Gone`](ClientError::Gone) if changes after `from` are no longer known,
    /// [`Invalid`](ClientError::Invalid) for a selector that makes no sense, [`Transport`](ClientError::Transport).
    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError>;
}

/// A change of an object.
///
/// # Examples
///
/// ```
/// use homeostat::objects::Patch;
/// use serde_json::json;
///
/// let merge = Patch::Merge(json!({"spec": {"replicas": 3, "paused": null}}));
/// let steps = Patch::Json(json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Patch {
    /// A JSON merge patch ([RFC 7386](https://www.rfc-editor.org/rfc/rfc7386)): fields to be set, and with `null` to be removed.
    Merge(Value),
    /// A JSON patch ([RFC 6902](https://www.rfc-editor.org/rfc/rfc6902)): an array of operations.
    Json(Value),
}

/// What of an object a patch changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PatchTarget {
    /// All but its status.
    #[default]
    Object,
    /// Its status alone.
    Status,
}

/// Who [applies](Client::apply) fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldOwner {
    /// Its name.
    pub name: String,
    /// Whether it takes fields away from other owners.
    pub force: bool,
}

impl FieldOwner {
    /// An owner that does not force.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), force: false }
    }

    /// The same, taking fields away from other owners.
    #[must_use]
    pub fn force(self) -> Self {
        Self { force: true, ..self }
    }
}

/// How an object is deleted; by default whatever version it has, and in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteOptions {
    /// Only if it has this uid.
    pub uid: Option<String>,
    /// Only if it has this version.
    pub resource_version: Option<String>,
    /// What becomes of the objects that belong to it.
    pub propagation: Propagation,
    /// Remove it at once, whatever finalizers it has.
    pub purge: bool,
}

impl DeleteOptions {
    /// Deletes the object only if it has this uid. Otherwise the deletion is a conflict.
    #[must_use]
    pub fn uid(self, uid: impl Into<String>) -> Self {
        Self { uid: Some(uid.into()), ..self }
    }

    /// Deletes the object only if it has this version. Otherwise the deletion is a conflict.
    #[must_use]
    pub fn resource_version(self, version: impl Into<String>) -> Self {
        Self { resource_version: Some(version.into()), ..self }
    }

    /// Sets what happens to the dependents of the object.
    #[must_use]
    pub fn propagation(self, propagation: Propagation) -> Self {
        Self { propagation, ..self }
    }

    /// Removes the object at once, whatever finalizers it has.
    #[must_use]
    pub fn purge(self) -> Self {
        Self { purge: true, ..self }
    }
}

/// What becomes of the objects that belong to a deleted one, and to no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// They are deleted when it is gone.
    #[default]
    Background,
    /// They are deleted first; it stays until those have gone that [block](super::OwnerReference::block_owner_deletion) it.
    Foreground,
    /// They stay, and no longer belong to it.
    Orphan,
}

/// One thing that a watch tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WatchEvent<T> {
    /// It is there, or is selected now.
    Added(T),
    /// It has changed.
    Modified(T),
    /// It is gone, or no longer selected. What it was at the end, with the version of this event.
    Deleted(T),
    /// Everything up to this version has been told.
    Bookmark(String),
}

impl<T> WatchEvent<T> {
    /// The object, if it is about one.
    #[must_use]
    pub fn object(&self) -> Option<&T> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::Bookmark(_) => None,
        }
    }

    /// The same event of what `convert` makes of the object.
    ///
    /// # Errors
    ///
    /// Those of `convert`.
    pub fn try_map<U, E>(self, convert: impl FnOnce(T) -> Result<U, E>) -> Result<WatchEvent<U>, E> {
        Ok(match self {
            Self::Added(object) => WatchEvent::Added(convert(object)?),
            Self::Modified(object) => WatchEvent::Modified(convert(object)?),
            Self::Deleted(object) => WatchEvent::Deleted(convert(object)?),
            Self::Bookmark(version) => WatchEvent::Bookmark(version),
        })
    }
}

/// What a stream tells next.
pub(super) type StreamItem = Result<WatchEvent<Arc<Value>>, ClientError>;

/// What a [watch](Client::watch) tells, one after the other: a blocking iterator.
pub struct ObjectStream(Events);

enum Events {
    Blocking(Box<dyn Iterator<Item = StreamItem> + Send>),
    Polled(Box<dyn PollEvents>),
}

/// Events that can also be asked for without waiting.
pub trait PollEvents: Iterator<Item = Result<WatchEvent<Arc<Value>>, ClientError>> + Send {
    /// As [`next`](Iterator::next), but pending where that one would block.
    fn poll(&mut self) -> Poll<Option<Self::Item>>;
}

impl ObjectStream {
    /// The stream of these events.
    pub fn new(events: impl Iterator<Item = Result<WatchEvent<Arc<Value>>, ClientError>> + Send + 'static) -> Self {
        Self(Events::Blocking(Box::new(events)))
    }

    /// The same of events that can be asked for without waiting: a client whose streams are made so can be watched in a
    /// simulation (feature `testing`). A client around another one has to pass that on.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::objects::{ClientError, ObjectStream, PollEvents, WatchEvent};
    /// use serde_json::Value;
    /// use std::sync::Arc;
    /// use std::task::Poll;
    ///
    /// type StreamItem = Result<WatchEvent<Arc<Value>>, ClientError>;
    ///
    /// /// A stream that ends after so many events.
    /// struct Cut(ObjectStream, usize);
    ///
    /// impl Iterator for Cut {
    ///     type Item = StreamItem;
    ///
    ///     fn next(&mut self) -> Option<StreamItem> {
    ///         self.1 = self.1.checked_sub(1)?;
    ///         self.0.next()
    ///     }
    /// }
    ///
    /// impl PollEvents for Cut {
    ///     fn poll(&mut self) -> Poll<Option<StreamItem>> {
    ///         let Some(left) = self.1.checked_sub(1) else { return Poll::Ready(None) };
    ///         let told = self.0.poll();
    ///         self.1 = if told.is_ready() { left } else { self.1 };
    ///         told
    ///     }
    /// }
    ///
    /// fn cut(stream: ObjectStream, after: usize) -> ObjectStream {
    ///     if stream.is_polled() { ObjectStream::polled(Cut(stream, after)) } else { ObjectStream::new(stream.take(after)) }
    /// }
    /// # let _ = cut;
    /// ```
    pub fn polled(events: impl PollEvents + 'static) -> Self {
        Self(Events::Polled(Box::new(events)))
    }

    /// Whether it can be asked without waiting.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        matches!(self.0, Events::Polled(_))
    }

    /// The next event, or the end; pending if there is none yet. A stream that is [not polled](Self::is_polled) blocks instead.
    pub fn poll(&mut self) -> Poll<Option<Result<WatchEvent<Arc<Value>>, ClientError>>> {
        match &mut self.0 {
            Events::Blocking(events) => Poll::Ready(events.next()),
            Events::Polled(events) => events.poll(),
        }
    }
}

impl Iterator for ObjectStream {
    type Item = Result<WatchEvent<Arc<Value>>, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Events::Blocking(events) => events.next(),
            Events::Polled(events) => events.next(),
        }
    }
}

impl fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStream").finish_non_exhaustive()
    }
}
