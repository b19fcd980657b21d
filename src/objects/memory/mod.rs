//! Clients that keep their objects in this process: in memory, or also in a file.
//!
//! A write has three steps. It is made up as a transaction, against a state that cannot change meanwhile because one writer at a
//! time has the turn; it is stored; it is applied to the state, and the watches that it concerns are woken. Readers wait for the last
//! step alone.
//!
//! Events expire: each transaction begins with the deletion of some whose time has come, and a read of events with such
//! transactions, until none is left or the deletion cannot be stored. There is no thread for it.
//!
//! Lock order: the writer's turn, then the state, then the list of watches. Nothing else is called under the last two.

mod apply;
mod builder;
mod cascade;
mod check;
mod client;
mod cost;
mod expiry;
#[cfg(feature = "file-client")]
mod file;
mod index;
mod limits;
mod names;
mod page;
mod patch;
mod state;
mod stream;
mod txn;
mod watchers;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

pub use self::builder::EmbeddedBuilder;
pub use self::client::MemoryClient;
#[cfg(feature = "file-client")]
pub use self::file::{FileClient, OpenError};

use self::check::check_selector;
use self::names::Names;
use self::state::{Change, Place, State};
use self::stream::Stream;
use self::txn::Txn;
use self::watchers::Watchers;
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Mutex, MutexGuard, RwLock};
use crate::objects::{
    Client, ClientError, DeleteOptions, FieldOwner, Kind, ObjectKey, ObjectList, ObjectRef, ObjectStream, Part, Patch,
    Query,
};
use crate::run::error::BoxError;

/// Where changes are stored before they are made.
trait Journal: Send + Sync {
    /// Stores all of them or none.
    fn store(&self, changes: &[Change]) -> Result<(), BoxError>;
}

/// What the embedded clients have in common.
struct Server {
    clock: Clock,
    journal: Box<dyn Journal>,
    cascades: bool,
    names: Names,
    most_size: usize,
    event_ttl: Duration,
    /// The last transaction could not be stored.
    has_failed: AtomicBool,
    /// The turn of the one who writes.
    writer: Mutex<()>,
    state: RwLock<State>,
    watchers: Mutex<Watchers>,
}

impl Server {
    fn new(settings: EmbeddedBuilder, journal: Box<dyn Journal>, mut state: State) -> Arc<Self> {
        // Version 0 is none: it stands for any version, as in Kubernetes.
        state.head = state.head.max(1);
        let EmbeddedBuilder { clock, cascades, most_size, event_ttl, seed, .. } = settings;
        let names = Names { seed: seed.or_else(|| clock.seed().map(|_| clock.draws().next())) };
        let (writer, watchers) = (Mutex::new(()), Mutex::new(Watchers::new(state.head)));
        let state = RwLock::new(state);
        let has_failed = AtomicBool::new(false);
        Arc::new(Self { clock, journal, cascades, names, most_size, event_ttl, has_failed, writer, state, watchers })
    }

    /// The time of day, in whole seconds.
    fn now(&self) -> Timestamp {
        crate::objects::json::whole_seconds(Timestamp::try_from(self.clock.time_of_day()).unwrap_or_default())
    }

    /// Events that tell no later time than this have expired at `now`; `None` if no event ever does.
    fn expired_until(&self, now: Timestamp) -> Option<Timestamp> {
        now.checked_sub(self.event_ttl).ok()
    }

    fn write(&self, verb: impl FnOnce(&mut Txn<'_>) -> Result<Place, ClientError>) -> Result<Arc<Value>, ClientError> {
        let turn = self.writer.lock();
        let (place, result, changes) = {
            let state = self.state.read();
            let mut txn = self.begin(&state);
            let place = verb(&mut txn)?;
            if self.cascades {
                txn.settle();
            }
            let result = txn.outcome(&place)?;
            (place, result, txn.into_changes())
        };
        self.commit(turn, changes).map_err(|error| ClientError::transport(place.object_ref(), error))?;
        Ok(result)
    }

    /// Begins a transaction, in which some expired events are deleted already.
    fn begin<'a>(&self, state: &'a State) -> Txn<'a> {
        let now = self.now();
        let mut txn = Txn::new(state, self.most_size, now);
        txn.expire(self.expired_until(now));
        txn
    }

    /// Stores changes, makes them, and wakes the watches that they concern.
    fn commit(&self, turn: MutexGuard<'_, ()>, changes: Vec<Change>) -> Result<(), BoxError> {
        if changes.is_empty() {
            return Ok(());
        }
        let stored = self.journal.store(&changes);
        self.has_failed.store(stored.is_err(), Ordering::Relaxed);
        stored?;
        // A stream registers before it reads the state: one that is not among these will read these changes.
        let (forgotten, concerned) = {
            let mut state = self.state.write();
            let quarter = state.most_history() as u64 / 4;
            let concerned = self.watchers.lock().concerned(&changes, quarter);
            (state.apply(changes), concerned)
        };
        drop(turn);
        drop(forgotten);
        for signal in concerned {
            cost::wakeup();
            signal.set();
        }
        Ok(())
    }

    /// Deletes the expired events before objects of this kind are read. If that cannot be stored, readers still see these events.
    fn expire_before_reading(&self, kind: &Kind) {
        if expiry::expires(kind) {
            self.expire();
        }
    }

    /// Deletes the expired events, in as many transactions as it takes. After a transaction that could not be stored it does
    /// nothing until a write has succeeded: each try could cost as much as opening the file.
    fn expire(&self) {
        let is_expired = |until| self.state.read().index.events_until(until).next().is_some();
        while !self.has_failed.load(Ordering::Relaxed) && self.expired_until(self.now()).is_some_and(is_expired) {
            if !self.expire_some() {
                break;
            }
        }
    }

    /// Deletes some expired events. Returns whether it has deleted any.
    fn expire_some(&self) -> bool {
        let turn = self.writer.lock();
        let changes = {
            let state = self.state.read();
            let mut txn = self.begin(&state);
            if self.cascades {
                txn.settle();
            }
            txn.into_changes()
        };
        let count = changes.len();
        if let Err(error) = self.commit(turn, changes) {
            log::warn!(count, error:%; "{count} expired events or more stay until a write succeeds: {error}");
            return false;
        }
        count > 0
    }
}

/// Makes a [`Client`] of a type whose field `server` is an `Arc<Server>`: a cheap handle.
macro_rules! embedded_client {
    ($client:ty) => {
        impl Client for $client {
            fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<Arc<Value>, ClientError> {
                self.server.expire_before_reading(kind);
                let found = self.server.state.read().get(kind, key).cloned();
                found.ok_or_else(|| ClientError::NotFound { object: ObjectRef::new(kind, key) })
            }

            fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
                check_selector(kind, &query.labels)?;
                self.server.expire_before_reading(kind);
                self.server.state.read().list(kind, query)
            }

            fn create(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
                let object = self.server.admit(kind, object)?;
                self.server.write(|txn| txn.create(kind, object, self.server.names))
            }

            fn update(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
                let object = self.server.admit(kind, object)?;
                self.server.write(|txn| txn.update(kind, object, Part::Object))
            }

            fn update_status(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
                let object = self.server.admit(kind, object)?;
                self.server.write(|txn| txn.update(kind, object, Part::Status))
            }

            fn patch(
                &self,
                kind: &Kind,
                key: &ObjectKey,
                patch: &Patch,
                part: Part,
            ) -> Result<Arc<Value>, ClientError> {
                self.server.write(|txn| txn.patch(kind, key, patch, part))
            }

            fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Result<Arc<Value>, ClientError> {
                let object = self.server.admit(kind, object)?;
                self.server.write(|txn| txn.apply(kind, object, owner, self.server.names))
            }

            fn delete(&self, kind: &Kind, key: &ObjectKey, options: &DeleteOptions) -> Result<Arc<Value>, ClientError> {
                self.server.write(|txn| txn.delete(kind, key, options))
            }

            fn watch(
                &self,
                kind: &Kind,
                query: &Query,
                from: Option<&str>,
                stop: &CancellationToken,
            ) -> Result<ObjectStream, ClientError> {
                check_selector(kind, &query.labels)?;
                self.server.expire_before_reading(kind);
                Ok(ObjectStream::polled(Stream::new(&self.server, kind, query, from, stop)?))
            }
        }

        impl fmt::Debug for $client {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let state = self.server.state.read();
                f.debug_struct(stringify!($client)).field("version", &state.head).finish_non_exhaustive()
            }
        }
    };
}

embedded_client!(MemoryClient);
#[cfg(feature = "file-client")]
embedded_client!(FileClient);
