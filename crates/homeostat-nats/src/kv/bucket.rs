//! Buckets: create, bind, read and list.

use std::fmt;

use serde_json::{Value, json};

use super::super::connection::NatsConnection;
use super::super::error::{NatsError, NatsErrorKind};
use super::super::protocol::NatsHeaders;
use super::api::{self, StreamInfo, TTL, call, need_version, send};
use super::config::{KvConfig, check_layout, check_same, stream_name, subject_prefix};
use super::entry::{KvEntry, StoredMessage, from_direct, from_stored};
use super::key::{check_bucket, check_key};
use super::listing::{self, KvListing};
use super::watch::KvWatch;
use super::watch_options::{KvWatchOptions, SHORTEST_HEARTBEAT};

/// A key-value bucket of `JetStream`.
///
/// Clones are cheap. A key has parts of letters, digits and `- / _ =`, joined by dots. Each write gives its key a
/// revision, which rises across the whole bucket. Reads are repeated after a reconnect. If a write fails with an error
/// that [is disconnected](crate::NatsErrorKind::Disconnected) or [is a timeout](NatsError::is_timeout), it may have
/// been executed.
///
/// The bucket is in the `JetStream` that answers the account on the connected server. A domain cannot be chosen here:
/// connect to a server of that domain, or set `default_js_domain` for the account on a leaf node.
///
/// # Examples
///
/// ```no_run
/// use homeostat_nats::{KvBucket, KvConfig, NatsOptions};
///
/// let connection = NatsOptions::new("nats://localhost").connect()?;
/// let bucket = KvBucket::create(&connection, &KvConfig::new("vms"))?;
/// let first = bucket.put("web-1", b"starting")?;
/// bucket.update("web-1", b"running", first)?;
/// assert!(bucket.update("web-1", b"stopped", first).unwrap_err().is_conflict());
/// # Ok::<_, homeostat_nats::NatsError>(())
/// ```
#[derive(Clone)]
pub struct KvBucket {
    pub(crate) connection: NatsConnection,
    pub(crate) name: String,
    /// The prefix of the keys' subjects.
    pub(crate) prefix: String,
    /// Whether the server allows reads from any copy.
    pub(crate) direct: bool,
    pub(crate) max_value_size: Option<usize>,
    pub(crate) max_bytes: Option<usize>,
}

/// The status of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvStatus {
    /// The number of stored entries, including history and markers.
    pub entries: u64,
    /// The size of the bucket in bytes.
    pub bytes: u64,
    /// The revision of the last write.
    pub revision: u64,
    /// How many revisions of each key the bucket keeps.
    pub history: u64,
    /// The number of consumers, such as watches.
    pub consumers: usize,
}

impl KvBucket {
    /// Creates a bucket, or opens it if it exists with this configuration.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is invalid, the bucket exists with a different one, or the server has no
    /// `JetStream` or is too old for an option.
    pub fn create(connection: &NatsConnection, config: &KvConfig) -> Result<Self, NatsError> {
        let wanted = config.stream()?;
        if wanted.allow_msg_ttl {
            need_version(connection, "marker_ttl", TTL)?;
        }
        let method = format!("STREAM.CREATE.{}", wanted.name);
        match call::<StreamInfo>(connection, &method, &wanted, false)? {
            Ok(info) => Ok(Self::of(connection, &config.name, &info)),
            Err(error) if error.err_code == api::STREAM_EXISTS => {
                let info = info(connection, &config.name)?;
                check_same(&config.name, &info.config, &wanted)?;
                Ok(Self::of(connection, &config.name, &info))
            }
            Err(error) => Err(error.into_error(connection, &format!("the creation of bucket {:?}", config.name))),
        }
    }

    /// Opens an existing bucket. A mirror cannot be opened, because it is read-only: open its origin.
    ///
    /// # Errors
    ///
    /// Returns an error if the bucket does not exist, its stream does not have the layout of a bucket, or the server
    /// has no `JetStream`.
    pub fn bind(connection: &NatsConnection, name: &str) -> Result<Self, NatsError> {
        check_bucket(name)?;
        let info = info(connection, name)?;
        check_layout(name, &info.config)?;
        Ok(Self::of(connection, name, &info))
    }

    /// Deletes a bucket with all its keys. Its watches end as *gone*.
    ///
    /// # Errors
    ///
    /// Returns an error if the bucket does not exist, or if the server has no `JetStream`.
    pub fn delete_bucket(connection: &NatsConnection, name: &str) -> Result<(), NatsError> {
        check_bucket(name)?;
        match call::<Value>(connection, &format!("STREAM.DELETE.{}", stream_name(name)), &json!({}), false)? {
            Ok(_) => Ok(()),
            Err(error) if error.err_code == api::STREAM_NOT_FOUND => Err(no_bucket(name)),
            Err(error) => Err(error.into_error(connection, &format!("the deletion of bucket {name:?}"))),
        }
    }

    fn of(connection: &NatsConnection, name: &str, info: &StreamInfo) -> Self {
        Self {
            connection: connection.clone(),
            name: name.to_owned(),
            prefix: subject_prefix(name),
            direct: info.config.allow_direct,
            max_value_size: usize::try_from(info.config.max_msg_size).ok(),
            max_bytes: usize::try_from(info.config.max_bytes).ok().filter(|bytes| *bytes > 0),
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the status.
    ///
    /// # Errors
    ///
    /// Returns an error if the bucket does not exist, or if the server does not answer.
    pub fn status(&self) -> Result<KvStatus, NatsError> {
        let StreamInfo { config, state, .. } = info(&self.connection, &self.name)?;
        Ok(KvStatus {
            entries: state.messages,
            bytes: state.bytes,
            revision: state.last_seq,
            history: u64::try_from(config.max_msgs_per_subject).unwrap_or_default(),
            consumers: state.consumer_count,
        })
    }

    /// Returns the current value of a key, or `None` if the key does not exist or was deleted.
    ///
    /// Any server with a copy of the bucket may answer, so the value may be slightly old. After a conflict, read with
    /// [`get_latest`](Self::get_latest) before you retry.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is invalid, or if the server does not answer.
    pub fn get(&self, key: &str) -> Result<Option<KvEntry>, NatsError> {
        Ok(self.entry(key)?.filter(|entry| !entry.is_marker()))
    }

    /// Returns the last entry of a key, which may be a marker, with the same guarantees as [`get`](Self::get).
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn entry(&self, key: &str) -> Result<Option<KvEntry>, NatsError> {
        check_key(key)?;
        let subject = format!("$JS.API.DIRECT.GET.{}.{}{key}", stream_name(&self.name), self.prefix);
        self.read(key, &subject, b"", &self.last_of(key))
    }

    /// Returns the current value of a key from the server that orders all writes. `None` if the key does not exist or
    /// was deleted.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_latest(&self, key: &str) -> Result<Option<KvEntry>, NatsError> {
        check_key(key)?;
        let entry = self.read_leader(key, &self.last_of(key))?;
        Ok(entry.filter(|entry| !entry.is_marker()))
    }

    /// Returns one revision of a key. `None` if the bucket no longer keeps it, or if it is a marker or belongs to
    /// another key.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_revision(&self, key: &str, revision: u64) -> Result<Option<KvEntry>, NatsError> {
        check_key(key)?;
        if revision == 0 {
            return Ok(None);
        }
        let body = json!({"seq": revision});
        let subject = format!("$JS.API.DIRECT.GET.{}", stream_name(&self.name));
        let entry = self.read(key, &subject, body.to_string().as_bytes(), &body)?;
        Ok(entry.filter(|entry| entry.key == key && !entry.is_marker()))
    }

    /// Reads from any copy. If none answers within half of the timeout, reads from the leader, which also knows
    /// whether the bucket exists.
    pub(super) fn read(
        &self,
        key: &str,
        subject: &str,
        body: &[u8],
        ask_leader: &Value,
    ) -> Result<Option<KvEntry>, NatsError> {
        if self.direct {
            let half = self.connection.request_timeout() / 2;
            match send(&self.connection, subject, &NatsHeaders::new(), body, true, half) {
                Ok(answer) => return from_direct(&self.what(key), &self.prefix, answer),
                Err(error) if error.kind() == NatsErrorKind::NoResponders || error.is_timeout() => {}
                Err(error) => return Err(error),
            }
        }
        self.read_leader(key, ask_leader)
    }

    /// Returns the request body for the last entry of a key.
    pub(super) fn last_of(&self, key: &str) -> Value {
        json!({"last_by_subj": format!("{}{key}", self.prefix)})
    }

    pub(super) fn read_leader(&self, key: &str, body: &Value) -> Result<Option<KvEntry>, NatsError> {
        let method = format!("STREAM.MSG.GET.{}", stream_name(&self.name));
        match call::<StoredMessage>(&self.connection, &method, body, true)? {
            Ok(stored) => from_stored(&self.what(key), &self.prefix, stored).map(Some),
            Err(error) if error.err_code == api::NO_MESSAGE => Ok(None),
            Err(error) if error.err_code == api::STREAM_NOT_FOUND => Err(no_bucket(&self.name)),
            Err(error) => Err(error.into_error(&self.connection, &self.what(key))),
        }
    }

    /// Starts a watch. Returns before the watch's first answer arrives.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is invalid, the bucket does not exist, or the server does not answer.
    pub fn watch(&self, options: &KvWatchOptions) -> Result<KvWatch, NatsError> {
        self.start_watch(options, false)
    }

    fn start_watch(&self, options: &KvWatchOptions, is_listing: bool) -> Result<KvWatch, NatsError> {
        let found = info(&self.connection, &self.name)?;
        let mut options = options.clone();
        if is_listing {
            // If the last entries have just been removed, only a heartbeat shows that nothing follows.
            options.heartbeat = options.heartbeat.min(self.connection.request_timeout() / 4).max(SHORTEST_HEARTBEAT);
        }
        KvWatch::start(&self.connection, &self.name, &found, &options)
    }

    /// Returns the names of all keys that have a value, sorted.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub fn keys(&self, filter: &str) -> Result<Vec<String>, NatsError> {
        let options = KvWatchOptions::new().filter(filter).keys_only().ignore_deletes();
        Ok(self.list_with(&options)?.entries.into_iter().map(|entry| entry.key).collect())
    }

    /// Lists the values of all keys that match `filter`, sorted by key. The listing has a position from which a watch
    /// can continue.
    ///
    /// # Errors
    ///
    /// Returns an error if the filter is invalid, the bucket does not exist, or the server does not answer within the
    /// request timeout, which starts again with each entry.
    pub fn list(&self, filter: &str) -> Result<KvListing, NatsError> {
        self.list_with(&KvWatchOptions::new().filter(filter).ignore_deletes())
    }

    /// Returns the kept revisions of a key in order, including markers. Empty if the key was never written.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub fn history(&self, key: &str) -> Result<Vec<KvEntry>, NatsError> {
        check_key(key)?;
        listing::collect(self.start_watch(&KvWatchOptions::new().filter(key).with_history(), true)?, &self.connection)
            .map(|listing| listing.entries)
    }

    pub(crate) fn list_with(&self, options: &KvWatchOptions) -> Result<KvListing, NatsError> {
        // A marker that arrives during the listing removes the entry listed before it.
        let with_markers = KvWatchOptions { ignore_deletes: false, ..options.clone() };
        let mut listing = listing::collect(self.start_watch(&with_markers, true)?, &self.connection)?.last_of_each();
        if options.ignore_deletes {
            listing.entries.retain(|entry| !entry.is_marker());
        }
        Ok(listing)
    }

    pub(super) fn what(&self, key: &str) -> String {
        format!("key {key:?} of bucket {:?}", self.name)
    }
}

pub(super) fn info(connection: &NatsConnection, bucket: &str) -> Result<StreamInfo, NatsError> {
    match call(connection, &format!("STREAM.INFO.{}", stream_name(bucket)), &json!({}), true)? {
        Ok(info) => Ok(info),
        Err(error) if error.err_code == api::STREAM_NOT_FOUND => Err(no_bucket(bucket)),
        Err(error) => Err(error.into_error(connection, &format!("bucket {bucket:?}"))),
    }
}

pub(super) fn no_bucket(name: &str) -> NatsError {
    NatsError::not_found(format_args!("bucket {name:?}"))
}

impl fmt::Debug for KvBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvBucket").field("name", &self.name).finish_non_exhaustive()
    }
}
