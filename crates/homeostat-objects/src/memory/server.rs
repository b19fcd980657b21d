//! The engine of the embedded clients: runs transactions, stores them, applies them to the state, and wakes the
//! watches.
//!
//! A write has three steps. A transaction computes the changes, on one thread at a time. If there is a journal, it
//! stores the changes, together with the changes of concurrent writers. Then the changed state becomes visible, and the
//! watches that the changes affect are woken. Readers take a snapshot of the visible state and hold no lock.
//!
//! Events expire without a thread of their own: each transaction first deletes some expired events, and a read of
//! events first runs such transactions until no expired event remains.
//!
//! Lock order: the writers (see `group`), the visible state, the list of watches. No other code is called while one of
//! the last two is held.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::builder::EmbeddedBuilder;
use super::cost;
use super::group::{GroupCommit, Ledger, Stored};
use super::journal::ChangeJournal;
use super::state::ServerState;
use super::watchers::Watchers;
use crate::json::whole_seconds;
use crate::rules::change::{Location, ObjectChange};
use crate::rules::names::Names;
use crate::rules::txn::Transaction;
use crate::rules::{expiry, limits};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, RwLock};
use crate::{ClientError, DeleteOptions, Deletion, Kind, ObjectKey, ObjectRef, Propagation, SharedObject};
use homeostat::base::Clock;
use homeostat::rt::AutoResetEvent;
use homeostat::run::BoxError;

/// The engine behind an embedded client.
pub(super) struct EmbeddedEngine {
    pub(super) clock: Clock,
    /// `None` if the objects are only in memory.
    journal: Option<Box<dyn ChangeJournal>>,
    pub(super) cascades: bool,
    pub(super) names: Names,
    most_size: usize,
    event_ttl: Duration,
    /// Whether the last transaction could not be stored.
    has_failed: AtomicBool,
    pub(super) writers: GroupCommit<Self>,
    /// The state that readers see. A reader clones the snapshot and works without the lock.
    pub(super) visible: RwLock<Arc<ServerState>>,
    pub(super) watchers: Mutex<Watchers>,
}

impl EmbeddedEngine {
    pub(super) fn new(
        settings: EmbeddedBuilder,
        journal: Option<Box<dyn ChangeJournal>>,
        mut state: ServerState,
    ) -> Arc<Self> {
        // As in Kubernetes, version 0 means any version, so no object may have it.
        state.head = state.head.max(1);
        let EmbeddedBuilder { clock, cascades, most_size, event_ttl, seed, .. } = settings;
        let seed = seed.or_else(|| clock.seed().map(|_| clock.draws().draw()));
        let names = seed.map_or(Names::random(), Names::seeded);
        let (writers, watchers) = (GroupCommit::new(), Mutex::new(Watchers::new(state.head)));
        let visible = RwLock::new(Arc::new(state));
        let has_failed = AtomicBool::new(false);
        Arc::new(Self { clock, journal, cascades, names, most_size, event_ttl, has_failed, writers, visible, watchers })
    }

    /// Returns the state as it is now.
    pub(super) fn snapshot(&self) -> Arc<ServerState> {
        Arc::clone(&self.visible.read())
    }

    /// Returns the time of day in whole seconds.
    fn now(&self) -> Timestamp {
        whole_seconds(Timestamp::try_from(self.clock.time_of_day()).unwrap_or_default())
    }

    /// Returns the time up to which events have expired; `None` if events never expire.
    fn expired_until(&self, now: Timestamp) -> Option<Timestamp> {
        now.checked_sub(self.event_ttl).ok()
    }

    /// Refuses an object that is nested too deep.
    pub(super) fn admit(&self, kind: &Kind, object: Value) -> Result<Value, ClientError> {
        limits::admit(kind, object, |key| self.visible.read().get(kind, key).cloned())
    }

    /// Runs a transaction, and returns the object at the location that `verb` returns. If it was removed, returns its
    /// last state.
    #[expect(clippy::redundant_closure_for_method_calls, reason = "the method itself is not general over lifetimes")]
    pub(super) fn write(
        &self,
        verb: impl FnOnce(&mut Transaction<'_, ServerState>) -> Result<Location, ClientError>,
    ) -> Result<SharedObject, ClientError> {
        self.settled(verb, |txn, location| txn.outcome(location))
    }

    pub(super) fn delete(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deletion<SharedObject>, ClientError> {
        let mut options = options.clone();
        if !self.cascades && options.propagation == Propagation::Foreground {
            // No dependent is deleted, so the owner would wait forever.
            options.propagation = Propagation::Background;
        }
        self.settled(|txn| txn.delete(kind, key, &options), |txn, location| Ok(txn.deletion(location)))
    }

    /// Runs a transaction with all its consequences, and returns its outcome at the location that `verb` returns.
    fn settled<T>(
        &self,
        verb: impl FnOnce(&mut Transaction<'_, ServerState>) -> Result<Location, ClientError>,
        outcome: impl FnOnce(&Transaction<'_, ServerState>, &Location) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let (result, stored) = self.transact(|txn| {
            let location = verb(txn)?;
            if self.cascades {
                txn.settle();
            }
            let outcome = outcome(txn, &location)?;
            Ok((location, outcome))
        });
        let lost = |object: ObjectRef, error: Arc<str>| Err(ClientError::transport(object, &*error));
        match (result, stored) {
            (result, Ok(())) => result.map(|(_, outcome)| outcome),
            (Ok((location, _)), Err(error)) => lost(location.object_ref(), error),
            (Err(refusal), Err(error)) => lost(refusal.object().clone(), error),
        }
    }

    /// Runs a transaction, unless `verb` refuses. Returns the value of `verb` once all changes that it has made or seen
    /// are stored and visible.
    fn transact<T>(
        &self,
        verb: impl FnOnce(&mut Transaction<'_, ServerState>) -> Result<T, ClientError>,
    ) -> (Result<T, ClientError>, Stored) {
        let run = |state: &ServerState| {
            let mut txn = self.begin(state);
            match verb(&mut txn) {
                Ok(value) => (Ok(value), txn.into_changes()),
                Err(refusal) => (Err(refusal), Vec::new()),
            }
        };
        if let Some(journal) = &self.journal {
            // Check before waiting for a turn: in a forked process the wait might never end.
            if let Err(error) = journal.check() {
                return (run(&self.snapshot()).0, Err(error));
            }
            return self.writers.write(self, |state| run(state));
        }
        let (value, wake) = self.writers.alone(|| {
            let (value, changes) = run(&self.snapshot());
            let forgotten_and_concerned = (!changes.is_empty()).then(|| {
                let mut state = self.visible.write();
                let concerned = self.concerned(&changes, &state);
                (Arc::make_mut(&mut state).apply(changes), concerned)
            });
            (value, forgotten_and_concerned)
        });
        wake_all(wake.into_iter().flat_map(|(_, concerned)| concerned));
        (value, Ok(()))
    }

    /// Returns the signals of the streams that these changes affect. The caller locks the visible state: a stream
    /// registers before it reads the state, so a stream that is not registered yet will read these changes.
    fn concerned(&self, changes: &[Arc<ObjectChange>], state: &ServerState) -> Vec<Arc<AutoResetEvent>> {
        self.watchers.lock().concerned(changes, state.most_history() as u64 / 4)
    }

    /// Begins a transaction and deletes the oldest expired events in it: at most a quarter of the history, so that
    /// watches can catch up before the history forgets their version.
    fn begin<'a>(&self, state: &'a ServerState) -> Transaction<'a, ServerState> {
        let now = self.now();
        let mut txn = Transaction::new(state, self.most_size, now);
        if let Some(until) = self.expired_until(now) {
            let most = (state.most_history() / 4).max(1);
            for location in state.index.events_until(until).take(most) {
                txn.begin_deletion(location);
            }
        }
        txn
    }

    /// Deletes the expired events if objects of this kind expire. If the deletion cannot be stored, readers still see
    /// these events.
    pub(super) fn expire_before_reading(&self, kind: &Kind) {
        if expiry::expires(kind) {
            self.expire();
        }
    }

    /// Deletes the expired events, in as many transactions as that takes. After a transaction that could not be stored,
    /// does nothing until a write has succeeded: each try could cost as much as opening the file.
    pub(super) fn expire(&self) {
        let is_expired = |until| self.visible.read().index.events_until(until).next().is_some();
        while !self.has_failed.load(Ordering::Relaxed) && self.expired_until(self.now()).is_some_and(is_expired) {
            if !self.expire_some() {
                break;
            }
        }
    }

    /// Deletes some expired events. Returns whether it deleted any.
    fn expire_some(&self) -> bool {
        let (count, stored) = self.transact(|txn| {
            if self.cascades {
                txn.settle();
            }
            Ok(txn.count())
        });
        let count = count.unwrap_or_default();
        if let Err(error) = stored {
            log::warn!(count, error:%; "at least {count} expired events cannot be deleted until a write succeeds: {error}");
            return false;
        }
        count > 0
    }
}

impl Ledger for EmbeddedEngine {
    type State = Arc<ServerState>;
    type Change = Arc<ObjectChange>;

    fn visible(&self) -> Arc<ServerState> {
        self.snapshot()
    }

    fn apply(state: &mut Arc<ServerState>, changes: &[Arc<ObjectChange>]) {
        Arc::make_mut(state).apply(changes.iter().cloned());
    }

    /// A quarter of the history, so that watches can catch up before the history forgets their version.
    fn most_changes(state: &Arc<ServerState>) -> usize {
        state.most_history() / 4
    }

    fn store(&self, changes: &[Arc<ObjectChange>]) -> Result<(), BoxError> {
        let stored = self.journal.as_ref().map_or(Ok(()), |journal| journal.store(changes));
        self.has_failed.store(stored.is_err(), Ordering::Relaxed);
        stored
    }

    fn publish(&self, state: Arc<ServerState>, changes: &[Arc<ObjectChange>]) -> impl FnOnce() {
        let (old, concerned) = {
            let mut visible = self.visible.write();
            let concerned = self.concerned(changes, &state);
            (std::mem::replace(&mut *visible, state), concerned)
        };
        move || {
            drop(old);
            wake_all(concerned);
        }
    }
}

fn wake_all(streams: impl IntoIterator<Item = Arc<AutoResetEvent>>) {
    for signal in streams {
        cost::wakeup();
        signal.set();
    }
}
