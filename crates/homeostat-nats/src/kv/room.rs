//! Deletions in a full bucket.
//!
//! A deletion writes a marker, and its steps change objects, so both need room. If the bucket is full, these writes
//! make room by the following means, in this order:
//!
//! 1. Remove the entries of the key before its last one. A watch that has not read them is *gone*, or sees only the
//!    later ones.
//! 2. Remove the spare entry that a client of objects keeps for this.
//! 3. For a marker only: write it without the object's last state.
//! 4. For a marker only: remove the key's last value first, then write the marker without the last state. This comes
//!    last, because watches miss the deletion if the program ends in between. It happens, for example, if other
//!    programs have filled the bucket.
//!
//! Then the earlier entries of the key are removed. A deletion frees at least as much room as it takes, so a full
//! bucket can be emptied. With a server before version 2.9.12, removing entries of keys would make watches miss
//! changes, so only the spare entry is removed.

use super::super::error::NatsError;
use super::super::protocol::NatsHeaders;
use super::bucket::KvBucket;
use homeostat::rt::Chain;

/// How often the spare entry is removed. Another client may write it again before this one has used the room.
const SPARE_TRIES: u32 = 20;

/// A write that must succeed in a full bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomyWrite<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a [u8],
    pub(crate) headers: &'a NatsHeaders,
    /// The key's expected last revision. `None` writes unconditionally.
    pub(crate) expected: Option<u64>,
    /// The key of an entry that may be removed to make room.
    pub(crate) spare: Option<&'a str>,
    /// Whether the write is the marker of a deletion.
    pub(crate) removes: bool,
}

impl KvBucket {
    /// Writes an entry, after making room for it if the bucket is full. Returns its revision.
    pub(crate) fn write_with_room(&self, write: &RoomyWrite<'_>) -> Result<u64, NatsError> {
        let RoomyWrite { key, value, headers, expected, spare, removes } = *write;
        let store = |value| self.write(key, value, headers.clone(), expected);
        let full = match store(value) {
            Err(error) if error.is_full() => error,
            result => return result,
        };
        let removes_entries = self.check_purges().is_ok();
        let last = match expected {
            Some(revision) => revision,
            None => match self.latest_entry(key)? {
                Some(marker) if marker.is_marker() => return Ok(marker.revision),
                entry => entry.map_or(0, |entry| entry.revision),
            },
        };
        let attempt = |value| match store(value) {
            Err(error) if error.is_full() => Ok(None),
            result => result.map(Some),
        };
        // If no entries of keys can be removed, all room is left to markers.
        let value = if removes && !removes_entries { b"" } else { value };
        let mut stored = None;
        if removes_entries && last > 1 {
            self.forget_before(key, last)?;
            stored = attempt(value)?;
        }
        let mut tries = 0..SPARE_TRIES;
        while let (None, Some(spare), Some(_)) = (stored, spare, tries.next()) {
            let Some(entry) = self.latest_entry(spare)? else { break };
            self.forget_before(spare, entry.revision + 1)?;
            stored = attempt(value)?;
        }
        if stored.is_none() && removes && !value.is_empty() {
            stored = attempt(b"")?;
        }
        let Some(revision) = stored else {
            return if removes && removes_entries && last > 0 { self.remove_and_mark(write, last) } else { Err(full) };
        };
        if removes_entries && let Err(error) = self.forget_before(key, revision) {
            let (bucket, error) = (self.name(), Chain(&error));
            log::debug!(bucket, key, error:%; "bucket {bucket}: cannot remove the history of {key:?}: {error}");
        }
        Ok(revision)
    }

    /// Removes the last value of a key, then writes the marker.
    fn remove_and_mark(&self, write: &RoomyWrite<'_>, last: u64) -> Result<u64, NatsError> {
        let RoomyWrite { key, headers, .. } = *write;
        let found = self.latest_entry(key)?.map_or(0, |entry| entry.revision);
        if found != last {
            let reason = format!("revision {last} was expected, but the key has {found}");
            return Err(NatsError::conflict(self.what(key), reason));
        }
        // An entry that another writer has stored since then stays.
        self.forget_before(key, last + 1)?;
        match self.write(key, b"", headers.clone(), Some(0)) {
            // Another writer has created the key again. Watches notice that an entry is missing.
            Err(error) if error.is_conflict() => Ok(last),
            Err(error) if error.is_full() => {
                let bucket = self.name();
                log::warn!(
                    bucket, key, error:%;
                    "bucket {bucket}: key {key:?} was deleted without a marker, so running watches do not report it: {error}"
                );
                Ok(last)
            }
            result => result,
        }
    }
}
