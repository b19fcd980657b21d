//! Several controllers on one pool, in real time. Runs fail, panic and requeue at random, feeders enqueue keys, and
//! settings change. The number of requests bounds the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crate::until::until;
use homeostat::ControllerHandle;
use homeostat::controller::WaitError;
use homeostat::queue::KeyState;
use homeostat::{
    Action, BoxError, Context, Controller, Enqueue, Exponential, Reasons, RequeueAfter, Running, WorkerPool, terminal,
};

const CONTROLLERS: usize = 3;
const KEYS: usize = 40;
const FEEDERS: u64 = 3;
const REQUESTS: u64 = 1500;
/// The highest limit on concurrent runs.
const MOST: usize = 3;

/// The observations of one key. Times are numbers of events.
#[derive(Default)]
struct Seen {
    running: AtomicBool,
    /// The time of the last request.
    asked: AtomicU64,
    /// The time at which the last run began.
    began: AtomicU64,
}

/// The observations of one controller.
#[derive(Default)]
struct Checker {
    keys: Vec<Seen>,
    events: AtomicU64,
    runs: AtomicU64,
    active: AtomicUsize,
    /// The most runs that may be active: the highest limit that was set so far.
    bound: AtomicUsize,
    panics: AtomicU64,
    /// The number of runs that began while another run of their key was active.
    doubled: AtomicU64,
    /// The number of runs that began while `bound` runs were active.
    exceeded: AtomicU64,
}

impl Checker {
    fn new() -> Arc<Self> {
        let keys = (0..KEYS).map(|_| Seen::default()).collect();
        Arc::new(Self { keys, bound: AtomicUsize::new(1), ..Self::default() })
    }

    fn now(&self) -> u64 {
        self.events.fetch_add(1, SeqCst) + 1
    }

    fn begin(&self, key: usize) -> RunUnderWay<'_> {
        let seen = &self.keys[key];
        self.runs.fetch_add(1, SeqCst);
        if self.active.fetch_add(1, SeqCst) >= self.bound.load(SeqCst) {
            self.exceeded.fetch_add(1, SeqCst);
        }
        if seen.running.swap(true, SeqCst) {
            self.doubled.fetch_add(1, SeqCst);
        }
        seen.began.store(self.now(), SeqCst);
        RunUnderWay(self, key)
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
struct RunUnderWay<'a>(&'a Checker, usize);

impl Drop for RunUnderWay<'_> {
    fn drop(&mut self) {
        self.0.keys[self.1].running.store(false, SeqCst);
        self.0.active.fetch_sub(1, SeqCst);
    }
}

/// Returns the next number of `SplitMix64`, which is random enough here.
fn draw(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn below(draw: u64, bound: usize) -> usize {
    usize::try_from(draw >> 8).map_or(0, |draw| draw % bound)
}

/// The payload of a planned panic, which prints no message.
struct Planned;

fn outcome(checker: &Checker, cx: &Context, draw: u64) -> Result<Action, BoxError> {
    let soon = Duration::from_micros(draw >> 32 & 255);
    match draw % 32 {
        0 => {
            checker.panics.fetch_add(1, SeqCst);
            std::panic::resume_unwind(Box::new(Planned))
        }
        1 | 2 => Err("by chance".into()),
        3 => Err(terminal("by chance").into()),
        4 => Err(RequeueAfter::new(soon, "by chance").into()),
        5 => Ok(Action::requeue_after(soon)),
        6 => Ok(Action::requeue_after(Duration::ZERO)),
        7 => {
            // About half of these runs pass their deadline.
            let _ = cx.sleep(2 * soon);
            Ok(Action::await_change())
        }
        8..12 => {
            thread::yield_now();
            Ok(Action::await_change())
        }
        _ => Ok(Action::await_change()),
    }
}

fn start(name: &str, pool: &WorkerPool, checker: &Arc<Checker>) -> Running<ControllerHandle<usize>> {
    let checker = Arc::clone(checker);
    let reconcile = move |cx: &Context, key: &usize| {
        let running = checker.begin(*key);
        let number = checker.runs.load(SeqCst);
        let ended = outcome(&checker, cx, draw(number * 64 + *key as u64));
        drop(running);
        ended
    };
    let backoff = Exponential::new(Duration::from_micros(50), Duration::from_micros(400));
    let builder = Controller::builder(name, reconcile).retry(backoff);
    builder.reconcile_timeout(Duration::from_micros(200)).build().unwrap().start(pool).unwrap()
}

/// Enqueues keys, and sometimes waits for one.
fn feed(controllers: &[(Running<ControllerHandle<usize>>, Arc<Checker>)], feeder: u64) {
    for number in 0..REQUESTS {
        let draw = draw(feeder * REQUESTS + number);
        let (controller, checker) = &controllers[below(draw, CONTROLLERS)];
        let key = below(draw >> 16, KEYS);
        checker.record_request(key);
        match draw % 5 {
            0 => controller.queue().because(Reasons::EVENT).enqueue(key),
            1 => controller.queue().enqueue_after(key, Duration::from_micros(draw >> 32 & 127)),
            _ => controller.enqueue(key),
        };
        if draw.is_multiple_of(8) {
            // The wait has a timeout, because the key may be suspended.
            let waited = controller.wait(&key, Duration::from_micros(300));
            assert!(matches!(waited, Ok(_) | Err(WaitError::Timeout)));
        } else if draw.is_multiple_of(3) {
            thread::yield_now();
        }
    }
}

/// A feeder under way.
struct Feeding<'a>(&'a AtomicUsize);

impl Drop for Feeding<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Changes settings at random until the feeders have ended. Then resets the rate and resumes all keys.
fn change_settings(controllers: &[(Running<ControllerHandle<usize>>, Arc<Checker>)], fed: &AtomicUsize) {
    let mut number = 0;
    while fed.load(SeqCst) > 0 {
        number += 1;
        let draw = draw(1_000_000 + number);
        let (controller, checker) = &controllers[below(draw, CONTROLLERS)];
        let key = below(draw >> 16, KEYS);
        match draw % 8 {
            0 => controller.suspend_all(),
            1 | 2 => controller.resume_all(),
            3 => controller.suspend(key),
            4 => controller.resume(&key),
            5 => controller.set_rate_limit((draw & 256 > 0).then_some((20_000.0, 4))).unwrap(),
            6 => drop(controller.status()),
            _ => {
                let limit = 1 + below(draw >> 24, MOST);
                checker.bound.fetch_max(limit, SeqCst);
                controller.set_max_concurrent_reconciles(limit).unwrap();
            }
        }
        thread::yield_now();
    }
    for (controller, _) in controllers {
        controller.set_rate_limit(None).unwrap();
        controller.resume_all();
        for key in 0..KEYS {
            controller.resume(&key);
        }
    }
}

#[test]
fn controllers_on_one_pool_run_no_key_twice_at_once_and_forget_none() {
    let pool = WorkerPool::builder().threads(3).spares(2).start().unwrap();
    let controllers: Vec<_> = ["vm", "disk", "net"]
        .map(|name| {
            let checker = Checker::new();
            (start(name, &pool, &checker), checker)
        })
        .into();
    let feeding = AtomicUsize::new(3);
    thread::scope(|scope| {
        let (controllers, feeding) = (&controllers, &feeding);
        scope.spawn(move || change_settings(controllers, feeding));
        for feeder in 0..FEEDERS {
            scope.spawn(move || {
                // A feeder that panics ends, too.
                let _end = Feeding(feeding);
                feed(controllers, feeder);
            });
        }
    });
    for (controller, checker) in &controllers {
        // Each of these requests leads to a run, even if earlier ones were merged.
        for key in (0..KEYS).cycle().take(10 * KEYS) {
            checker.record_request(key);
            controller.enqueue(key);
            controller.wait(&key, Duration::MAX).unwrap();
        }
        // Waits until each key is idle, because runs may requeue their keys.
        for key in 0..KEYS {
            until("the key is idle", || {
                controller.wait(&key, Duration::MAX).unwrap();
                controller.queue().state(&key) == KeyState::Idle
            });
        }
        let name = controller.name();
        assert_eq!(checker.forgotten(), Vec::<usize>::new(), "{name}");
        assert_eq!((checker.doubled.load(SeqCst), checker.exceeded.load(SeqCst)), (0, 0), "{name}");
        assert_eq!(checker.active.load(SeqCst), 0, "{name}");
        let metrics = controller.metrics();
        let runs = checker.runs.load(SeqCst);
        assert_eq!((metrics.runs.runs(), metrics.runs.panics), (runs, checker.panics.load(SeqCst)), "{name}");
        assert_eq!((metrics.work_time.count(), metrics.queue_time.count()), (runs, runs), "{name}");
        assert_eq!((metrics.failing, metrics.parked), (0, controller.parked().len()), "{name}");
        assert!(runs >= 10 * KEYS as u64, "{name}: {runs} runs");
        assert!(metrics.runs.panics > 0 && metrics.runs.terminal_errors > 0 && metrics.runs.requeues > 0, "{name}");
    }
    for (controller, checker) in controllers {
        let runs = checker.runs.load(SeqCst);
        controller.shutdown(Duration::ZERO).unwrap();
        assert_eq!(checker.runs.load(SeqCst), runs);
    }
    pool.shutdown(Duration::ZERO).unwrap();
}

/// The threads may be in any state at the suspension. Once `suspend_all` has returned and no key is in process, no
/// key is taken.
#[test]
fn a_suspended_controller_takes_no_key_wherever_its_threads_are() {
    let pool = WorkerPool::builder().threads(2).start().unwrap();
    let (shut, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (closed, taken) = (Arc::clone(&shut), Arc::clone(&broken));
    let reconcile = move |_cx: &Context, _key: &usize| -> Result<Action, BoxError> {
        if closed.load(SeqCst) {
            taken.fetch_add(1, SeqCst);
        }
        Ok(Action::await_change())
    };
    let builder = Controller::builder("suspended", reconcile).max_concurrent_reconciles(2);
    let running = builder.build().unwrap().start(&pool).unwrap();
    for round in 0..2_000 {
        running.enqueue(round);
        for _ in 0..round % 7 {
            thread::yield_now();
        }
        running.suspend_all();
        until("no key is being processed", || running.queue().metrics().processing == 0);
        shut.store(true, SeqCst);
        running.enqueue(round + 1);
        for _ in 0..round % 5 {
            thread::yield_now();
        }
        assert_eq!(running.queue().metrics().processing, 0);
        shut.store(false, SeqCst);
        running.resume_all();
    }
    assert_eq!(broken.load(SeqCst), 0);
}
