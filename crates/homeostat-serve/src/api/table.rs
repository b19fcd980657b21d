//! Formats lists and objects as a client accepts them: complete, as metadata only, or as tables.

use std::io::{self, Write};

use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::accept::{JSON, ObjectForm};
use super::age::age;
use super::protobuf;
use crate::http::{Reply, ReplyBody};
use crate::kinds::{ServedColumn, ServedResource};
use homeostat_objects::{ObjectList, SharedObject, ValueRef};

/// The part of the object in a table row, besides its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RowContent {
    #[default]
    Metadata,
    Object,
    None,
}

/// The form of objects in an answer, with everything needed to write it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectView<'a> {
    pub(super) resource: &'a ServedResource,
    pub(super) form: ObjectForm,
    pub(super) rows: RowContent,
    pub(super) now: Timestamp,
}

/// An object with only its metadata.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PartialObject<'a> {
    kind: &'static str,
    api_version: String,
    metadata: Option<ValueRef<'a>>,
}

/// A row of a table.
#[derive(Serialize)]
struct Row<'a> {
    cells: Vec<Value>,
    object: TableRowObject<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum TableRowObject<'a> {
    Partial(PartialObject<'a>),
    Whole(&'a SharedObject),
    None,
}

impl ObjectView<'_> {
    /// Returns the view of complete objects in the same encoding.
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

    /// Returns the bytes of JSON that is not an object of the kind, such as a `Status`.
    pub(super) fn other(&self, json: &Value) -> Vec<u8> {
        match self.form {
            ObjectForm::Protobuf => protobuf::encoded(json).unwrap_or_default(),
            _ => json.to_string().into_bytes(),
        }
    }

    /// Returns the bytes of one object.
    pub(super) fn object(&self, object: &SharedObject) -> Vec<u8> {
        let mut text = Vec::new();
        // A vector accepts any bytes, and keys are text.
        let _ = self.write_object(object, true, &mut text);
        text
    }

    /// Writes one object. A table includes its column heads only if `heads` is true.
    pub(super) fn write_object(&self, object: &SharedObject, heads: bool, out: &mut dyn Write) -> io::Result<()> {
        match self.form {
            ObjectForm::Whole => Ok(serde_json::to_writer(out, object)?),
            ObjectForm::Protobuf => out.write_all(&self.other(&object.to_value())),
            ObjectForm::MetadataOnly => Ok(serde_json::to_writer(out, &partial(object, "v1"))?),
            ObjectForm::Table(version) => {
                let metadata = json!({"resourceVersion": object.resource_version()});
                self.write_table(version, &metadata, [object.clone()], heads, out)
            }
        }
    }

    /// Writes a list. Drops each object once its text is written, so that a slow reader does not keep all objects in
    /// memory.
    pub(super) fn write_list(&self, list: ObjectList<SharedObject>, out: &mut dyn Write) -> io::Result<()> {
        let mut metadata = json!({"resourceVersion": list.version});
        if let Some(token) = list.continue_token {
            metadata["continue"] = token.into();
        }
        let kind = self.resource.kind();
        let (kind, version) = (format!("{}List", kind.name()), kind.api_version().into_owned());
        let (kind, version) = match self.form {
            ObjectForm::Whole => (kind, version),
            ObjectForm::Protobuf => {
                let items: Vec<_> = list.items.iter().map(SharedObject::to_value).collect();
                let list = json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items});
                return out.write_all(&self.other(&list));
            }
            ObjectForm::MetadataOnly => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            ObjectForm::Table(version) => return self.write_table(version, &metadata, list.items, true, out),
        };
        let (kind, version) = (json!(kind), json!(version));
        write!(out, "{{\"kind\":{kind},\"apiVersion\":{version},\"metadata\":{metadata},\"items\":[")?;
        for (at, object) in list.items.into_iter().enumerate() {
            out.write_all(if at == 0 { b"" } else { b"," })?;
            self.write_object(&object, true, out)?;
        }
        out.write_all(b"]}")
    }

    /// Returns the object of a bookmark. With `ends_initial`, it marks the end of the initial events.
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

    fn write_table(
        &self,
        version: &str,
        metadata: &Value,
        objects: impl IntoIterator<Item = SharedObject>,
        heads: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let columns = self.resource.columns();
        let definitions = if heads { columns.iter().map(ServedColumn::head).cloned().collect() } else { Value::Null };
        write!(
            out,
            "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{metadata},\
             \"columnDefinitions\":{definitions},\"rows\":["
        )?;
        for (at, object) in objects.into_iter().enumerate() {
            out.write_all(if at == 0 { b"" } else { b"," })?;
            let cells = columns.iter().map(|column| cell(column, &object, self.now)).collect();
            let object = match self.rows {
                RowContent::Metadata => TableRowObject::Partial(partial(&object, version)),
                RowContent::Object => TableRowObject::Whole(&object),
                RowContent::None => TableRowObject::None,
            };
            serde_json::to_writer(&mut *out, &Row { cells, object })?;
        }
        out.write_all(b"]}")
    }
}

/// Returns a reply with a list. Its text is created while it is sent.
pub(super) fn list_reply(view: &ObjectView<'_>, list: ObjectList<SharedObject>) -> Reply {
    let holds = footprint(&list.items);
    let (resource, ObjectView { form, rows, now, .. }) = (view.resource.clone(), *view);
    let write = move |out: &mut dyn Write| {
        let view = ObjectView { resource: &resource, form, rows, now };
        view.write_list(list, out)
    };
    let body = ReplyBody::Parts(Box::new(write));
    Reply { body, holds, ..Reply::new(StatusCode::OK, view.media(), "") }
}

/// Returns how many bytes of memory these objects use.
pub(super) fn footprint(objects: &[SharedObject]) -> usize {
    objects.iter().map(|object| object.footprint() + size_of::<SharedObject>()).sum()
}

fn cell(column: &ServedColumn, object: &SharedObject, now: Timestamp) -> Value {
    let value = column.value(object);
    if !column.is_date() {
        return value;
    }
    let Some(time) = value.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return if value.is_null() { json!("<unknown>") } else { json!("<invalid>") };
    };
    // If the clock was set back, do not print a negative age.
    json!(age(now.duration_since(time).try_into().unwrap_or_default()))
}

fn partial<'a>(object: &'a SharedObject, version: &str) -> PartialObject<'a> {
    let (kind, api_version) = ("PartialObjectMetadata", format!("meta.k8s.io/{version}"));
    PartialObject { kind, api_version, metadata: object.get("metadata") }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

    use super::*;
    use crate::kinds::KindRegistry;
    use homeostat_objects::{Kind, KindDefinition, PrintColumn};

    fn site(name: &str) -> SharedObject {
        json!({
            "apiVersion": "example.com/v1", "kind": "Site",
            "metadata": {"name": name, "resourceVersion": "4", "creationTimestamp": "2024-05-01T10:00:00Z"},
            "spec": {"pages": 3},
        })
        .into()
    }

    fn view<R>(form: ObjectForm, rows: RowContent, run: impl FnOnce(&ObjectView<'_>) -> R) -> R {
        let site = KindDefinition::new(Kind::namespaced("example.com", "v1", "Site"))
            .column(PrintColumn::integer("Pages", ".spec.pages"))
            .column(PrintColumn::string("Node", ".spec.node").wide());
        let kinds = KindRegistry::new([site.into()]).unwrap();
        let now = "2024-05-01T10:02:30Z".parse().unwrap();
        run(&ObjectView { resource: kinds.iter().next().unwrap(), form, rows, now })
    }

    /// Returns a list as JSON.
    fn listed(view: &ObjectView<'_>, list: &ObjectList<SharedObject>) -> Value {
        let mut text = Vec::new();
        view.write_list(list.clone(), &mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// Returns the object of an event as JSON.
    fn event(view: &ObjectView<'_>, object: &SharedObject, heads: bool) -> Value {
        let mut text = Vec::new();
        view.write_object(object, heads, &mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn a_table_has_the_name_the_columns_and_the_age() {
        let list = ObjectList::new("9", vec![site("a"), site("b")]).continue_token(Some("t".to_owned()));
        let table = view(ObjectForm::Table("v1"), RowContent::Metadata, |view| listed(view, &list));
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
            assert_eq!(event(view, &site("a"), true)["columnDefinitions"].as_array().unwrap().len(), 4);
            let later = event(view, &site("a"), false);
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
        let whole = view(ObjectForm::Whole, RowContent::Metadata, |view| listed(view, &list));
        assert_eq!((&whole["kind"], &whole["apiVersion"]), (&json!("SiteList"), &json!("example.com/v1")));
        assert_eq!(whole["items"][0], site("a").to_value());
        let partial = view(ObjectForm::MetadataOnly, RowContent::Metadata, |view| listed(view, &list));
        assert_eq!(partial["items"][0]["metadata"]["name"], "a");
        assert_eq!(partial["items"][0].get("spec"), None);
        let mark = view(ObjectForm::Whole, RowContent::Metadata, |view| view.bookmark("7", true));
        assert_eq!(mark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    }
}
