//! Decodes objects, lists and watch events from answers. Plain values.
//!
//! `metadata.managedFields` is omitted: it often makes up half of an object, and an update without it keeps it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::Value;

use super::split;
use homeostat_objects::store::ReadBuffers;
use homeostat_objects::{Kind, SharedObject};

/// The annotation on the bookmark that ends a watch's initial events.
const INITIAL_EVENTS_END: &str = "/metadata/annotations/k8s.io~1initial-events-end";

/// A page of objects.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) version: String,
    pub(super) continue_token: Option<String>,
    pub(super) items: Vec<SharedObject>,
    /// The objects that could not be decoded. They are not among the items.
    pub(super) bad: Vec<BadObject>,
}

/// An event of a watch.
#[derive(Debug, PartialEq)]
pub(super) enum RawEvent {
    Added(SharedObject),
    Modified(SharedObject),
    Deleted(SharedObject),
    Bookmark { version: String, ends_initial: bool },
    Error(Value),
}

/// An object that could not be decoded. It has no name if the name could not be decoded either.
#[derive(Debug, PartialEq)]
pub(super) struct BadObject {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) fault: String,
}

/// Reads an object. With `kind`, sets its `apiVersion` and `kind`.
pub(super) fn object(text: &[u8], kind: Option<&Kind>) -> Result<SharedObject, serde_json::Error> {
    read(text, ObjectSeed { kind, buffers: &mut ReadBuffers::default() })
}

/// Reads a JSON text.
fn read<'de, S: DeserializeSeed<'de>>(text: &'de [u8], seed: S) -> Result<S::Value, serde_json::Error> {
    fn whole<'de, R: serde_json::de::Read<'de>, S: DeserializeSeed<'de>>(
        mut deserializer: serde_json::Deserializer<R>,
        seed: S,
    ) -> Result<S::Value, serde_json::Error> {
        let value = seed.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }
    // Checking the whole text once is faster than checking each string. Omitted strings may be invalid.
    match str::from_utf8(text) {
        Ok(text) => whole(serde_json::Deserializer::from_str(text), seed),
        Err(_) => whole(serde_json::Deserializer::from_slice(text), seed),
    }
}

/// Reads a list of objects of this kind. An object that cannot be decoded does not affect the others.
pub(super) fn list(text: &[u8], kind: &Kind) -> Result<Page, serde_json::Error> {
    read(text, ListSeed { kind }).or_else(|error| list_one_by_one(text, kind).ok_or(error))
}

/// Reads the list object by object. `None` if the list itself is malformed, or if an object is and has no name.
fn list_one_by_one(text: &[u8], kind: &Kind) -> Option<Page> {
    let mut page = Page::default();
    let mut is_list = false;
    for (name, value) in split::members(text)? {
        match name.as_str() {
            "metadata" => page.set_meta(serde_json::from_slice(value).ok()?),
            "kind" => is_list |= serde_json::from_slice(value).is_ok_and(|kind: Cow<'_, str>| is_kind_of_list(&kind)),
            "items" => {
                for item in split::elements(value)? {
                    match object(item, Some(kind)) {
                        Ok(object) => page.items.push(object),
                        Err(error) => page.bad.push(bad_object(item, &error)?),
                    }
                }
                is_list = true;
            }
            _ => {}
        }
    }
    is_list.then_some(page)
}

/// Describes an object that cannot be decoded. `None` if even its name is unreadable.
fn bad_object(text: &[u8], error: &serde_json::Error) -> Option<BadObject> {
    let NamedObject { metadata: ObjectName { namespace, name } } = serde_json::from_slice(text).ok()?;
    let namespace = namespace.unwrap_or_default();
    (!name.is_empty()).then(|| BadObject { namespace, name, fault: error.to_string() })
}

impl Page {
    fn set_meta(&mut self, meta: Option<ListMeta>) {
        let ListMeta { resource_version, continue_token } = meta.unwrap_or_default();
        self.version = resource_version.unwrap_or_default();
        self.continue_token = continue_token.filter(|token| !token.is_empty());
    }
}

/// Reads an event about an object of this kind. Reuse the buffers for many events to save allocations.
pub(super) fn event(line: &[u8], kind: &Kind, buffers: &mut ReadBuffers) -> Result<RawEvent, BadObject> {
    let bad = |fault: String| {
        let named: Named = serde_json::from_slice(line).unwrap_or_default();
        let ObjectName { namespace, name } = named.object.metadata;
        BadObject { namespace: namespace.unwrap_or_default(), name, fault }
    };
    let (event, object) = read(line, EventSeed { kind, buffers }).map_err(|error| bad(error.to_string()))?;
    match &*event {
        "ERROR" => {
            let status: Unnamed = serde_json::from_slice(line).map_err(|error| bad(error.to_string()))?;
            Ok(RawEvent::Error(status.object))
        }
        "BOOKMARK" => {
            let version = object.resource_version().to_owned();
            let ends_initial = object.pointer(INITIAL_EVENTS_END).is_some_and(|end| end == "true");
            Ok(RawEvent::Bookmark { version, ends_initial })
        }
        _ if object.name().is_empty() => Err(bad("the object has no name".to_owned())),
        "ADDED" => Ok(RawEvent::Added(object)),
        "MODIFIED" => Ok(RawEvent::Modified(object)),
        "DELETED" => Ok(RawEvent::Deleted(object)),
        other => Err(bad(format!("the type of the event is {other:?}"))),
    }
}

/// The object of an event, without its kind and version.
#[derive(Deserialize)]
struct Unnamed {
    object: Value,
}

/// The name of the object in an event that cannot be decoded.
#[derive(Default, Deserialize)]
struct Named {
    object: NamedObject,
}

#[derive(Default, Deserialize)]
struct NamedObject {
    metadata: ObjectName,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectName {
    namespace: Option<String>,
    name: String,
}

/// Reads an object. With a kind, the object gets this kind.
struct ObjectSeed<'a> {
    kind: Option<&'a Kind>,
    buffers: &'a mut ReadBuffers,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = SharedObject;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<SharedObject, D::Error> {
        SharedObject::read(deserializer, self.kind, self.buffers)
    }
}

/// Reads a text, without a copy if possible.
struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

impl<'de> DeserializeSeed<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

/// Reads the type and the object of an event.
struct EventSeed<'a> {
    kind: &'a Kind,
    buffers: &'a mut ReadBuffers,
}

impl<'de> DeserializeSeed<'de> for EventSeed<'_> {
    type Value = (Cow<'de, str>, SharedObject);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EventSeed<'_> {
    type Value = (Cow<'de, str>, SharedObject);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event with a type and an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut event, mut object) = (None, None);
        while let Some(name) = map.next_key_seed(TextVisitor)? {
            match &*name {
                "type" => event = Some(map.next_value_seed(TextVisitor)?),
                "object" => {
                    let seed = ObjectSeed { kind: Some(self.kind), buffers: &mut *self.buffers };
                    object = Some(map.next_value_seed(seed)?);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let missing = de::Error::missing_field;
        Ok((event.ok_or_else(|| missing("type"))?, object.ok_or_else(|| missing("object"))?))
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

/// Returns whether this is the kind of a list. Some servers omit the `items` of an empty list.
fn is_kind_of_list(kind: &str) -> bool {
    kind.ends_with("List")
}

struct ListSeed<'a> {
    kind: &'a Kind,
}

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = Page;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page, A::Error> {
        let mut page = Page::default();
        let mut is_list = false;
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "metadata" => page.set_meta(map.next_value()?),
                "kind" => is_list |= map.next_value::<Option<String>>()?.is_some_and(|kind| is_kind_of_list(&kind)),
                "items" => {
                    page.items = map.next_value_seed(ItemsSeed { kind: self.kind })?;
                    is_list = true;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if is_list { Ok(page) } else { Err(de::Error::missing_field("items")) }
    }
}

struct ItemsSeed<'a> {
    kind: &'a Kind,
}

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_> {
    type Value = Vec<SharedObject>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_> {
    type Value = Vec<SharedObject>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    /// Some old kinds have `null` for an empty list.
    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (mut items, mut buffers) = (Vec::new(), ReadBuffers::default());
        while let Some(item) = seq.next_element_seed(ObjectSeed { kind: Some(self.kind), buffers: &mut buffers })? {
            items.push(item);
        }
        Ok(items)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::json;

    use super::*;

    const POD: Kind = Kind::namespaced("", "v1", "Pod");

    fn pod(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"metadata": {"managedFields": 1}}})
    }

    #[test]
    fn managed_fields_are_left_out_and_items_get_their_kind() {
        let mut item = pod("a");
        item["metadata"]["managedFields"] = json!([{"manager": "x", "fieldsV1": {"f:spec": {}}}]);
        assert_eq!(object(item.to_string().as_bytes(), None).unwrap(), pod("a"));
        let fields = item.as_object_mut().unwrap();
        fields.remove("kind");
        fields.remove("apiVersion");
        let meta = json!({"resourceVersion": "7", "continue": "more", "remainingItemCount": 2});
        let text = json!({"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": [item, item]}).to_string();
        let page = list(text.as_bytes(), &POD).unwrap();
        assert_eq!((page.version.as_str(), page.continue_token.as_deref()), ("7", Some("more")));
        assert_eq!(page.items, [SharedObject::from(pod("a")), SharedObject::from(pod("a"))]);
    }

    #[test]
    fn an_answer_that_is_no_list_is_an_error() {
        for text in [
            r#"{"metadata": {"resourceVersion": "1", "continue": ""}, "items": null}"#,
            r#"{"metadata": {"resourceVersion": "1", "continue": null}, "items": []}"#,
            r#"{"kind": "PodList", "metadata": {"resourceVersion": "1"}}"#,
        ] {
            let empty = list(text.as_bytes(), &POD).unwrap();
            assert_eq!((empty.items.len(), empty.version.as_str(), empty.continue_token), (0, "1", None), "{text}");
        }
        for text in [r#"{"items": [], "metadata": null}"#, r#"{"items": [], "metadata": {"resourceVersion": null}}"#] {
            assert_eq!(list(text.as_bytes(), &POD).unwrap().version, "", "{text}");
        }
        for text in [
            "",
            "[]",
            "{}",
            r#"{"kind": "Pod", "metadata": {}}"#,
            r#"{"items": {}}"#,
            r#"{"items": [1]}"#,
            r#"{"items": []} x"#,
            r#"{"items": ["#,
        ] {
            assert!(list(text.as_bytes(), &POD).is_err(), "{text}");
        }
        let deep = format!(r#"{{"items": [{{"a": {}1{}}}]}}"#, "[".repeat(1000), "]".repeat(1000));
        assert!(list(deep.as_bytes(), &POD).unwrap_err().to_string().contains("recursion limit"));
    }

    #[test]
    fn an_object_that_cannot_be_decoded_does_not_hide_the_others() {
        let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
        let odd =
            format!(r#"{{"spec": {deep}, "metadata": {{"managedFields": {deep}, "name": "x", "namespace": "n"}}}}"#);
        let meta = r#"{"resourceVersion": "7", "continue": "more"}"#;
        let text = format!(r#"{{"items": [{}, {odd}, {}], "other": {deep}, "metadata": {meta}}}"#, pod("a"), pod("b"));
        let page = list(text.as_bytes(), &POD).unwrap();
        assert_eq!((page.version.as_str(), page.continue_token.as_deref()), ("7", Some("more")));
        assert_eq!(page.items, [SharedObject::from(pod("a")), SharedObject::from(pod("b"))]);
        let [BadObject { namespace, name, fault }] = &page.bad[..] else { panic!("{:?}", page.bad) };
        assert_eq!((namespace.as_str(), name.as_str()), ("n", "x"));
        assert!(fault.contains("recursion limit"), "{fault}");
        assert!(list(&text.as_bytes()[..text.len() - 1], &POD).is_err());
    }

    #[test]
    fn events_have_a_type_and_an_object() {
        let line = |event: &str, object: &Value| json!({"type": event, "object": object}).to_string();
        let read = |event: &str, object: &Value| {
            super::event(line(event, object).as_bytes(), &POD, &mut ReadBuffers::default())
        };
        assert_eq!(read("ADDED", &pod("a")), Ok(RawEvent::Added(pod("a").into())));
        assert_eq!(read("MODIFIED", &pod("a")), Ok(RawEvent::Modified(pod("a").into())));
        assert_eq!(read("DELETED", &pod("a")), Ok(RawEvent::Deleted(pod("a").into())));
        let status = json!({"kind": "Status", "code": 410});
        assert_eq!(read("ERROR", &status), Ok(RawEvent::Error(status)));
        let mut mark = json!({"metadata": {"resourceVersion": "9"}});
        assert_eq!(read("BOOKMARK", &mark), Ok(RawEvent::Bookmark { version: "9".to_owned(), ends_initial: false }));
        mark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        assert_eq!(read("BOOKMARK", &mark), Ok(RawEvent::Bookmark { version: "9".to_owned(), ends_initial: true }));
    }

    #[test]
    fn an_event_that_cannot_be_decoded_names_its_object() {
        let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
        let line = format!(
            r#"{{"type": "ADDED", "object": {{"metadata": {{"namespace": "n", "name": "x"}}, "spec": {deep}}}}}"#
        );
        let bad = event(line.as_bytes(), &POD, &mut ReadBuffers::default()).unwrap_err();
        assert_eq!((bad.namespace.as_str(), bad.name.as_str()), ("n", "x"));
        assert!(bad.fault.contains("recursion limit"), "{}", bad.fault);
        let faults = [
            (r#"{"type": "MOVED", "object": {"metadata": {"name": "x"}}}"#, "x", "the type of the event is \"MOVED\""),
            (r#"{"type": "ADDED", "object": {"metadata": {}}}"#, "", "the object has no name"),
            (r#"{"type": "ADDED"}"#, "", "missing field `object` at line 1 column 17"),
            ("<html>", "", "expected value at line 1 column 1"),
        ];
        for (line, name, fault) in faults {
            let bad = event(line.as_bytes(), &POD, &mut ReadBuffers::default()).unwrap_err();
            assert_eq!((bad.name.as_str(), bad.fault.as_str()), (name, fault));
        }
    }
}
