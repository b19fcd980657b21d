//! The interface of every back end: objects as JSON, identified by kind and key.

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
use homeostat::base::CancellationToken;

/// Stores objects, as an API server does. [`Api`](super::Api) is the typed interface to a client.
///
/// Writers pass objects as JSON. Readers get [shared objects](SharedObject), which are not copied.
///
/// # Rules for every client
///
/// - Each change of an object gives it a new `resourceVersion`. A write that changes nothing keeps the version.
/// - The client sets `uid`, `resourceVersion`, `generation`, `creationTimestamp` and `deletionTimestamp`, and ignores
///   values from a writer. There are two exceptions: another version or uid than the object's is a conflict, and an
///   update with a `deletionTimestamp` for an object that is not being deleted is
///   [invalid](crate::ClientErrorKind::Invalid).
/// - `generation` starts at 1. It rises with each change outside `metadata` and `status`, and when a deletion begins.
/// - The `status` is written only by [`update_status`](Self::update_status), a patch of [`PatchTarget::Status`] and an
///   apply by an owner of the [status](FieldOwner::status). These change nothing else. A new object has no status.
/// - Deleting an object with finalizers does not remove it, but sets `deletionTimestamp` and
///   `deletionGracePeriodSeconds: 0`. From then on no finalizer can be added, and the update that removes the last
///   finalizer removes the object.
/// - Deleting an object without finalizers removes it. Its last state has no `deletionTimestamp`.
/// - If the client [cascades](Propagation), an object is deleted in the background once all its owners are gone. Owners
///   are objects of the same client, in the same namespace or cluster-wide. An owner of a kind that the client does not
///   know counts as existing.
/// - Empty and unknown fields of `metadata` (for example `annotations: {}`) are dropped.
/// - A watch delivers each change once, in the order of the versions. If versions are decimal numbers, later changes of
///   a kind have greater ones.
///
/// The conformance suite in [`homeostat-testing`](https://docs.rs/homeostat-testing) checks these rules.
///
/// # Your own client
///
/// To wrap another client, implement [`ClientLayer`](super::ClientLayer). To keep objects in a store of your own,
/// implement this trait with the [kit for back ends](super::store). No method has a default, so that none is forgotten.
#[diagnostic::on_unimplemented(note = "call `build` on the builder of a client")]
pub trait Client: Send + Sync {
    /// Returns the object with this key.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::ClientErrorKind::NotFound), [`Transport`](crate::ClientErrorKind::Transport).
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<SharedObject, ClientError>;

    /// Lists the objects that the query selects, as they were at one version, in the order of their keys.
    ///
    /// If the query has a [limit](Query::limit) and more objects remain, the list has a [continue
    /// token](ObjectList::continue_token). The same query with that token lists the next page. All pages show the
    /// objects as they were at the version of the first page.
    ///
    /// # Errors
    ///
    /// - [`Invalid`](crate::ClientErrorKind::Invalid) if the query has an invalid selector or token.
    /// - [`Gone`](crate::ClientErrorKind::Gone) if the version of the token is no longer known.
    /// - [`Transport`](crate::ClientErrorKind::Transport).
    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError>;

    /// Lists the objects that the client can read. The second value has one
    /// [`Invalid`](crate::ClientErrorKind::Invalid) error for each other object, which names the object.
    ///
    /// Some clients cannot read every object that others have stored, for example if its arrays are nested too deeply.
    /// Then [`list`](Self::list) fails, and an [`ObjectWatch`](super::ObjectWatch) calls this method instead.
    ///
    /// If `stop` is cancelled, a client of a server returns early with an error.
    ///
    /// # Errors
    ///
    /// The same as for [`list`](Self::list).
    fn list_readable(
        &self,
        kind: &Kind,
        query: &Query,
        stop: &CancellationToken,
    ) -> Result<(ObjectList<SharedObject>, Vec<ClientError>), ClientError>;

    /// Creates an object, and returns it as stored.
    ///
    /// An object without a name gets one of at most 63 characters. It begins with the first 58 characters of
    /// `generateName`.
    ///
    /// # Errors
    ///
    /// - [`AlreadyExists`](crate::ClientErrorKind::AlreadyExists).
    /// - [`Invalid`](crate::ClientErrorKind::Invalid), for example if the object has a `resourceVersion`.
    /// - [`Transport`](crate::ClientErrorKind::Transport).
    fn create(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError>;

    /// Replaces an object, but not its `status`, and returns it as stored. If the update removes the object, returns
    /// its last state; the watch event may have a later version.
    ///
    /// # Errors
    ///
    /// - [`NotFound`](crate::ClientErrorKind::NotFound).
    /// - [`Conflict`](crate::ClientErrorKind::Conflict) if the stored object has another `resourceVersion` or `uid`.
    /// - [`Invalid`](crate::ClientErrorKind::Invalid), for example if `object` has no `resourceVersion`.
    /// - [`Transport`](crate::ClientErrorKind::Transport).
    fn update(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError>;

    /// Replaces only the `status` of an object, and returns the object as stored.
    ///
    /// # Errors
    ///
    /// The same as for [`update`](Self::update).
    fn update_status(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError>;

    /// Patches an object or its status, and returns it as stored. The object may have any version.
    ///
    /// # Errors
    ///
    /// The same as for [`update`](Self::update). If the patch sets a `resourceVersion` and the object has another, the
    /// error is a [`Conflict`](crate::ClientErrorKind::Conflict). If a test of a JSON patch fails or a removed path
    /// does not exist, the patch is [`Invalid`](crate::ClientErrorKind::Invalid).
    fn patch(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        patch: &Patch,
        target: PatchTarget,
    ) -> Result<SharedObject, ClientError>;

    /// Creates or changes an object so that it has these fields, records their owner, and returns the object as stored.
    ///
    /// An owner of the [status](FieldOwner::status) changes only the status of an object, and creates no object. It is
    /// distinct from the owner of the same name that applies the rest of the object (the two are one owner in
    /// Kubernetes before version 1.22).
    ///
    /// Fields that the owner applied before and now omits are removed. Each finalizer and each owner reference has its
    /// own owners; other arrays are owned as a whole or by the rules of the kind's schema. In some clients, other
    /// writers also own the fields that they write, so a controller should [force](FieldOwner::force).
    ///
    /// # Errors
    ///
    /// The same as for [`patch`](Self::patch), and [`Conflict`](crate::ClientErrorKind::Conflict) in two more cases:
    ///
    /// - Another owner has applied another value to one of the fields. With [`force`](FieldOwner::force) there is no
    ///   conflict: this owner takes over the field. In some clients, other writers are such owners too.
    /// - `object` has the `uid` of an object that does not exist.
    fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Result<SharedObject, ClientError>;

    /// Deletes an object. Returns whether it is gone, or still kept by finalizers or its grace period.
    ///
    /// # Errors
    ///
    /// - [`NotFound`](crate::ClientErrorKind::NotFound).
    /// - [`Conflict`](crate::ClientErrorKind::Conflict) if a precondition of the options fails.
    /// - [`Transport`](crate::ClientErrorKind::Transport).
    fn delete(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deletion<SharedObject>, ClientError>;

    /// Deletes all objects that the query selects, each with [`delete`](Self::delete), and returns the outcomes. Skips
    /// objects that are already gone.
    ///
    /// The deletions are not one transaction: after an error, some objects have been deleted.
    ///
    /// # Errors
    ///
    /// The errors of [`list`](Self::list) and [`delete`](Self::delete), without
    /// [`NotFound`](crate::ClientErrorKind::NotFound).
    fn delete_collection(
        &self,
        kind: &Kind,
        query: &Query,
        options: &DeleteOptions,
    ) -> Result<Vec<Deletion<SharedObject>>, ClientError>;

    /// Streams the changes after version `from`, for the objects that the query selects.
    ///
    /// Without `from`, or from version `""` or `"0"`, the stream begins with all objects that exist, each as
    /// [`Added`](WatchEvent::Added). A [`Bookmark`](WatchEvent::Bookmark) follows, the end marker. It is the first
    /// bookmark of the stream. A [limit](Query::limit) of the query has no effect.
    ///
    /// The stream blocks until the next change. It ends after an error, and when `stop` is cancelled, which wakes it.
    /// An [`Invalid`](crate::ClientErrorKind::Invalid) error that names an object does not end it: the client cannot
    /// read that object.
    ///
    /// If a stream ignores the cancellation, its [`ObjectWatch`](super::ObjectWatch) never ends: the watch's thread
    /// waits for the stream.
    ///
    /// # Errors
    ///
    /// This call or the stream can return these errors:
    ///
    /// - [`Gone`](crate::ClientErrorKind::Gone) if changes after `from` are no longer known.
    /// - [`Invalid`](crate::ClientErrorKind::Invalid) if the query has an invalid selector.
    /// - [`Transport`](crate::ClientErrorKind::Transport).
    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError>;

    /// Streams all objects that the query selects, then their changes. Fails if the server cannot begin a stream with
    /// the objects.
    ///
    /// This is [`watch`](Self::watch) without a version, with one difference: if the server cannot stream the objects,
    /// `watch` lists the newest ones, and this call fails. An [`ObjectWatch`](super::ObjectWatch) calls it, because it
    /// can list the objects at less cost for the server: in pages, and from a cache.
    ///
    /// # Errors
    ///
    /// The same as for [`watch`](Self::watch), and [`Invalid`](crate::ClientErrorKind::Invalid) if the server cannot
    /// stream the objects.
    fn stream_list(&self, kind: &Kind, query: &Query, stop: &CancellationToken) -> Result<ObjectStream, ClientError>;

    /// Returns a client of the same objects with its own connections. Each of its calls ends within `timeout`.
    ///
    /// Returns `None` if the client never waits for a server. A [`LeaseElector`](super::LeaseElector) calls this.
    fn with_timeout(&self, timeout: Duration) -> Option<Arc<dyn Client>>;

    /// Returns a number that identifies the store of the objects. Clients that return the same number share one store.
    ///
    /// A watch of one client then shows the writes of the others.
    fn store_id(&self) -> usize;

    /// Returns the abilities of the client beyond the rules for every client.
    fn capabilities(&self) -> Capabilities;
}

/// A list, and an error for each object that a client cannot read.
pub type ReadableList = (ObjectList<SharedObject>, Vec<ClientError>);

/// Deletes one by one the objects that a query selects. Skips those that are already gone.
///
/// # Errors
///
/// Returns the errors of the list and of the deletions. After an error, deletes no more.
pub fn delete_each<C: Client + ?Sized>(
    client: &C,
    kind: &Kind,
    query: &Query,
    options: &DeleteOptions,
) -> Result<Vec<Deletion<SharedObject>>, ClientError> {
    let delete = |object: SharedObject| client.delete(kind, &object.key(), options).ignore_not_found().transpose();
    client.list(kind, query)?.items.into_iter().filter_map(delete).collect()
}

/// A change to an object. Every client must handle each kind of change.
///
/// # Examples
///
/// ```
/// use homeostat_objects::Patch;
/// use serde_json::json;
///
/// let merge = Patch::Merge(json!({"spec": {"replicas": 3, "paused": null}}));
/// let steps = Patch::Json(json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// A JSON merge patch ([RFC 7386](https://www.rfc-editor.org/rfc/rfc7386)): sets fields, and removes fields with
    /// the value `null`.
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
    /// Whether it takes over fields from other owners.
    pub force: bool,
    /// The part of the object that it applies.
    pub target: PatchTarget,
    /// The complete state after the apply, if it is already [computed](Self::admitted).
    pub admitted: Option<Value>,
}

impl FieldOwner {
    /// Returns an owner that takes over no fields from other owners.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), force: false, target: PatchTarget::Object, admitted: None }
    }

    /// Makes the owner take over fields from other owners.
    #[must_use]
    pub fn force(self) -> Self {
        Self { force: true, ..self }
    }

    /// Makes the apply store this complete state of the object. A server computes it from the applied fields, and its
    /// hooks and defaults change it further. Fields that only these set get no owner. Other owners lose the fields that
    /// these change.
    ///
    /// The applied fields must have the same values as in `state`. The state has the `resourceVersion` of the object
    /// that it was computed from, or none if there was no object. If the object has changed since, the apply is a
    /// [`Conflict`](crate::ClientErrorKind::Conflict), or [`AlreadyExists`](crate::ClientErrorKind::AlreadyExists). A
    /// client of a server that computes the state itself makes two writes: one of the state, and one of the applied
    /// fields.
    #[must_use]
    pub fn admitted(self, state: Value) -> Self {
        Self { admitted: Some(state), ..self }
    }

    /// Makes the owner apply only the status of existing objects.
    #[must_use]
    pub fn status(self) -> Self {
        Self { target: PatchTarget::Status, ..self }
    }
}
