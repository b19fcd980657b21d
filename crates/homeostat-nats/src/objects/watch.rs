//! Watches: a bucket's changes as events about objects.
//!
//! # Invariants
//!
//! - No deletion is lost through the removal of its marker. Before a client removes markers, it writes a note about
//!   them, and it keeps markers that the consumer of a watch has not sent. After each creation of a consumer that
//!   continues, the watch reads the note.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::delivered::{DeliveredKeys, KeyBefore, LastState};
use super::entry::{WriteKind, WriteNote};
use super::key::EntryKey;
use super::list::{filter_of, listed};
use super::store::{ObjectStore, decoded, failure};
use super::version::{ObjectVersion, parse_created_ms};
use crate::error::NatsError;
use crate::kv::{KvEntry, KvPosition, KvUpdate, KvWatch, KvWatchOptions};
use homeostat::base::{CancellationToken, OnCancel};
use homeostat_objects::store::event_of;
use homeostat_objects::{ClientError, Kind, ObjectKey, ObjectRef, Query, SharedObject, WatchEvent};

/// How long a connected stream may be idle before it delivers a bookmark.
const SILENCE: Duration = Duration::from_secs(60);

type EventResult = Result<WatchEvent<SharedObject>, ClientError>;

/// The events of one watch.
pub(super) struct ObjectEvents {
    store: Arc<ObjectStore>,
    /// The same store. Its requests fail once the stream is stopped.
    stoppable: ObjectStore,
    kind: Kind,
    query: Query,
    /// `None` after the stream has ended.
    watch: Option<OpenWatch>,
    /// The bucket's creation time. `None` before the first entry.
    created_ms: Option<u64>,
    /// Whether the objects that existed at the start are still being delivered.
    is_initial: bool,
    delivered: DeliveredKeys,
    stop: CancellationToken,
}

struct OpenWatch {
    updates: KvWatch,
    /// Ends the watch when the stream is stopped.
    _on_stop: OnCancel,
}

impl ObjectEvents {
    pub(super) fn new(
        store: &Arc<ObjectStore>,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<Self, ClientError> {
        let from = from.filter(|from| !matches!(*from, "" | "0"));
        let selects = !query.labels.is_empty() || !query.fields.is_empty();
        let mut events = Self {
            store: Arc::clone(store),
            stoppable: store.with_stop(stop),
            kind: kind.clone(),
            query: query.clone(),
            watch: None,
            created_ms: None,
            is_initial: from.is_none(),
            delivered: DeliveredKeys::new(0, selects),
            stop: stop.clone(),
        };
        if stop.is_cancelled() {
            return Ok(events);
        }
        if let Err(error) = events.open(from) {
            // A stop ends the requests too.
            return if stop.is_cancelled() { Ok(events) } else { Err(error) };
        }
        Ok(events)
    }

    /// Starts the watch at a version, or with all objects.
    fn open(&mut self, from: Option<&str>) -> Result<(), ClientError> {
        let Self { store, stoppable, kind, query, stop, .. } = self;
        let named = || listed(kind, query);
        let fail = |error| failure(named(), error);
        let mut options = KvWatchOptions::new().filter(filter_of(kind, query));
        if let Some(text) = from {
            let facts = stoppable.bucket.facts().map_err(fail)?;
            let created_ms = store.note_created(&facts.created);
            let removed = stoppable.markers_removed().map_err(fail)?.removed;
            let version = ObjectVersion::parse(text)
                .filter(|version| {
                    version.created_ms == created_ms && (removed..=facts.revision).contains(&version.revision)
                })
                .ok_or_else(|| ClientError::gone(named(), text))?;
            options = options.after(KvPosition::new(version.revision, &facts.created));
            self.created_ms = Some(created_ms);
            self.delivered = DeliveredKeys::new(version.revision, self.delivered.selects());
        }
        let mut updates = stoppable.bucket.watch(&options).map_err(fail)?;
        updates.announce();
        let stopper = updates.stopper();
        self.watch = Some(OpenWatch { updates, _on_stop: stop.on_cancel(move || stopper.stop()) });
        Ok(())
    }

    fn place(&self) -> Option<KvPosition> {
        self.watch.as_ref()?.updates.position()
    }

    /// Returns the revision up to which all changes were delivered.
    fn reached(&self) -> u64 {
        self.place().map_or(self.delivered.from(), |position| position.revision())
    }

    fn version(&mut self, revision: u64) -> ObjectVersion {
        let created_ms = self.created_ms.or_else(|| parse_created_ms(self.place()?.created())).unwrap_or_default();
        self.created_ms = Some(created_ms);
        ObjectVersion { created_ms, revision }
    }

    fn gone(&mut self, revision: u64) -> ClientError {
        let version = self.version(revision).to_string();
        ClientError::gone(listed(&self.kind, &self.query), version)
    }

    /// Reads the next event. `None` if it does not concern the stream's reader.
    fn step(&mut self) -> Option<EventResult> {
        let watch = self.watch.as_mut()?;
        let update = watch.updates.recv_timeout(SILENCE);
        let caught_up = watch.updates.caught_up();
        if let Some(after) = watch.updates.take_resumed() {
            // Nothing was delivered since then.
            return self.look_for_removed_markers(after).err().map(Err);
        }
        match update {
            Ok(KvUpdate::Entry(entry)) => {
                let event = self.convert(&entry);
                self.delivered.caught_up(caught_up);
                event
            }
            Ok(KvUpdate::Synced) if !std::mem::take(&mut self.is_initial) => None,
            Ok(KvUpdate::Synced) => {
                let version = self.version(self.reached());
                self.store.set_created_ms(version.created_ms);
                Some(Ok(WatchEvent::Bookmark(version.to_string())))
            }
            Err(error) if error.is_timeout() => {
                let is_alive = !self.is_initial && self.store.connection().status().connected;
                let version = self.version(self.reached());
                is_alive.then(|| Ok(WatchEvent::Bookmark(version.to_string())))
            }
            Err(error) if error.is_gone() => Some(Err(self.gone(self.reached()))),
            Err(error) => Some(Err(failure(listed(&self.kind, &self.query), error))),
        }
    }

    /// Checks that no marker after this revision was removed. A new consumer started there and may have missed such a
    /// marker.
    fn look_for_removed_markers(&mut self, after: u64) -> Result<(), ClientError> {
        let fail = |error: NatsError| failure(listed(&self.kind, &self.query), error);
        let removed = self.stoppable.markers_removed().map_err(fail)?.removed;
        if removed > after { Err(self.gone(after)) } else { Ok(()) }
    }

    fn convert(&mut self, entry: &KvEntry) -> Option<EventResult> {
        let key = EntryKey::parse(&entry.key)?.key;
        let note = WriteNote::of(entry);
        let before = self.delivered.take(&entry.key, entry.revision, entry.is_marker(), note, self.is_initial);
        if let KeyBefore::Missed(until) = before {
            return Some(Err(self.gone(until)));
        }
        let object = match self.object(entry, &key) {
            Ok(object) => object,
            Err(error) => return Some(Err(error)),
        };
        if self.delivered.selects() {
            return self.selected(entry, &key, note, before, &object).transpose();
        }
        Some(Ok(match (before == KeyBefore::Existed, entry.is_marker()) {
            (true, true) => WatchEvent::Deleted(object),
            (false, true) => return None,
            (true, false) => WatchEvent::Modified(object),
            (false, false) => WatchEvent::Added(object),
        }))
    }

    /// Returns the object of an entry. For a marker, returns the last state.
    fn object(&mut self, entry: &KvEntry, key: &ObjectKey) -> Result<SharedObject, ClientError> {
        let version = self.version(entry.revision);
        if entry.is_marker() && entry.value.is_empty() {
            // Another program has deleted it, or its last state was too large.
            return Ok(SharedObject::from(json!({
                "apiVersion": self.kind.api_version(), "kind": self.kind.name(),
                "metadata": {"namespace": key.namespace(), "name": key.name(), "resourceVersion": version.to_string()},
            })));
        }
        decoded(entry, version, Some(&self.kind), || ObjectRef::new(&self.kind, key))
    }

    /// Returns the event for a query that selects by content.
    fn selected(
        &mut self,
        entry: &KvEntry,
        key: &ObjectKey,
        note: Option<WriteNote>,
        before: KeyBefore,
        object: &SharedObject,
    ) -> Result<Option<WatchEvent<SharedObject>>, ClientError> {
        let known = self.delivered.take_state(&entry.key);
        let old = match (known, note) {
            (Some(LastState::Selected(known)), _) => Some(known),
            (Some(LastState::Hidden), _) => None,
            _ if before == KeyBefore::New || self.delivered.from() == 0 => None,
            (None, Some(WriteNote { kind: WriteKind::Created, .. })) => None,
            (None, note) => self.state_before(entry, key, note)?,
        };
        let removed = entry.is_marker();
        let version = self.version(entry.revision);
        let event = event_of(old.as_ref(), object, removed, version, &self.query);
        let is_selected = !removed && self.query.selects_content(object);
        let state = if is_selected { LastState::Selected(object.clone()) } else { LastState::Hidden };
        self.delivered.keep_state(&entry.key, state);
        Ok(event)
    }

    /// Returns the object from before this entry, as the bucket has it.
    fn state_before(
        &mut self,
        entry: &KvEntry,
        key: &ObjectKey,
        note: Option<WriteNote>,
    ) -> Result<Option<SharedObject>, ClientError> {
        let Some(note) = note else { return Err(self.gone(self.delivered.from())) };
        let named = ObjectRef::new(&self.kind, key);
        let before =
            self.stoppable.bucket.entry_at(&entry.key, note.previous).map_err(|error| failure(named, error))?;
        let Some(before) = before else { return Err(self.gone(self.delivered.from())) };
        if before.is_marker() { Ok(None) } else { self.object(&before, key).map(Some) }
    }
}

impl Iterator for ObjectEvents {
    type Item = EventResult;

    fn next(&mut self) -> Option<EventResult> {
        while self.watch.is_some() && !self.stop.is_cancelled() {
            let Some(item) = self.step() else { continue };
            if self.stop.is_cancelled() {
                break;
            }
            // An unreadable object does not affect the others.
            if item.as_ref().is_err_and(|error| !error.is_invalid()) {
                self.watch = None;
            }
            return Some(item);
        }
        self.watch = None;
        None
    }
}
