//! Checks that a packed object can be read, without copying it.

use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::meta::OwnerReference;

/// The head of an object: its kind and its metadata. This type reads the same JSON as
/// [`ObjectMeta`](super::meta::ObjectMeta), and refuses the same.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "reading it is the check")]
pub(super) struct CheckedHead {
    api_version: Text,
    kind: Text,
    metadata: CheckedMeta,
}

/// Metadata.
struct CheckedMeta;

/// A string.
struct Text;

/// An object with only string values.
struct TextMap;

/// An array of strings.
struct TextList;

/// Implements `Deserialize` with a visitor of the same type.
macro_rules! visited {
    ($($type:ident by $method:ident),*) => {
        $(impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.$method(Self)
            }
        })*
    };
}

visited!(CheckedMeta by deserialize_map, Text by deserialize_str, TextMap by deserialize_map, TextList by deserialize_seq);

impl<'de> Visitor<'de> for CheckedMeta {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while let Some(field) = fields.next_key::<MetaFieldKind>()? {
            match field {
                MetaFieldKind::Text => fields.next_value::<Option<Text>>().map(drop),
                MetaFieldKind::Number => fields.next_value::<Option<i64>>().map(drop),
                MetaFieldKind::Time => fields.next_value::<Option<Timestamp>>().map(drop),
                MetaFieldKind::TextMap => fields.next_value::<Option<TextMap>>().map(drop),
                MetaFieldKind::TextList => fields.next_value::<Option<TextList>>().map(drop),
                MetaFieldKind::Owners => fields.next_value::<Option<Vec<OwnerReference>>>().map(drop),
                MetaFieldKind::Other => fields.next_value::<IgnoredAny>().map(drop),
            }?;
        }
        Ok(self)
    }
}

/// The type of a field of metadata.
#[derive(serde::Deserialize)]
#[serde(field_identifier)]
enum MetaFieldKind {
    #[serde(rename = "name", alias = "generateName", alias = "namespace", alias = "uid", alias = "resourceVersion")]
    Text,
    #[serde(rename = "generation")]
    Number,
    #[serde(rename = "creationTimestamp", alias = "deletionTimestamp")]
    Time,
    #[serde(rename = "labels", alias = "annotations")]
    TextMap,
    #[serde(rename = "finalizers")]
    TextList,
    #[serde(rename = "ownerReferences")]
    Owners,
    #[serde(other)]
    Other,
}

impl Visitor<'_> for Text {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
}

impl<'de> Visitor<'de> for TextMap {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<Text, Text>()?.is_some() {}
        Ok(self)
    }
}

impl<'de> Visitor<'de> for TextList {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Text>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::{ObjectMeta, SharedObject};

    /// A value that some field accepts, or that no field accepts.
    fn any_value() -> impl Strategy<Value = Value> {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "controller": true});
        let mut wrong_owner = owner.clone();
        wrong_owner["controller"] = json!("true");
        select(vec![
            Value::Null,
            json!(""),
            json!("text"),
            json!("2026-01-01T00:00:00Z"),
            json!("2026-01-01"),
            json!(true),
            json!(0),
            json!(-5),
            json!(1.5),
            json!(u64::MAX),
            json!({}),
            json!({"a": "b", "c": "d"}),
            json!({"a": "b", "c": 1}),
            json!({"a": null}),
            json!([]),
            json!(["a", "b"]),
            json!(["a", null]),
            json!([owner]),
            json!([owner, wrong_owner]),
            json!([{"name": "a"}]),
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_head_is_accepted_if_its_metadata_can_be_read(
            fields in prop::collection::vec((
                select(vec![
                    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
                    "deletionTimestamp", "labels", "annotations", "finalizers", "ownerReferences", "selfLink", "other",
                ]),
                any_value(),
            ), 0..4),
            instead in prop::option::weighted(0.1, any_value()),
        ) {
            let fields: Map<_, _> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let metadata = instead.unwrap_or(Value::Object(fields));
            let object = SharedObject::from(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": [1]}));
            let read = object.get("metadata").unwrap().to_typed::<ObjectMeta>();
            prop_assert_eq!(object.to_typed::<CheckedHead>().is_ok(), read.is_ok(), "{}: {:?}", metadata, read);
        }
    }

    #[test]
    fn a_head_needs_a_version_a_kind_and_metadata() {
        let whole = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}});
        assert!(SharedObject::from(&whole).to_typed::<CheckedHead>().is_ok());
        for field in ["apiVersion", "kind", "metadata"] {
            for wrong in [json!(1), Value::Null, json!([])] {
                let mut object = whole.clone();
                object[field] = wrong;
                assert!(SharedObject::from(object).to_typed::<CheckedHead>().is_err(), "{field}");
            }
            let mut object = whole.clone();
            object.as_object_mut().unwrap().remove(field);
            assert!(SharedObject::from(object).to_typed::<CheckedHead>().is_err(), "{field}");
        }
    }
}
