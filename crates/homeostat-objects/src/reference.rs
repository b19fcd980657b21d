//! Helpers for specs and statuses: references to other objects, and merged maps.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::key::ObjectKey;
use super::kind::Kind;
use super::object::Object;

/// A reference from a spec or status to another object: `apiGroup`, `kind` and `name`.
///
/// The object is in the namespace of the referring object, or is cluster-wide. The reference has no version, because
/// all versions of a kind refer to the same objects.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{DynamicObject, Kind, ObjectKey, TypedReference};
///
/// const IMAGE: Kind = Kind::namespaced("example.com", "v1", "Image");
/// let image = DynamicObject::new(&IMAGE, "default", "shop");
/// let reference = TypedReference::to(&image);
/// assert_eq!(
///     serde_json::to_value(&reference).unwrap(),
///     serde_json::json!({"apiGroup": "example.com", "kind": "Image", "name": "shop"})
/// );
/// assert!(reference.is_of(&IMAGE));
/// assert_eq!(reference.key("default"), ObjectKey::new("default", "shop"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TypedReference {
    /// The group of the kind; empty for the core group.
    #[serde(default, deserialize_with = "text_or_null", skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// The name of the kind.
    pub kind: String,
    /// The name of the object.
    pub name: String,
}

impl TypedReference {
    /// Returns a reference to the object with this group, kind and name. Pass an empty group for the core group.
    #[must_use]
    pub fn new(api_group: impl Into<String>, kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { api_group: api_group.into(), kind: kind.into(), name: name.into() }
    }

    /// Returns a reference to this object.
    #[must_use]
    pub fn to(object: &impl Object) -> Self {
        let kind = object.kind();
        Self::new(kind.group(), kind.name(), &*object.meta().name)
    }

    /// Returns whether it refers to an object of this kind, in any version.
    #[must_use]
    pub fn is_of(&self, kind: &Kind) -> bool {
        self.api_group == kind.group() && self.kind == kind.name()
    }

    /// Returns the key of the object, given the namespace of the referring object. For a cluster-wide object, pass an
    /// empty namespace.
    #[must_use]
    pub fn key(&self, namespace: &str) -> ObjectKey {
        ObjectKey::new(namespace, &self.name)
    }
}

/// Reads a string or `null`, because a cluster may write `null` for the core group.
fn text_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Merges maps, such as labels. If several maps have the same key, the last one wins.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{ObjectMeta, merge_maps};
///
/// let (owner, own) = (ObjectMeta::new("default", "shop").label("team", "a").label("app", "x"), [("app".into(), "shop".into())]);
/// let labels = merge_maps([&owner.labels, &own.into()]);
/// assert_eq!((labels.len(), &*labels["app"]), (2, "shop"));
/// ```
#[must_use]
pub fn merge_maps<'a, K, V>(maps: impl IntoIterator<Item = &'a BTreeMap<K, V>>) -> BTreeMap<K, V>
where
    K: Clone + Ord + 'a,
    V: Clone + 'a,
{
    maps.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::dynamic::DynamicObject;
    use super::*;

    #[test]
    fn a_reference_has_the_json_of_kubernetes() {
        let pod = TypedReference::to(&DynamicObject::new(&Kind::namespaced("", "v1", "Pod"), "a", "p"));
        for json in [
            json!({"kind": "Pod", "name": "p"}),
            json!({"apiGroup": null, "kind": "Pod", "name": "p"}),
            json!({"apiGroup": "", "kind": "Pod", "name": "p"}),
        ] {
            assert_eq!(serde_json::from_value::<TypedReference>(json).unwrap(), pod);
        }
        assert_eq!(serde_json::to_value(&pod).unwrap(), json!({"kind": "Pod", "name": "p"}));
        assert!(serde_json::from_value::<TypedReference>(json!({"apiGroup": 1, "kind": "Pod", "name": "p"})).is_err());
    }

    #[test]
    fn a_kind_is_compared_without_its_version() {
        let app = TypedReference::new("example.com", "App", "shop");
        assert!(app.is_of(&Kind::namespaced("example.com", "v2", "App")));
        assert!(!app.is_of(&Kind::namespaced("example.org", "v2", "App")));
        assert!(!app.is_of(&Kind::namespaced("example.com", "v2", "Apple")));
        assert_eq!(app.key(""), ObjectKey::cluster("shop"));
    }

    #[test]
    fn the_last_of_several_maps_wins() {
        let maps = [[("a", 1), ("b", 1)], [("b", 2), ("c", 2)], [("c", 3), ("d", 3)]].map(BTreeMap::from);
        assert_eq!(merge_maps(&maps), BTreeMap::from([("a", 1), ("b", 2), ("c", 3), ("d", 3)]));
        assert_eq!(merge_maps::<i32, i32>([]), BTreeMap::new());
    }
}
