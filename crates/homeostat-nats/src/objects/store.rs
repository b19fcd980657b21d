//! Reads the entries of objects, and holds the state of a client.

use std::collections::HashSet;
use std::error::Error;

use jiff::Timestamp;

use super::entry::decode;
use super::key::{EntryKey, filter, owner};
use super::version::{ObjectVersion, parse_created_ms};
use crate::connection::NatsConnection;
use crate::error::{NatsError, NatsErrorKind};
use crate::kv::{KvBucket, KvEntry};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use homeostat::base::CancellationToken;
use homeostat::rt::Draws;
use homeostat_objects::store::{DistinctQueue, Location};
use homeostat_objects::{ClientError, Kind, ObjectRef, SharedObject};

/// How many bytes of a message are left to its headers.
pub(super) const HEADERS: usize = 512;

/// The bucket of a client, and the state of the client.
pub(super) struct ObjectStore {
    pub(super) bucket: KvBucket,
    /// The bucket's [creation time](ObjectVersion::created_ms), as last seen.
    created_ms: AtomicU64,
    pub(super) draws: Mutex<Draws>,
    /// The work that earlier writes caused and that failed or was not begun.
    pub(super) unfinished: Mutex<DistinctQueue<CascadeStep>>,
    /// The error of the last failed step.
    pub(super) last_failure: Mutex<String>,
    /// The known size of the bucket's reserve. Zero after each sign of a full bucket.
    pub(super) reserve: AtomicUsize,
    /// How many bytes may be written before the reserve is checked again.
    pub(super) unchecked: AtomicUsize,
    /// The kinds that the bucket has, or has had, as groups and names.
    kinds: Mutex<HashSet<(String, String)>>,
}

/// The state of an object's entry.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryState {
    /// Zero if the key has no entry.
    pub(super) revision: u64,
    /// The stored object, or `None` if it does not exist.
    pub(super) object: Option<SharedObject>,
}

/// A step of the work that a write causes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CascadeStep {
    /// Apply the rules for owners and dependents to this object.
    Settle(Location),
    /// Settle the dependents of the owner with this uid, which waits for them or was deleted.
    SettleDependents { uid: String, is_gone: bool },
    /// Remove the key that names a dependent, if it was written before this revision.
    Forget { key: String, before: u64 },
}

impl ObjectStore {
    pub(super) fn new(bucket: KvBucket, created: &str) -> Self {
        let draws = Mutex::new(bucket.connection.clock().draws());
        let created_ms = AtomicU64::new(parse_created_ms(created).unwrap_or_default());
        Self {
            bucket,
            created_ms,
            draws,
            unfinished: Mutex::default(),
            last_failure: Mutex::default(),
            reserve: AtomicUsize::new(0),
            unchecked: AtomicUsize::new(0),
            kinds: Mutex::default(),
        }
    }

    /// Returns a store for the same bucket on another connection.
    pub(super) fn with_connection(&self, connection: NatsConnection) -> Self {
        let bucket = KvBucket { connection, ..self.bucket.clone() };
        let store = Self::new(bucket, "");
        store.set_created_ms(self.version(0).created_ms);
        store
    }

    /// Returns a store for the same bucket. Its requests fail once `stop` is cancelled.
    pub(super) fn with_stop(&self, stop: &CancellationToken) -> Self {
        self.with_connection(self.connection().with_stop(stop))
    }

    pub(super) fn connection(&self) -> &NatsConnection {
        &self.bucket.connection
    }

    /// Records the bucket's creation time, and returns it in milliseconds.
    pub(super) fn note_created(&self, created: &str) -> u64 {
        let created_ms = parse_created_ms(created).unwrap_or_default();
        self.set_created_ms(created_ms);
        created_ms
    }

    /// Records the bucket's creation time.
    pub(super) fn set_created_ms(&self, created_ms: u64) {
        if self.created_ms.swap(created_ms, Ordering::Relaxed) != created_ms {
            // A new bucket has other kinds.
            self.kinds.lock().clear();
        }
    }

    pub(super) fn version(&self, revision: u64) -> ObjectVersion {
        ObjectVersion { created_ms: self.created_ms.load(Ordering::Relaxed), revision }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::try_from(self.connection().clock().time_of_day()).unwrap_or_default()
    }

    /// Returns the largest size of an object's JSON in bytes.
    pub(super) fn most_size(&self) -> usize {
        let most = self.bucket.max_value_size.unwrap_or(usize::MAX).min(self.connection().max_payload());
        most.saturating_sub(HEADERS)
    }

    /// Reads an object's entry. It includes all writes that were answered before.
    ///
    /// The server that orders all writes answers. Other copies may lag behind, including mirrors, which this client
    /// cannot detect.
    pub(super) fn read(&self, key: &EntryKey) -> Result<EntryState, ClientError> {
        let text = key.text();
        let named = || ObjectRef::new(&kind_of(key), &key.key);
        let read = self.bucket.latest_entry(&text);
        let Some(entry) = read.map_err(|error| failure(named(), error))? else { return Ok(EntryState::default()) };
        let object =
            if entry.is_marker() { None } else { Some(decoded(&entry, self.version(entry.revision), None, named)?) };
        Ok(EntryState { revision: entry.revision, object })
    }

    /// Returns the entry that exists if the owner with this uid may have dependents. It is faster to find than the
    /// dependents.
    pub(super) fn owner_entry(&self, uid: &str) -> Result<Option<KvEntry>, NatsError> {
        self.bucket.get_latest(&owner(uid))
    }

    /// Returns whether the bucket has, or ever had, objects of this kind.
    pub(super) fn has_kind(&self, kind: &Kind) -> Result<bool, ClientError> {
        let name = (kind.group().to_owned(), kind.name().to_owned());
        let fail = |error| failure(ObjectRef::new(kind, &homeostat_objects::ObjectKey::cluster("")), error);
        if self.bucket.has_entries(&filter(kind, None, None)).map_err(fail)? {
            self.kinds.lock().insert(name);
            return Ok(true);
        }
        if !self.kinds.lock().contains(&name) {
            return Ok(false);
        }
        // The kind's last markers were removed, or the bucket was replaced by one without this kind.
        self.note_created(&self.bucket.facts().map_err(fail)?.created);
        Ok(self.kinds.lock().contains(&name))
    }
}

/// Returns the object of an entry with this version. With `kind`, the object shows that kind's version.
pub(super) fn decoded(
    entry: &KvEntry,
    version: ObjectVersion,
    kind: Option<&Kind>,
    named: impl FnOnce() -> ObjectRef,
) -> Result<SharedObject, ClientError> {
    decode(&entry.value, version, kind).map_err(|fault| {
        let rule = format!("the entry {:?} cannot be read: {fault}", entry.key);
        ClientError::invalid(named(), "", "", rule)
    })
}

/// Returns the kind of a key, for errors.
pub(super) fn kind_of(key: &EntryKey) -> Kind {
    let kind = Kind::of(&format!("{}/", key.group), &key.kind);
    if key.key.namespace().is_empty() { kind.in_no_namespace() } else { kind }
}

/// Converts a failed request to the error of the client's call.
pub(super) fn failure(object: ObjectRef, error: NatsError) -> ClientError {
    match error.kind() {
        NatsErrorKind::TooLarge | NatsErrorKind::Invalid => ClientError::invalid(object, "", "", error.to_string()),
        NatsErrorKind::PermissionsViolation => ClientError::forbidden(object, error.to_string()),
        _ => ClientError::transport(object, error),
    }
}

/// Returns the failed request that caused the error, if one did.
pub(super) fn nats_error(error: &ClientError) -> Option<&NatsError> {
    error.source()?.downcast_ref()
}
