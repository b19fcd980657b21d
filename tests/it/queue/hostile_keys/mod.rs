//! Keys with code that panics, or calls back into the queue. The panic reaches the caller, or is logged if there is no
//! caller. The queue stays usable, other keys are served, and the counts stay right.

mod clones;
mod controllers;
mod reentry;
mod watches;

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread;
use std::time::Duration;

use homeostat::queue::{DequeueError, EnqueueMethod, EnqueueRequest, KeyState};
use homeostat::{Enqueue, EnqueueOutcome, Shutdown, ThreadOptions, WorkQueue};
use parking_lot::Mutex;

use crate::support::{MS, SECOND, counts, held, serve, take};

/// The code of a key that a queue calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Op {
    Hash,
    Eq,
    Clone,
    Debug,
    Borrow,
    From,
}

type Hook = Arc<dyn Fn(u32) + Send + Sync>;

/// Shared by the keys of a test: the operations that panic, the hook to call, and the number of keys.
#[derive(Default)]
struct Traps {
    armed: Mutex<HashSet<(Op, u32)>>,
    on_drop: Mutex<Option<Hook>>,
    alive: AtomicIsize,
}

impl Traps {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn arm(&self, op: Op, id: u32) {
        self.armed.lock().insert((op, id));
    }

    fn disarm(&self) {
        self.armed.lock().clear();
    }

    fn spring(&self, op: Op, id: u32) {
        let armed = self.armed.lock().contains(&(op, id));
        assert!(!armed, "{op:?} of {id}");
    }

    fn key(self: &Arc<Self>, id: u32) -> Key {
        self.alive.fetch_add(1, Ordering::Relaxed);
        Key(self.probe(id))
    }

    fn keys(self: &Arc<Self>, ids: impl IntoIterator<Item = u32>) -> impl Iterator<Item = Key> {
        ids.into_iter().map(|id| self.key(id))
    }

    fn probe(self: &Arc<Self>, id: u32) -> Probe {
        Probe { id, traps: Arc::clone(self) }
    }

    /// Drops the queue and checks that every key was dropped once.
    #[track_caller]
    fn close(&self, queue: WorkQueue<Key>) {
        self.disarm();
        *self.on_drop.lock() = None;
        drop(queue);
        assert_eq!(self.alive.load(Ordering::Relaxed), 0, "remaining keys");
    }
}

/// The borrowed form of a key.
struct Probe {
    id: u32,
    traps: Arc<Traps>,
}

impl Hash for Probe {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.traps.spring(Op::Hash, self.id);
        // 1 and 101 collide.
        (self.id % 100).hash(state);
    }
}

impl PartialEq for Probe {
    fn eq(&self, other: &Self) -> bool {
        self.traps.spring(Op::Eq, self.id);
        self.traps.spring(Op::Eq, other.id);
        self.id == other.id
    }
}

impl Eq for Probe {}

/// A key that panics as its [`Traps`] say.
struct Key(Probe);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        self.0.traps.spring(Op::Clone, self.0.id);
        self.0.traps.key(self.0.id)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let Probe { id, traps } = &self.0;
        traps.alive.fetch_sub(1, Ordering::Relaxed);
        let hook = traps.on_drop.lock().clone();
        if let Some(hook) = hook {
            hook(*id);
        }
    }
}

impl Borrow<Probe> for Key {
    fn borrow(&self) -> &Probe {
        self.0.traps.spring(Op::Borrow, self.0.id);
        &self.0
    }
}

impl From<&Probe> for Key {
    fn from(probe: &Probe) -> Self {
        probe.traps.spring(Op::From, probe.id);
        probe.traps.key(probe.id)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.traps.spring(Op::Debug, self.0.id);
        write!(f, "Key({})", self.0.id)
    }
}

/// Runs `code`, which must panic, and returns the message.
#[track_caller]
fn panics<R>(code: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(_) => panic!("it did not panic"),
        Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
    }
}

/// Whether this thread turns the wheel of a queue.
fn on_the_timer() -> bool {
    thread::current().name() == Some("queue-timer")
}

fn ids(keys: &[Key]) -> Vec<u32> {
    keys.iter().map(|key| key.0.id).collect()
}

type Place = (&'static str, fn(&Arc<Traps>, &WorkQueue<Key>));

/// Every call that looks key 1 up.
const LOOKUPS: [Place; 10] = [
    ("enqueue", |traps, queue| {
        queue.enqueue(traps.key(1));
    }),
    ("enqueue_if_absent", |traps, queue| {
        queue.enqueue_if_absent(traps.key(1));
    }),
    ("enqueue_now", |traps, queue| {
        queue.enqueue_now(traps.key(1));
    }),
    ("enqueue_after", |traps, queue| {
        queue.enqueue_after(traps.key(1), SECOND);
    }),
    ("reschedule", |traps, queue| {
        queue.reschedule(traps.key(1), SECOND);
    }),
    ("enqueue_debounced", |traps, queue| {
        queue.enqueue_debounced(traps.key(1), SECOND, SECOND);
    }),
    ("request_ref", |traps, queue| {
        queue.request_ref(&traps.probe(1), EnqueueMethod::Enqueue.into());
    }),
    ("cancel", |traps, queue| {
        queue.cancel(&traps.probe(1));
    }),
    ("state", |traps, queue| assert_eq!(queue.state(&traps.probe(1)), KeyState::Idle)),
    ("contains", |traps, queue| assert!(!queue.contains(&traps.probe(1)))),
];

#[test]
fn a_hash_that_panics_leaves_the_queue_as_it_was() {
    for (place, call) in LOOKUPS {
        let traps = Traps::new();
        let (_clock, queue) = held();
        queue.enqueue(traps.key(2));
        queue.enqueue_after(traps.key(3), SECOND);
        traps.arm(Op::Hash, 1);
        assert_eq!(panics(|| call(&traps, &queue)), "Hash of 1", "{place}");
        assert_eq!(counts(&queue), [1, 1, 0], "{place}");
        traps.disarm();
        assert_eq!(queue.enqueue(traps.key(1)), EnqueueOutcome::Queued);
        assert_eq!(ids(&serve(&queue)), [2, 1], "{place}");
        traps.close(queue);
    }
}

/// Puts key 1 into a state, from which its next look-up panics.
const STATES: [Place; 3] = [
    ("ready", |traps, queue| {
        queue.enqueue(traps.key(1));
    }),
    ("delayed", |traps, queue| {
        queue.enqueue_after(traps.key(1), SECOND);
    }),
    ("cooling", |traps, queue| {
        queue.enqueue(traps.key(1));
        take(queue).cool_down(SECOND);
    }),
];

#[test]
fn an_eq_or_a_borrow_that_panics_leaves_the_queue_as_it_was() {
    for (state, prepare) in STATES {
        for (place, call) in LOOKUPS {
            for op in [Op::Eq, Op::Borrow] {
                if op == Op::Borrow && !["request_ref", "cancel", "state", "contains"].contains(&place) {
                    continue;
                }
                let traps = Traps::new();
                let (clock, queue) = held();
                prepare(&traps, &queue);
                queue.enqueue(traps.key(2));
                let before = counts(&queue);
                traps.arm(op, 1);
                assert_eq!(panics(|| call(&traps, &queue)), format!("{op:?} of 1"), "{place}, {state}");
                assert_eq!(counts(&queue), before, "{place}, {state}");
                // A key of the same hash meets the same panic. A key of another hash does not.
                if op == Op::Eq {
                    assert_eq!(panics(|| queue.enqueue(traps.key(101))), "Eq of 1");
                }
                assert_eq!(queue.enqueue(traps.key(3)), EnqueueOutcome::Queued);
                clock.advance(SECOND);
                let mut served = ids(&serve(&queue));
                served.sort_unstable();
                assert_eq!(served, if state == "cooling" { vec![2, 3] } else { vec![1, 2, 3] }, "{place}, {state}");
                traps.close(queue);
            }
        }
    }
}

#[test]
fn an_eq_that_panics_leaves_a_key_in_process_with_its_claim() {
    let traps = Traps::new();
    let queue = WorkQueue::new();
    queue.enqueue(traps.key(1));
    let claim = take(&queue);
    traps.arm(Op::Eq, 1);
    assert_eq!(panics(|| queue.enqueue(traps.key(1))), "Eq of 1");
    assert_eq!(counts(&queue), [0, 0, 1]);
    // Ending a claim looks up no key.
    claim.done();
    assert_eq!(counts(&queue), [0; 3]);
    traps.close(queue);
}

#[test]
fn a_from_that_panics_leaves_the_queue_as_it_was() {
    let traps = Traps::new();
    let queue = WorkQueue::<Key>::new();
    traps.arm(Op::From, 1);
    assert_eq!(panics(|| queue.request_ref(&traps.probe(1), EnqueueMethod::Enqueue.into())), "From of 1");
    assert_eq!(counts(&queue), [0; 3]);
    assert_eq!(queue.request_ref(&traps.probe(2), EnqueueMethod::Enqueue.into()), EnqueueOutcome::Queued);
    traps.disarm();
    // A known key is not made again.
    traps.arm(Op::From, 2);
    assert_eq!(queue.request_ref(&traps.probe(2), EnqueueMethod::Enqueue.into()), EnqueueOutcome::Merged);
    assert_eq!(ids(&serve(&queue)), [2]);
    traps.close(queue);
}

#[test]
fn a_batch_whose_iterator_or_hash_panics_admits_whole_sections_only() {
    let request = EnqueueRequest::new(EnqueueMethod::Enqueue);
    for hold in [0, 1024] {
        let traps = Traps::new();
        let queue = WorkQueue::new();
        let (all, at) = (hold + 10, hold + 5);
        let mut keys = traps.keys(0..all).inspect(|key| assert_ne!(key.0.id, at, "the iterator"));
        assert!(panics(|| queue.request_all(&mut keys, request)).contains("the iterator"));
        drop(keys);
        // Only the keys of the section before the panic.
        assert_eq!(ids(&serve(&queue)), (0..hold).collect::<Vec<_>>());

        traps.arm(Op::Hash, at);
        assert_eq!(panics(|| queue.request_all(&mut traps.keys(0..all), request)), format!("Hash of {at}"));
        assert_eq!(ids(&serve(&queue)), (0..hold).collect::<Vec<_>>());
        assert_eq!(counts(&queue), [0; 3]);
        traps.close(queue);
    }
}

#[test]
fn a_batch_whose_eq_panics_in_the_middle_admits_the_keys_before() {
    let traps = Traps::new();
    let queue = WorkQueue::new();
    queue.enqueue(traps.key(3));
    traps.arm(Op::Eq, 3);
    let request = EnqueueRequest::new(EnqueueMethod::EnqueueNow);
    assert_eq!(panics(|| queue.request_all(&mut traps.keys(1..6), request)), "Eq of 3");
    assert_eq!(queue.len(), 3);
    traps.disarm();
    let tally = queue.request_all(&mut traps.keys(1..6), request);
    assert_eq!((tally.of(EnqueueOutcome::Merged), tally.of(EnqueueOutcome::Queued), tally.total()), (3, 2, 5));
    assert_eq!(ids(&serve(&queue)), [3, 1, 2, 4, 5]);
    traps.close(queue);
}

#[test]
fn an_on_ready_hook_that_panics_stops_no_thread() {
    let traps = Traps::new();
    let queue = WorkQueue::builder().on_ready(|| panic!("the hook")).build();
    assert_eq!(queue.enqueue(traps.key(1)), EnqueueOutcome::Queued);
    let claim = take(&queue);
    queue.enqueue(traps.key(1));
    claim.done();
    take(&queue).requeue_after(Duration::from_micros(1));
    // Here the hook panics on the timer thread, which survives.
    for _ in 0..3 {
        queue.dequeue().unwrap().requeue_after(Duration::from_micros(1));
    }
    queue.cancel(&traps.probe(1));
    traps.close(queue);
}

#[test]
fn a_worker_that_panics_with_a_claim_leaves_its_key_backing_off() {
    let traps = Traps::new();
    let (clock, queue) = held();
    queue.enqueue(traps.key(1));
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let _claim = take(&queue);
            panic!("the worker");
        });
        assert!(worker.join().is_err());
    });
    assert_eq!(counts(&queue), [0, 1, 0]);
    clock.advance(SECOND);
    let claim = take(&queue);
    assert_eq!(claim.failures(), 1);
    claim.done();
    queue.shutdown(Shutdown::ServeReady);
    assert_eq!(queue.dequeue().unwrap_err(), DequeueError::Closed);
    traps.close(queue);
}

#[test]
fn a_start_hook_that_panics_does_not_cost_the_timer() {
    let threads = ThreadOptions::new().on_start(|name| panic!("the hook of {name}"));
    let queue = WorkQueue::builder().thread_options(threads).build();
    queue.enqueue_after(1, MS);
    assert_eq!(*queue.dequeue_timeout(Duration::from_secs(20)).unwrap(), 1);
}
