//! A bucket as a plain value: executes the requests of a client as a server does.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::protocol::NatsHeaders;

/// The name of the bucket, and the prefix of its subjects.
pub(super) const BUCKET: &str = "B";
const SUBJECTS: &str = "$KV.B.";
/// The request for the listing that a new client reads. It takes the place of a watch.
pub(super) const LISTING: &str = "listing";

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) subject: String,
    /// The headers that decide: the expected revision, and whether the write is a marker.
    expected: Option<u64>,
    is_marker: bool,
    payload: Arc<str>,
}

/// The last entry of a key.
#[derive(Clone)]
pub(super) struct Entry {
    revision: u64,
    is_marker: bool,
    value: Arc<str>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    last: u64,
    pub(super) entries: BTreeMap<String, Entry>,
}

/// The short form, which identifies a state, has a hash of the value.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { revision, is_marker, value } = self;
        write!(f, "{revision}, marker: {is_marker}, ")?;
        if f.alternate() { write!(f, "{value}") } else { write!(f, "{:x}", hash(value)) }
    }
}

/// Returns a hash that is the same in each run.
pub(super) fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Request {
    pub(super) fn new(subject: &str, headers: &NatsHeaders, payload: &[u8]) -> Self {
        let expected = headers.get("Nats-Expected-Last-Subject-Sequence").map(|text| text.parse().unwrap());
        let is_marker = headers.get("KV-Operation") == Some("DEL");
        let payload = std::str::from_utf8(payload).unwrap().into();
        Self { subject: subject.to_owned(), expected, is_marker, payload }
    }

    /// Returns the key that this request writes.
    pub(super) fn written_key(&self) -> Option<&str> {
        self.subject.strip_prefix(SUBJECTS)
    }

    /// Returns whether this request changes the bucket.
    pub(super) fn is_write(&self) -> bool {
        self.written_key().is_some() || self.subject.contains(".STREAM.PURGE.")
    }

    /// Returns the object that this request stores.
    pub(super) fn object(&self) -> Option<Value> {
        if self.is_marker { None } else { serde_json::from_str(&self.payload).ok() }
    }

    pub(super) fn without_condition(self) -> Self {
        Self { expected: None, ..self }
    }
}

impl Bucket {
    /// Returns the object with this key.
    pub(super) fn object(&self, key: &str) -> Option<Value> {
        let entry = self.entries.get(key).filter(|entry| !entry.is_marker)?;
        Some(serde_json::from_str(&entry.value).unwrap())
    }

    /// Returns all objects with their keys.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&str, Value)> {
        let keys = self.entries.keys().filter(|key| !key.starts_with('_'));
        keys.filter_map(|key| Some((key.as_str(), self.object(key)?)))
    }

    /// Executes a request, and returns the payload of the answer.
    pub(super) fn execute(&mut self, request: &Request) -> String {
        if let Some(key) = request.written_key() {
            return self.write(key, request);
        }
        let body: Value = serde_json::from_str(&request.payload).unwrap_or_default();
        match request.subject.trim_start_matches("$JS.API.") {
            LISTING => {
                let named = self.entries.iter().filter(|(key, entry)| key.starts_with("_owners.") && !entry.is_marker);
                let texts: BTreeMap<_, _> = named.map(|(key, entry)| (key, &*entry.value)).collect();
                json!(texts).to_string()
            }
            "STREAM.MSG.GET.KV_B" => self.read(body["last_by_subj"].as_str().unwrap()),
            "STREAM.INFO.KV_B" => self.info(body["subjects_filter"].as_str()),
            "STREAM.PURGE.KV_B" => {
                let key = body["filter"].as_str().unwrap().strip_prefix(SUBJECTS).unwrap();
                let before = body["seq"].as_u64().unwrap();
                self.entries.retain(|known, entry| known != key || entry.revision >= before);
                json!({"success": true}).to_string()
            }
            method => panic!("unknown request {method}"),
        }
    }

    fn write(&mut self, key: &str, request: &Request) -> String {
        let current = self.entries.get(key).map_or(0, |entry| entry.revision);
        if request.expected.is_some_and(|expected| expected != current) {
            let description = format!("wrong last sequence: {current}");
            return json!({"error": {"code": 400, "err_code": 10_071, "description": description}}).to_string();
        }
        self.last += 1;
        let Request { is_marker, payload, .. } = request.clone();
        // Only watches read the last state in a marker.
        let value = if is_marker { Arc::from("") } else { payload };
        self.entries.insert(key.to_owned(), Entry { revision: self.last, is_marker, value });
        json!({"stream": "KV_B", "seq": self.last}).to_string()
    }

    fn read(&self, subject: &str) -> String {
        let filter = subject.strip_prefix(SUBJECTS).unwrap();
        let is_selected = |key: &str| match filter.strip_suffix('>') {
            Some(prefix) => key.starts_with(prefix),
            None => key == filter,
        };
        let found = self.entries.iter().filter(|(key, _)| is_selected(key)).max_by_key(|(_, entry)| entry.revision);
        let Some((key, Entry { revision, is_marker, value })) = found else {
            return json!({"error": {"code": 404, "err_code": 10_037, "description": "no message found"}}).to_string();
        };
        let headers = if *is_marker { "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n" } else { "" };
        let (data, headers) = (BASE64.encode(value.as_bytes()), BASE64.encode(headers.as_bytes()));
        let subject = format!("{SUBJECTS}{key}");
        json!({"message": {
            "subject": subject, "seq": revision, "data": data, "hdrs": headers, "time": "2026-01-01T00:00:00Z",
        }})
        .to_string()
    }

    fn info(&self, filter: Option<&str>) -> String {
        let prefix = filter.and_then(|filter| filter.strip_prefix(SUBJECTS)?.strip_suffix('>'));
        let keys = self.entries.keys().filter(|key| prefix.is_some_and(|prefix| key.starts_with(prefix)));
        let subjects: BTreeMap<_, _> = keys.map(|key| (format!("{SUBJECTS}{key}"), 1)).collect();
        let total = subjects.len();
        json!({
            "config": {"name": "KV_B"}, "created": "2026-01-01T00:00:00Z", "state": {"subjects": subjects}, "total": total,
        })
        .to_string()
    }
}
