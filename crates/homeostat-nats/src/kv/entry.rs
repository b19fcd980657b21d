//! Entries of buckets, converted from messages.

use std::time::{Duration, SystemTime};

use data_encoding::BASE64;
use serde::Deserialize;

use super::super::error::NatsError;
use super::super::protocol::{NatsHeaders, NatsMessage};

pub(super) const OPERATION: &str = "KV-Operation";
/// The header of the note that a client of objects attaches to its writes.
pub(crate) const NOTE: &str = "Homeostat-Change";

/// An entry of a bucket: a value, or the marker of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvEntry {
    /// The key.
    pub key: String,
    /// The value. Empty in a marker, and in watches without values.
    pub value: Vec<u8>,
    /// The sequence number in the bucket's stream. It rises with each write to the bucket.
    pub revision: u64,
    /// The time of the write, by the server's clock.
    pub created: SystemTime,
    /// The kind of the write.
    pub operation: KvOperation,
    /// The note that a client of objects attached.
    pub(crate) note: Option<String>,
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvOperation {
    /// The key has a value.
    Put,
    /// The key was deleted. Earlier revisions stay in the history.
    Delete,
    /// The key was deleted together with its history, or it expired.
    Purge,
}

impl KvEntry {
    /// Returns whether the key was deleted.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        self.operation != KvOperation::Put
    }
}

impl KvOperation {
    /// Returns the kind of a message. In their own markers, servers give a reason.
    pub(super) fn of(headers: &NatsHeaders) -> Self {
        match (headers.get(OPERATION), headers.get("Nats-Marker-Reason")) {
            (Some("DEL"), _) | (None, Some("Remove")) => Self::Delete,
            (Some("PURGE"), _) | (None, Some("MaxAge" | "Purge")) => Self::Purge,
            _ => Self::Put,
        }
    }
}

/// The position of a message in a stream and a consumer, as its acknowledgement subject tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement<'a> {
    pub(super) consumer: &'a str,
    pub(super) stream_seq: u64,
    pub(super) consumer_seq: u64,
    /// In nanoseconds since 1970.
    pub(super) time: u64,
    pub(super) pending: u64,
}

impl<'a> Placement<'a> {
    /// Parses `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`. Newer servers
    /// insert domain and account before the stream, and append a random part.
    pub(super) fn parse(reply: &'a str) -> Option<Self> {
        let rest = reply.strip_prefix("$JS.ACK.")?;
        let before = match rest.bytes().filter(|byte| *byte == b'.').count() + 1 {
            7 => 1,
            9.. => 3,
            _ => return None,
        };
        let mut parts = rest.split('.').skip(before);
        let (consumer, _delivered) = (parts.next()?, parts.next()?);
        let mut number = || parts.next()?.parse().ok();
        Some(Self { consumer, stream_seq: number()?, consumer_seq: number()?, time: number()?, pending: number()? })
    }
}

/// Converts a message from a consumer to an entry.
pub(super) fn from_consumer(key: String, headers: &NatsHeaders, value: Vec<u8>, place: Placement<'_>) -> KvEntry {
    KvEntry {
        key,
        operation: KvOperation::of(headers),
        note: note_of(headers),
        value,
        revision: place.stream_seq,
        created: SystemTime::UNIX_EPOCH + Duration::from_nanos(place.time),
    }
}

/// Converts the answer of a direct get to an entry. Returns `None` if there is no message.
pub(super) fn from_direct(what: &str, prefix: &str, answer: NatsMessage) -> Result<Option<KvEntry>, NatsError> {
    let NatsMessage { headers, payload, .. } = answer;
    match headers.status() {
        None => {}
        Some(404) => return Ok(None),
        Some(code) => return Err(NatsError::answer(what, format!("status {code}: {}", headers.description()))),
    }
    let header = |name| headers.get(name).ok_or_else(|| NatsError::answer(what, format!("it has no header {name}")));
    let subject = header("Nats-Subject")?;
    let Some(key) = subject.strip_prefix(prefix) else {
        return Err(NatsError::answer(what, format!("it has the subject {subject:?}")));
    };
    let revision = header("Nats-Sequence")?;
    let revision =
        revision.parse().map_err(|_| NatsError::answer(what, format!("it has the sequence {revision:?}")))?;
    let created = parse_time(what, header("Nats-Time-Stamp")?)?;
    let (operation, note) = (KvOperation::of(&headers), note_of(&headers));
    Ok(Some(KvEntry { key: key.to_owned(), value: payload, revision, created, operation, note }))
}

/// A message in the leader's answer to a read.
#[derive(Debug, Deserialize)]
pub(super) struct StoredMessage {
    message: StoredFields,
}

#[derive(Debug, Deserialize)]
struct StoredFields {
    subject: String,
    seq: u64,
    #[serde(default)]
    data: String,
    #[serde(default)]
    hdrs: String,
    time: String,
}

impl StoredMessage {
    pub(super) fn sequence(&self) -> u64 {
        self.message.seq
    }
}

/// Converts the leader's answer to an entry.
pub(super) fn from_stored(what: &str, prefix: &str, stored: StoredMessage) -> Result<KvEntry, NatsError> {
    let StoredFields { subject, seq, data, hdrs, time } = stored.message;
    let Some(key) = subject.strip_prefix(prefix) else {
        return Err(NatsError::answer(what, format!("it has the subject {subject:?}")));
    };
    let decode = |text: &str| BASE64.decode(text.as_bytes()).map_err(|error| NatsError::answer(what, error));
    let headers = NatsHeaders::parse(&decode(&hdrs)?);
    let (operation, note) = (KvOperation::of(&headers), note_of(&headers));
    let created = parse_time(what, &time)?;
    Ok(KvEntry { key: key.to_owned(), value: decode(&data)?, revision: seq, created, operation, note })
}

fn note_of(headers: &NatsHeaders) -> Option<String> {
    headers.get(NOTE).map(str::to_owned)
}

fn parse_time(what: &str, text: &str) -> Result<SystemTime, NatsError> {
    let time: Result<jiff::Timestamp, _> = text.parse();
    time.map(SystemTime::from).map_err(|error| NatsError::answer(what, format!("it has the time {text:?}: {error}")))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_from_acknowledgements_of_old_and_new_servers() {
        let place = Some(Placement { consumer: "me", stream_seq: 7, consumer_seq: 3, time: 1_700, pending: 2 });
        assert_eq!(Placement::parse("$JS.ACK.KV_a.me.1.7.3.1700.2"), place);
        assert_eq!(Placement::parse("$JS.ACK._.ACCHASH.KV_a.me.1.7.3.1700.2"), place);
        assert_eq!(Placement::parse("$JS.ACK.hub.ACCHASH.KV_a.me.1.7.3.1700.2.x5Yq"), place);
        for text in ["", "$JS.ACK", "$JS.ACK.a.b.1.2.3", "$JS.ACK.KV_a.me.1.x.3.1700.2", "a.KV_a.me.1.7.3.1700.2"] {
            assert_eq!(Placement::parse(text), None, "{text}");
        }
    }

    #[test]
    fn markers_are_known_by_their_headers() {
        let of = |name: &str, value: &str| {
            let mut headers = NatsHeaders::new();
            headers.insert(name, value);
            KvOperation::of(&headers)
        };
        assert_eq!(KvOperation::of(&NatsHeaders::new()), KvOperation::Put);
        assert_eq!(of(OPERATION, "DEL"), KvOperation::Delete);
        assert_eq!(of(OPERATION, "PURGE"), KvOperation::Purge);
        assert_eq!(of("Nats-Marker-Reason", "MaxAge"), KvOperation::Purge);
        assert_eq!(of("Nats-Marker-Reason", "Remove"), KvOperation::Delete);
        assert_eq!(of(OPERATION, "other"), KvOperation::Put);
    }
}
