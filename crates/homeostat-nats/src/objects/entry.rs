//! Objects as entry values, and the notes on their writes. Plain values.

use serde_json::Value;

use super::version::ObjectVersion;
use crate::kv::KvEntry;
use homeostat_objects::json::{altered_integer, meta_mut, string};
use homeostat_objects::{Kind, SharedObject};

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    Created,
    Changed,
    Deleted,
}

/// The note on a write: its kind, and the key's previous revision, which may be a marker.
///
/// The notes of a key's writes form a chain without gaps, because each write was accepted only if the key had the
/// revision that it names. A reader can therefore notice a missed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteNote {
    pub(super) kind: WriteKind,
    /// Zero if the key had no previous entry.
    pub(super) previous: u64,
}

impl WriteNote {
    pub(super) fn text(self) -> String {
        let kind = match self.kind {
            WriteKind::Created => "created",
            WriteKind::Changed => "changed",
            WriteKind::Deleted => "deleted",
        };
        format!("{kind} {}", self.previous)
    }

    /// Returns the note of an entry, or `None` if another program has written the entry.
    pub(super) fn of(entry: &KvEntry) -> Option<Self> {
        let (kind, previous) = entry.note.as_deref()?.split_once(' ')?;
        let kind = match kind {
            "created" => WriteKind::Created,
            "changed" => WriteKind::Changed,
            "deleted" => WriteKind::Deleted,
            _ => return None,
        };
        Some(Self { kind, previous: previous.parse().ok()? })
    }
}

/// Removes an object's version, which is the revision of its entry. Returns the JSON of the rest as the entry's value.
pub(super) fn encode(object: &mut Value) -> Vec<u8> {
    meta_mut(object).remove("resourceVersion");
    object.to_string().into_bytes()
}

/// Reads an object with this version. With `kind`, the object shows that kind's version.
///
/// # Errors
///
/// Returns an error if the value is not an object, or has an integer of more than 64 bits.
pub(super) fn decode(value: &[u8], version: ObjectVersion, kind: Option<&Kind>) -> Result<SharedObject, String> {
    let mut object: Value = serde_json::from_slice(value).map_err(|error| format!("it is not JSON: {error}"))?;
    if let Some(integer) = altered_integer(value) {
        return Err(format!("the integer {integer} does not fit into 64 bits"));
    }
    if !object.is_object() || !object["metadata"].is_object() {
        return Err("it has no metadata".to_owned());
    }
    if let Some(kind) = kind.filter(|kind| !kind.is_named(string(&object, "apiVersion"), string(&object, "kind"))) {
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.name().into();
    }
    meta_mut(&mut object).insert("resourceVersion".to_owned(), version.to_string().into());
    Ok(SharedObject::from(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_beyond_64_bits_is_a_fault() {
        let read = |text: &str| decode(text.as_bytes(), ObjectVersion { created_ms: 1, revision: 1 }, None);
        assert!(read(r#"{"metadata":{},"size":18446744073709551615}"#).is_ok());
        let fault = read(r#"{"metadata":{},"size":18446744073709551616}"#).unwrap_err();
        assert_eq!(fault, "the integer 18446744073709551616 does not fit into 64 bits");
    }
}
