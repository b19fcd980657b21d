//! Calls for the client of objects, which also needs markers, notes and the identity of the stream.

use serde_json::{Value, json};

use super::super::error::NatsError;
use super::api::{self, StreamInfo, call, need_version};
use super::bucket::{KvBucket, info, no_bucket};
use super::config::stream_name;
use super::entry::KvEntry;
use super::key::{check_filter, check_key};

/// The first server version that can purge one key without affecting other keys. Before it, each consumer with a wider
/// filter skipped all entries that it had not sent.
const PURGES: &str = "2.9.12";

/// The description of a bucket for objects.
pub(crate) const OBJECTS: &str = "objects of homeostat, layout 1";

/// A bucket's identity and last revision at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketFacts {
    /// The time of the bucket's creation, which identifies it.
    pub(crate) created: String,
    /// The revision of the last write.
    pub(crate) revision: u64,
    pub(crate) description: String,
}

impl KvBucket {
    pub(crate) fn facts(&self) -> Result<BucketFacts, NatsError> {
        let StreamInfo { config, created, state } = info(&self.connection, self.name())?;
        Ok(BucketFacts { created, revision: state.last_seq, description: config.description })
    }

    /// Returns the last entry of a key, which may be a marker, from the server that orders all writes.
    pub(crate) fn latest_entry(&self, key: &str) -> Result<Option<KvEntry>, NatsError> {
        check_key(key)?;
        self.read_leader(key, &self.last_of(key))
    }

    /// Returns the entry with this revision, which may be a marker. `None` if the bucket no longer keeps it, or if it
    /// belongs to another key.
    pub(crate) fn entry_at(&self, key: &str, revision: u64) -> Result<Option<KvEntry>, NatsError> {
        check_key(key)?;
        let body = json!({"seq": revision});
        let subject = format!("$JS.API.DIRECT.GET.{}", stream_name(self.name()));
        let found = self.read(key, &subject, body.to_string().as_bytes(), &body)?;
        // A copy that lags behind may not have the entry yet.
        let entry = if found.is_some() { found } else { self.read_leader(key, &body)? };
        Ok(entry.filter(|entry| entry.key == key))
    }

    /// Returns the keys that match a filter and have an entry of any kind, sorted.
    pub(crate) fn keys_with_entries(&self, filter: &str) -> Result<Vec<String>, NatsError> {
        check_filter(filter)?;
        let subjects = format!("{}{filter}", self.prefix);
        let mut keys = Vec::new();
        loop {
            let body = json!({"subjects_filter": subjects, "offset": keys.len()});
            let method = format!("STREAM.INFO.{}", stream_name(self.name()));
            let page = match call::<PagedInfo>(&self.connection, &method, &body, true)? {
                Ok(page) => page,
                Err(error) if error.err_code == api::STREAM_NOT_FOUND => return Err(no_bucket(self.name())),
                Err(error) => return Err(error.into_error(&self.connection, &self.what(filter))),
            };
            let found = page.info.state.subjects;
            let is_last = found.is_empty() || keys.len() + found.len() >= page.total;
            keys.extend(found.keys().filter_map(|subject| subject.strip_prefix(&self.prefix)).map(str::to_owned));
            if is_last {
                keys.sort_unstable();
                return Ok(keys);
            }
        }
    }

    /// Returns whether a key that matches a filter has, or ever had, an entry.
    pub(crate) fn has_entries(&self, filter: &str) -> Result<bool, NatsError> {
        check_filter(filter)?;
        let body = json!({"last_by_subj": format!("{}{filter}", self.prefix)});
        Ok(self.read_leader(filter, &body)?.is_some())
    }

    /// Checks that the server can remove the entries of one key without affecting watches of other keys.
    pub(crate) fn check_purges(&self) -> Result<(), NatsError> {
        need_version(&self.connection, "remove_markers", PURGES)
    }

    /// Removes the entries of a key before this revision, without a marker. If a watch may select the key, call
    /// [`check_purges`](Self::check_purges) first.
    pub(crate) fn forget_before(&self, key: &str, revision: u64) -> Result<(), NatsError> {
        check_key(key)?;
        let body = json!({"filter": format!("{}{key}", self.prefix), "seq": revision});
        let method = format!("STREAM.PURGE.{}", stream_name(self.name()));
        match call::<Value>(&self.connection, &method, &body, false)? {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into_error(&self.connection, &self.what(key))),
        }
    }
}

/// The state of a stream with one page of its subjects.
#[derive(serde::Deserialize)]
struct PagedInfo {
    #[serde(flatten)]
    info: StreamInfo,
    #[serde(default)]
    total: usize,
}
