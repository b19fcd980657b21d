//! What a client lists: queries, and the lists that they give.

use serde_json::Value;

use super::error::ClientError;
use super::key::ObjectKey;
use super::kind::Kind;
use super::object::Object;
use super::selector::{FieldSelector, LabelSelector};

/// What of a kind is listed or watched: by default all.
///
/// # Examples
///
/// ```
/// use homeostat::objects::Query;
///
/// let query = Query::all().namespace("default").labels("app=web,tier!=cache".parse()?).field("spec.node", "node-1");
/// assert!(query.selects(&serde_json::json!({
///     "metadata": {"namespace": "default", "name": "web-1", "labels": {"app": "web"}}, "spec": {"node": "node-1"},
/// })));
/// # Ok::<_, homeostat::objects::ParseSelectorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Query {
    /// In this namespace; in all, if there is none.
    pub namespace: Option<String>,
    /// With labels that this selects.
    pub labels: LabelSelector,
    /// With fields that this selects.
    pub fields: FieldSelector,
    /// How many objects a list returns at most. `None` and 0: all.
    pub limit: Option<usize>,
    /// The token of the page before, where a list goes on.
    pub continue_token: Option<String>,
}

impl Query {
    /// All objects of a kind.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Those in this namespace.
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Those with such labels.
    #[must_use]
    pub fn labels(self, labels: LabelSelector) -> Self {
        Self { labels, ..self }
    }

    /// Those whose field at this path (`spec.nodeName`) has this value, as well as what has been said before.
    #[must_use]
    pub fn field(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields = self.fields.and(path, value);
        self
    }

    /// All objects of a kind in this namespace, or all of them if the kind has no namespaces or none is given.
    pub(crate) fn of_kind_in(kind: &Kind, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.filter(|_| kind.is_namespaced()).map(str::to_owned), ..Self::default() }
    }

    /// Whether an object of this key may be selected.
    pub(crate) fn may_select(&self, key: &ObjectKey) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| key.namespace() == namespace)
    }

    /// Whether it selects this object.
    pub(crate) fn selects_object(&self, object: &impl Object) -> Result<bool, ClientError> {
        Ok(*self == Self::default() || self.selects(&object.to_json()?))
    }

    /// The same query, for lists of at most this many objects. 0: of all.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The same query, for the page behind the list that returned this token.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::objects::{Client, ClientError, Kind, Query};
    /// use serde_json::Value;
    /// use std::sync::Arc;
    ///
    /// fn all_in_pages(client: &dyn Client, kind: &Kind) -> Result<Vec<Arc<Value>>, ClientError> {
    ///     let mut query = Query::all().limit(500);
    ///     let mut items = Vec::new();
    ///     loop {
    ///         let page = client.list(kind, &query)?;
    ///         items.extend(page.items);
    ///         let Some(token) = page.continue_token else { return Ok(items) };
    ///         query = query.continue_from(token);
    ///     }
    /// }
    /// # let client = homeostat::objects::MemoryClient::new();
    /// # assert!(all_in_pages(&client, &Kind::of("v1", "Pod"))?.is_empty());
    /// # Ok::<_, ClientError>(())
    /// ```
    #[must_use]
    pub fn continue_from(self, token: impl Into<String>) -> Self {
        Self { continue_token: Some(token.into()), ..self }
    }

    /// Whether it selects the object of this JSON.
    #[must_use]
    pub fn selects(&self, object: &Value) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| super::json::text_of(object, "namespace") == namespace)
            && self.labels.selects_json(&object["metadata"]["labels"])
            && self.fields.selects(object)
    }
}

/// Objects as they were at one version.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ObjectList<T> {
    /// The version: a watch from it tells what has changed since.
    pub version: String,
    /// In the order of their keys.
    pub items: Vec<T>,
    /// The token of the next page, if there is one: see [`Query::continue_from`]. Opaque: only the client that made it can read it.
    pub continue_token: Option<String>,
}

impl<T> ObjectList<T> {
    /// Returns a list of these objects, as they were at this version. For clients.
    #[must_use]
    pub fn new(version: impl Into<String>, items: Vec<T>) -> Self {
        Self { version: version.into(), items, continue_token: None }
    }

    /// Sets the token of the next page; `None` if this is the last page.
    #[must_use]
    pub fn continue_token(self, token: Option<String>) -> Self {
        Self { continue_token: token, ..self }
    }
}
