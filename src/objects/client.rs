//! The interface of every back end: objects as JSON, by kind and key.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::capabilities::Capabilities;
use super::deletion::Deletion;
pub use super::deletion::{DeleteOptions, Propagation};
use super::error::{ClientError, Ignore};
use super::key::ObjectKey;
use super::kind::Kind;
use super::query::{ObjectList, Query};
use super::shared::SharedObject;
pub use super::stream::{ObjectStream, PollEvents, WatchEvent};
use crate::base::cancel::CancellationToken;

/// Stores objects, as an API server does. [`Api`](super::Api) is the typed interface to a client.
///
/// Writers give objects as JSON. Readers get [shared objects](SharedObject), which are not copied.
///
/// # Rules for every client
///
/// - Each change of an object gives it a new `resourceVersion`. A write that changes nothing keeps the version.
/// - The client sets `uid`, `resourceVersion`, `generation`, `creationTimestamp` and `deletionTimestamp`. Values from a writer
///   are ignored, except that another version or uid than the object's is a conflict, and that an update with a
///   `deletionTimestamp` for an object that is not being deleted is [invalid](ClientError::Invalid).
/// - `generation` starts at 1. It rises with each change outside `metadata` and `status`, and when a deletion begins.
/// - Only [`update_status`](Self::update_status), a patch of [`PatchTarget::Status`] and an apply by an owner of the
///   [status](FieldOwner::status) write the `status`, and they change nothing else. A new object has no status.
/// - Deleting an object with finalizers does not remove it, but sets `deletionTimestamp` and `deletionGracePeriodSeconds: 0`.
///   Then no finalizer can be added, and the update that removes the last finalizer removes the object.
/// - Deleting an object without finalizers removes it. Its last state has no `deletionTimestamp`.
/// - If the client [cascades](Propagation), an object is deleted in the background once all its owners are gone. Owners are
///   objects of the same client, in the same namespace or cluster-wide. An owner of a kind that the client does not know counts as
///   existing.
/// - Empty and unknown fields of `metadata` (`annotations: {}`) are not kept.
/// - A watch delivers each change once, in the order of the versions. Later changes of a kind have greater versions, if these are
///   decimal numbers.
///
/// The conformance suite in [`testing`](crate::testing) checks these rules.
pub trait Client: Send + Sync {
    /// Returns the object of this key.
    ///
    /// # Errors
    ///
    /// [`NotFound`](ClientError::NotFound), [`Transport`](ClientError::Transport).
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<SharedObject, ClientError>;

    /// Lists the objects that the query selects, in the order of their keys, as they were at one version.
    ///
    /// If the query has a [limit](Query::limit) and more objects are left, the list has a [continue
    /// token](ObjectList::continue_token). The same query with that token lists the next page. All pages show the objects as they
    /// were at the version of the first page.
    ///
    /// # Errors
    ///
    /// - [`Invalid`](ClientError::Invalid) if the query has an invalid selector or token.
    /// - [`Gone`](ClientError::Gone) if the version of the token is no longer known.
    /// - [`Transport`](ClientError::Transport).
    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError>;

    /// Lists the objects that the client can read. The second value has an [`Invalid`](ClientError::Invalid) error for each other
    /// object, which names the object.
    ///
    /// Some clients cannot read every object that others have stored, for example if its arrays are nested too deeply. Then
    /// [`list`](Self::list) fails, and an [`ObjectWatch`](super::ObjectWatch) calls this instead.
    ///
    /// If `stop` is cancelled, a client of a server ends this early with an error.
    ///
    /// Default: calls `list`, for a client that can read all objects. A client that wraps another one should pass this call on.
    ///
    /// # Errors
    ///
    /// The same as for [`list`](Self::list).
    fn list_readable(
        &self,
        kind: &Kind,
        query: &Query,
        _stop: &CancellationToken,
    ) -> Result<(ObjectList<SharedObject>, Vec<ClientError>), ClientError> {
        self.list(kind, query).map(|list| (list, Vec::new()))
    }

    /// Creates an object, and returns it as stored.
    ///
    /// An object without a name gets one of at most 63 characters. It begins with the first 58 characters of `generateName`.
    ///
    /// # Errors
    ///
    /// - [`AlreadyExists`](ClientError::AlreadyExists).
    /// - [`Invalid`](ClientError::Invalid), also if the object has a `resourceVersion`.
    /// - [`Transport`](ClientError::Transport).
    fn create(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError>;

    /// Replaces an object except for its `status`, and returns it as stored. If the update removes the object, returns its last
    /// state; the version of the watch event may be later.
    ///
    /// # Errors
    ///
    /// - [`NotFound`](ClientError::NotFound).
    /// - [`Conflict`](ClientError::Conflict) if the stored object has another `resourceVersion` or `uid`.
    /// - [`Invalid`](ClientError::Invalid), also if `object` has no `resourceVersion`.
    /// - [`Transport`](ClientError::Transport).
    fn update(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError>;

    /// Replaces the `status` of an object only, and returns the object as stored.
    ///
    /// # Errors
    ///
    /// The same as for [`update`](Self::update).
    fn update_status(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError>;

    /// Patches an object or its status, and returns it as stored. The version of the object does not matter.
    ///
    /// # Errors
    ///
    /// The same as for [`update`](Self::update). If the patch sets a `resourceVersion` and the object has another, that is a
    /// [`Conflict`](ClientError::Conflict). If a test of a JSON patch fails or a removed path does not exist, the patch is
    /// [`Invalid`](ClientError::Invalid).
    fn patch(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        patch: &Patch,
        target: PatchTarget,
    ) -> Result<SharedObject, ClientError>;

    /// Creates or changes an object so that it has these fields, records their owner, and returns the object as stored.
    ///
    /// An owner of the [status](FieldOwner::status) changes only the status of an object, and creates no object. It is another owner
    /// than one of the same name that applies objects, except for Kubernetes before version 1.22.
    ///
    /// Fields that the owner applied before and leaves out now are removed. Finalizers and owner references are owned one by one,
    /// other arrays as a whole or as the schema of the kind says. Whether other writers own the fields that they write depends on
    /// the client, so a controller should [force](FieldOwner::force).
    ///
    /// # Errors
    ///
    /// The same as for [`patch`](Self::patch), and [`Conflict`](ClientError::Conflict) in two more cases:
    ///
    /// - Another owner has applied another value to one of the fields. With [`force`](FieldOwner::force) there is no conflict:
    ///   this owner takes the field over. In some clients, other writers are such owners too.
    /// - `object` has the `uid` of an object that does not exist.
    fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Result<SharedObject, ClientError>;

    /// Deletes an object. Returns whether it is gone, or still held by finalizers or its grace period.
    ///
    /// # Errors
    ///
    /// - [`NotFound`](ClientError::NotFound).
    /// - [`Conflict`](ClientError::Conflict) if a precondition of the options fails.
    /// - [`Transport`](ClientError::Transport).
    fn delete(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deletion<SharedObject>, ClientError>;

    /// Deletes all objects that the query selects, each with [`delete`](Self::delete), and returns the outcomes. Objects that are
    /// gone already are left out.
    ///
    /// The deletions are not one transaction: after an error, some objects have been deleted.
    ///
    /// # Errors
    ///
    /// The same as for [`list`](Self::list) and [`delete`](Self::delete), except for [`NotFound`](ClientError::NotFound).
    fn delete_collection(
        &self,
        kind: &Kind,
        query: &Query,
        options: &DeleteOptions,
    ) -> Result<Vec<Deletion<SharedObject>>, ClientError> {
        delete_each(self, kind, query, options)
    }

    /// Streams the changes after version `from` of the objects that the query selects.
    ///
    /// Without `from`, or from version `""` or `"0"`, the stream begins with all objects that exist, each as
    /// [`Added`](WatchEvent::Added), and a [`Bookmark`](WatchEvent::Bookmark): the end marker. No bookmark comes before it. A
    /// [limit](Query::limit) of the query has no effect.
    ///
    /// The stream blocks until the next change. It ends after an error and when `stop` is cancelled, which wakes it. An
    /// [`Invalid`](ClientError::Invalid) error that names an object does not end it: the client cannot read that object.
    ///
    /// An [`ObjectWatch`](super::ObjectWatch) whose stream ignores the cancellation never ends: its thread waits for
    /// the stream.
    ///
    /// # Errors
    ///
    /// These errors can come from this call or from the stream:
    ///
    /// - [`Gone`](ClientError::Gone) if changes after `from` are no longer known.
    /// - [`Invalid`](ClientError::Invalid) if the query has an invalid selector.
    /// - [`Transport`](ClientError::Transport).
    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError>;

    /// Streams all objects that the query selects, then their changes, if the server can begin a stream with the objects.
    ///
    /// Does the same as [`watch`](Self::watch) without a version. The difference: if the server cannot stream the objects, `watch`
    /// lists the newest ones, and this fails. An [`ObjectWatch`](super::ObjectWatch) calls this, because it can list
    /// them at less cost for the server: in pages, and from a cache.
    ///
    /// Default: calls `watch`. A client that wraps another one should pass this call on.
    ///
    /// # Errors
    ///
    /// The same as for [`watch`](Self::watch), and [`Invalid`](ClientError::Invalid) if the server cannot stream the objects.
    fn stream_list(&self, kind: &Kind, query: &Query, stop: &CancellationToken) -> Result<ObjectStream, ClientError> {
        self.watch(kind, query, None, stop)
    }

    /// Returns a client of the same objects with separate connections. Its calls end within `timeout`.
    ///
    /// Default: `None`, for a client that waits for no server. A [`LeaseElector`](super::LeaseElector) calls this.
    fn with_timeout(&self, _timeout: Duration) -> Option<Arc<dyn Client>> {
        None
    }

    /// Returns a number for the store of the objects. Clients of one store that return the same number count as one.
    ///
    /// A watch of one of them shows the writes of the others. Default: a number for this client only. A client that wraps another one
    /// must return the number of that client.
    fn store_id(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }

    /// Returns the abilities of the client beyond the rules for every client. Default: [all](Capabilities::all).
    ///
    /// A client that wraps another one must return the capabilities of that client.
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }
}

/// A list, and an error for each object that a client cannot read.
pub(crate) type ReadableList = (ObjectList<SharedObject>, Vec<ClientError>);

/// Deletes the objects that a query selects one by one, except those that are gone already.
pub(crate) fn delete_each<C: Client + ?Sized>(
    client: &C,
    kind: &Kind,
    query: &Query,
    options: &DeleteOptions,
) -> Result<Vec<Deletion<SharedObject>>, ClientError> {
    let delete = |object: SharedObject| client.delete(kind, &object.key(), options).ignore_not_found().transpose();
    client.list(kind, query)?.items.into_iter().filter_map(delete).collect()
}

/// A change to an object.
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
    /// A JSON merge patch ([RFC 7386](https://www.rfc-editor.org/rfc/rfc7386)): sets fields, and removes those that are `null`.
    Merge(Value),
    /// A JSON patch ([RFC 6902](https://www.rfc-editor.org/rfc/rfc6902)): an array of operations.
    Json(Value),
}

/// The part of an object that a patch or an apply changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PatchTarget {
    /// Everything except the status.
    #[default]
    Object,
    /// Only the status.
    Status,
}

/// The owner of the fields that it [applies](Client::apply).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldOwner {
    /// The name of the owner.
    pub name: String,
    /// Whether it takes fields over from other owners.
    pub force: bool,
    /// The part of the object that it applies.
    pub target: PatchTarget,
}

impl FieldOwner {
    /// Returns an owner that does not take fields over from others.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), force: false, target: PatchTarget::Object }
    }

    /// Makes the owner take fields over from other owners.
    #[must_use]
    pub fn force(self) -> Self {
        Self { force: true, ..self }
    }

    /// Makes the owner apply only the status of objects that exist.
    #[must_use]
    pub fn status(self) -> Self {
        Self { target: PatchTarget::Status, ..self }
    }
}
