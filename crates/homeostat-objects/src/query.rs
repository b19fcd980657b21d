//! Queries, and the lists that they return.

use super::error::ClientError;
use super::key::ObjectKey;
use super::kind::Kind;
use super::object::Object;
use super::selector::{FieldSelector, LabelSelector};
use super::value_ref::ValueRef;

/// Selects objects of a kind for a list or a watch. The default selects all.
///
/// # Examples
///
/// ```
/// use homeostat_objects::Query;
///
/// let query = Query::all().namespace("default").labels("app=web,tier!=cache".parse()?).field("spec.node", "node-1");
/// assert!(query.selects(&serde_json::json!({
///     "metadata": {"namespace": "default", "name": "web-1", "labels": {"app": "web"}}, "spec": {"node": "node-1"},
/// })));
/// # Ok::<_, homeostat_objects::ParseSelectorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Query {
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
    /// The selector for labels.
    pub labels: LabelSelector,
    /// The selector for fields.
    pub fields: FieldSelector,
    /// The most objects that a list returns. `None` and 0 mean no limit.
    pub limit: Option<usize>,
    /// The token of the previous page, to list the next one.
    pub continue_token: Option<String>,
    /// The version that a list must have reached. See [`Query::not_older_than`].
    pub not_older_than: Option<String>,
}

impl Query {
    /// Selects all objects of a kind.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects only objects in this namespace.
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Selects only objects with matching labels.
    #[must_use]
    pub fn labels(self, labels: LabelSelector) -> Self {
        Self { labels, ..self }
    }

    /// Selects only objects with this value at this path (for example `spec.nodeName`). Repeated calls add conditions.
    #[must_use]
    pub fn field(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields = self.fields.and(path, value);
        self
    }

    /// Selects the objects of a kind in this namespace. Without a namespace, or if the kind is cluster-wide, selects
    /// all.
    pub(crate) fn of_kind_in(kind: &Kind, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.filter(|_| kind.is_namespaced()).map(str::to_owned), ..Self::default() }
    }

    /// Returns whether the query may select an object with this key.
    pub(crate) fn may_select(&self, key: &ObjectKey) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| key.namespace() == namespace)
    }

    /// Returns whether the query selects this object.
    pub(crate) fn selects_object(&self, object: &impl Object) -> Result<bool, ClientError> {
        Ok(self.selects_all() || self.selects(&object.to_json()?))
    }

    /// Limits a list to this many objects; 0 means no limit.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Continues after the list that returned this token.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::{Client, ClientError, Kind, Query, SharedObject};
    ///
    /// fn all_in_pages(client: &dyn Client, kind: &Kind) -> Result<Vec<SharedObject>, ClientError> {
    ///     let mut query = Query::all().limit(500);
    ///     let mut items = Vec::new();
    ///     loop {
    ///         let page = client.list(kind, &query)?;
    ///         items.extend(page.items);
    ///         let Some(token) = page.continue_token else { return Ok(items) };
    ///         query = query.continue_from(token);
    ///     }
    /// }
    /// # let client = homeostat_objects::MemoryClient::new();
    /// # assert!(all_in_pages(&client, &Kind::of("v1", "Pod"))?.is_empty());
    /// # Ok::<_, ClientError>(())
    /// ```
    #[must_use]
    pub fn continue_from(self, token: impl Into<String>) -> Self {
        Self { continue_token: Some(token.into()), ..self }
    }

    /// Accepts a list that is not the newest: at least as new as this version, or of any age for version `"0"`.
    ///
    /// Such a list costs a server less, because a cache may answer it. It may lack objects that exist, and have objects
    /// that no longer exist. A server that has not reached the version returns an error. Clients that always return the
    /// newest list, such as the embedded clients, ignore this setting. It has no effect on a watch, or on a list that
    /// [continues](Self::continue_from).
    #[must_use]
    pub fn not_older_than(self, version: impl Into<String>) -> Self {
        Self { not_older_than: Some(version.into()), ..self }
    }

    /// Returns whether the query selects an object: a [`SharedObject`](super::SharedObject) or a `Value`.
    #[must_use]
    pub fn selects<'a>(&self, object: impl Into<ValueRef<'a>>) -> bool {
        let object = object.into();
        self.namespace.as_ref().is_none_or(|namespace| super::json::meta_string(object, "namespace") == namespace)
            && self.selects_content(object)
    }

    /// Returns the query for the whole list: without a limit and a continue token.
    #[must_use]
    pub fn unpaged(&self) -> Self {
        Self { limit: None, continue_token: None, ..self.clone() }
    }

    /// Returns whether the labels and fields of an object match. Ignores the namespace.
    #[must_use]
    pub fn selects_content<'a>(&self, object: impl Into<ValueRef<'a>>) -> bool {
        let object = object.into();
        self.labels.selects_json(object) && self.fields.selects(object)
    }

    /// Returns whether every object of a kind is selected.
    pub(crate) fn selects_all(&self) -> bool {
        self.namespace.is_none() && self.labels.is_empty() && self.fields.is_empty()
    }
}

/// A list of objects as they were at one version.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ObjectList<T> {
    /// The version of the list. A watch from this version delivers all later changes.
    pub version: String,
    /// The objects, in the order of their keys.
    pub items: Vec<T>,
    /// The token of the next page; `None` on the last page. See [`Query::continue_from`]. Only the client that made the
    /// token can read it.
    pub continue_token: Option<String>,
}

impl<T> ObjectList<T> {
    /// Returns a list of these objects, as they were at this version.
    #[must_use]
    pub fn new(version: impl Into<String>, items: Vec<T>) -> Self {
        Self { version: version.into(), items, continue_token: None }
    }

    /// Sets the token of the next page; `None` on the last page.
    #[must_use]
    pub fn continue_token(self, token: Option<String>) -> Self {
        Self { continue_token: token, ..self }
    }
}
