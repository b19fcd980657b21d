//! Batches of real threads. A gate blocks the leader, so that each test decides which writers share a batch.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed, even in its helpers")]

use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::thread;

use super::{GroupCommit, Ledger};
use crate::sync::Mutex;
#[cfg(feature = "file-client")]
use crate::sync::MutexGuard;
use homeostat::run::BoxError;

/// Helpers for these tests and the tests of the file.
#[cfg(feature = "file-client")]
impl<L: Ledger> GroupCommit<L> {
    /// Blocks the leaders until the guard is dropped. Until then all writers join one batch.
    pub(in crate::memory) fn hold(&self) -> MutexGuard<'_, ()> {
        self.leading.lock()
    }

    /// Returns the number of changes in the open batch.
    pub(in crate::memory) fn waiting(&self) -> usize {
        self.accepted.lock().open.as_ref().map_or(0, |open| open.changes.len())
    }
}

/// A ledger of numbers.
#[derive(Default)]
struct Numbers {
    visible: Mutex<Arc<Vec<u32>>>,
    batches: Mutex<Vec<Vec<u32>>>,
    /// Changes that cannot be stored.
    poison: HashSet<u32>,
}

impl Ledger for Numbers {
    type State = Arc<Vec<u32>>;
    type Change = u32;

    fn visible(&self) -> Arc<Vec<u32>> {
        Arc::clone(&self.visible.lock())
    }

    fn apply(state: &mut Arc<Vec<u32>>, changes: &[u32]) {
        Arc::make_mut(state).extend(changes);
    }

    fn most_changes(_state: &Arc<Vec<u32>>) -> usize {
        4
    }

    fn store(&self, changes: &[u32]) -> Result<(), BoxError> {
        self.batches.lock().push(changes.to_vec());
        match changes.iter().find(|change| self.poison.contains(change)) {
            Some(change) => Err(format!("{change} cannot be stored").into()),
            None => Ok(()),
        }
    }

    fn publish(&self, state: Arc<Vec<u32>>, _changes: &[u32]) -> impl FnOnce() {
        *self.visible.lock() = state;
        || {}
    }
}

/// Returns the answers of writers that arrived while no batch could be stored, in their order: the state that each
/// writer saw, and its error.
fn held(numbers: &Numbers, news: &[&[u32]]) -> Vec<(Vec<u32>, Option<String>)> {
    let writers = GroupCommit::new();
    let gate = writers.leading.lock();
    thread::scope(|scope| {
        let calls: Vec<_> = news
            .iter()
            .map(|new| {
                let (accepted, is_accepted) = mpsc::channel();
                let writers = &writers;
                let call = scope.spawn(move || {
                    let (seen, stored) = writers.write(numbers, |state| {
                        accepted.send(()).unwrap();
                        ((**state).clone(), new.to_vec())
                    });
                    (seen, stored.err().map(|error| error.to_string()))
                });
                is_accepted.recv().unwrap();
                // The writer holds its turn until its changes are accepted.
                writers.alone(|| ());
                call
            })
            .collect();
        assert!(calls.iter().all(|call| !call.is_finished()), "no answer before its changes are stored");
        assert_eq!(*numbers.visible(), Vec::<u32>::new());
        drop(gate);
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn writers_that_wait_share_one_batch() {
    let numbers = Numbers::default();
    let answers = held(&numbers, &[&[1], &[2], &[3]]);
    assert_eq!(answers, [(vec![], None), (vec![1], None), (vec![1, 2], None)], "each saw the changes before it");
    assert_eq!(*numbers.batches.lock(), [[1, 2, 3]]);
    assert_eq!(*numbers.visible(), [1, 2, 3]);
}

#[test]
fn a_call_without_changes_waits_for_the_changes_that_it_saw() {
    let numbers = Numbers::default();
    assert_eq!(held(&numbers, &[&[1], &[], &[2]]), [(vec![], None), (vec![1], None), (vec![1], None)]);
    let poisoned = Numbers { poison: [2].into(), ..Numbers::default() };
    let answers = held(&poisoned, &[&[1], &[2], &[]]);
    assert!(answers.iter().all(|(_, error)| error.as_deref() == Some("2 cannot be stored")), "{answers:?}");
    assert_eq!(*poisoned.visible(), [] as [u32; 0]);
}

#[test]
fn a_call_without_changes_returns_at_once_if_all_is_stored() {
    let (writers, numbers) = (GroupCommit::new(), Numbers::default());
    let ((), stored) = writers.write(&numbers, |_| ((), vec![1]));
    assert_eq!(stored, Ok(()));
    let _gate = writers.leading.lock();
    assert_eq!(writers.write(&numbers, |state| (state.len(), vec![])), (1, Ok(())));
}

/// A ledger that makes a call while it stores the first batch.
struct Meanwhile<'a> {
    numbers: &'a Numbers,
    call: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl Ledger for Meanwhile<'_> {
    type State = Arc<Vec<u32>>;
    type Change = u32;

    fn visible(&self) -> Arc<Vec<u32>> {
        self.numbers.visible()
    }

    fn apply(state: &mut Arc<Vec<u32>>, changes: &[u32]) {
        Numbers::apply(state, changes);
    }

    fn most_changes(state: &Arc<Vec<u32>>) -> usize {
        Numbers::most_changes(state)
    }

    fn store(&self, changes: &[u32]) -> Result<(), BoxError> {
        let call = self.call.lock().take();
        if let Some(call) = call {
            call();
        }
        self.numbers.store(changes)
    }

    fn publish(&self, state: Arc<Vec<u32>>, changes: &[u32]) -> impl FnOnce() {
        self.numbers.publish(state, changes)
    }
}

/// Returns the answers to 1, and to 2 and 3, which arrive while 1 is being stored.
fn during_a_store(numbers: &Numbers) -> Vec<Result<(), String>> {
    let (begun, has_begun) = mpsc::channel();
    let (ran, has_run) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    let call = move || {
        begun.send(()).unwrap();
        may_go.recv().unwrap();
    };
    let ledger = Meanwhile { numbers, call: Mutex::new(Some(Box::new(call))) };
    let writers = GroupCommit::new();
    let write = |new: u32| {
        let ((), stored) = writers.write(&ledger, |_| {
            ran.send(()).unwrap();
            ((), vec![new])
        });
        stored.map_err(|error| error.to_string())
    };
    thread::scope(|scope| {
        let write = &write;
        let first = scope.spawn(|| write(1));
        has_begun.recv().unwrap();
        let others = [2, 3].map(|new| scope.spawn(move || write(new)));
        for _ in 1..=3 {
            has_run.recv().unwrap();
        }
        // A writer holds its turn until its changes are accepted.
        writers.alone(|| ());
        go.send(()).unwrap();
        [first].into_iter().chain(others).map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn writers_that_come_during_a_store_are_in_the_next_one() {
    let numbers = Numbers::default();
    assert_eq!(during_a_store(&numbers), [Ok(()), Ok(()), Ok(())]);
    let mut batches = numbers.batches.lock();
    batches[1].sort_unstable();
    assert_eq!(*batches, [vec![1], vec![2, 3]]);
}

#[test]
fn a_failed_batch_fails_the_transactions_on_top_of_it() {
    let numbers = Numbers { poison: [1].into(), ..Numbers::default() };
    let error = Err("1 cannot be stored".to_owned());
    assert_eq!(during_a_store(&numbers), [error.clone(), error.clone(), error]);
    assert_eq!(*numbers.batches.lock(), [[1]], "the lost changes are never stored");
    assert_eq!(*numbers.visible(), [] as [u32; 0]);
}

#[test]
fn after_a_failure_writers_continue_on_the_visible_state() {
    let (writers, numbers) = (GroupCommit::new(), Numbers { poison: [2].into(), ..Numbers::default() });
    let write = |new: u32| writers.write(&numbers, |state| ((**state).clone(), vec![new]));
    assert_eq!(write(1), (vec![], Ok(())));
    assert!(write(2).1.is_err());
    assert_eq!(write(3), (vec![1], Ok(())));
    assert_eq!(*numbers.visible(), [1, 3]);
}

#[test]
fn a_full_batch_accepts_no_further_transaction() {
    let (writers, numbers) = (GroupCommit::new(), Numbers::default());
    let (accepted, is_accepted) = mpsc::channel();
    thread::scope(|scope| {
        let gate = writers.leading.lock();
        for new in [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]] {
            let (writers, numbers, accepted) = (&writers, &numbers, accepted.clone());
            scope.spawn(move || {
                let transaction = |_: &_| {
                    accepted.send(()).unwrap();
                    ((), new.to_vec())
                };
                assert_eq!(writers.write(numbers, transaction).1, Ok(()));
            });
        }
        // Two transactions fill the batch.
        is_accepted.recv().unwrap();
        is_accepted.recv().unwrap();
        writers.alone(|| assert!(is_accepted.try_recv().is_err()));
        drop(gate);
    });
    let batches = numbers.batches.lock();
    assert!(batches.iter().all(|batch| batch.len() <= 4), "{batches:?}");
    let mut all = batches.concat();
    assert_eq!(all, **numbers.visible());
    all.sort_unstable();
    assert_eq!(all, (1..=10).collect::<Vec<_>>());
}

/// A few changes are applied to the tip in place, many to a copy.
#[test]
fn transactions_keep_the_state_that_they_have_read() {
    let (writers, numbers) = (GroupCommit::new(), Numbers::default());
    let few_or_many = [1..=3, 4..=40, 41..=41, 42..=90].map(Vec::from_iter);
    let mut all = Vec::new();
    let mut states = Vec::new();
    for new in few_or_many {
        let (state, stored) = writers.write(&numbers, |state| (Arc::clone(state), new.clone()));
        assert_eq!(stored, Ok(()));
        states.push((state, all.clone()));
        all.extend(new);
    }
    assert_eq!(**numbers.visible(), *all);
    for (state, seen) in states {
        assert_eq!(*state, seen);
    }
}
