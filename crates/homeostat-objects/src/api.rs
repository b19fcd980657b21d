//! The typed interface to a client.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde_json::Value;

use super::client::{Client, DeleteOptions, FieldOwner, Patch, PatchTarget, WatchEvent};
use super::deletion::Deletion;
use super::error::ClientError;
use super::key::ObjectKey;
use super::kind::Kind;
use super::object::Object;
use super::own_writes::{note_deletion, note_write};
use super::query::{ObjectList, Query};
use super::shared::SharedObject;
use homeostat::base::CancellationToken;

/// The objects of one type in a [`Client`]. Clones are cheap.
///
/// Each method calls the client's method with the same name. If the JSON of an object does not match the type, it
/// returns [`Invalid`](crate::ClientErrorKind::Invalid).
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, DynamicObject, Kind, MemoryClient, Query};
/// use serde_json::json;
/// use std::sync::Arc;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let api = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), CONFIG_MAP);
/// let mut colours = DynamicObject::new(&CONFIG_MAP, "default", "colours").with("data", json!({"sky": "blue"}));
///
/// colours = api.create(&colours)?;
/// colours.fields_mut()["data"]["grass"] = json!("green");
/// let updated = api.update(&colours)?;
/// assert!(api.update(&colours).unwrap_err().is_conflict()); // the version is that before the update
/// assert_eq!(api.list(&Query::all())?.items, [updated]);
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
pub struct Api<T> {
    client: Arc<dyn Client>,
    kind: Kind,
    object: PhantomData<fn() -> T>,
}

impl<T: Object> Api<T> {
    /// Returns an interface to the objects of this type. For a [`DynamicObject`](super::DynamicObject) it does not
    /// compile: use [`of_kind`](Self::of_kind).
    ///
    /// ```compile_fail
    /// use homeostat_objects::{Api, DynamicObject, MemoryClient};
    /// let api = Api::<DynamicObject>::new(std::sync::Arc::new(MemoryClient::new()));
    /// ```
    #[must_use]
    pub fn new(client: Arc<dyn Client>) -> Self {
        const { T::KIND.assert_known() };
        Self::of_kind(client, T::KIND)
    }

    /// Returns an interface to the objects of this kind.
    #[must_use]
    pub fn of_kind(client: Arc<dyn Client>, kind: Kind) -> Self {
        Self { client, kind, object: PhantomData }
    }

    /// Returns the kind of the objects.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the client that stores the objects.
    #[must_use]
    pub fn client(&self) -> &Arc<dyn Client> {
        &self.client
    }

    /// Returns an object. See [`Client::get`].
    ///
    /// # Errors
    ///
    /// The errors of the client, and [`Invalid`](crate::ClientErrorKind::Invalid) if the JSON does not match the type.
    pub fn get(&self, key: &ObjectKey) -> Result<T, ClientError> {
        T::from_shared(&self.client.get(&self.kind, key)?)
    }

    /// Lists objects. See [`Client::list`].
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get).
    pub fn list(&self, query: &Query) -> Result<ObjectList<T>, ClientError> {
        let list = self.client.list(&self.kind, query)?;
        // The exact capacity avoids copies of the list while it grows.
        let mut items = Vec::with_capacity(list.items.len());
        for object in &list.items {
            items.push(T::from_shared(object)?);
        }
        Ok(ObjectList::new(list.version, items).continue_token(list.continue_token))
    }

    /// Creates an object. See [`Client::create`]. Its status is ignored, unless the kind has none of its own: write it
    /// with [`update_status`](Self::update_status).
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get).
    pub fn create(&self, object: &T) -> Result<T, ClientError> {
        self.written(self.client.create(&self.kind, object.to_json()?))
    }

    /// Replaces an object, but not its status. See [`Client::update`].
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get).
    pub fn update(&self, object: &T) -> Result<T, ClientError> {
        self.written(self.client.update(&self.kind, object.to_json()?))
    }

    /// Replaces the status of an object. See [`Client::update_status`].
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get).
    pub fn update_status(&self, object: &T) -> Result<T, ClientError> {
        self.written(self.client.update_status(&self.kind, object.to_json()?))
    }

    /// Patches an object, but not its status. See [`Client::patch`].
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get).
    pub fn patch(&self, key: &ObjectKey, patch: &Patch) -> Result<T, ClientError> {
        self.written(self.client.patch(&self.kind, key, patch, PatchTarget::Object))
    }

    /// Patches the status of an object. See [`Client::patch`].
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get).
    pub fn patch_status(&self, key: &ObjectKey, patch: &Patch) -> Result<T, ClientError> {
        self.written(self.client.patch(&self.kind, key, patch, PatchTarget::Status))
    }

    /// Applies fields to an object. See [`Client::apply`].
    ///
    /// The fields are JSON, because a typed object would set all its fields.
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get).
    pub fn apply(&self, fields: Value, owner: &FieldOwner) -> Result<T, ClientError> {
        self.written(self.client.apply(&self.kind, fields, owner))
    }

    /// Deletes an object. See [`Client::delete`].
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get).
    pub fn delete(&self, key: &ObjectKey, options: &DeleteOptions) -> Result<Deletion<T>, ClientError> {
        let deletion = self.client.delete(&self.kind, key, options)?;
        note_deletion(&*self.client, &self.kind, key, options, &deletion);
        deletion.try_map(|object| T::from_shared(&object))
    }

    /// Deletes the objects that a query selects. See [`Client::delete_collection`].
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get).
    pub fn delete_collection(&self, query: &Query, options: &DeleteOptions) -> Result<Vec<Deletion<T>>, ClientError> {
        let deleted = self.client.delete_collection(&self.kind, query, options)?;
        deleted.into_iter().map(|deletion| deletion.try_map(|object| T::from_shared(&object))).collect()
    }

    /// Removes an object at once, even if it has finalizers.
    ///
    /// # Errors
    ///
    /// The errors of [`Client::delete`].
    pub fn purge(&self, key: &ObjectKey) -> Result<(), ClientError> {
        self.delete(key, &DeleteOptions::default().purge()).map(drop)
    }

    /// Streams the changes of objects. See [`Client::watch`].
    ///
    /// # Errors
    ///
    /// The same as for [`get`](Self::get), from this call or from the stream. The stream continues after an object that
    /// does not match the type.
    pub fn watch(
        &self,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<impl Iterator<Item = Result<WatchEvent<T>, ClientError>> + Send + use<T>, ClientError> {
        let events = self.client.watch(&self.kind, query, from, stop)?;
        Ok(events.map(|event| event?.try_map(|json| T::from_shared(&json))))
    }

    /// Records a write of the run on this thread, and reads the answer.
    fn written(&self, answer: Result<SharedObject, ClientError>) -> Result<T, ClientError> {
        let object = answer?;
        note_write(&*self.client, &self.kind, &object);
        T::from_shared(&object)
    }
}

impl<T> Clone for Api<T> {
    fn clone(&self) -> Self {
        Self { client: Arc::clone(&self.client), kind: self.kind.clone(), object: PhantomData }
    }
}

impl<T> fmt::Debug for Api<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("kind", &self.kind).finish_non_exhaustive()
    }
}
