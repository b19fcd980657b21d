//! Reads the entries of objects, and keeps the memory of the client.

use std::collections::HashSet;

use jiff::Timestamp;

use super::entry::decode;
use super::key::{EntryKey, filter, owner};
use super::version::{ObjectVersion, life_of};
use crate::base::backoff::Draws;
use crate::base::cancel::CancellationToken;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::nats::connection::NatsConnection;
use crate::nats::error::NatsError;
use crate::nats::kv::{KvBucket, KvEntry};
use crate::objects::json::whole_seconds;
use crate::objects::rules::change::Location;
use crate::objects::rules::distinct_queue::DistinctQueue;
use crate::objects::{ClientError, Kind, ObjectRef, SharedObject};

/// The bytes of a message that its headers may take.
pub(super) const HEADERS: usize = 512;

/// The bucket of a client, and the memory of the client.
pub(super) struct ObjectStore {
    pub(super) bucket: KvBucket,
    /// The bucket's [life](ObjectVersion::life), as it was seen last.
    life: AtomicU64,
    pub(super) draws: Mutex<Draws>,
    /// The work that follows earlier writes, and has failed or could not be begun.
    pub(super) unfinished: Mutex<DistinctQueue<FollowUp>>,
    /// The error of the last one that has failed.
    pub(super) last_failure: Mutex<String>,
    /// The size of the bucket's reserve, as far as it is known; zero after each sign of a full bucket.
    pub(super) reserve: AtomicUsize,
    /// The bytes that may be written before the next look at the reserve.
    pub(super) unchecked: AtomicUsize,
    /// The kinds that the bucket is known to have, or to have had: groups and names.
    kinds: Mutex<HashSet<(String, String)>>,
}

/// The entry of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct EntryState {
    /// Zero if the key has no entry.
    pub(super) revision: u64,
    /// The object as it is stored; `None` if it does not exist.
    pub(super) object: Option<SharedObject>,
}

/// A step of the work that follows a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum FollowUp {
    /// Apply the rules for owners and dependents to this object.
    Settle(Location),
    /// Settle the dependents of the owner with this uid, which waits for them or is gone.
    SettleDependents { uid: String, is_gone: bool },
    /// Remove the key that names a dependent, if it was written before this revision.
    Forget { key: String, before: u64 },
}

impl ObjectStore {
    pub(super) fn new(bucket: KvBucket, created: &str) -> Self {
        let draws = Mutex::new(bucket.connection.clock().draws());
        let life = AtomicU64::new(life_of(created).unwrap_or_default());
        Self {
            bucket,
            life,
            draws,
            unfinished: Mutex::default(),
            last_failure: Mutex::default(),
            reserve: AtomicUsize::new(0),
            unchecked: AtomicUsize::new(0),
            kinds: Mutex::default(),
        }
    }

    /// Returns a store of the same bucket over another connection.
    pub(super) fn over(&self, connection: NatsConnection) -> Self {
        let bucket = KvBucket { connection, ..self.bucket.clone() };
        let store = Self::new(bucket, "");
        store.live(self.version(0).life);
        store
    }

    /// Returns a store of the same bucket. A cancelled `stop` ends its requests.
    pub(super) fn until(&self, stop: &CancellationToken) -> Self {
        self.over(self.connection().until(stop))
    }

    pub(super) fn connection(&self) -> &NatsConnection {
        &self.bucket.connection
    }

    /// Takes note of the bucket's creation time. Returns its life.
    pub(super) fn born(&self, created: &str) -> u64 {
        let life = life_of(created).unwrap_or_default();
        self.live(life);
        life
    }

    /// Takes note of the bucket's life.
    pub(super) fn live(&self, life: u64) {
        if self.life.swap(life, Ordering::Relaxed) != life {
            // Another bucket knows other kinds.
            self.kinds.lock().clear();
        }
    }

    pub(super) fn version(&self, revision: u64) -> ObjectVersion {
        ObjectVersion { life: self.life.load(Ordering::Relaxed), revision }
    }

    pub(super) fn now(&self) -> Timestamp {
        whole_seconds(Timestamp::try_from(self.connection().clock().time_of_day()).unwrap_or_default())
    }

    /// Returns the most bytes of an object's JSON.
    pub(super) fn most_size(&self) -> usize {
        let most = self.bucket.max_value_size.unwrap_or(usize::MAX).min(self.connection().max_payload());
        most.saturating_sub(HEADERS)
    }

    /// Reads the entry of an object, with all writes that were answered before.
    ///
    /// The server that orders all writes answers. Other copies may lag behind, also mirrors, which this client cannot know.
    pub(super) fn read(&self, key: &EntryKey) -> Result<EntryState, ClientError> {
        let text = key.text();
        let named = || ObjectRef::new(&kind_of(key), &key.key);
        let read = self.bucket.latest_entry(&text);
        let Some(entry) = read.map_err(|error| failure(named(), error))? else { return Ok(EntryState::default()) };
        let object =
            if entry.is_marker() { None } else { Some(decoded(&entry, self.version(entry.revision), None, named)?) };
        Ok(EntryState { revision: entry.revision, object })
    }

    /// Returns the entry that exists if the owner with this uid may have dependents. The server finds it faster than the dependents.
    pub(super) fn owner_entry(&self, uid: &str) -> Result<Option<KvEntry>, NatsError> {
        self.bucket.get_latest(&owner(uid))
    }

    /// Returns whether the bucket has, or has had, objects of this kind.
    pub(super) fn has_kind(&self, kind: &Kind) -> Result<bool, ClientError> {
        let name = (kind.group().to_owned(), kind.name().to_owned());
        let fail = |error| failure(ObjectRef::new(kind, &crate::objects::ObjectKey::cluster("")), error);
        if self.bucket.has_entries(&filter(kind, None, None)).map_err(fail)? {
            self.kinds.lock().insert(name);
            return Ok(true);
        }
        if !self.kinds.lock().contains(&name) {
            return Ok(false);
        }
        // Its last markers were removed, or the bucket was replaced by one without this kind.
        self.born(&self.bucket.facts().map_err(fail)?.created);
        Ok(self.kinds.lock().contains(&name))
    }
}

/// Returns the object of an entry, with this version. If `kind` is given, the object shows the version of that kind.
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

/// Returns the error of a call that a request has failed for.
pub(super) fn failure(object: ObjectRef, error: NatsError) -> ClientError {
    if error.is_too_large() || error.is_invalid() {
        return ClientError::invalid(object, "", "", error.to_string());
    }
    if error.is_permissions_violation() {
        return ClientError::forbidden(object, error.to_string());
    }
    ClientError::transport(object, error)
}
