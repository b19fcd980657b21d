//! A soak test: three controllers on one pool, with a hundred thousand keys in all. Runs fail, panic, overrun and are
//! cancelled at random, while the watched objects change as fast as the controllers can follow.
//!
//! The test checks that no key has two runs at once, that concurrency limits hold, and that a successful run sees the
//! last state of every key. In the end the counters add up, all threads have ended and all memory is freed.
//!
//! It takes about three seconds. Set `HOMEOSTAT_SOAK=30s` (or `2m`) in the environment to choose how long the objects
//! change, then with a hundred thousand keys per controller. With `--nocapture` it prints its figures.
//!
//! It has its own test binary because it measures through a counting global allocator.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test, also in its helpers")]

use std::convert::Infallible;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use homeostat::watch::Push;
use homeostat::{
    Action, BoxError, CancellationToken, Clock, Context, Controller, ControllerHandle, Exponential, Manager, Poller,
    RequeueAfter, Watch,
};
use homeostat_test_support::until::until;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Keys per controller: in the warm-up, by default, and with `HOMEOSTAT_SOAK`.
const KEYS: [usize; 3] = [1_000, 34_000, 100_000];
const THREADS: usize = 4;
const SPARES: usize = 4;
/// The timeout of a run.
const TIMEOUT: Duration = Duration::from_millis(20);

/// How long an overrunning run continues after its deadline.
const OVERRUN: Duration = Duration::from_millis(120);
/// Bytes that may stay allocated after a round: names of threads, and allocations of the standard library.
const MARGIN: usize = 16 * 1024;
/// The changing thread waits while a controller has more enqueued keys than this.
const BACKLOG: usize = 20_000;
/// How long a round may be extended until every required event has happened.
const PATIENCE: Duration = Duration::from_secs(60);
/// The prefix of intended panics.
const OUT_OF_LUCK: &str = "out of luck";

type Key = u32;

/// A random number generator for any number of threads.
struct Dice(AtomicU64);

impl Dice {
    const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Returns a number below `sides`.
    fn throw(&self, sides: usize) -> usize {
        // SplitMix64.
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }
}

fn at(key: Key) -> usize {
    key as usize
}

/// The objects of a controller, and the record of its runs.
struct World {
    name: &'static str,
    limit: usize,
    dice: Dice,
    /// By key: the number of changes.
    versions: Vec<AtomicU64>,
    /// By key: the number of changes at the beginning of the last successful run.
    seen: Vec<AtomicU64>,
    /// By key: whether a run is active.
    running: Vec<AtomicBool>,
    active: AtomicUsize,
    most_active: AtomicUsize,
    runs: AtomicU64,
    succeeded: AtomicU64,
    asked: AtomicU64,
    failed: AtomicU64,
    panicked: AtomicU64,
    /// Runs that passed their deadline.
    late: AtomicU64,
    /// Violations: two runs of a key, or more runs than the limit.
    wrong: AtomicU64,
}

/// An active run, which ends when this is dropped.
struct Run<'a>(&'a World, &'a Context, Key);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let Self(world, cx, key) = self;
        world.late.fetch_add(u64::from(cx.remaining() == Some(Duration::ZERO)), Relaxed);
        world.active.fetch_sub(1, SeqCst);
        world.running[at(*key)].store(false, SeqCst);
    }
}

impl World {
    fn new(name: &'static str, limit: usize, keys: usize) -> Arc<Self> {
        let numbers = || (0..keys).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            name,
            limit,
            dice: Dice::new(limit as u64),
            versions: (0..keys).map(|_| AtomicU64::new(1)).collect(),
            seen: numbers(),
            running: (0..keys).map(|_| AtomicBool::new(false)).collect(),
            active: AtomicUsize::new(0),
            most_active: AtomicUsize::new(0),
            runs: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            late: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
        })
    }

    fn key(&self) -> Key {
        Key::try_from(self.dice.throw(self.versions.len())).unwrap()
    }

    fn change(&self, key: Key) -> u64 {
        self.versions[at(key)].fetch_add(1, SeqCst) + 1
    }

    fn reconcile(&self, cx: &Context, key: Key) -> Result<Action, BoxError> {
        let twice = self.running[at(key)].swap(true, SeqCst);
        let active = self.active.fetch_add(1, SeqCst) + 1;
        let run = Run(self, cx, key);
        self.most_active.fetch_max(active, SeqCst);
        if twice || active > self.limit {
            self.wrong.fetch_add(1, SeqCst);
        }
        self.runs.fetch_add(1, Relaxed);
        let version = self.versions[at(key)].load(SeqCst);
        match self.dice.throw(4_000) {
            0..40 => {
                self.panicked.fetch_add(1, Relaxed);
                panic!("{OUT_OF_LUCK}: {key}");
            }
            40..120 => {
                self.failed.fetch_add(1, Relaxed);
                return Err("no answer".into());
            }
            120..160 => {
                self.asked.fetch_add(1, Relaxed);
                return Err(RequeueAfter::new(Duration::from_millis(1), "not yet").into());
            }
            160..164 => {
                // Sleeps until the deadline cancels it.
                let slept = cx.sleep(Duration::MAX);
                self.failed.fetch_add(1, Relaxed);
                slept?;
            }
            164..166 => {
                // Overruns, while a spare thread takes over.
                Context::detached_with(cx.clock().clone(), CancellationToken::new()).sleep(TIMEOUT + OVERRUN)?;
            }
            _ => {}
        }
        self.seen[at(key)].fetch_max(version, SeqCst);
        self.succeeded.fetch_add(1, Relaxed);
        drop(run);
        Ok(Action::await_change())
    }

    /// Returns how many keys have a last state that no successful run has seen.
    fn unseen(&self) -> usize {
        self.seen.iter().zip(&self.versions).filter(|(seen, version)| seen.load(SeqCst) < version.load(SeqCst)).count()
    }

    fn controller(self: &Arc<Self>, watch: &Watch<Key, u64>) -> Controller<Key> {
        let world = Arc::clone(self);
        let reconcile = move |cx: &Context, key: &Key| world.reconcile(cx, *key);
        Controller::builder(self.name, reconcile)
            .watch(watch, |event| event.key().copied())
            .max_concurrent_reconciles(self.limit)
            .reconcile_timeout(TIMEOUT)
            .retry(Exponential::new(Duration::from_micros(100), Duration::from_millis(10)))
            .build()
            .unwrap()
    }

    /// Checks the counters of the controller against the recorded runs.
    fn check(&self, handle: &ControllerHandle<Key>) {
        assert_eq!(self.wrong.load(SeqCst), 0, "{}: two runs of a key, or too many runs", self.name);
        assert_eq!(self.unseen(), 0, "{}: wishes are lost", self.name);
        let runs = handle.metrics().runs;
        let counted = [runs.runs(), runs.successes, runs.requeues, runs.errors(), runs.panics];
        let [succeeded, asked, failed, panicked] =
            [&self.succeeded, &self.asked, &self.failed, &self.panicked].map(|number| number.load(SeqCst));
        let happened = [self.runs.load(SeqCst), succeeded, asked, failed + panicked, panicked];
        assert_eq!(counted, happened, "{}: runs, successes, requeues, errors, panics", self.name);
        // The system may delay a run between its own check of the deadline and its end.
        let late = self.late.load(SeqCst) + runs.runs() / 1_000;
        assert!(runs.overruns <= late, "{}: {} overruns, {late} runs that were late or so", self.name, runs.overruns);
        assert_eq!((runs.active, runs.aborted, runs.drops, runs.terminal_errors), (0, 0, 0, 0), "{}", self.name);
    }
}

/// Changes objects until `over` is cancelled, and passes each change to `tell`. Also cancels and suspends keys.
fn change(world: &World, handle: &ControllerHandle<Key>, over: &CancellationToken, tell: impl Fn(Key, u64)) {
    while !over.is_cancelled() {
        for _ in 0..1_000 {
            let key = world.key();
            tell(key, world.change(key));
        }
        let key = world.key();
        // Cancels a key and enqueues it again.
        handle.queue().cancel(&key);
        handle.enqueue(key);
        // Suspends a key, changes it, and resumes it.
        let key = world.key();
        handle.suspend(key);
        tell(key, world.change(key));
        handle.resume(&key);
        until("the controller catches up", || handle.queue().len() <= BACKLOG || over.is_cancelled());
    }
}

/// The figures of a round.
#[derive(Debug, Default)]
struct Seen {
    runs: u64,
    panics: u64,
    errors: u64,
    overruns: u64,
    late: u64,
    changes: u64,
    elapsed: Duration,
}

fn round(keys: usize, length: Duration) -> Seen {
    let worlds =
        [("sk-listed", 2), ("sk-pushed", 3), ("sk-gone", 4)].map(|(name, limit)| World::new(name, limit, keys));
    let [listed, pushed, gone] = &worlds;
    let manager = Manager::builder().name("sk").threads(THREADS).spares(SPARES).build().unwrap();
    let list = {
        let world = Arc::clone(listed);
        move |_: &Context| {
            let versions = world.versions.iter().map(|version| version.load(SeqCst));
            Ok::<_, Infallible>((0..).zip(versions).collect::<Vec<(Key, u64)>>())
        }
    };
    let start = || Poller::new(Duration::from_millis(100), list).name("sk-list").watch();
    let listing = manager.watch("sk-list", start).unwrap();
    let push: [Push<Key, u64>; 2] = [Watch::push(), Watch::push()];
    for push in &push {
        push.replace_all((0..).zip(vec![1; keys]));
    }
    let handles = [(listed, &listing), (pushed, push[0].watch()), (gone, push[1].watch())].map(|(world, watch)| {
        manager.add(world.controller(watch)).unwrap();
        manager.controller::<Key>(world.name).unwrap()
    });
    let begin = Clock::system().now();
    let running = manager.start().unwrap();
    let over = CancellationToken::new();
    std::thread::scope(|scope| {
        scope.spawn(|| change(listed, &handles[0], &over, |_, _| {}));
        scope.spawn(|| {
            change(pushed, &handles[1], &over, |key, version| {
                push[0].set(key, version);
            });
        });
        scope.spawn(|| {
            change(gone, &handles[2], &over, |key, version| {
                if version % 3 == 0 {
                    push[1].remove(&key);
                } else {
                    push[1].set(key, version);
                }
            });
        });
        let cx = Context::detached();
        cx.sleep(length).unwrap();
        // A busy machine may need longer until each event that the checks demand has happened.
        while !all_happened(&worlds, &handles) && Clock::system().now() < begin + length + PATIENCE {
            cx.sleep(Duration::from_millis(1)).unwrap();
        }
        over.cancel();
    });
    settle(&worlds, begin);
    let elapsed = Clock::system().now() - begin;
    // A stopped manager finishes its runs.
    manager.stop();
    running.join().unwrap();
    let mut seen = Seen { elapsed, ..Seen::default() };
    for (world, handle) in worlds.iter().zip(&handles) {
        world.check(handle);
        let runs = handle.metrics().runs;
        seen.runs += runs.runs();
        seen.panics += runs.panics;
        seen.errors += runs.errors();
        seen.overruns += runs.overruns;
        seen.late += world.late.load(SeqCst);
        seen.changes += world.versions.iter().map(|version| version.load(SeqCst) - 1).sum::<u64>();
        assert!(world.most_active.load(SeqCst) > 1, "{}: runs were never beside each other", world.name);
    }
    seen
}

/// Returns whether each controller has had two runs at once, and the controllers have had a panic, another error and an
/// overrun.
fn all_happened(worlds: &[Arc<World>; 3], handles: &[ControllerHandle<Key>]) -> bool {
    let happened = |count: fn(&World) -> &AtomicU64| worlds.iter().any(|world| count(world).load(SeqCst) > 0);
    worlds.iter().all(|world| world.most_active.load(SeqCst) > 1)
        && happened(|world| &world.panicked)
        && happened(|world| &world.failed)
        && handles.iter().any(|handle| handle.metrics().runs.overruns > 0)
}

/// Blocks until a run has seen the last state of each key. Gives up after a minute or more, so that `check` reports
/// lost keys.
fn settle(worlds: &[Arc<World>; 3], begin: Instant) {
    let clock = Clock::system();
    let patience = clock.now() - begin + PATIENCE;
    let until = clock.now() + patience;
    while worlds.iter().any(|world| world.unseen() > 0) && clock.now() < until {
        Context::detached().sleep(Duration::from_millis(1)).unwrap();
    }
}

/// Returns the names of the threads of this process, without the harness. Empty where `/proc` is missing.
fn threads() -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.contains("-s")).collect()
}

fn gone() {
    // The system may list a joined thread for another moment.
    until("the threads have ended", || threads().is_empty());
}

/// Returns the number of keys per controller and the length of the test, from the environment.
fn size() -> (usize, Duration) {
    let Ok(text) = std::env::var("HOMEOSTAT_SOAK") else { return (KEYS[1], Duration::from_secs(2)) };
    let seconds = match text.split_at_checked(text.len().saturating_sub(1)) {
        Some((number, "s")) => number.parse().ok(),
        Some((number, "m")) => number.parse::<u64>().ok().map(|minutes| minutes * 60),
        _ => None,
    };
    let Some(seconds) = seconds else { panic!("HOMEOSTAT_SOAK is {text:?}, but must be like 30s or 2m") };
    (KEYS[2], Duration::from_secs(seconds))
}

#[test]
fn everything_at_once() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload_as_str().is_some_and(|text| text.starts_with(OUT_OF_LUCK)) {
            before(info);
        }
    }));
    // The first round allocates everything that a process allocates only once.
    round(KEYS[0], Duration::from_millis(200));
    gone();
    let live = ALLOCATED.current_usage();
    let (keys, length) = size();
    let seen = round(keys, length);
    gone();
    let left = ALLOCATED.current_usage();
    let rate = u128::from(seen.runs) * 1_000_000_000 / seen.elapsed.as_nanos();
    println!("{seen:?}, {rate} runs a second, live bytes {live} at the start, {left} at the end");
    assert!(left.abs_diff(live) <= MARGIN, "{live} live bytes at the start, {left} at the end");
    assert!(seen.panics > 0 && seen.errors > seen.panics && seen.overruns > 0, "{seen:?}");
}
