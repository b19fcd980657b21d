//! The client, and its options for buckets.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::key::MARKERS;
use super::store::ObjectStore;
use crate::connection::NatsConnection;
use crate::error::NatsError;
use crate::kv::{BucketFacts, KvBucket, KvConfig, OBJECTS, need_version};
use crate::protocol::NatsHeaders;
use homeostat::rt::Chain;
#[cfg(doc)]
use homeostat_objects::{Capabilities, ClientError, Kind};

/// How many revisions of each object a [`NatsClient::bucket`] keeps.
const HISTORY: u8 = 16;
/// The first server version that checks the expected revision of each write to a replicated bucket. Before it, several
/// writers that expect the same revision could succeed (nats-server#4320), and copies could differ after creations
/// (nats-server#5794).
const REPLICATED: &str = "2.10.19";

/// A [`Client`](homeostat_objects::Client) that keeps objects in a bucket of `JetStream`.
///
/// Many processes may use one bucket. Each object, including its status, is one entry: `nats kv get <bucket>
/// example=2Ecom.Widget.default.web` shows a widget's JSON. Clones are cheap.
///
/// It follows the rules of the embedded clients, with these differences:
///
/// - A write succeeds only if no other writer was faster. Otherwise it starts again, for at most the [request
///   timeout](crate::NatsOptions::request_timeout), and then fails with a
///   [conflict](homeostat_objects::ClientErrorKind::Conflict).
/// - An owner and its dependents are deleted by separate writes, and the owner disappears first. If a process is
///   killed in between, the next client that is created for the bucket deletes the rest.
/// - An [orphaning](homeostat_objects::Propagation::Orphan) deletion first gives an owner with dependents the finalizer
///   `orphan`. The owner is removed once no dependent refers to it.
/// - An object is the same in all versions of its kind. It shows the version that is read, like a Kubernetes server
///   without conversion.
/// - An owner is known only by the kind, name and uid in the reference. If the name belongs to another object, the
///   reference is accepted and its owner counts as deleted.
/// - The server and the bucket limit the size of an object. A larger object is
///   [invalid](homeostat_objects::ClientErrorKind::Invalid), and the error states both sizes.
/// - An entry of another program is [invalid](homeostat_objects::ClientErrorKind::Invalid) if it is not an object or
///   has an integer of more than 64 bits. It can only be deleted as an entry.
/// - Each list reads all entries of its kind or namespace, including the markers of deleted objects. Reading n pages
///   reads them n times, so pages save memory but no time.
/// - A full bucket, account or server refuses creations, and changes that make an object larger. The source of the
///   [`Transport`](homeostat_objects::ClientErrorKind::Transport) error is then a [`NatsError`] that is
///   [full](NatsError::is_full). Deletions still work, because the client keeps an entry `_reserve` that they can
///   remove.
/// - Events do not expire.
///
/// # Watches
///
/// A watch can start at a version if the bucket still keeps all changes since then. It keeps as many changes of each
/// object as its [history](KvConfig::history) allows. Each entry names its predecessor, so a watch that has missed a
/// change notices it and is [gone](homeostat_objects::ClientErrorKind::Gone). It is also gone if the bucket was
/// deleted, replaced or restored, after an absence of more than 15 minutes, and after the removal of
/// [markers](Self::remove_markers) that it has not received.
///
/// A watch survives reconnects. While it is connected, an idle watch delivers a bookmark each minute.
///
/// A deletion leaves a marker with the object's last state. Remove old markers from time to time.
///
/// # Examples
///
/// ```no_run
/// use homeostat_nats::{NatsClient, NatsOptions};
/// use homeostat_objects::{Client, Kind, ObjectKey};
/// use serde_json::json;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let connection = NatsOptions::new("nats://localhost").connect()?;
/// let client = NatsClient::create(&connection, &NatsClient::bucket("kumori"))?;
/// client.create(&CONFIG_MAP, json!({
///     "apiVersion": "v1", "kind": "ConfigMap",
///     "metadata": {"namespace": "default", "name": "colours"}, "data": {"sky": "blue"},
/// }))?;
/// assert_eq!(client.get(&CONFIG_MAP, &ObjectKey::new("default", "colours"))?.pointer("/data/sky").unwrap(), json!("blue"));
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[derive(Clone)]
pub struct NatsClient {
    pub(super) store: Arc<ObjectStore>,
}

impl NatsClient {
    /// Returns the configuration of a bucket for objects: it keeps the last 16 changes of each object, on disk, on one
    /// server.
    ///
    /// A longer history lets watches resume after more changes, and needs more memory or disk.
    #[must_use]
    pub fn bucket(name: impl Into<String>) -> KvConfig {
        KvConfig::new(name).history(HISTORY)
    }

    /// Creates the bucket if it does not exist, and returns a client for its objects.
    ///
    /// First finishes the deletions that killed processes have left, with one read for each owner of an object.
    ///
    /// # Errors
    ///
    /// Returns an error that names the option if the bucket cannot keep objects: its history is shorter than 2, its
    /// entries expire, it exists with another configuration, or it was not made for objects. Also returns an error if
    /// the server has no `JetStream` or does not answer, or if the bucket is replicated and the server is older than
    /// version 2.10.19.
    pub fn create(connection: &NatsConnection, config: &KvConfig) -> Result<Self, NatsError> {
        if config.history < 2 {
            return Err(NatsError::invalid("history", config.history, "from 2 to 64, so that watches can resume"));
        }
        if !config.max_age.is_zero() {
            return Err(NatsError::invalid("max_age", config.max_age, "unset: objects do not expire"));
        }
        if config.replicas > 1 {
            need_version(connection, "replicas", REPLICATED)?;
        }
        let bucket = KvBucket::create(connection, &config.clone().description(OBJECTS))?;
        let BucketFacts { created, description, .. } = bucket.facts()?;
        if description != OBJECTS {
            let option = format!("description of bucket {:?}", bucket.name());
            return Err(NatsError::invalid(
                option,
                description,
                format!("{OBJECTS:?}: only a bucket with this description holds objects"),
            ));
        }
        let client = Self { store: Arc::new(ObjectStore::new(bucket, &created)) };
        if let Err(error) = client.store.repair() {
            let (bucket, error) = (client.store.bucket.name(), Chain(&error));
            log::warn!(bucket, error:%; "bucket {bucket}: cannot finish the deletions of killed clients: {error}");
        }
        Ok(client)
    }

    /// Removes the markers of deletions that are older than `age`, and returns their number. First finishes the
    /// deletions of dependents that killed clients have begun.
    ///
    /// A watch or list that continues from before the newest removed marker is
    /// [gone](homeostat_objects::ClientErrorKind::Gone), because it could miss a deletion. A marker stays if a running
    /// watch has not received it, for example because its reader is slow. It may also stay for half a minute after a
    /// program ends.
    ///
    /// Call this once a day, with an `age` longer than programs are usually disconnected, for example an hour. One
    /// leak remains: a program creates a dependent, stops for longer than `age` in the middle, for example in a
    /// debugger, and others delete the owner meanwhile. The dependent may then stay.
    ///
    /// # Errors
    ///
    /// Returns an error if the bucket cannot be listed or written to, or if unfinished deletions cannot be finished. A
    /// server before version 2.9.12 is [unsupported](crate::NatsErrorKind::Unsupported), because it would let watches
    /// miss changes.
    pub fn remove_markers(&self, age: Duration) -> Result<u64, NatsError> {
        let bucket = &self.store.bucket;
        bucket.check_purges()?;
        let markers = bucket.old_markers(age)?;
        if markers.is_empty() {
            return Ok(0);
        }
        self.finish_deletions()?;
        let markers = bucket.received_by_all(markers)?;
        let Some(last) = markers.iter().map(|marker| marker.revision).max() else { return Ok(0) };
        // Write the note before the removal, so that every watch that misses a marker notices it.
        loop {
            let noted = self.store.markers_removed()?;
            let revision = noted.revision;
            if noted.removed >= last {
                break;
            }
            let text = last.to_string();
            let note = bucket.update(MARKERS, text.as_bytes(), revision).or_else(|error| {
                if !error.is_full() {
                    return Err(error);
                }
                // The objects' last states before their markers are no longer needed.
                markers.iter().try_for_each(|marker| bucket.forget_before(&marker.key, marker.revision))?;
                self.store.write_in_reserve(MARKERS, text.as_bytes(), &NatsHeaders::new(), revision, false)
            });
            match note {
                Ok(_) => break,
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        // A watch that has begun before the note is asked now. A later one reads the note.
        let markers = bucket.received_by_all(markers)?;
        bucket.forget_markers(&markers)
    }

    /// Finishes the deletions that clients have begun. A kind's last marker is the only sign that owners of this kind
    /// existed. Without it, no client can know that their dependents must be deleted.
    fn finish_deletions(&self) -> Result<(), NatsError> {
        self.store.last_failure.lock().clear();
        self.store.run_cascade([]);
        let reason = match self.store.repair() {
            Ok(()) if self.store.unfinished.lock().len() == 0 => return Ok(()),
            Ok(()) => {
                let failure = self.store.last_failure.lock();
                match failure.as_str() {
                    "" => "another call of this client has left unfinished work: call this again".to_owned(),
                    failure => {
                        format!("requests about their dependents failed, and the next write repeats them: {failure}")
                    }
                }
            }
            Err(error) => Chain(&error).to_string(),
        };
        Err(NatsError::unfinished(self.store.bucket.name(), &reason))
    }
}

/// The last removal of markers, as its note records it.
pub(super) struct RemovedMarkers {
    /// The revision of the note.
    pub(super) revision: u64,
    /// The revision of the newest removed marker.
    pub(super) removed: u64,
}

impl ObjectStore {
    /// Returns the note about removed markers.
    pub(super) fn markers_removed(&self) -> Result<RemovedMarkers, NatsError> {
        let Some(entry) = self.bucket.latest_entry(MARKERS)? else {
            return Ok(RemovedMarkers { revision: 0, removed: 0 });
        };
        let text = String::from_utf8_lossy(&entry.value);
        // If the note cannot be read, assume that all markers were removed.
        Ok(RemovedMarkers { revision: entry.revision, removed: text.parse().unwrap_or(u64::MAX) })
    }
}

impl fmt::Debug for NatsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsClient").field("bucket", &self.store.bucket.name()).finish_non_exhaustive()
    }
}
