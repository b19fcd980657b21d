//! The second version of `OpenAPI` in protocol buffers, for clients before Kubernetes 1.29: the schemas for `kubectl explain` and the
//! checks of `kubectl`, and the operations that tell whether a kind has dry runs.
//!
//! The numbers of the fields come from the message definitions of the project `gnostic`.

use serde_json::{Map, Value};

/// The prefix of references in the third version.
const REFERENCE: &str = "#/components/schemas/";

/// A message that is being written.
#[derive(Clone, Debug, Default)]
struct WireBuffer(Vec<u8>);

impl WireBuffer {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.number(field << 3 | 2);
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        if text.is_empty() { self } else { self.bytes(field, text.as_bytes()) }
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn flag(mut self, field: u64) -> Self {
        self.number(field << 3);
        self.number(1);
        self
    }
}

/// Returns a pair of a name and a message.
fn named(name: &str, value: &WireBuffer) -> WireBuffer {
    WireBuffer::default().text(1, name).message(2, value)
}

fn extension(name: &str, value: &Value) -> WireBuffer {
    // JSON is YAML.
    named(name, &WireBuffer::default().text(2, &value.to_string()))
}

/// Returns the document of the second version with the schemas and paths of documents of the third version.
pub(super) fn document<'a>(documents: impl Iterator<Item = &'a Value>) -> Vec<u8> {
    let (mut schemas, mut paths) = (Map::new(), Map::new());
    let empty = Map::new();
    for document in documents {
        let of = |pointer: &str| document.pointer(pointer).and_then(Value::as_object).unwrap_or(&empty).clone();
        schemas.extend(of("/components/schemas"));
        paths.extend(of("/paths"));
    }
    let info = WireBuffer::default().text(1, "homeostat").text(2, env!("CARGO_PKG_VERSION"));
    let mut all_paths = WireBuffer::default();
    for (path, item) in &paths {
        all_paths = all_paths.message(2, &named(path, &path_item(item)));
    }
    let mut definitions = WireBuffer::default();
    for (name, schema) in &schemas {
        definitions = definitions.message(1, &named(name, &schema_message(schema)));
    }
    WireBuffer::default().text(1, "2.0").message(2, &info).message(8, &all_paths).message(9, &definitions).0
}

fn path_item(item: &Value) -> WireBuffer {
    let mut message = WireBuffer::default();
    for (field, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if item[method].is_object() {
            message = message.message(field, &operation(&item[method]));
        }
    }
    message
}

fn operation(operation: &Value) -> WireBuffer {
    let mut message = WireBuffer::default();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let text = |pointer: &str| parameter.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let query = WireBuffer::default()
            .text(2, "query")
            .text(3, text("/description"))
            .text(4, text("/name"))
            .text(6, text("/schema/type"));
        let item = WireBuffer::default().message(3, &query);
        let item = WireBuffer::default().message(2, &item);
        message = message.message(8, &WireBuffer::default().message(1, &item));
    }
    for name in ["x-kubernetes-action", "x-kubernetes-group-version-kind"] {
        message = message.message(13, &extension(name, &operation[name]));
    }
    message
}

fn schema_message(schema: &Value) -> WireBuffer {
    let text = |name: &str| schema[name].as_str().unwrap_or_default();
    let described = WireBuffer::default();
    let reference = schema.get("$ref").or(schema.pointer("/allOf/0/$ref")).and_then(Value::as_str);
    if let Some(name) = reference.and_then(|reference| reference.strip_prefix(REFERENCE)) {
        return described.text(1, &format!("#/definitions/{name}")).text(4, text("description"));
    }
    let is = |name: &str| schema[name] == true;
    let mut message = described.text(2, text("format")).text(4, text("description"));
    let extended = |message: WireBuffer| {
        let kinds = schema.get("x-kubernetes-group-version-kind");
        kinds
            .into_iter()
            .fold(message, |message, kinds| message.message(31, &extension("x-kubernetes-group-version-kind", kinds)))
    };
    // The second version cannot express a value of several types, so it says nothing about the value.
    if is("nullable") || is("x-kubernetes-int-or-string") {
        return extended(message);
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        message = message.text(19, name);
    }
    if is("uniqueItems") {
        message = message.flag(16);
    }
    let values = schema.get("additionalProperties").filter(|values| values.is_object());
    // Clients refuse unknown fields of an object that has known ones.
    let keeps_unknown = is("x-kubernetes-preserve-unknown-fields") || is("x-kubernetes-embedded-resource");
    if let Some(values) = values {
        message = message.message(21, &WireBuffer::default().message(1, &schema_message(values)));
    }
    if let Some(of) = schema["type"].as_str() {
        message = message.message(22, &WireBuffer::default().text(1, of));
    }
    if schema["items"].is_object() {
        message = message.message(23, &WireBuffer::default().message(1, &schema_message(&schema["items"])));
    }
    if let (false, Some(properties)) = (keeps_unknown, schema["properties"].as_object()) {
        let each = properties
            .iter()
            .fold(WireBuffer::default(), |all, (name, schema)| all.message(1, &named(name, &schema_message(schema))));
        message = message.message(25, &each);
    }
    extended(message)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_has_the_fields_of_its_messages() {
        let bytes = document(std::iter::empty());
        let version = env!("CARGO_PKG_VERSION").as_bytes();
        let info = [b"\x0a\x09homeostat\x12", &[u8::try_from(version.len()).unwrap()][..], version].concat();
        let expected =
            [b"\x0a\x032.0\x12", &[u8::try_from(info.len()).unwrap()][..], &info, b"\x42\x00\x4a\x00"].concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn schemas_keep_types_references_and_descriptions() {
        let bytes = |schema: Value| schema_message(&schema).0;
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
