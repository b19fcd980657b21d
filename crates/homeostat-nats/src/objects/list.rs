//! Lists of objects, as of one revision.

use super::entry::{WriteKind, WriteNote};
use super::key::{EntryKey, filter};
use super::store::{ObjectStore, decoded, failure};
use super::version::ObjectVersion;
use crate::error::NatsError;
use crate::kv::{KvEntry, KvListing, KvWatchOptions};
use homeostat_objects::store::ReadableList;
use homeostat_objects::{ClientError, Kind, ObjectKey, ObjectList, ObjectRef, Query};

/// How often one call lists the entries at most.
const MOST_LISTINGS: u32 = 3;

/// Where a list continues: the version of the list, and the last object of the previous page.
struct PageToken {
    version: ObjectVersion,
    after: ObjectKey,
}

impl PageToken {
    fn parse(text: &str) -> Option<Self> {
        let (version, after) = text.split_once('/')?;
        Some(Self { version: ObjectVersion::parse(version)?, after: after.parse().ok()? })
    }
}

/// Returns the filter for the entries that a query may select.
pub(super) fn filter_of(kind: &Kind, query: &Query) -> String {
    filter(kind, query.namespace.as_deref(), query.fields.equal_to("metadata.name"))
}

/// Returns a reference to the kind that is listed or watched.
pub(super) fn listed(kind: &Kind, query: &Query) -> ObjectRef {
    ObjectRef::new(kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), ""))
}

impl ObjectStore {
    /// Lists the objects that a query selects, in key order, and the errors of unreadable entries.
    ///
    /// An unreadable entry takes an object's place on its page.
    pub(super) fn list(&self, kind: &Kind, query: &Query) -> Result<ReadableList, ClientError> {
        let named = || listed(kind, query);
        let token = match query.continue_token.as_deref() {
            None | Some("") => None,
            Some(text) => Some(PageToken::parse(text).ok_or_else(|| {
                ClientError::invalid(named(), "continue", text, "must be the continue token of a list")
            })?),
        };
        let mut options = KvWatchOptions::new().filter(filter_of(kind, query));
        if token.is_none() {
            options = options.ignore_deletes();
        }
        let KvListing { entries, position, .. } = self.listing(&options).map_err(|error| failure(named(), error))?;
        let created_ms = self.note_created(position.created());
        let now = ObjectVersion { created_ms, revision: position.revision() };
        let version = token.as_ref().map_or(now, |token| token.version);
        let gone = || ClientError::gone(named(), version.to_string());
        if let Some(token) = &token {
            let removed = self.markers_removed().map_err(|error| failure(named(), error))?.removed;
            if token.version.created_ms != created_ms || token.version > now || removed > token.version.revision {
                return Err(gone());
            }
        }
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(key) = EntryKey::parse(&entry.key).map(|key| key.key) else { continue };
            if token.as_ref().is_some_and(|token| key <= token.after) {
                continue;
            }
            let entry = if entry.revision > version.revision && token.is_some() {
                match self.entry_then(entry, version.revision).map_err(|error| failure(named(), error))? {
                    EntryThen::Entry(entry) => entry,
                    EntryThen::Absent => continue,
                    EntryThen::Unknown => return Err(gone()),
                }
            } else {
                entry
            };
            if entry.is_marker() {
                continue;
            }
            let found = decoded(&entry, ObjectVersion { created_ms, revision: entry.revision }, Some(kind), || {
                ObjectRef::new(kind, &key)
            });
            if found.as_ref().map_or(true, |object| query.selects_content(object)) {
                items.push((key, found));
            }
        }
        items.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let limit = query.limit.filter(|limit| *limit > 0 && *limit < items.len());
        let continue_token = limit.and_then(|limit| {
            items.truncate(limit);
            items.last().map(|(last, _)| format!("{version}/{last}"))
        });
        let (mut objects, mut unreadable) = (Vec::with_capacity(items.len()), Vec::new());
        for (_, found) in items {
            match found {
                Ok(object) => objects.push(object),
                Err(error) => unreadable.push(error),
            }
        }
        Ok((ObjectList::new(version.to_string(), objects).continue_token(continue_token), unreadable))
    }

    /// Lists entries. Starts again if the consumer was replaced while another client removed markers.
    fn listing(&self, options: &KvWatchOptions) -> Result<KvListing, NatsError> {
        for _ in 0..MOST_LISTINGS {
            let listing = self.bucket.list_with(options)?;
            match listing.interrupted_since {
                Some(begin) if self.markers_removed()?.revision > begin => {}
                _ => return Ok(listing),
            }
        }
        Err(NatsError::answer("a list", "its consumer was replaced each time, and markers were removed meanwhile"))
    }

    /// Returns a key's entry as of an earlier revision, given a later entry.
    fn entry_then(&self, mut entry: KvEntry, revision: u64) -> Result<EntryThen, NatsError> {
        while entry.revision > revision {
            let Some(note) = WriteNote::of(&entry) else { return Ok(EntryThen::Unknown) };
            if note.previous <= revision && note.kind == WriteKind::Created {
                return Ok(EntryThen::Absent);
            }
            match self.bucket.entry_at(&entry.key, note.previous)? {
                Some(previous) => entry = previous,
                None => return Ok(EntryThen::Unknown),
            }
        }
        Ok(EntryThen::Entry(entry))
    }
}

/// The state of a key at an earlier revision.
enum EntryThen {
    Entry(KvEntry),
    Absent,
    /// The bucket no longer keeps it.
    Unknown,
}
