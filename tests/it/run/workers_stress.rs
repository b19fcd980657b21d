//! Two sets of workers on one queue, in real time, with reconcilers that fail, panic and requeue at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use homeostat::queue::EnqueueMethod;
use homeostat::{
    Action, BoxError, Context, Enqueue, EnqueueOutcome, Exponential, RequeueAfter, Shutdown, WorkQueue, Workers,
    terminal,
};

use crate::stages::SECOND;
use crate::until::until;

const KEYS: usize = 1000;
const HOT: usize = 16;
const PRODUCERS: u64 = 8;
const REQUESTS: u64 = 15_000;
/// The number of queued keys above which producers wait, because requests for queued keys are merged and test little.
const IN_LINE: usize = 64;
const MS: Duration = Duration::from_millis(1);

/// The observations of one key. Times are numbers of events, so "after" needs no wall clock.
#[derive(Default)]
struct Seen {
    running: AtomicBool,
    /// The time of the last request.
    asked: AtomicU64,
    /// The time at which the last run began.
    began: AtomicU64,
}

struct Checker {
    keys: Vec<Seen>,
    events: AtomicU64,
    /// The number of requests during a run of their key.
    reruns: AtomicU64,
    doubled: AtomicU64,
}

impl Checker {
    fn new() -> Arc<Self> {
        let keys = (0..KEYS).map(|_| Seen::default()).collect();
        Arc::new(Self { keys, events: AtomicU64::new(1), reruns: AtomicU64::new(0), doubled: AtomicU64::new(0) })
    }

    fn now(&self) -> u64 {
        self.events.fetch_add(1, SeqCst)
    }

    fn begin(self: &Arc<Self>, key: usize) -> Running {
        let seen = &self.keys[key];
        seen.began.fetch_max(self.now(), SeqCst);
        if seen.running.swap(true, SeqCst) {
            self.doubled.fetch_add(1, SeqCst);
        }
        Running(Arc::clone(self), key)
    }

    /// Records a request, and is called before it. A run that begins later has therefore seen the change.
    fn record_request(&self, key: usize) {
        self.keys[key].asked.fetch_max(self.now(), SeqCst);
    }

    /// Returns the keys without a run after their last request.
    fn forgotten(&self) -> Vec<usize> {
        let forgotten = |seen: &Seen| seen.began.load(SeqCst) < seen.asked.load(SeqCst);
        (0..KEYS).filter(|key| forgotten(&self.keys[*key])).collect()
    }
}

/// A run under way. It ends on drop, so it also ends if the reconciler panics.
struct Running(Arc<Checker>, usize);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.keys[self.1].running.store(false, SeqCst);
    }
}

/// Returns the next number of `SplitMix64`, which is random enough here.
fn draw(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Chooses a key. Half of the requests use a few keys, so many of them arrive during a run of their key.
fn key_of(draw: u64) -> usize {
    let among = if draw.is_multiple_of(2) { HOT } else { KEYS };
    usize::try_from(draw >> 1).map_or(0, |draw| draw % among)
}

/// Ends a run: mostly with success, else in every possible way.
fn outcome(cx: &Context, draw: u64) -> Result<Action, BoxError> {
    match draw % 32 {
        0 => panic!("by chance"),
        1 => std::panic::panic_any(draw),
        2 | 3 => Err("by chance".into()),
        4 => Err(terminal("by chance").into()),
        5 => Err(RequeueAfter::new(MS, "by chance").into()),
        6 => Ok(Action::requeue_after(MS)),
        7 => Ok(Action::requeue_after(Duration::ZERO)),
        8 => {
            cx.sleep(Duration::from_micros(200))?;
            Ok(Action::await_change())
        }
        _ => Ok(Action::await_change()),
    }
}

/// Silences the panics of the test's threads. They are intended, and their traces would hide an unintended one.
fn hush(threads: &'static str) {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !thread::current().name().is_some_and(|name| name.starts_with(threads)) {
            others(panic);
        }
    }));
}

#[test]
fn two_sets_of_workers_run_no_key_twice_at_once_and_forget_none() {
    hush("stress-");
    let checker = Checker::new();
    let queue = WorkQueue::<usize>::new();
    let start = |name: &str| {
        let checker = Arc::clone(&checker);
        let reconcile = move |cx: &Context, key: &usize| {
            let running = checker.begin(*key);
            let draw = draw(running.0.now());
            for _ in 0..draw % 8 {
                thread::yield_now();
            }
            outcome(cx, draw >> 8)
        };
        Workers::new(reconcile)
            .name(name)
            .threads(4)
            .reconcile_timeout(60 * SECOND)
            .retry(Exponential::new(MS / 10, MS))
            .start(&queue)
            .unwrap()
    };
    let (one, other) = (start("stress-one"), start("stress-other"));
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (queue, checker) = (&queue, &checker);
            scope.spawn(move || {
                for n in 0..REQUESTS {
                    let draw = draw(producer * REQUESTS + n);
                    let key = key_of(draw >> 8);
                    // A key enqueued with `enqueue` may wait for a delay, but only until the queue is drained.
                    let verb = if draw.is_multiple_of(2) { EnqueueMethod::Enqueue } else { EnqueueMethod::EnqueueNow };
                    until("the workers catch up", || queue.len() <= IN_LINE);
                    checker.record_request(key);
                    if queue.request(key, verb.into()) == EnqueueOutcome::Rerun {
                        checker.reruns.fetch_add(1, SeqCst);
                    }
                }
            });
        }
    });
    // The shutdown runs delayed keys at once. After the drain, no request may be forgotten.
    queue.shutdown(Shutdown::RunDelayedNow);
    let report = queue.drain(60 * SECOND);
    assert!(report.is_drained(), "{report}");
    one.join().unwrap();
    other.join().unwrap();
    assert_eq!(checker.doubled.load(SeqCst), 0, "two runs of one key at once");
    assert_eq!(checker.forgotten(), Vec::<usize>::new());
    // Without reruns the test proves nothing, because requests for queued keys meet no run.
    let reruns = checker.reruns.load(SeqCst);
    assert!(reruns > 100, "only {reruns} requests met a run under way");
    assert!(queue.is_empty() && queue.metrics().delayed == 0 && queue.metrics().processing == 0);
}
