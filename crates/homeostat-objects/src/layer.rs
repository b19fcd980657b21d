//! Clients around other clients.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::capabilities::Capabilities;
use super::client::{Client, FieldOwner, Patch, PatchTarget, ReadableList};
use super::deletion::{DeleteOptions, Deletion};
use super::error::{ClientError, ObjectRef};
use super::json::{key_of, meta_string};
use super::key::ObjectKey;
use super::kind::Kind;
use super::query::{ObjectList, Query};
use super::shared::SharedObject;
use super::stream::ObjectStream;
use homeostat::base::CancellationToken;

/// A [`Client`] around another client. All calls pass through one method, [`call`](Self::call).
///
/// A layer observes, refuses, changes or answers calls, or changes their answers. Implement this trait instead of
/// [`Client`]: then no call can bypass the layer, and the layer has the [store](Client::store_id) and the
/// [capabilities](Client::capabilities) of its inner client.
///
/// # Examples
///
/// A client that only reads:
///
/// ```
/// use homeostat_objects::{Client, ClientAnswer, ClientCall, ClientError, ClientLayer, Kind, MemoryClient, Query};
/// use std::sync::Arc;
///
/// struct ReadOnly(Arc<dyn Client>);
///
/// impl ClientLayer for ReadOnly {
///     fn inner(&self) -> &dyn Client {
///         &*self.0
///     }
///
///     fn around(&self, inner: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
///         Some(Arc::new(Self(inner)))
///     }
///
///     fn call(&self, kind: &Kind, call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
///         if call.verb().is_write() {
///             return Err(ClientError::forbidden(call.object(kind), "this client only reads"));
///         }
///         call.send(self.inner(), kind)
///     }
/// }
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let client: Arc<dyn Client> = Arc::new(ReadOnly(Arc::new(MemoryClient::new())));
/// assert!(client.list(&CONFIG_MAP, &Query::all())?.items.is_empty());
/// let error = client.delete_collection(&CONFIG_MAP, &Query::all(), &Default::default()).unwrap_err();
/// assert!(error.to_string().contains("this client only reads"));
/// # Ok::<_, ClientError>(())
/// ```
pub trait ClientLayer: Send + Sync {
    /// Returns the inner client.
    fn inner(&self) -> &dyn Client;

    /// Makes a call. Usually sends it to the inner client.
    ///
    /// # Errors
    ///
    /// The errors of the called [`Client`] method.
    fn call(&self, kind: &Kind, call: ClientCall<'_>) -> Result<ClientAnswer, ClientError>;

    /// Returns this layer around another client of the same objects. [`Client::with_timeout`] calls this with the inner
    /// client's answer.
    ///
    /// `None` means that the layer has no client with a time limit. This is right if the inner client never waits for a
    /// server.
    fn around(&self, inner: Arc<dyn Client>) -> Option<Arc<dyn Client>>;

    /// Returns the [capabilities](Client::capabilities) of this client. Default: the inner client's.
    fn declared_capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }
}

/// A method of a [`Client`]. Its name in lower case is its [`as_str`](Self::as_str).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// [`Client::get`].
    Get,
    /// [`Client::list`] and [`Client::list_readable`].
    List,
    /// [`Client::create`].
    Create,
    /// [`Client::update`].
    Update,
    /// [`Client::update_status`].
    UpdateStatus,
    /// [`Client::patch`] of an object.
    Patch,
    /// [`Client::patch`] of a status.
    PatchStatus,
    /// [`Client::apply`] of an object.
    Apply,
    /// [`Client::apply`] by an owner of the status.
    ApplyStatus,
    /// [`Client::delete`].
    Delete,
    /// [`Client::delete_collection`].
    DeleteCollection,
    /// [`Client::watch`] and [`Client::stream_list`].
    Watch,
}

impl Verb {
    /// Returns whether the method changes objects.
    #[must_use]
    pub const fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// Returns the name, for example `update_status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::UpdateStatus => "update_status",
            Self::Patch => "patch",
            Self::PatchStatus => "patch_status",
            Self::Apply => "apply",
            Self::ApplyStatus => "apply_status",
            Self::Delete => "delete",
            Self::DeleteCollection => "delete_collection",
            Self::Watch => "watch",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A call of a [`Client`] method, with its arguments except the kind.
///
/// A layer may change the arguments before it [sends](Self::send) the call. A change copies borrowed arguments.
#[derive(Clone, Debug)]
pub enum ClientCall<'a> {
    /// [`Client::get`]. The answer is an [object](ClientAnswer::Object).
    Get(&'a ObjectKey),
    /// A list. The answer is a [list](ClientAnswer::List).
    List {
        /// The objects to list.
        query: Cow<'a, Query>,
        /// The `stop` of [`Client::list_readable`]; `None` for [`Client::list`].
        stop: Option<&'a CancellationToken>,
    },
    /// [`Client::create`]. The answer is an [object](ClientAnswer::Object).
    Create(Value),
    /// [`Client::update`] or [`Client::update_status`]. The answer is an [object](ClientAnswer::Object).
    Update(Value, PatchTarget),
    /// [`Client::patch`]. The answer is an [object](ClientAnswer::Object).
    Patch(&'a ObjectKey, Cow<'a, Patch>, PatchTarget),
    /// [`Client::apply`]. The answer is an [object](ClientAnswer::Object).
    Apply(Value, &'a FieldOwner),
    /// [`Client::delete`]. The answer is a [deletion](ClientAnswer::Deletion).
    Delete(&'a ObjectKey, &'a DeleteOptions),
    /// [`Client::delete_collection`]. The answer is a list of [deletions](ClientAnswer::Deletions).
    DeleteCollection(Cow<'a, Query>, &'a DeleteOptions),
    /// A watch. The answer is a [stream](ClientAnswer::Stream).
    Watch {
        /// The objects to watch.
        query: Cow<'a, Query>,
        /// The version before the first change.
        from: Option<&'a str>,
        /// Whether the call is [`Client::stream_list`], which fails if the server cannot stream the objects.
        is_stream_list: bool,
        /// Ends the stream.
        stop: &'a CancellationToken,
    },
}

impl ClientCall<'_> {
    /// Returns the method.
    #[must_use]
    pub const fn verb(&self) -> Verb {
        match self {
            Self::Get(_) => Verb::Get,
            Self::List { .. } => Verb::List,
            Self::Create(_) => Verb::Create,
            Self::Update(_, PatchTarget::Object) => Verb::Update,
            Self::Update(_, PatchTarget::Status) => Verb::UpdateStatus,
            Self::Patch(_, _, PatchTarget::Object) => Verb::Patch,
            Self::Patch(_, _, PatchTarget::Status) => Verb::PatchStatus,
            Self::Apply(_, FieldOwner { target: PatchTarget::Object, .. }) => Verb::Apply,
            Self::Apply(_, FieldOwner { target: PatchTarget::Status, .. }) => Verb::ApplyStatus,
            Self::Delete(..) => Verb::Delete,
            Self::DeleteCollection(..) => Verb::DeleteCollection,
            Self::Watch { .. } => Verb::Watch,
        }
    }

    /// Returns the object that the call concerns. The name is empty in calls with a query. If the client generates a
    /// name from `web-`, the name is `web-*`.
    #[must_use]
    pub fn object(&self, kind: &Kind) -> ObjectRef {
        match self {
            Self::Get(key) | Self::Patch(key, ..) | Self::Delete(key, _) => ObjectRef::new(kind, key),
            Self::Create(sent) | Self::Update(sent, _) | Self::Apply(sent, _) => {
                let (key, start) = (key_of(sent), meta_string(sent, "generateName"));
                if key.name().is_empty() && !start.is_empty() {
                    ObjectRef::new(kind, &ObjectKey::new(key.namespace(), &format!("{start}*")))
                } else {
                    ObjectRef::new(kind, &key)
                }
            }
            Self::List { query, .. } | Self::DeleteCollection(query, _) | Self::Watch { query, .. } => {
                ObjectRef::new(kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), ""))
            }
        }
    }

    /// Returns the query of a list, a watch or a deletion of many objects.
    #[must_use]
    pub fn query(&self) -> Option<&Query> {
        match self {
            Self::List { query, .. } | Self::DeleteCollection(query, _) | Self::Watch { query, .. } => Some(query),
            _ => None,
        }
    }

    /// Returns the [query](Self::query), for changes.
    #[must_use]
    pub fn query_mut(&mut self) -> Option<&mut Query> {
        match self {
            Self::List { query, .. } | Self::DeleteCollection(query, _) | Self::Watch { query, .. } => {
                Some(query.to_mut())
            }
            _ => None,
        }
    }

    /// Returns the object, the fields or the patch that the call sends, for changes.
    #[must_use]
    pub fn sent_mut(&mut self) -> Option<&mut Value> {
        match self {
            Self::Create(sent) | Self::Update(sent, _) | Self::Apply(sent, _) => Some(sent),
            Self::Patch(_, patch, _) => match patch.to_mut() {
                Patch::Merge(sent) | Patch::Json(sent) => Some(sent),
            },
            _ => None,
        }
    }

    /// Makes the call with a client.
    ///
    /// # Errors
    ///
    /// The errors of the client.
    pub fn send(self, client: &dyn Client, kind: &Kind) -> Result<ClientAnswer, ClientError> {
        match self {
            Self::Get(key) => client.get(kind, key).map(ClientAnswer::Object),
            Self::List { query, stop: None } => {
                client.list(kind, &query).map(|list| ClientAnswer::List((list, Vec::new())))
            }
            Self::List { query, stop: Some(stop) } => client.list_readable(kind, &query, stop).map(ClientAnswer::List),
            Self::Create(object) => client.create(kind, object).map(ClientAnswer::Object),
            Self::Update(object, PatchTarget::Object) => client.update(kind, object).map(ClientAnswer::Object),
            Self::Update(object, PatchTarget::Status) => client.update_status(kind, object).map(ClientAnswer::Object),
            Self::Patch(key, patch, target) => client.patch(kind, key, &patch, target).map(ClientAnswer::Object),
            Self::Apply(object, owner) => client.apply(kind, object, owner).map(ClientAnswer::Object),
            Self::Delete(key, options) => client.delete(kind, key, options).map(ClientAnswer::Deletion),
            Self::DeleteCollection(query, options) => {
                client.delete_collection(kind, &query, options).map(ClientAnswer::Deletions)
            }
            Self::Watch { query, is_stream_list: true, stop, .. } => {
                client.stream_list(kind, &query, stop).map(ClientAnswer::Stream)
            }
            Self::Watch { query, from, stop, .. } => client.watch(kind, &query, from, stop).map(ClientAnswer::Stream),
        }
    }
}

/// The answer to a [`ClientCall`].
#[derive(Debug)]
pub enum ClientAnswer {
    /// An object.
    Object(SharedObject),
    /// A list, and an error for each object that the client cannot read.
    List(ReadableList),
    /// The outcome of a deletion.
    Deletion(Deletion<SharedObject>),
    /// The outcomes of the deletions of many objects.
    Deletions(Vec<Deletion<SharedObject>>),
    /// The events of a watch.
    Stream(ObjectStream),
}

/// Passes a call to a layer, and returns the content of the answer, which must be of the named variant.
macro_rules! pass {
    ($layer:ident, $kind:ident, $call:expr, $answer:ident) => {{
        let call = $call;
        let verb = call.verb();
        match $layer.call($kind, call)? {
            ClientAnswer::$answer(answer) => Ok(answer),
            _ => {
                let object = ObjectRef::new($kind, &ObjectKey::new("", ""));
                Err(ClientError::transport(object, format!("a client layer gives {verb} the answer of another call")))
            }
        }
    }};
}

impl<L: ClientLayer> Client for L {
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<SharedObject, ClientError> {
        pass!(self, kind, ClientCall::Get(key), Object)
    }

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        let (list, unreadable) = pass!(self, kind, ClientCall::List { query: Cow::Borrowed(query), stop: None }, List)?;
        unreadable.into_iter().next().map_or(Ok(list), Err)
    }

    fn list_readable(&self, kind: &Kind, query: &Query, stop: &CancellationToken) -> Result<ReadableList, ClientError> {
        pass!(self, kind, ClientCall::List { query: Cow::Borrowed(query), stop: Some(stop) }, List)
    }

    fn create(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        pass!(self, kind, ClientCall::Create(object), Object)
    }

    fn update(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        pass!(self, kind, ClientCall::Update(object, PatchTarget::Object), Object)
    }

    fn update_status(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        pass!(self, kind, ClientCall::Update(object, PatchTarget::Status), Object)
    }

    fn patch(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        patch: &Patch,
        target: PatchTarget,
    ) -> Result<SharedObject, ClientError> {
        pass!(self, kind, ClientCall::Patch(key, Cow::Borrowed(patch), target), Object)
    }

    fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Result<SharedObject, ClientError> {
        pass!(self, kind, ClientCall::Apply(object, owner), Object)
    }

    fn delete(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deletion<SharedObject>, ClientError> {
        pass!(self, kind, ClientCall::Delete(key, options), Deletion)
    }

    fn delete_collection(
        &self,
        kind: &Kind,
        query: &Query,
        options: &DeleteOptions,
    ) -> Result<Vec<Deletion<SharedObject>>, ClientError> {
        pass!(self, kind, ClientCall::DeleteCollection(Cow::Borrowed(query), options), Deletions)
    }

    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        let query = Cow::Borrowed(query);
        pass!(self, kind, ClientCall::Watch { query, from, is_stream_list: false, stop }, Stream)
    }

    fn stream_list(&self, kind: &Kind, query: &Query, stop: &CancellationToken) -> Result<ObjectStream, ClientError> {
        let query = Cow::Borrowed(query);
        pass!(self, kind, ClientCall::Watch { query, from: None, is_stream_list: true, stop }, Stream)
    }

    fn with_timeout(&self, timeout: Duration) -> Option<Arc<dyn Client>> {
        self.around(self.inner().with_timeout(timeout)?)
    }

    fn store_id(&self) -> usize {
        self.inner().store_id()
    }

    fn capabilities(&self) -> Capabilities {
        self.declared_capabilities()
    }
}
