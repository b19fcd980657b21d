//! Group commit: concurrent writers share one write of the journal, and so one sync of the disk.
//!
//! A transaction runs on the *tip*: the state with all accepted changes, stored or not. Its changes join the open
//! batch. The writer that opens a batch leads it: it waits until the previous batch is stored, closes its own, stores
//! it, and makes it visible. The other writers of the batch wait for that. Later writers open the next batch in the
//! meantime. This is the leader and follower scheme of `LevelDB`'s write queue.
//!
//! # Invariants
//!
//! - Batches are stored and become visible one at a time, in the order of their versions. A change is stored before it
//!   is visible.
//! - The tip is the visible state plus the batch that is being stored plus the open batch. It is `None` if there is no
//!   such batch.
//! - If a batch cannot be stored, the open batch fails with it, because its transactions saw the lost changes. The tip
//!   becomes the visible state again.
//! - A call that makes no changes may have seen changes that are not stored. It waits until the last batch that it saw
//!   is stored, and fails with that batch. Therefore no answer, not even a refusal, depends on a lost change.
//! - Every batch ends: its leader waits only for leaders of earlier batches.
//!
//! - If the state of a transaction is lost while it runs, the transaction joins no batch. It fails with the batch that
//!   it saw.
//!
//! Lock order: first the turn of a writer, then the accepted changes, which are locked only briefly; or first the turn
//! of a leader, then the accepted changes. Transactions and the ledger run under the turns alone, so a leader never
//! waits behind transactions. The exception: a few changes are applied to the tip under the lock of the accepted
//! changes. The end of a batch is a separate lock.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;

use crate::sync::{Condvar, Mutex, MutexGuard};
use homeostat::rt::Chain;
use homeostat::run::BoxError;

/// The most changes that are applied to the tip in place. A larger number is applied to a copy, so that no leader waits
/// for it.
const MOST_IN_PLACE: usize = 16;

/// The state that the writers change, and the place where its changes are stored.
pub(super) trait Ledger {
    /// A snapshot of the state. Clones are cheap.
    type State: Clone;
    type Change;

    /// Returns the state that readers see.
    fn visible(&self) -> Self::State;

    /// Applies changes to a state.
    fn apply(state: &mut Self::State, changes: &[Self::Change]);

    /// Returns how many changes a batch on this state may have before it accepts no further transactions.
    fn most_changes(state: &Self::State) -> usize;

    /// Stores all of these changes or none. Must not panic.
    fn store(&self, changes: &[Self::Change]) -> Result<(), BoxError>;

    /// Makes a state visible that has these new changes. Returns the calls that wake readers. They run without a lock.
    fn publish(&self, state: Self::State, changes: &[Self::Change]) -> impl FnOnce();
}

/// The writers of one ledger.
pub(super) struct GroupCommit<L: Ledger> {
    /// Held while a transaction runs.
    writing: Mutex<()>,
    accepted: Mutex<Accepted<L>>,
    /// Held by the leader that stores a batch.
    leading: Mutex<()>,
}

/// The changes that are accepted but not visible yet.
struct Accepted<L: Ledger> {
    tip: Option<L::State>,
    open: Option<OpenBatch<L::Change>>,
    /// The batch that is being stored.
    closed: Option<Arc<Batch>>,
    /// The number of batches that could not be stored.
    failures: u64,
}

struct OpenBatch<C> {
    changes: Vec<C>,
    batch: Arc<Batch>,
}

/// The end of a batch, which all calls in the batch wait for.
struct Batch {
    end: Mutex<Option<Stored>>,
    ended: Condvar,
}

/// Whether a batch was stored. The calls of a batch share its error.
pub(super) type Stored = Result<(), Arc<str>>;

impl<L: Ledger> GroupCommit<L> {
    pub(super) fn new() -> Self {
        let accepted = Accepted { tip: None, open: None, closed: None, failures: 0 };
        Self { writing: Mutex::new(()), accepted: Mutex::new(accepted), leading: Mutex::new(()) }
    }

    /// Runs `work` while no transaction runs. No batch may be open or being stored.
    pub(super) fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        let _writing = self.writing.lock();
        work()
    }

    /// Runs a transaction, which returns a value and its changes. Blocks until the changes are stored and visible.
    /// Without changes, blocks until the changes that the transaction has seen are stored and visible. After an error,
    /// discard the value.
    pub(super) fn write<T>(
        &self,
        ledger: &L,
        transaction: impl FnOnce(&L::State) -> (T, Vec<L::Change>),
    ) -> (T, Stored) {
        let turn = self.turn();
        let (tip, last, failures) = self.accepted.lock().read();
        // Without a tip there is no batch, and none is opened before this turn ends, so the visible state stays as it
        // is.
        let state = tip.unwrap_or_else(|| ledger.visible());
        let (value, changes) = transaction(&state);
        let last = || last.map_or(Ok(()), |batch| batch.wait());
        if changes.is_empty() {
            drop(turn);
            return (value, last());
        }
        let accepted = if changes.len() <= MOST_IN_PLACE {
            self.accepted.lock().accept(changes, failures, |tip, changes| {
                // The tip is the state that the transaction has read, unless its last batch has become visible. With
                // only one handle it is changed in place.
                let mut next = match tip {
                    Some(tip) => {
                        drop(state);
                        tip
                    }
                    None => state,
                };
                L::apply(&mut next, changes);
                (next, None)
            })
        } else {
            let mut next = state;
            L::apply(&mut next, &changes);
            self.accepted.lock().accept(changes, failures, |tip, _| (next, tip))
        };
        drop(turn);
        // A transaction that read a lost state fails with the last batch that it saw.
        let Some((batch, leads, old)) = accepted else { return (value, last()) };
        drop(old);
        if leads {
            self.lead(ledger, &batch);
        }
        (value, batch.wait())
    }

    /// Waits for the turn of a writer. If the open batch is full, waits until that batch has ended.
    fn turn(&self) -> MutexGuard<'_, ()> {
        loop {
            let turn = self.writing.lock();
            let Some(full) = self.accepted.lock().full() else { return turn };
            drop(turn);
            let _ = full.wait();
        }
    }

    /// Stores the batch that this thread has opened, and makes it visible.
    fn lead(&self, ledger: &L, batch: &Arc<Batch>) {
        let turn = self.leading.lock();
        // If the previous batch has failed, this one has failed with it.
        let Some((state, changes)) = self.accepted.lock().close(batch) else { return };
        match ledger.store(&changes) {
            Ok(()) => {
                let wake = ledger.publish(state, &changes);
                let unused = self.accepted.lock().stored();
                drop(turn);
                batch.end(Ok(()));
                wake();
                drop(unused);
            }
            Err(error) => {
                let error: Arc<str> = Chain(&*error).to_string().into();
                let (unused, open) = self.accepted.lock().failed();
                drop(turn);
                batch.end(Err(Arc::clone(&error)));
                if let Some(open) = open {
                    open.batch.end(Err(error));
                }
                drop(unused);
            }
        }
    }
}

impl<L: Ledger> Accepted<L> {
    /// Returns the tip, the last batch in it, and the number of failures.
    fn read(&self) -> (Option<L::State>, Option<Arc<Batch>>, u64) {
        let last = self.open.as_ref().map(|open| &open.batch).or(self.closed.as_ref());
        (self.tip.clone(), last.cloned(), self.failures)
    }

    /// Returns the open batch if it is full.
    fn full(&self) -> Option<Arc<Batch>> {
        let (open, tip) = self.open.as_ref().zip(self.tip.as_ref())?;
        (open.changes.len() >= L::most_changes(tip).max(1)).then(|| Arc::clone(&open.batch))
    }

    /// Adds the changes of a transaction to the open batch. `next` applies them to the tip, and returns a state that is
    /// no longer needed. Returns the batch, whether the caller has opened it and leads it, and that state. Returns
    /// `None` if a batch has failed since the transaction read the tip.
    fn accept(
        &mut self,
        changes: Vec<L::Change>,
        failures: u64,
        next: impl FnOnce(Option<L::State>, &[L::Change]) -> (L::State, Option<L::State>),
    ) -> Option<(Arc<Batch>, bool, Option<L::State>)> {
        if failures != self.failures {
            return None;
        }
        let (state, old) = next(self.tip.take(), &changes);
        self.tip = Some(state);
        if let Some(open) = &mut self.open {
            open.changes.extend(changes);
            return Some((Arc::clone(&open.batch), false, old));
        }
        let batch = Arc::new(Batch { end: Mutex::new(None), ended: Condvar::new() });
        self.open = Some(OpenBatch { changes, batch: Arc::clone(&batch) });
        Some((batch, true, old))
    }

    /// Closes the open batch, if it is this one. Returns the tip and the changes of the batch.
    fn close(&mut self, batch: &Arc<Batch>) -> Option<(L::State, Vec<L::Change>)> {
        let open = self.open.take_if(|open| Arc::ptr_eq(&open.batch, batch))?;
        self.closed = Some(open.batch);
        Some((self.tip.clone()?, open.changes))
    }

    /// Records that the closed batch is visible. Returns the tip if it is no longer needed. Drop it without a lock.
    fn stored(&mut self) -> Option<L::State> {
        self.closed = None;
        if self.open.is_none() { self.tip.take() } else { None }
    }

    /// Records that the closed batch could not be stored. Returns the tip and the open batch, which have failed too.
    fn failed(&mut self) -> (Option<L::State>, Option<OpenBatch<L::Change>>) {
        self.closed = None;
        self.failures += 1;
        (self.tip.take(), self.open.take())
    }
}

impl Batch {
    fn wait(&self) -> Stored {
        let mut end = self.end.lock();
        loop {
            match &*end {
                Some(stored) => return stored.clone(),
                None => self.ended.wait(&mut end),
            }
        }
    }

    fn end(&self, stored: Stored) {
        *self.end.lock() = Some(stored);
        self.ended.notify_all();
    }
}
