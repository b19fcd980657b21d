//! The types of `k8s-openapi` as objects. Feature `k8s-openapi`.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as openapi;
use k8s_openapi::{ClusterResourceScope, Metadata, NamespaceResourceScope, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::{ObjectMeta, OwnerReference};
use super::meta_mut::{MetaField, MetaMut};
use super::object::Object;

/// The scope of a kind of `k8s-openapi`: a namespace or the cluster. It bounds the types that are [objects](Object).
pub trait OpenApiScope {
    /// Whether the objects live in a namespace.
    const NAMESPACED: bool;
}

impl OpenApiScope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl OpenApiScope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// Each kind of `k8s-openapi`, such as `Deployment`, implements [`Object`]. Its [`Status`](Object::Status) is `()`,
/// because `k8s-openapi` does not name the type: read and change the field `status` instead.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, MemoryClient, Object};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use std::sync::Arc;
///
/// let mut colours = ConfigMap::default();
/// (colours.metadata.namespace, colours.metadata.name) = (Some("default".into()), Some("colours".into()));
/// let colours = Api::<ConfigMap>::new(Arc::new(MemoryClient::new())).create(&colours)?;
/// assert_eq!(colours.key().to_string(), "default/colours");
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
impl<T> Object for T
where
    T: Resource<Scope: OpenApiScope> + Metadata<Ty = openapi::ObjectMeta>,
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    const KIND: Kind =
        Kind::with_fixed_plural(T::GROUP, T::VERSION, T::KIND, T::URL_PATH_SEGMENT, <T::Scope>::NAMESPACED);
    type Status = ();

    fn meta(&self) -> Cow<'_, ObjectMeta> {
        self.metadata().meta_field()
    }

    fn meta_mut(&mut self) -> MetaMut<'_> {
        self.metadata_mut().meta_field_mut()
    }

    fn key(&self) -> ObjectKey {
        let openapi::ObjectMeta { namespace, name, .. } = self.metadata();
        ObjectKey::new(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
    }

    fn has_version_of(&self, other: &Self) -> bool {
        self.metadata().resource_version == other.metadata().resource_version
    }
}

/// The metadata is copied, and written back after changes. Empty maps and lists are written back as missing.
impl MetaField for openapi::ObjectMeta {
    fn meta_field(&self) -> Cow<'_, ObjectMeta> {
        Cow::Owned(from_openapi(self))
    }

    fn meta_field_mut(&mut self) -> MetaMut<'_> {
        MetaMut::copied(from_openapi(self), |meta| *self = to_openapi(meta))
    }
}

fn from_openapi(meta: &openapi::ObjectMeta) -> ObjectMeta {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let owner = |owner: &openapi::OwnerReference| OwnerReference {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        controller: owner.controller,
        block_owner_deletion: owner.block_owner_deletion,
    };
    let mut own = ObjectMeta::new(text(&meta.namespace), text(&meta.name));
    own.generate_name = text(&meta.generate_name);
    own.uid = text(&meta.uid);
    own.resource_version = text(&meta.resource_version);
    own.generation = meta.generation.unwrap_or_default();
    own.creation_timestamp = meta.creation_timestamp.as_ref().map(|time| time.0);
    own.deletion_timestamp = meta.deletion_timestamp.as_ref().map(|time| time.0);
    own.labels = meta.labels.clone().unwrap_or_default();
    own.annotations = meta.annotations.clone().unwrap_or_default();
    own.finalizers = meta.finalizers.clone().unwrap_or_default();
    own.owner_references = meta.owner_references.iter().flatten().map(owner).collect();
    let rest = openapi::ObjectMeta {
        deletion_grace_period_seconds: meta.deletion_grace_period_seconds,
        managed_fields: meta.managed_fields.clone(),
        self_link: meta.self_link.clone(),
        ..openapi::ObjectMeta::default()
    };
    if let Ok(Value::Object(rest)) = serde_json::to_value(rest) {
        own.rest = rest;
    }
    own
}

fn to_openapi(meta: ObjectMeta) -> openapi::ObjectMeta {
    fn filled<T: Default + PartialEq>(value: T) -> Option<T> {
        (value != T::default()).then_some(value)
    }
    let owner = |owner: OwnerReference| openapi::OwnerReference {
        api_version: owner.api_version,
        kind: owner.kind,
        name: owner.name,
        uid: owner.uid,
        controller: owner.controller,
        block_owner_deletion: owner.block_owner_deletion,
    };
    // Fields that k8s-openapi does not know are dropped, as a server drops them.
    let rest: openapi::ObjectMeta = serde_json::from_value(Value::Object(meta.rest)).unwrap_or_default();
    openapi::ObjectMeta {
        name: filled(meta.name),
        generate_name: filled(meta.generate_name),
        namespace: filled(meta.namespace),
        uid: filled(meta.uid),
        resource_version: filled(meta.resource_version),
        generation: filled(meta.generation),
        creation_timestamp: meta.creation_timestamp.map(openapi::Time),
        deletion_timestamp: meta.deletion_timestamp.map(openapi::Time),
        labels: filled(meta.labels),
        annotations: filled(meta.annotations),
        finalizers: filled(meta.finalizers),
        owner_references: filled(meta.owner_references.into_iter().map(owner).collect()),
        deletion_grace_period_seconds: rest.deletion_grace_period_seconds,
        managed_fields: rest.managed_fields,
        self_link: rest.self_link,
    }
}
