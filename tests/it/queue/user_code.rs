//! User code that a queue calls: how often, and the queue after a panic.

use std::borrow::Borrow;
use std::cell::Cell;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};

use homeostat::queue::{EnqueueMethod, KeyState};
use homeostat::{Enqueue, EnqueueOutcome, ManualClock, Priority, Reasons, Shutdown, WorkQueue};

use super::letters::{Bench, secs};

thread_local! {
    static HASHES: Cell<usize> = const { Cell::new(0) };
    static CLONES: Cell<usize> = const { Cell::new(0) };
    static FROMS: Cell<usize> = const { Cell::new(0) };
    static DROPS: Cell<usize> = const { Cell::new(0) };
    static EQS: Cell<usize> = const { Cell::new(0) };
    /// The operation that panics at its next call for this key.
    static FAULT: Cell<Option<(Fault, u32)>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Hash,
    Eq,
    Clone,
}

fn call(fault: Fault, id: u32, count: &'static std::thread::LocalKey<Cell<usize>>) {
    count.set(count.get() + 1);
    if FAULT.get() == Some((fault, id)) {
        FAULT.set(None);
        panic!("a key's panic");
    }
}

/// A key that counts the calls of its code.
#[derive(Debug)]
struct Key(u32);

impl Clone for Key {
    fn clone(&self) -> Self {
        call(Fault::Clone, self.0, &CLONES);
        Self(self.0)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        call(Fault::Eq, self.0, &EQS);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        call(Fault::Hash, self.0, &HASHES);
        self.0.hash(state);
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        DROPS.set(DROPS.get() + 1);
    }
}

impl Borrow<u32> for Key {
    fn borrow(&self) -> &u32 {
        &self.0
    }
}

impl From<&u32> for Key {
    fn from(id: &u32) -> Self {
        FROMS.set(FROMS.get() + 1);
        Self(*id)
    }
}

/// Returns a queue on a held clock.
fn standing_still<K: homeostat::Key>() -> WorkQueue<K> {
    WorkQueue::builder().clock(ManualClock::new().clock()).build()
}

/// Returns the hashes, clones and conversions since the last call.
fn calls() -> (usize, usize, usize) {
    (HASHES.take(), CLONES.take(), FROMS.take())
}

/// A hasher that counts its instances.
#[derive(Default)]
struct Counting(RandomState);

thread_local! {
    static BUILT: Cell<usize> = const { Cell::new(0) };
}

impl BuildHasher for Counting {
    type Hasher = <RandomState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        BUILT.set(BUILT.get() + 1);
        self.0.build_hasher()
    }
}

#[test]
fn a_key_is_hashed_once_a_request_and_never_again() {
    let bench = Bench::new();
    let queue = WorkQueue::builder().clock(bench.clock.clock()).hasher(Counting::default()).build();
    let hashed = |times: usize| {
        assert_eq!(HASHES.take(), times);
        assert_eq!(BUILT.take(), times);
    };
    // Growth hashes no key again.
    for id in 0..10_000 {
        queue.enqueue(Key(id));
    }
    hashed(10_000);
    queue.request_all(&mut (0..20_000).map(Key), EnqueueMethod::Enqueue.into());
    hashed(20_000);
    let claims: Vec<_> = (0..4_000).map(|_| queue.try_dequeue().unwrap()).collect();
    for (number, claim) in claims.into_iter().enumerate() {
        match number % 4 {
            0 => claim.done(),
            1 => claim.retry_after(secs(5)),
            2 => claim.requeue_after(secs(5)),
            _ => drop(claim.done_and_next()),
        }
    }
    bench.clock.advance(secs(5));
    queue.shrink_to_fit();
    hashed(0);
    assert_eq!((queue.state(&Key(1)), queue.contains(&Key(20_000))), (KeyState::Ready(Priority::Normal), false));
    queue.cancel(&Key(1));
    queue.reschedule(Key(2), secs(7));
    hashed(4);
    queue.shutdown(Shutdown::Discard);
    let _ = queue.drain(secs(0));
    hashed(0);
}

/// With this fixed hasher, each of these keys has its own hash.
#[test]
fn keys_of_different_hashes_are_never_compared() {
    let queue = WorkQueue::builder().hasher(BuildHasherDefault::<DefaultHasher>::default()).build();
    queue.request_all(&mut (0..10_000).map(Key), EnqueueMethod::Enqueue.into());
    for id in 10_000..20_000 {
        queue.enqueue(Key(id));
        assert!(!queue.contains(&Key(id + 10_000)));
        assert_eq!(queue.cancel(&(id + 10_000)), KeyState::Idle);
    }
    assert_eq!(EQS.take(), 0);
    // A known key is compared only with itself.
    for id in 0..20_000 {
        queue.enqueue(Key(id));
    }
    assert_eq!(EQS.take(), 20_000);
}

#[test]
fn a_request_clones_nothing_and_a_claim_clones_once() {
    let queue = standing_still();
    for _ in 0..3 {
        queue.enqueue(Key(1));
        queue.enqueue_after(Key(1), secs(5));
        queue.reschedule(Key(1), secs(0));
    }
    queue.request_all(&mut [Key(1), Key(2)].into_iter(), EnqueueMethod::Enqueue.into());
    assert_eq!(calls(), (11, 0, 0));
    let claim = queue.try_dequeue().unwrap();
    assert_eq!(calls(), (0, 1, 0));
    claim.done_and_next().unwrap().done();
    assert_eq!(calls(), (0, 1, 0));
}

#[test]
fn only_a_new_key_is_made_from_a_borrowed_key() {
    let queue = standing_still::<Key>();
    assert_eq!(queue.request_ref(&7, EnqueueMethod::Enqueue.into()), EnqueueOutcome::Queued);
    assert_eq!(calls(), (0, 0, 1));
    assert_eq!(queue.request_ref(&7, EnqueueMethod::Enqueue.into()), EnqueueOutcome::Merged);
    assert_eq!(queue.request_ref(&7, EnqueueMethod::EnqueueNow.into()), EnqueueOutcome::Merged);
    let claim = queue.try_dequeue().unwrap();
    assert_eq!(queue.request_ref(&7, EnqueueMethod::Enqueue.into()), EnqueueOutcome::Rerun);
    claim.requeue_after(secs(5));
    assert_eq!(queue.request_ref(&7, EnqueueMethod::EnqueueIfAbsent.into()), EnqueueOutcome::Ignored);
    assert_eq!(queue.request_ref(&7, EnqueueMethod::Reschedule(secs(5)).into()), EnqueueOutcome::Scheduled);
    assert_eq!(queue.request_ref(&7, EnqueueMethod::Enqueue.into()), EnqueueOutcome::Held);
    assert_eq!(calls(), (0, 1, 0), "the clone is the claim's");
    queue.shutdown(Shutdown::Discard);
    assert_eq!(queue.request_ref(&8, EnqueueMethod::Enqueue.into()), EnqueueOutcome::Closed);
    assert_eq!(calls(), (0, 0, 0));
}

/// Every key is dropped once, and never under the lock.
#[test]
fn every_key_is_dropped() {
    let queue = standing_still();
    for id in 0..8 {
        queue.enqueue(Key(id));
        queue.enqueue(Key(id));
    }
    assert_eq!(DROPS.take(), 8, "the duplicates");
    for _ in 0..4 {
        queue.try_dequeue().unwrap().done();
    }
    assert_eq!(DROPS.take(), 8, "the key and the claim's clone");
    queue.cancel(&Key(5));
    assert_eq!(DROPS.take(), 2, "the key and the argument");
    drop(queue);
    assert_eq!(DROPS.take(), 3);
}

/// A call to a queue.
type Use = fn(&WorkQueue<Key>);

fn panics(run: impl FnOnce()) {
    catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    assert!(FAULT.get().is_none(), "the fault did not happen");
}

/// Checks the ready keys after a panic.
fn still_serves(queue: &WorkQueue<Key>, expected: &[u32]) {
    let mut line = Vec::new();
    while let Ok(claim) = queue.try_dequeue() {
        line.push(claim.0);
        claim.done();
    }
    assert_eq!(line, expected);
    assert_eq!((queue.metrics().processing, queue.enqueue(Key(9))), (0, EnqueueOutcome::Queued));
    queue.try_dequeue().unwrap().done();
}

fn of_two() -> WorkQueue<Key> {
    let queue = standing_still();
    queue.enqueue(Key(1));
    queue.enqueue(Key(2));
    queue
}

#[test]
fn a_hash_that_panics_changes_nothing() {
    let uses: [Use; 4] = [
        |queue| {
            queue.enqueue(Key(1));
        },
        |queue| {
            queue.cancel(&Key(1));
        },
        |queue| {
            let _ = queue.state(&Key(1));
        },
        |queue| {
            queue.request_all(&mut [Key(1)].into_iter(), EnqueueMethod::Enqueue.into());
        },
    ];
    for request in uses {
        let queue = of_two();
        FAULT.set(Some((Fault::Hash, 1)));
        panics(|| request(&queue));
        still_serves(&queue, &[1, 2]);
    }
}

#[test]
fn an_eq_that_panics_changes_nothing() {
    let uses: [Use; 5] = [
        |queue| {
            queue.enqueue(Key(1));
        },
        |queue| {
            queue.reschedule(Key(1), secs(5));
        },
        |queue| {
            queue.cancel(&Key(1));
        },
        |queue| {
            let _ = queue.state(&Key(1));
        },
        |queue| {
            queue.request_all(&mut [Key(1)].into_iter(), EnqueueMethod::Reschedule(secs(5)).into());
        },
    ];
    for request in uses {
        let queue = of_two();
        FAULT.set(Some((Fault::Eq, 1)));
        panics(|| request(&queue));
        still_serves(&queue, &[1, 2]);
    }
}

#[test]
fn a_key_whose_clone_panics_backs_off_and_others_are_served() {
    let queue = of_two();
    FAULT.set(Some((Fault::Clone, 1)));
    queue.at(Priority::High).because(Reasons::MANUAL).enqueue(Key(1));
    panics(|| drop(queue.dequeue()));
    assert!(matches!(queue.state(&Key(1)), KeyState::Delayed(Some(_))));
    still_serves(&queue, &[2]);
    queue.enqueue_now(Key(1));
    let claim = queue.try_dequeue().unwrap();
    let run = (claim.failures(), claim.priority(), claim.reasons());
    assert_eq!(run, (1, Priority::High, Reasons::MANUAL | Reasons::RETRY), "nothing of the first run is lost");
    claim.done();
}

/// The ended key drops without the lock, so its `Drop` may use the queue.
#[test]
fn done_and_next_with_a_clone_that_panics_ends_the_claim() {
    #[derive(PartialEq, Eq, Hash)]
    struct Watched(u32);
    thread_local! {
        static QUEUE: Cell<Option<WorkQueue<Watched>>> = const { Cell::new(None) };
        static LOOKED: Cell<usize> = const { Cell::new(0) };
    }
    impl Clone for Watched {
        fn clone(&self) -> Self {
            assert_ne!(self.0, 2, "a key's panic");
            Self(self.0)
        }
    }
    impl Drop for Watched {
        fn drop(&mut self) {
            if let Some(queue) = QUEUE.take() {
                assert!(queue.len() <= 1);
                LOOKED.set(LOOKED.get() + 1);
                QUEUE.set(Some(queue));
            }
        }
    }
    let queue = standing_still();
    queue.enqueue(Watched(1));
    let claim = queue.try_dequeue().unwrap();
    queue.enqueue(Watched(2));
    QUEUE.set(Some(queue.clone()));
    catch_unwind(AssertUnwindSafe(|| drop(claim.done_and_next()))).unwrap_err();
    drop(QUEUE.take());
    assert_eq!(LOOKED.get(), 2, "the queue's copy and the claim's");
    assert_eq!((queue.len(), queue.metrics().processing, queue.metrics().delayed), (0, 0, 1));
}

/// A queue forgets a key on its timer thread when the cool-down of the key ends.
#[test]
fn a_key_that_panics_when_it_drops_does_not_end_the_timer() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Fragile(&'static str);
    impl Drop for Fragile {
        fn drop(&mut self) {
            let on_timer = std::thread::current().name().is_some_and(|name| name == "fragile-timer");
            assert!(!on_timer || self.0 != "breaks", "the drop of a key");
        }
    }
    let queue = WorkQueue::builder().name("fragile").build();
    queue.enqueue(Fragile("breaks"));
    queue.dequeue().unwrap().cool_down(std::time::Duration::from_millis(1));
    queue.enqueue_after(Fragile("holds"), std::time::Duration::from_millis(20));
    assert_eq!(queue.dequeue().unwrap().0, "holds");
}
