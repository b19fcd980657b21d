//! Lists and objects in the form that a client accepts: whole, as metadata only, or as tables.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::accept::{JSON, ObjectForm};
use super::age::age;
use super::protobuf;
use crate::objects::{ObjectList, SharedObject};
use crate::serve::kinds::{PrintColumn, ServedResource};

/// The part of an object that a row of a table has beside its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RowContent {
    #[default]
    Metadata,
    Object,
    None,
}

/// The form of objects in an answer, with everything that is needed to make it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectView<'a> {
    pub(super) resource: &'a ServedResource,
    pub(super) form: ObjectForm,
    pub(super) rows: RowContent,
    pub(super) now: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListBody<'a> {
    kind: String,
    api_version: &'a str,
    metadata: Value,
    items: &'a [SharedObject],
}

impl ObjectView<'_> {
    /// Returns the view of whole objects, in the same encoding.
    pub(super) fn whole(self) -> Self {
        let form = if self.form == ObjectForm::Protobuf { ObjectForm::Protobuf } else { ObjectForm::Whole };
        Self { form, ..self }
    }

    /// Returns the content type of an answer.
    pub(super) fn media(&self) -> &'static str {
        if self.form == ObjectForm::Protobuf { protobuf::MEDIA } else { JSON }
    }

    /// Returns the content type of a watch.
    pub(super) fn stream_media(&self) -> &'static str {
        if self.form == ObjectForm::Protobuf { protobuf::STREAM_MEDIA } else { JSON }
    }

    /// Returns the bytes of one object.
    pub(super) fn object(&self, object: &SharedObject) -> Vec<u8> {
        self.event_object(object, true)
    }

    /// Returns the bytes of JSON that is no object of the kind, such as a `Status`.
    pub(super) fn other(&self, json: &Value) -> Vec<u8> {
        match self.form {
            ObjectForm::Protobuf => protobuf::encoded(json).unwrap_or_default(),
            _ => json.to_string().into_bytes(),
        }
    }

    /// Returns the bytes of a list.
    pub(super) fn list(&self, list: &ObjectList<SharedObject>) -> Vec<u8> {
        let mut metadata = json!({"resourceVersion": list.version});
        if let Some(token) = &list.continue_token {
            metadata["continue"] = token.as_str().into();
        }
        let kind = self.resource.kind();
        let (name, api_version) = (format!("{}List", kind.name()), kind.api_version());
        match self.form {
            ObjectForm::Whole => {
                let body = ListBody { kind: name, api_version: &api_version, metadata, items: &list.items };
                // Keys are text, so that writing cannot fail.
                serde_json::to_vec(&body).unwrap_or_default()
            }
            ObjectForm::Protobuf => {
                let items: Vec<_> = list.items.iter().map(SharedObject::to_value).collect();
                self.other(&json!({"kind": name, "apiVersion": api_version, "metadata": metadata, "items": items}))
            }
            ObjectForm::MetadataOnly => {
                let items: Vec<_> = list.items.iter().map(|object| partial(object, "v1")).collect();
                let (kind, version) = ("PartialObjectMetadataList", "meta.k8s.io/v1");
                self.other(&json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}))
            }
            ObjectForm::Table(version) => self.other(&self.table(version, &metadata, &list.items, true)),
        }
    }

    /// Returns a part of a watch: an event with an object. A table has the heads of the columns only if `heads` is
    /// true.
    pub(super) fn event(&self, event: &str, object: &SharedObject, heads: bool) -> Vec<u8> {
        self.frame(event, &self.event_object(object, heads))
    }

    /// Returns a part of a watch: an event with JSON that is no object of the kind.
    pub(super) fn other_event(&self, event: &str, json: &Value) -> Vec<u8> {
        self.frame(event, &self.other(json))
    }

    fn frame(&self, event: &str, object: &[u8]) -> Vec<u8> {
        match self.form {
            ObjectForm::Protobuf => protobuf::watch_frame(event, object),
            _ => [format!("{{\"type\":{},\"object\":", json!(event)).as_bytes(), object, b"}\n"].concat(),
        }
    }

    fn event_object(&self, object: &SharedObject, heads: bool) -> Vec<u8> {
        match self.form {
            ObjectForm::Whole => object.to_string().into_bytes(),
            ObjectForm::Protobuf => self.other(&object.to_value()),
            ObjectForm::MetadataOnly => self.other(&partial(object, "v1")),
            ObjectForm::Table(version) => {
                let metadata = json!({"resourceVersion": object.resource_version()});
                self.other(&self.table(version, &metadata, std::slice::from_ref(object), heads))
            }
        }
    }

    /// Returns the object of a bookmark. If `ends_initial` is true, it ends the initial events.
    pub(super) fn bookmark(&self, version: &str, ends_initial: bool) -> Value {
        let mut metadata = json!({"resourceVersion": version, "creationTimestamp": null});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let kind = self.resource.kind();
        match self.form {
            ObjectForm::Whole | ObjectForm::Protobuf => {
                json!({"kind": kind.name(), "apiVersion": kind.api_version(), "metadata": metadata})
            }
            ObjectForm::MetadataOnly => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            ObjectForm::Table(table) => {
                let object = json!({
                    "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{table}"), "metadata": metadata,
                });
                json!({
                    "kind": "Table", "apiVersion": format!("meta.k8s.io/{table}"), "metadata": {"resourceVersion": version},
                    "columnDefinitions": [], "rows": [{"cells": [], "object": object}],
                })
            }
        }
    }

    fn table(&self, version: &str, metadata: &Value, objects: &[SharedObject], heads: bool) -> Value {
        let columns = self.resource.columns();
        let definitions = if heads { columns.iter().map(PrintColumn::head).collect() } else { Value::Null };
        let rows: Vec<_> = objects
            .iter()
            .map(|object| {
                let cells = columns.iter().map(|column| cell(column, object, self.now));
                let cells: Vec<_> = cells.collect();
                let object = match self.rows {
                    RowContent::Metadata => partial(object, version),
                    RowContent::Object => object.to_value(),
                    RowContent::None => Value::Null,
                };
                json!({"cells": cells, "object": object})
            })
            .collect();
        json!({
            "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
            "columnDefinitions": definitions, "rows": rows,
        })
    }
}

fn cell(column: &PrintColumn, object: &SharedObject, now: Timestamp) -> Value {
    let value = column.value(object);
    if !column.is_date() {
        return value;
    }
    let Some(time) = value.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return if value.is_null() { json!("<unknown>") } else { json!("<invalid>") };
    };
    // A clock that was set back must not print a negative age.
    json!(age(now.duration_since(time).try_into().unwrap_or_default()))
}

fn partial(object: &SharedObject, version: &str) -> Value {
    let metadata = object.get("metadata").map_or(Value::Null, crate::objects::ValueRef::to_value);
    json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata})
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

    use super::*;
    use crate::objects::Kind;
    use crate::serve::kinds::KindRegistry;

    fn site(name: &str) -> SharedObject {
        json!({
            "apiVersion": "example.com/v1", "kind": "Site",
            "metadata": {"name": name, "resourceVersion": "4", "creationTimestamp": "2024-05-01T10:00:00Z"},
            "spec": {"pages": 3},
        })
        .into()
    }

    fn view<R>(form: ObjectForm, rows: RowContent, run: impl FnOnce(&ObjectView<'_>) -> R) -> R {
        let site = ServedResource::new(Kind::namespaced("example.com", "v1", "Site"))
            .column(PrintColumn::new("Pages", "integer", ".spec.pages"))
            .column(PrintColumn::new("Node", "string", ".spec.node").wide());
        let kinds = KindRegistry::new([site]).unwrap();
        let now = "2024-05-01T10:02:30Z".parse().unwrap();
        run(&ObjectView { resource: kinds.iter().next().unwrap(), form, rows, now })
    }

    fn json_of(text: &[u8]) -> Value {
        serde_json::from_slice(text).unwrap()
    }

    #[test]
    fn a_table_has_the_name_the_columns_and_the_age() {
        let list = ObjectList::new("9", vec![site("a"), site("b")]).continue_token(Some("t".to_owned()));
        let table = view(ObjectForm::Table("v1"), RowContent::Metadata, |view| json_of(&view.list(&list)));
        assert_eq!(table["metadata"], json!({"resourceVersion": "9", "continue": "t"}));
        let names: Vec<_> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(names, ["Name", "Pages", "Node", "Age"]);
        assert_eq!(table["columnDefinitions"][2]["priority"], 1);
        assert_eq!(table["columnDefinitions"][3]["type"], "string");
        assert_eq!(table["rows"][1]["cells"], json!(["b", 3, null, "2m30s"]));
        assert_eq!(table["rows"][1]["object"]["kind"], "PartialObjectMetadata");
    }

    #[test]
    fn only_the_first_event_of_a_watch_has_heads() {
        view(ObjectForm::Table("v1beta1"), RowContent::None, |view| {
            assert_eq!(
                json_of(&view.event("ADDED", &site("a"), true))["object"]["columnDefinitions"]
                    .as_array()
                    .unwrap()
                    .len(),
                4
            );
            let later = json_of(&view.event("ADDED", &site("a"), false))["object"].take();
            assert_eq!(
                (&later["columnDefinitions"], &later["apiVersion"]),
                (&Value::Null, &json!("meta.k8s.io/v1beta1"))
            );
            assert_eq!(later["rows"][0]["object"], Value::Null);
        });
    }

    #[test]
    fn lists_are_whole_or_metadata_only() {
        let list = ObjectList::new("9", vec![site("a")]);
        let whole = view(ObjectForm::Whole, RowContent::Metadata, |view| json_of(&view.list(&list)));
        assert_eq!((&whole["kind"], &whole["apiVersion"]), (&json!("SiteList"), &json!("example.com/v1")));
        assert_eq!(whole["items"][0], site("a").to_value());
        let partial = view(ObjectForm::MetadataOnly, RowContent::Metadata, |view| json_of(&view.list(&list)));
        assert_eq!(partial["items"][0]["metadata"]["name"], "a");
        assert_eq!(partial["items"][0].get("spec"), None);
        let mark = view(ObjectForm::Whole, RowContent::Metadata, |view| view.bookmark("7", true));
        assert_eq!(mark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
}
