//! The reserve: an entry of filler bytes, which a deletion removes if the bucket is full.
//!
//! # Invariants
//!
//! - Before an object is created or changed, the reserve is made twice as large as the object, but no larger than a
//!   quarter of the bucket. Each step of the object's deletion, such as the removal of a finalizer, fits into that
//!   room.
//! - A client checks the reserve before its first write, and again after each sign of a full bucket. In a bucket with
//!   a size limit, it checks again before it has written a quarter of the remaining room.
//! - A write that finds no room for the reserve is refused, so that it does not take the room that a deletion has just
//!   made. Clients that write between the deletion and the restored reserve can still take that room. A change then
//!   fails, and a deletion without finalizers makes room.

use super::key::RESERVE;
use super::store::{HEADERS, ObjectStore};
use crate::error::{NatsError, NatsErrorKind};
use crate::kv::{NOTE, RoomyWrite, operation};
use crate::protocol::NatsHeaders;
use crate::sync::atomic::Ordering;
use homeostat::rt::Chain;

/// The smallest reserve in bytes. It is enough for the markers of some objects.
const SMALLEST_RESERVE: usize = 4 << 10;
/// The reserve may take one part in this many of the bucket.
const RESERVE_SHARE: usize = 4;
/// In how many steps the reserve shrinks if it cannot be restored completely.
const RESTORE_STEPS: usize = 16;

/// A write of an object's entry.
pub(super) struct EntryWrite<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a [u8],
    pub(super) expected: u64,
    pub(super) note: &'a str,
    /// Whether it is the marker of a deletion.
    pub(super) removes: bool,
    /// Whether a deletion needs this write, so that it may use the reserve.
    pub(super) frees: bool,
    /// Returns whether the entry is no larger than the one it replaces. Then it may also use the reserve, if the old
    /// entry can be removed. A full bucket must not stop the renewal of leases, for example.
    pub(super) replaces: &'a dyn Fn() -> bool,
}

impl ObjectStore {
    /// Writes an entry on condition that its key has the expected revision. Returns the new revision.
    pub(super) fn write_entry(&self, write: &EntryWrite<'_>) -> Result<u64, NatsError> {
        let EntryWrite { key, value, expected, note, removes, frees, replaces } = *write;
        let mut headers = if removes { operation("DEL") } else { NatsHeaders::new() };
        headers.insert(NOTE, note);
        let kept = if frees { Ok(()) } else { self.keep_reserve(value.len() + HEADERS) };
        match kept.and_then(|()| self.bucket.write(key, value, headers.clone(), Some(expected))) {
            Err(error) if error.is_full() => {
                self.reserve.store(0, Ordering::Relaxed);
                if frees || (self.bucket.check_purges().is_ok() && replaces()) {
                    self.write_in_reserve(key, value, &headers, expected, removes)
                } else {
                    Err(error)
                }
            }
            result => result,
        }
    }

    /// Writes to a full bucket an entry that a deletion needs. If this used the reserve, restores it as far as there
    /// is room.
    pub(super) fn write_in_reserve(
        &self,
        key: &str,
        value: &[u8],
        headers: &NatsHeaders,
        expected: u64,
        removes: bool,
    ) -> Result<u64, NatsError> {
        let reserve = self.bucket.latest_entry(RESERVE)?.map_or(0, |entry| entry.value.len());
        let (expected, spare) = (Some(expected), Some(RESERVE));
        let written = self.bucket.write_with_room(&RoomyWrite { key, value, headers, expected, spare, removes })?;
        if reserve > 0 && matches!(self.bucket.latest_entry(RESERVE), Ok(None)) {
            self.restore_reserve(reserve);
        }
        Ok(written)
    }

    /// Makes the reserve large enough for an object of this size.
    fn keep_reserve(&self, size: usize) -> Result<(), NatsError> {
        let most = self.bucket.max_bytes.map_or(usize::MAX, |bytes| bytes / RESERVE_SHARE).min(self.most_size());
        let wanted = size.saturating_mul(2).max(SMALLEST_RESERVE).min(most);
        let spend = |left: usize| left.checked_sub(size);
        while self.reserve.load(Ordering::Relaxed) < wanted
            || self.unchecked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_err()
        {
            let entry = self.bucket.latest_entry(RESERVE)?;
            let revision = entry.as_ref().map_or(0, |entry| entry.revision);
            let mut held = entry.map_or(0, |entry| entry.value.len());
            let mut unchecked = usize::MAX;
            if held < wanted {
                held = wanted.next_power_of_two().min(most);
                match self.bucket.update(RESERVE, &filler(held), revision) {
                    // Only the last entry is needed. Without the permission to remove the others, the history limits
                    // them.
                    Ok(stored) if revision > 0 => drop(self.bucket.forget_before(RESERVE, stored)),
                    Ok(_) => {}
                    Err(error) if error.is_conflict() => continue,
                    Err(error) if error.kind() == NatsErrorKind::PermissionsViolation => {
                        let (bucket, error) = (self.bucket.name(), Chain(&error));
                        log::warn!(
                            bucket, error:%;
                            "bucket {bucket}: deletions may fail once the bucket is full, because the reserve cannot be written: {error}"
                        );
                        held = usize::MAX;
                    }
                    Err(error) => return Err(error),
                }
            }
            if let Some(limit) = self.bucket.max_bytes.filter(|_| held < usize::MAX) {
                let used = usize::try_from(self.bucket.status()?.bytes).unwrap_or(usize::MAX);
                unchecked = (limit.saturating_sub(used) / RESERVE_SHARE).max(size);
            }
            self.reserve.store(held, Ordering::Relaxed);
            self.unchecked.store(unchecked, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Restores a reserve that a deletion has used, as far as there is room.
    fn restore_reserve(&self, size: usize) {
        for part in (1..=RESTORE_STEPS).rev() {
            match self.bucket.update(RESERVE, &filler(size / RESTORE_STEPS * part), 0) {
                Err(error) if error.is_full() => {}
                Ok(_) => return,
                Err(error) => {
                    // Another client may have restored it.
                    let (bucket, error) = (self.bucket.name(), Chain(&error));
                    return log::debug!(bucket, error:%; "bucket {bucket}: cannot restore the reserve: {error}");
                }
            }
        }
    }
}

/// Returns the value of a reserve.
fn filler(size: usize) -> Vec<u8> {
    vec![b'.'; size]
}
