//! Objects in protocol buffers, which typed Go clients send and request: `kubectl create` for built-in kinds, and
//! client-go for leases and events.
//!
//! `wire` encodes messages, `messages` has the fields of each kind, and this file converts them to JSON and back.

mod messages;
#[cfg(all(test, not(loom)))]
mod tests;
mod wire;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::messages::{FieldForm, LIST_METADATA, MessageFields};
pub(super) use self::wire::WireBuffer;
use self::wire::{WireMessage, number};
use homeostat_objects::Kind;

/// The media type of a Kubernetes message.
pub(super) const MEDIA: &str = "application/vnd.kubernetes.protobuf";

/// The media type of a watch with such messages.
pub(super) const STREAM_MEDIA: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The first bytes of a Kubernetes message.
const MAGIC: &[u8] = b"k8s\0";

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadFault {
    /// The bytes are not a message, or a field has the wrong type.
    Malformed,
    /// Messages of this kind are not supported.
    UnknownKind(String),
    /// The message has a field that would be lost.
    UnknownField(String),
}

/// Returns whether objects of this kind can be read and written as protocol buffers.
pub(super) fn is_known(kind: &Kind) -> bool {
    messages::of_kind(&kind.api_version(), kind.name()).is_some()
}

/// Reads an object of a supported kind. Fails if any of its fields is unknown, so that none is lost.
pub(super) fn object(bytes: &[u8]) -> Result<Value, ReadFault> {
    let malformed = ReadFault::Malformed;
    let envelope = bytes.strip_prefix(MAGIC).and_then(WireMessage::read).ok_or(malformed.clone())?;
    let types = envelope.bytes(1).and_then(WireMessage::read).ok_or(malformed.clone())?;
    let (api_version, kind) = (types.text(1), types.text(2));
    let unknown = || ReadFault::UnknownKind(format!("{api_version} {kind}"));
    let fields = messages::of_kind(api_version, kind).ok_or_else(unknown)?;
    let message = envelope.bytes(2).unwrap_or_default();
    let mut object = json_of(&WireMessage::read(message).ok_or(malformed)?, fields)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(object.into())
}

/// Writes an object or list of a supported kind. Omits fields that the kind does not have.
pub(super) fn encoded(object: &Value) -> Option<Vec<u8>> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = match kind.strip_suffix("List") {
        Some(item) => {
            let fields = messages::of_kind(api_version, item)?;
            let list = WireBuffer::default().message(1, &message_of(&object["metadata"], LIST_METADATA));
            let items = object["items"].as_array().into_iter().flatten();
            items.fold(list, |list, item| list.message(2, &message_of(item, fields)))
        }
        None => message_of(object, messages::of_kind(api_version, kind)?),
    };
    let types = WireBuffer::default().text(1, api_version).text(2, kind);
    let envelope = WireBuffer::default().message(1, &types).message(2, &message);
    Some([MAGIC, &envelope.into_bytes()].concat())
}

/// Returns a watch frame: its length, and an event with an encoded object.
pub(super) fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let raw = WireBuffer::default().bytes(1, object);
    let event = WireBuffer::default().text(1, event).message(2, &raw).into_bytes();
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &event].concat()
}

/// Converts the fields of a message to JSON, without empty ones.
fn json_of(message: &WireMessage<'_>, known: MessageFields) -> Result<Map<String, Value>, ReadFault> {
    let mut json = Map::new();
    for (number, is_number, bytes) in message.fields() {
        let (_, name, form) = known.iter().find(|(known, ..)| *known == number).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|(_, name, _)| *name).collect();
            ReadFault::UnknownField(format!("number {number} beside {}", names.join(", ")))
        })?;
        let needs_number = matches!(form, FieldForm::Number | FieldForm::OptionalNumber | FieldForm::Flag);
        if is_number != needs_number {
            return Err(ReadFault::Malformed);
        }
        add(&mut json, name, *form, bytes)?;
    }
    Ok(json)
}

/// Adds the value of a field.
fn add(json: &mut Map<String, Value>, name: &str, form: FieldForm, bytes: &[u8]) -> Result<(), ReadFault> {
    let read = |bytes| WireMessage::read(bytes).ok_or(ReadFault::Malformed);
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| ReadFault::Malformed);
    let integer = || number(&mut &*bytes).map(u64::cast_signed).ok_or(ReadFault::Malformed);
    let value: Value = match form {
        FieldForm::Ignored => return Ok(()),
        FieldForm::Number | FieldForm::OptionalNumber => integer()?.into(),
        FieldForm::Flag => (integer()? != 0).into(),
        FieldForm::Text | FieldForm::OptionalText => text(bytes)?.into(),
        FieldForm::Time | FieldForm::MicroTime => {
            let message = read(bytes)?;
            // A message without fields means that there is no time.
            if message == WireMessage::default() {
                return Ok(());
            }
            let nanos = i32::try_from(message.number(2)).map_err(|_| ReadFault::Malformed)?;
            let time = Timestamp::new(message.number(1), nanos).map_err(|_| ReadFault::Malformed)?;
            match form {
                FieldForm::MicroTime => format!("{time:.6}").into(),
                _ => Timestamp::from_second(time.as_second()).unwrap_or(time).to_string().into(),
            }
        }
        FieldForm::Json => {
            let message = read(bytes)?;
            let text = message.bytes(1).unwrap_or(b"{}");
            serde_json::from_slice(text).map_err(|_| ReadFault::Malformed)?
        }
        FieldForm::Message(known) => json_of(&read(bytes)?, known)?.into(),
        FieldForm::List | FieldForm::Messages(_) => {
            let item: Value = match form {
                FieldForm::Messages(known) => json_of(&read(bytes)?, known)?.into(),
                _ => text(bytes)?.into(),
            };
            let items = json.entry(name).or_insert_with(|| json!([])).as_array_mut();
            items.ok_or(ReadFault::Malformed)?.push(item);
            return Ok(());
        }
        FieldForm::Texts | FieldForm::Bytes => {
            let entry = read(bytes)?;
            let value = entry.bytes(2).unwrap_or_default();
            let value = match form {
                FieldForm::Bytes => BASE64_STANDARD.encode(value),
                _ => text(value)?.to_owned(),
            };
            let entries = json.entry(name).or_insert_with(|| json!({})).as_object_mut();
            let key = text(entry.bytes(1).unwrap_or_default())?;
            entries.ok_or(ReadFault::Malformed)?.insert(key.to_owned(), value.into());
            return Ok(());
        }
    };
    let is_empty = match form {
        FieldForm::Number => value == 0,
        FieldForm::Text => value == "",
        FieldForm::Message(_) => value.as_object().is_some_and(Map::is_empty),
        _ => false,
    };
    if !is_empty {
        json.insert(name.to_owned(), value);
    }
    Ok(())
}

/// Converts JSON to a message. Omits values with the wrong type.
fn message_of(json: &Value, known: MessageFields) -> WireBuffer {
    known.iter().fold(WireBuffer::default(), |message, (number, name, form)| match json.get(name) {
        None | Some(Value::Null) => message,
        Some(value) => put(message, *number, *form, value),
    })
}

/// Adds a field to a message.
fn put(message: WireBuffer, field: u64, form: FieldForm, value: &Value) -> WireBuffer {
    match (form, value) {
        (FieldForm::Number | FieldForm::OptionalNumber, Value::Number(number)) => match number.as_i64() {
            Some(number) => message.number(field, number),
            None => message,
        },
        (FieldForm::Flag, Value::Bool(flag)) => message.number(field, i64::from(*flag)),
        (FieldForm::Text | FieldForm::OptionalText, Value::String(text)) => message.bytes(field, text.as_bytes()),
        (FieldForm::Time | FieldForm::MicroTime, Value::String(text)) => {
            let Ok(time) = text.parse::<Timestamp>() else { return message };
            // The nanoseconds of times before 1970 are negative here, but positive in messages.
            let nanos = time.as_nanosecond().rem_euclid(1_000_000_000);
            let seconds = i64::try_from(time.as_nanosecond().div_euclid(1_000_000_000)).unwrap_or_default();
            let seconds = WireBuffer::default().number(1, seconds);
            let of_time = match form {
                FieldForm::MicroTime => seconds.number(2, i64::try_from(nanos / 1_000 * 1_000).unwrap_or_default()),
                _ => seconds,
            };
            message.message(field, &of_time)
        }
        (FieldForm::Json, value) => message.message(field, &WireBuffer::default().text(1, &value.to_string())),
        (FieldForm::Message(known), Value::Object(_)) => message.message(field, &message_of(value, known)),
        (FieldForm::Messages(known), Value::Array(items)) => {
            items.iter().fold(message, |message, item| message.message(field, &message_of(item, known)))
        }
        (FieldForm::List, Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).fold(message, |message, item| message.bytes(field, item.as_bytes()))
        }
        (FieldForm::Texts | FieldForm::Bytes, Value::Object(entries)) => {
            entries.iter().fold(message, |message, (key, value)| {
                let text = value.as_str().unwrap_or_default();
                let bytes = match form {
                    FieldForm::Bytes => BASE64_STANDARD.decode(text).unwrap_or_default(),
                    _ => text.as_bytes().to_vec(),
                };
                message.message(field, &WireBuffer::default().text(1, key).bytes(2, &bytes))
            })
        }
        _ => message,
    }
}
