//! Writes to a bucket.

use std::time::Duration;

use super::super::error::{NatsError, NatsErrorKind};
use super::super::protocol::NatsHeaders;
use super::api::{self, PubAck, TTL, need_version, parse, send};
use super::bucket::{KvBucket, info};
use super::entry::OPERATION;
use super::key::check_key;
use super::room::RoomyWrite;

/// The header with the revision that a key must have.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// How often a creation is repeated if other writers delete the key meanwhile.
const CREATES: u32 = 10;

impl KvBucket {
    /// Writes a value unconditionally. Returns its revision.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is invalid, the value exceeds a limit, or the server does not accept the write.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<u64, NatsError> {
        self.write(key, value, NatsHeaders::new(), None)
    }

    /// Writes a key's value if the key does not exist or was deleted. Returns the value's revision.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put), and if the key has a value.
    pub fn create_key(&self, key: &str, value: &[u8]) -> Result<u64, NatsError> {
        self.create_with(key, value, &NatsHeaders::new())
    }

    /// Like [`create_key`](Self::create_key), with a value that expires after `ttl`, in whole seconds.
    ///
    /// The bucket needs a [`marker_ttl`](super::KvConfig::marker_ttl).
    ///
    /// # Errors
    ///
    /// As [`create_key`](Self::create_key), and if `ttl` is shorter than a second, or the server is older than version
    /// 2.11.
    pub fn create_key_with_ttl(&self, key: &str, value: &[u8], ttl: Duration) -> Result<u64, NatsError> {
        self.create_with(key, value, &self.ttl_header(ttl)?)
    }

    fn create_with(&self, key: &str, value: &[u8], headers: &NatsHeaders) -> Result<u64, NatsError> {
        let mut expected = 0;
        for _ in 0..CREATES {
            match self.write(key, value, headers.clone(), Some(expected)) {
                Err(error) if error.is_conflict() => {}
                result => return result,
            }
            // A deletion's marker has a revision too, which another copy may not know.
            match self.read_leader(key, &self.last_of(key))? {
                Some(entry) if !entry.is_marker() => {
                    return Err(NatsError::already_exists(self.what(key)));
                }
                marker => expected = marker.map_or(0, |marker| marker.revision),
            }
        }
        Err(NatsError::conflict(self.what(key), "other writers change it again and again"))
    }

    /// Writes a value if the key's last revision is `revision`. Returns the new revision.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put), and a conflict if the key has a different revision.
    pub fn update(&self, key: &str, value: &[u8], revision: u64) -> Result<u64, NatsError> {
        self.write(key, value, NatsHeaders::new(), Some(revision))
    }

    /// Deletes a key. Its earlier revisions stay in the history. Returns the marker's revision.
    ///
    /// A key that does not exist gets a marker too.
    ///
    /// In a [full](NatsError::is_full) bucket, the key loses its history. If that does not make enough room, it also
    /// loses its value before the marker is written. Watches do not report the deletion if the program is killed in
    /// between, or if the marker still does not fit. In the latter case, this returns the last revision. This needs
    /// server version 2.9.12.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn delete(&self, key: &str) -> Result<u64, NatsError> {
        self.remove(key, &operation("DEL"), None)
    }

    /// Like [`delete`](Self::delete), if the key's last revision is `revision`. Returns the marker's revision.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    pub fn delete_revision(&self, key: &str, revision: u64) -> Result<u64, NatsError> {
        self.remove(key, &operation("DEL"), Some(revision))
    }

    /// Deletes a key with its history. Returns the marker's revision.
    ///
    /// With a server before version 2.9.12, watches with wider filters can miss earlier changes that they have not
    /// received. In a full bucket it does the same as [`delete`](Self::delete).
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn purge(&self, key: &str) -> Result<u64, NatsError> {
        self.remove(key, &purge_headers(), None)
    }

    /// Like [`purge`](Self::purge), if the key's last revision is `revision`. Returns the marker's revision.
    ///
    /// # Errors
    ///
    /// As [`update`](Self::update).
    pub fn purge_revision(&self, key: &str, revision: u64) -> Result<u64, NatsError> {
        self.remove(key, &purge_headers(), Some(revision))
    }

    /// Like [`purge`](Self::purge), with a marker that expires after `ttl`, in whole seconds.
    ///
    /// # Errors
    ///
    /// As [`create_key_with_ttl`](Self::create_key_with_ttl).
    pub fn purge_with_ttl(&self, key: &str, ttl: Duration) -> Result<u64, NatsError> {
        let mut headers = self.ttl_header(ttl)?;
        for (name, value) in purge_headers().iter() {
            headers.insert(name, value);
        }
        self.remove(key, &headers, None)
    }

    fn remove(&self, key: &str, headers: &NatsHeaders, expected: Option<u64>) -> Result<u64, NatsError> {
        self.write_with_room(&RoomyWrite { key, value: b"", headers, expected, spare: None, removes: true })
    }

    fn ttl_header(&self, ttl: Duration) -> Result<NatsHeaders, NatsError> {
        need_version(&self.connection, "ttl", TTL)?;
        if ttl < Duration::from_secs(1) {
            return Err(NatsError::invalid("ttl", ttl, "at least 1s"));
        }
        let mut headers = NatsHeaders::new();
        headers.insert("Nats-TTL", format!("{}s", ttl.as_secs()));
        Ok(headers)
    }

    pub(crate) fn write(
        &self,
        key: &str,
        value: &[u8],
        mut headers: NatsHeaders,
        expected: Option<u64>,
    ) -> Result<u64, NatsError> {
        check_key(key)?;
        if let Some(revision) = expected {
            headers.insert(EXPECTED, revision.to_string());
        }
        let size = value.len() + headers.block_len();
        if let Some(limit) = self.max_value_size.filter(|limit| size > *limit) {
            let (what, of) = (self.what(key), "max_value_size of the bucket");
            return Err(NatsError::too_large(&what, size, limit, of));
        }
        let subject = format!("{}{key}", self.prefix);
        let answer = match send(&self.connection, &subject, &headers, value, false, self.connection.request_timeout()) {
            Ok(answer) => answer,
            Err(error) if error.kind() == NatsErrorKind::NoResponders => return Err(self.unheard(error)),
            Err(error) => return Err(error),
        };
        match parse::<PubAck>(&self.what(key), &answer.payload)? {
            Ok(stored) => Ok(stored.seq),
            Err(error) if api::WRONG_LAST_SEQUENCE.contains(&error.err_code) => {
                let reason = match expected {
                    Some(revision) => format!("revision {revision} was expected; {}", error.description),
                    None => error.description,
                };
                Err(NatsError::conflict(self.what(key), reason))
            }
            Err(error) => Err(error.into_error(&self.connection, &self.what(key))),
        }
    }

    /// Returns why a request was not heard: there is no `JetStream`, or no bucket.
    fn unheard(&self, error: NatsError) -> NatsError {
        info(&self.connection, self.name()).err().unwrap_or(error)
    }
}

pub(crate) fn operation(name: &str) -> NatsHeaders {
    let mut headers = NatsHeaders::new();
    headers.insert(OPERATION, name);
    headers
}

fn purge_headers() -> NatsHeaders {
    let mut headers = operation("PURGE");
    headers.insert("Nats-Rollup", "sub");
    headers
}
