//! The second version of `OpenAPI`, as JSON and in protocol buffers, for clients before Kubernetes 1.29 and for client
//! generators. It has the schemas that `kubectl explain` and the checks of `kubectl` need, and the operations that
//! show whether a kind supports dry runs.
//!
//! The field numbers come from the message definitions of the project `gnostic`.

use serde_json::{Map, Value, json};

use crate::api::accept::JSON;
use crate::api::protobuf::WireBuffer;

/// The prefix of references in the third version.
const REFERENCE: &str = "#/components/schemas/";

/// The methods of paths, with their field numbers.
const METHODS: [(u64, &str); 5] = [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")];

/// The extensions of operations.
const EXTENSIONS: [&str; 2] = ["x-kubernetes-action", "x-kubernetes-group-version-kind"];

/// Returns a pair of a name and a message.
fn named(name: &str, value: &WireBuffer) -> WireBuffer {
    WireBuffer::default().text(1, name).message(2, value)
}

fn extension(name: &str, value: &Value) -> WireBuffer {
    // JSON is valid YAML.
    named(name, &WireBuffer::default().text(2, &value.to_string()))
}

/// Converts documents of the third version to one document of the second version.
pub(super) fn document<'a>(documents: impl Iterator<Item = &'a Value>) -> Value {
    let (mut schemas, mut paths) = (Map::new(), Map::new());
    let empty = Map::new();
    for document in documents {
        let of = |pointer: &str| document.pointer(pointer).and_then(Value::as_object).unwrap_or(&empty).clone();
        schemas.extend(of("/components/schemas").into_iter().map(|(name, of)| (name, schema(&of))));
        paths.extend(of("/paths").into_iter().map(|(path, item)| (path, path_item(&item))));
    }
    let info = json!({"title": "homeostat", "version": env!("CARGO_PKG_VERSION")});
    json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": schemas})
}

fn path_item(item: &Value) -> Value {
    let operations = METHODS.iter().filter(|(_, method)| item[*method].is_object());
    let operations: Map<_, _> =
        operations.map(|(_, method)| ((*method).to_owned(), operation(&item[*method]))).collect();
    operations.into()
}

fn operation(third: &Value) -> Value {
    let mut parameters: Vec<_> = third["parameters"].as_array().into_iter().flatten().cloned().collect();
    for parameter in &mut parameters {
        parameter["type"] = parameter["schema"]["type"].take();
        parameter.as_object_mut().map(|parameter| parameter.remove("schema"));
    }
    let of = |content: &Value| content["content"].get(JSON).map(|content| schema(&content["schema"]));
    if let Some(body) = of(&third["requestBody"]) {
        parameters.push(json!({"in": "body", "name": "body", "required": true, "schema": body}));
    }
    let mut answer = json!({"description": "OK"});
    if let Some(schema) = of(&third["responses"]["200"]) {
        answer["schema"] = schema;
    }
    let mut operation = json!({"parameters": parameters, "produces": [JSON], "responses": {"200": answer}});
    for name in EXTENSIONS {
        operation[name] = third[name].clone();
    }
    operation
}

/// Converts a schema to the second version, which is less expressive.
fn schema(third: &Value) -> Value {
    let kept = |names: &[&str]| -> Map<String, Value> {
        names.iter().filter_map(|name| Some(((*name).to_owned(), third.get(name)?.clone()))).collect()
    };
    let reference = third.get("$ref").or(third.pointer("/allOf/0/$ref")).and_then(Value::as_str);
    if let Some(name) = reference.and_then(|reference| reference.strip_prefix(REFERENCE)) {
        let mut schema = kept(&["description"]);
        schema.insert("$ref".to_owned(), format!("#/definitions/{name}").into());
        return schema.into();
    }
    let is = |name: &str| third[name] == true;
    // The second version cannot express a value of several types, so the schema does not restrict it.
    if is("nullable") || is("x-kubernetes-int-or-string") || third["type"].is_array() {
        return kept(&["format", "description", "x-kubernetes-group-version-kind"]).into();
    }
    let mut schema =
        kept(&["format", "description", "required", "uniqueItems", "type", "x-kubernetes-group-version-kind"]);
    let each = |of: &Value| of.is_object().then(|| self::schema(of));
    for name in ["additionalProperties", "items"] {
        schema.extend(each(&third[name]).map(|of| (name.to_owned(), of)));
    }
    // Clients refuse unknown fields in an object with known fields.
    let is_open = is("x-kubernetes-preserve-unknown-fields")
        || is("x-kubernetes-embedded-resource")
        || third["patternProperties"].is_object();
    if let (false, Some(properties)) = (is_open, third["properties"].as_object()) {
        let properties: Map<_, _> = properties.iter().map(|(name, of)| (name.clone(), self::schema(of))).collect();
        schema.insert("properties".to_owned(), properties.into());
    }
    schema.into()
}

/// Returns a document in protocol buffers.
pub(super) fn encoded(document: &Value) -> Vec<u8> {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let info = WireBuffer::default().text(1, text("/info/title")).text(2, text("/info/version"));
    let entries = |name: &str| document[name].as_object().into_iter().flatten();
    let paths = entries("paths")
        .fold(WireBuffer::default(), |all, (path, item)| all.message(2, &named(path, &path_message(item))));
    let definitions = entries("definitions")
        .fold(WireBuffer::default(), |all, (name, schema)| all.message(1, &named(name, &schema_message(schema))));
    let document = WireBuffer::default().text(1, text("/swagger")).message(2, &info);
    document.message(8, &paths).message(9, &definitions).into_bytes()
}

fn path_message(item: &Value) -> WireBuffer {
    let operations = METHODS.iter().filter(|(_, method)| item[*method].is_object());
    operations
        .fold(WireBuffer::default(), |all, (field, method)| all.message(*field, &operation_message(&item[*method])))
}

/// Writes the query parameters and the extensions. Clients read nothing else.
fn operation_message(operation: &Value) -> WireBuffer {
    let mut message = WireBuffer::default();
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
        let text = |name: &str| parameter[name].as_str().unwrap_or_default();
        let query = WireBuffer::default()
            .text(2, "query")
            .text(3, text("description"))
            .text(4, text("name"))
            .text(6, text("type"));
        let item = WireBuffer::default().message(3, &query);
        let item = WireBuffer::default().message(2, &item);
        message = message.message(8, &WireBuffer::default().message(1, &item));
    }
    EXTENSIONS.iter().fold(message, |message, name| message.message(13, &extension(name, &operation[*name])))
}

fn schema_message(schema: &Value) -> WireBuffer {
    let text = |name: &str| schema[name].as_str().unwrap_or_default();
    let mut message = WireBuffer::default().text(1, text("$ref")).text(2, text("format")).text(4, text("description"));
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        message = message.text(19, name);
    }
    if schema["uniqueItems"] == true {
        message = message.number(16, 1);
    }
    let inner = |name: &str| schema.get(name).map(|of| WireBuffer::default().message(1, &schema_message(of)));
    if let Some(values) = inner("additionalProperties") {
        message = message.message(21, &values);
    }
    if let Some(of) = schema["type"].as_str() {
        message = message.message(22, &WireBuffer::default().text(1, of));
    }
    if let Some(items) = inner("items") {
        message = message.message(23, &items);
    }
    if let Some(properties) = schema["properties"].as_object() {
        let each = properties
            .iter()
            .fold(WireBuffer::default(), |all, (name, schema)| all.message(1, &named(name, &schema_message(schema))));
        message = message.message(25, &each);
    }
    let kinds = schema.get("x-kubernetes-group-version-kind");
    kinds
        .into_iter()
        .fold(message, |message, kinds| message.message(31, &extension("x-kubernetes-group-version-kind", kinds)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_the_fields_of_its_messages() {
        let bytes = encoded(&document(std::iter::empty()));
        let version = env!("CARGO_PKG_VERSION").as_bytes();
        let info = [b"\x0a\x09homeostat\x12", &[u8::try_from(version.len()).unwrap()][..], version].concat();
        let expected =
            [b"\x0a\x032.0\x12", &[u8::try_from(info.len()).unwrap()][..], &info, b"\x42\x00\x4a\x00"].concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn schemas_keep_types_references_and_descriptions() {
        let bytes = |third: Value| schema_message(&schema(&third)).into_bytes();
        assert_eq!(bytes(json!({"type": "string"})), b"\xb2\x01\x08\x0a\x06string");
        let reference = json!({"allOf": [{"$ref": "#/components/schemas/A"}], "description": "D"});
        assert_eq!(bytes(reference), b"\x0a\x0f#/definitions/A\x22\x01D");
        let list = json!({"type": "array", "items": {"type": "a"}});
        assert_eq!(bytes(list), b"\xb2\x01\x07\x0a\x05array\xba\x01\x08\x0a\x06\xb2\x01\x03\x0a\x01a");
        assert_eq!(bytes(json!({"type": "string", "nullable": true})), b"");
        let long = "x".repeat(300);
        assert_eq!(bytes(json!({"description": long}))[..3], [0x22, 0xac, 0x02]);
        let open = json!({"properties": {"a": {}}, "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(bytes(open), b"");
    }
}
