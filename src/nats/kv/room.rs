//! Deletions in a full bucket.
//!
//! A deletion writes a marker, and the steps of a deletion change objects, so both need room. If there is none, they
//! make room, in this order:
//!
//! 1. The entries of the key before its last one are removed. A watch that has not read them is *gone* or sees the
//!    later ones.
//! 2. A spare entry is removed, which a client of objects keeps for this.
//! 3. Only for a marker: it is written without the last state of its object.
//! 4. Only for a marker: the last value of the key is removed first, and the marker is written without the last state.
//!    Watches miss the deletion if the program ends before it has written the marker. So this step comes last, for
//!    example if other programs have filled the bucket.
//!
//! Then the earlier entries of the key are removed. A deletion gives back at least the room that it takes, so a full
//! bucket can be emptied. A server before version 2.9.12 removes no entries of keys without harm to watches: there only
//! the spare entry helps.

use super::super::error::{NatsError, NatsErrorKind};
use super::super::protocol::NatsHeaders;
use super::bucket::KvBucket;

/// The times that the spare entry is removed. Another client may have written it again, before this one has used its
/// room.
const SPARE_TRIES: u32 = 20;

/// A write that must be possible in a full bucket.
#[derive(Clone, Copy, Debug)]
pub(in crate::nats) struct RoomyWrite<'a> {
    pub(in crate::nats) key: &'a str,
    pub(in crate::nats) value: &'a [u8],
    pub(in crate::nats) headers: &'a NatsHeaders,
    /// The last revision of the key. `None` for a write without a condition.
    pub(in crate::nats) expected: Option<u64>,
    /// The key of an entry that is there to be removed.
    pub(in crate::nats) spare: Option<&'a str>,
    /// It is the marker of a deletion.
    pub(in crate::nats) removes: bool,
}

impl KvBucket {
    /// Writes an entry, and makes room for it if the bucket is full. Returns its revision.
    pub(in crate::nats) fn write_with_room(&self, write: &RoomyWrite<'_>) -> Result<u64, NatsError> {
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
        // Where entries stay, the room is only for markers.
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
            let bucket = self.name();
            log::debug!(bucket, key, error:%; "bucket {bucket}: the history of {key:?} stays: {error}");
        }
        Ok(revision)
    }

    /// Removes the last value of a key, and then writes the marker.
    fn remove_and_mark(&self, write: &RoomyWrite<'_>, last: u64) -> Result<u64, NatsError> {
        let RoomyWrite { key, headers, .. } = *write;
        let found = self.latest_entry(key)?.map_or(0, |entry| entry.revision);
        if found != last {
            let reason = format!("revision {last} was expected, and it has {found}");
            return Err(NatsError::new(NatsErrorKind::Conflict { what: self.what(key), reason }));
        }
        // A later entry of another writer stays.
        self.forget_before(key, last + 1)?;
        match self.write(key, b"", headers.clone(), Some(0)) {
            // Another writer has created the key again. Watches see that an entry is missing.
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
