//! The client, and the layout of its bucket.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::key::MARKERS;
use super::store::ObjectStore;
use crate::nats::connection::NatsConnection;
use crate::nats::error::{NatsError, NatsErrorKind};
use crate::nats::kv::{BucketFacts, KvBucket, KvConfig, OBJECTS, need_version};
use crate::nats::protocol::NatsHeaders;
#[cfg(doc)]
use crate::objects::{Capabilities, ClientError, Kind};

/// The revisions that [`NatsClient::bucket`] keeps of each object.
const HISTORY: u8 = 16;
/// The first version of servers that check the expected revision of each write to a replicated bucket. Before it, several writers that
/// expect the same revision could succeed (nats-server#4320), and copies could differ after creations (nats-server#5794).
const REPLICATED: &str = "2.10.19";

/// A [`Client`](crate::objects::Client) that keeps its objects in a bucket of `JetStream`.
///
/// Many processes may use one bucket. Each object is one entry, with its status: `nats kv get <bucket>
/// example=2Ecom.Widget.default.web` shows the JSON of a widget. Clones are cheap.
///
/// It follows the rules of the embedded clients, with these differences:
///
/// - A write is stored on condition that no other writer was faster. Otherwise it begins again, for at most the
///   [request timeout](crate::nats::NatsOptions::request_timeout). After that it is a [conflict](ClientError::Conflict).
/// - An owner and its dependents are deleted by separate writes. Other readers see the owner go first. If a process is
///   killed between them, the next client that is created for the bucket deletes the rest.
/// - An [orphaning](crate::objects::Propagation::Orphan) deletion first gives an owner with dependents the finalizer `orphan`. The owner
///   goes after its dependents have lost their references to it.
/// - An object is the same in all versions of its kind. It shows the version with which it is read, as Kubernetes does without a
///   conversion.
/// - An owner is known only by the kind, name and uid in the reference. A reference with the name of another object is not refused;
///   its owner counts as gone.
/// - The server and the bucket limit the size of an object. A larger object is [invalid](ClientError::Invalid); the error has both
///   sizes.
/// - An entry of another program that is no object, or has an integer of more than 64 bits, is [invalid](ClientError::Invalid). It can
///   be deleted as an entry only.
/// - Each list reads all entries of its kind or namespace, also the markers of deleted objects. So a walk through n
///   pages reads them n times: pages save memory, but no time.
/// - A full bucket, account or server refuses creations, and changes that make an object larger: the source of the
///   [`Transport`](ClientError::Transport) error is a [`NatsError`] that is [full](NatsError::is_full). Deletions are
///   possible: the client keeps an entry `_reserve` in the bucket, which they use.
/// - Events do not expire.
///
/// # Watches
///
/// A watch can begin at a version as long as the bucket keeps all changes since then: as many changes of each object as its
/// [history](KvConfig::history). Each entry names its predecessor, so a watch that has missed a change knows it, and is
/// [gone](ClientError::Gone). It is also gone if the bucket was deleted, replaced or restored, and after an absence longer than 15
/// minutes or the removal of [markers](Self::remove_markers). A watch survives reconnects. A silent watch delivers a bookmark each
/// minute while it has a connection.
///
/// A deletion leaves a marker with the last state of the object. Remove old ones from time to time.
///
/// # Examples
///
/// ```no_run
/// use homeostat::nats::{NatsClient, NatsOptions};
/// use homeostat::objects::{Client, Kind, ObjectKey};
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
    /// Returns the configuration of a bucket for objects. It keeps the last 16 changes of each object, on disk, on one server.
    ///
    /// A longer history lets watches resume after more changes, and takes more memory or disk.
    #[must_use]
    pub fn bucket(name: impl Into<String>) -> KvConfig {
        KvConfig::new(name).history(HISTORY)
    }

    /// Creates the bucket if it does not exist, and returns a client of its objects.
    ///
    /// First it finishes the deletions that killed processes have left, which takes a read for each owner of an object.
    ///
    /// # Errors
    ///
    /// Returns an error that names the option if the bucket cannot keep objects: its history is shorter than 2, its entries expire,
    /// it exists with another configuration, or it was not made for objects. Also returns an error if the server has no `JetStream`, is
    /// older than version 2.10.19 although the bucket is replicated, or cannot be asked.
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
                format!("{OBJECTS:?}: only such a bucket has objects"),
            ));
        }
        let client = Self { store: Arc::new(ObjectStore::new(bucket, &created)) };
        if let Err(error) = client.store.repair() {
            let bucket = client.store.bucket.name();
            log::warn!(bucket, error:%; "bucket {bucket}: the work of killed clients cannot be finished: {error}");
        }
        Ok(client)
    }

    /// Removes the markers of deletions that are older than `age`. Returns their number. First finishes the deletions of dependents that
    /// killed clients have begun.
    ///
    /// A watch or list that continues from before the newest of them is [gone](ClientError::Gone): it could miss a
    /// deletion. A marker stays if a running watch has not received it, for example because its reader is slow, and up
    /// to half a minute after a program ends. Keep markers for longer than programs are usually without a connection,
    /// for example an hour, and call this once a day. A program that stops for longer than that, for example in a
    /// debugger, while it creates a dependent of an owner that others delete meanwhile, can leave that dependent
    /// behind.
    ///
    /// # Errors
    ///
    /// Returns an error if the bucket cannot be listed or written to, or if unfinished deletions cannot be finished. A server before
    /// version 2.9.12 is [unsupported](NatsError::is_unsupported): it would let watches miss changes.
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
        // First the note, then the removal: nobody misses a marker without a sign.
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
                // The last states of the objects before their markers are of no use any more.
                markers.iter().try_for_each(|marker| bucket.forget_before(&marker.key, marker.revision))?;
                self.store.write_in_reserve(MARKERS, text.as_bytes(), &NatsHeaders::new(), revision, false)
            });
            match note {
                Ok(_) => break,
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        // A watch that has begun before the note counts now. A later one reads the note.
        let markers = bucket.received_by_all(markers)?;
        bucket.forget_markers(&markers)
    }

    /// Finishes the deletions that clients have begun. The last marker of a kind is the only sign that its owners have existed, so
    /// without it nobody knows that their dependents are to be deleted.
    fn finish_deletions(&self) -> Result<(), NatsError> {
        self.store.last_failure.lock().clear();
        self.store.follow([]);
        let reason = match self.store.repair() {
            Ok(()) if self.store.unfinished.lock().len() == 0 => return Ok(()),
            Ok(()) => {
                let failure = self.store.last_failure.lock();
                match failure.as_str() {
                    "" => "another call of this client has left work meanwhile: call this again".to_owned(),
                    failure => {
                        format!(
                            "requests about their dependents have failed, and the next write repeats them: {failure}"
                        )
                    }
                }
            }
            Err(error) => error.to_string(),
        };
        let bucket = self.store.bucket.name().to_owned();
        Err(NatsError::new(NatsErrorKind::Unfinished { bucket, reason }))
    }
}

/// The last removal of markers.
pub(super) struct RemovedMarkers {
    /// The revision of the note itself.
    pub(super) revision: u64,
    /// The revision of the newest marker that was removed.
    pub(super) removed: u64,
}

impl ObjectStore {
    /// Returns the note about the markers that were removed.
    pub(super) fn markers_removed(&self) -> Result<RemovedMarkers, NatsError> {
        let Some(entry) = self.bucket.latest_entry(MARKERS)? else {
            return Ok(RemovedMarkers { revision: 0, removed: 0 });
        };
        let text = String::from_utf8_lossy(&entry.value);
        // A note that cannot be read hides all markers.
        Ok(RemovedMarkers { revision: entry.revision, removed: text.parse().unwrap_or(u64::MAX) })
    }
}

impl fmt::Debug for NatsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsClient").field("bucket", &self.store.bucket.name()).finish_non_exhaustive()
    }
}
