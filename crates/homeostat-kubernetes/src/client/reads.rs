//! Requests beyond the `Client` trait: scale and tables.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::selection::{objects, selected};
use super::{JSON, KubernetesClient};
use crate::http::path::RequestPath;
use homeostat_objects::{ClientError, Kind, ObjectKey, ObjectRef, Query};

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The number of replicas of an object, from its subresource `scale`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scale {
    /// The desired number of replicas.
    pub desired: u32,
    /// The current number of replicas.
    pub current: u32,
    /// The label selector of the replicas. May be empty.
    pub selector: String,
}

/// A list of objects, as `kubectl get` prints it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ObjectTable {
    /// The version of the list.
    pub version: String,
    /// The columns.
    pub columns: Vec<TableColumn>,
    /// The rows, one for each object.
    pub rows: Vec<TableRow>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct TableColumn {
    /// The title.
    pub name: String,
    /// The type of the cells, such as `string`.
    #[serde(rename = "type")]
    pub cell_type: String,
    /// The description of the cells.
    #[serde(default)]
    pub description: String,
    /// Zero if the column is always shown. Columns above zero appear in `kubectl get -o wide`.
    #[serde(default)]
    pub priority: i32,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TableRow {
    /// The key of the object.
    pub key: ObjectKey,
    /// The cells, in the order of the columns.
    pub cells: Vec<Value>,
}

#[derive(Deserialize)]
struct ScaleObject {
    #[serde(default)]
    spec: ScaleSpec,
    #[serde(default)]
    status: ScaleStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleSpec {
    replicas: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleStatus {
    replicas: u32,
    selector: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TableObject {
    #[serde(default)]
    metadata: Option<TableMeta>,
    column_definitions: Vec<TableColumn>,
    #[serde(default)]
    rows: Option<Vec<RowObject>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TableMeta {
    resource_version: Option<String>,
}

#[derive(Deserialize)]
struct RowObject {
    cells: Vec<Value>,
    #[serde(default)]
    object: Value,
}

impl KubernetesClient {
    /// Returns the number of replicas of an object.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`get`](homeostat_objects::Client::get), or
    /// [`NotFound`](homeostat_objects::ClientErrorKind::NotFound) or
    /// [`Invalid`](homeostat_objects::ClientErrorKind::Invalid) if the kind has no subresource `scale`.
    pub fn scale(&self, kind: &Kind, key: &ObjectKey) -> Result<Scale, ClientError> {
        let object = ObjectRef::new(kind, key);
        let path = |plural: &str| Ok(RequestPath::of_object(kind, plural, key)?.subresource("scale"));
        let reply = self.request(&object, &Method::GET, ("GET", ""), (None, JSON), path)?;
        reply.parse(|body| serde_json::from_slice(body)).map(Scale::of)
    }

    /// Sets the desired number of replicas of an object, regardless of the object's version.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`patch`](homeostat_objects::Client::patch), or
    /// [`NotFound`](homeostat_objects::ClientErrorKind::NotFound) or
    /// [`Invalid`](homeostat_objects::ClientErrorKind::Invalid) if the kind has no subresource `scale`.
    pub fn set_scale(&self, kind: &Kind, key: &ObjectKey, desired: u32) -> Result<Scale, ClientError> {
        let object = ObjectRef::new(kind, key);
        let body = json!({"spec": {"replicas": desired}});
        let path = |plural: &str| Ok(self.write(RequestPath::of_object(kind, plural, key)?.subresource("scale")));
        let reply = self.request(&object, &Method::PATCH, ("PATCH", ""), (Some((MERGE_PATCH, &body)), JSON), path)?;
        reply.parse(|body| serde_json::from_slice(body)).map(Scale::of)
    }

    /// Lists objects as a table, with the columns that the server chooses for the kind. Ignores the query's limit and
    /// continue token.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`list`](homeostat_objects::Client::list). A field selector that the server does not
    /// support is [invalid](homeostat_objects::ClientErrorKind::Invalid).
    pub fn table(&self, kind: &Kind, query: &Query) -> Result<ObjectTable, ClientError> {
        let fields = query.fields.to_query(|_| true);
        let path = |plural: &str| selected(kind, plural, query, &fields);
        let reply = self.request(&objects(kind, query), &Method::GET, ("LIST", ""), (None, TABLE), path)?;
        let table: TableObject = reply.parse(|body| serde_json::from_slice(body))?;
        let rows = table.rows.into_iter().flatten().map(|RowObject { cells, object }| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            TableRow { key: ObjectKey::new(&text("namespace"), &text("name")), cells }
        });
        let version = table.metadata.and_then(|meta| meta.resource_version).unwrap_or_default();
        Ok(ObjectTable { version, columns: table.column_definitions, rows: rows.collect() })
    }
}

impl Scale {
    fn of(ScaleObject { spec, status }: ScaleObject) -> Self {
        Self { desired: spec.replicas, current: status.replicas, selector: status.selector }
    }
}
