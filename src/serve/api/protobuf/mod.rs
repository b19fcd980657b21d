//! Reads the few messages that clients send only as protocol buffers.
//!
//! From version 1.32 on, `kubectl create` sends built-in kinds so, and does not try JSON after a refusal.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

/// The media type of a message of Kubernetes.
pub(super) const MEDIA: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of a message of Kubernetes.
const MAGIC: &[u8] = b"k8s\0";

/// The form of a field.
#[derive(Clone, Copy)]
enum FieldForm {
    Text,
    /// A map from text to text.
    Texts,
    /// A map from text to bytes, which JSON has in base64.
    Bytes,
    Number,
    /// A message with these fields.
    Message(KnownFields),
    /// The server ignores the value, or the message has no fields.
    Ignored,
}

/// The fields of a message: number, name and form.
type KnownFields = &'static [(u64, &'static str, FieldForm)];

/// The fields that `kubectl create` can set, and those that it always sends.
const METADATA: KnownFields = &[
    (1, "name", FieldForm::Text),
    (2, "generateName", FieldForm::Text),
    (3, "namespace", FieldForm::Text),
    (4, "selfLink", FieldForm::Ignored),
    (5, "uid", FieldForm::Text),
    (6, "resourceVersion", FieldForm::Text),
    (7, "generation", FieldForm::Number),
    (8, "creationTimestamp", FieldForm::Ignored),
    (11, "labels", FieldForm::Texts),
    (12, "annotations", FieldForm::Texts),
];

/// The kinds that are read, with their fields.
const KINDS: [(&str, KnownFields); 3] = [
    (
        "ConfigMap",
        &[
            (1, "metadata", FieldForm::Message(METADATA)),
            (2, "data", FieldForm::Texts),
            (3, "binaryData", FieldForm::Bytes),
        ],
    ),
    (
        "Namespace",
        &[
            (1, "metadata", FieldForm::Message(METADATA)),
            (2, "spec", FieldForm::Message(&[])),
            (3, "status", FieldForm::Ignored),
        ],
    ),
    (
        "Secret",
        &[
            (1, "metadata", FieldForm::Message(METADATA)),
            (2, "data", FieldForm::Bytes),
            (3, "type", FieldForm::Text),
            (4, "stringData", FieldForm::Texts),
        ],
    ),
];

/// Reads an object of the core group. Returns `None` unless all its fields are known, so that none is lost.
pub(super) fn object(bytes: &[u8]) -> Option<Value> {
    let envelope = WireMessage::read(bytes.strip_prefix(MAGIC)?)?;
    let types = envelope.message(1)?;
    let (_, fields) = KINDS.iter().find(|(kind, _)| types.text(1) == "v1" && types.text(2) == *kind)?;
    let mut object = WireMessage::read(envelope.bytes(2)?)?.json(fields)?;
    object.insert("apiVersion".to_owned(), types.text(1).into());
    object.insert("kind".to_owned(), types.text(2).into());
    Some(object.into())
}

/// A message: its fields in their order, each with its tag, which is the number and the type of the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WireMessage<'a>(Vec<(u64, &'a [u8])>);

/// The type of a field that has a length.
const WITH_LENGTH: u64 = 2;

impl<'a> WireMessage<'a> {
    /// Reads the envelope of a message of Kubernetes. Returns the kind and the message inside.
    pub(super) fn of_kubernetes(bytes: &'a [u8]) -> Option<(&'a str, Self)> {
        let envelope = Self::read(bytes.strip_prefix(MAGIC)?)?;
        Some((envelope.message(1)?.text(2), Self::read(envelope.bytes(2)?)?))
    }

    fn read(mut rest: &'a [u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let tag = number(&mut rest)?;
            let length = match tag & 7 {
                0 => {
                    let mut after = rest;
                    number(&mut after)?;
                    rest.len() - after.len()
                }
                1 => 8,
                WITH_LENGTH => usize::try_from(number(&mut rest)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let value;
            (value, rest) = rest.split_at_checked(length)?;
            fields.push((tag, value));
        }
        Some(Self(fields))
    }

    /// Returns the fields as JSON, without those that are empty; `None` if one is unknown.
    fn json(&self, known: KnownFields) -> Option<Map<String, Value>> {
        let mut json = Map::new();
        for (tag, bytes) in &self.0 {
            let (_, name, form) = known.iter().find(|(number, ..)| *number == tag >> 3)?;
            if tag.is_multiple_of(8) != matches!(form, FieldForm::Number) {
                return None;
            }
            let value: Value = match form {
                FieldForm::Ignored => continue,
                FieldForm::Number => number(&mut &**bytes)?.into(),
                FieldForm::Text => std::str::from_utf8(bytes).ok()?.into(),
                FieldForm::Message(known) => Self::read(bytes)?.json(known)?.into(),
                FieldForm::Texts | FieldForm::Bytes => {
                    let entry = Self::read(bytes)?;
                    let value = entry.bytes(2).unwrap_or_default();
                    let value = match form {
                        FieldForm::Bytes => BASE64_STANDARD.encode(value),
                        _ => std::str::from_utf8(value).ok()?.to_owned(),
                    };
                    let entries = json.entry(*name).or_insert_with(|| Map::new().into()).as_object_mut()?;
                    entries.insert(entry.text(1).to_owned(), value.into());
                    continue;
                }
            };
            let is_empty = value == "" || value == 0 || value.as_object().is_some_and(Map::is_empty);
            if !is_empty {
                json.insert((*name).to_owned(), value);
            }
        }
        Some(json)
    }

    fn bytes(&self, number: u64) -> Option<&'a [u8]> {
        self.0.iter().rfind(|(tag, _)| *tag == (number << 3) | WITH_LENGTH).map(|(_, bytes)| *bytes)
    }

    /// Returns the message in a field; `None` if it is missing or malformed.
    pub(super) fn message(&self, number: u64) -> Option<Self> {
        Self::read(self.bytes(number)?)
    }

    /// Returns the text in a field; empty if it is missing.
    pub(super) fn text(&self, number: u64) -> &'a str {
        self.bytes(number).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// Reads a number of variable length.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..10 {
        let (first, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(first & 0x7f).checked_shl(7 * at)?;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

    use serde_json::json;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    #[test]
    fn the_envelope_has_a_kind_and_a_message() {
        let inner = [field(1, b"ns"), vec![0x18, 0x96, 0x01], vec![0x25, 1, 2, 3, 4], field(2, b"get")].concat();
        let spec = field(2, &field(1, &inner));
        let kind = [field(1, b"authorization.k8s.io/v1"), field(2, b"SelfSubjectAccessReview")].concat();
        let text = [MAGIC, &field(1, &kind), &field(2, &spec)].concat();
        let (kind, message) = WireMessage::of_kubernetes(&text).unwrap();
        assert_eq!(kind, "SelfSubjectAccessReview");
        let attributes = message.message(2).unwrap().message(1).unwrap();
        assert_eq!((attributes.text(1), attributes.text(2), attributes.text(7)), ("ns", "get", ""));
        for end in 0..text.len() {
            // No prefix makes the reader panic.
            let _ = WireMessage::of_kubernetes(&text[..end]);
        }
    }

    fn sent(kind: &str, inner: &[u8]) -> Vec<u8> {
        let types = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &types), &field(2, inner), &field(3, b""), &field(4, b"")].concat()
    }

    #[test]
    fn objects_that_kubectl_creates_are_read() {
        let entry = |key: &[u8], value: &[u8]| [field(1, key), field(2, value)].concat();
        // As `kubectl create` sends them, with the fields that it always sends.
        let always = [field(4, b""), field(5, b""), field(6, b""), vec![7 << 3, 0], field(8, b"")].concat();
        let labels = [field(11, &entry(b"a", b"1")), field(11, &entry(b"b", b""))].concat();
        let meta = field(1, &[field(1, b"m"), field(2, b""), field(3, b"default"), always, labels].concat());
        let expected = json!({"name": "m", "namespace": "default", "labels": {"a": "1", "b": ""}});
        let map = [meta.clone(), field(2, &entry(b"x", b"y")), field(3, &entry(b"z", &[0xff]))].concat();
        assert_eq!(
            object(&sent("ConfigMap", &map)).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": expected, "data": {"x": "y"}, "binaryData": {"z": "/w=="},
            })
        );
        let secret = [meta.clone(), field(2, &entry(b"x", b"y")), field(3, b"Opaque")].concat();
        assert_eq!(
            object(&sent("Secret", &secret)).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": expected, "data": {"x": "eQ=="}, "type": "Opaque",
            })
        );
        let namespace = [meta.clone(), field(2, b""), field(3, b"")].concat();
        assert_eq!(
            object(&sent("Namespace", &namespace)).unwrap(),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": expected})
        );
        for end in 0..map.len() {
            // No prefix makes the reader panic.
            let _ = object(&sent("ConfigMap", &map[..end]));
        }
    }

    #[test]
    fn an_object_with_a_field_that_would_be_lost_is_refused() {
        let meta = |more: Vec<u8>| field(1, &[field(1, b"m"), more].concat());
        // A finalizer, an immutable map, bytes that are no text, and a number in place of a name.
        for map in [
            meta(field(14, b"example.com/x")),
            [meta(vec![]), vec![4 << 3, 1]].concat(),
            [meta(vec![]), field(2, &[field(1, b"x"), field(2, &[0xff])].concat())].concat(),
            field(1, &[1 << 3, 7]),
        ] {
            assert_eq!(object(&sent("ConfigMap", &map)), None, "{map:?}");
        }
        let namespace = [meta(vec![]), field(2, &field(1, b"kubernetes"))].concat();
        assert_eq!(object(&sent("Namespace", &namespace)), None);
        assert_eq!(object(&sent("Pod", &meta(vec![]))), None);
    }

    #[test]
    fn malformed_messages_are_refused() {
        for text in
            [&b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], b"k8s\0\x0b", b"k8s\0\x0a\x05ab", b"{}"]
        {
            assert_eq!(WireMessage::of_kubernetes(text), None, "{text:?}");
        }
    }
}
