//! Backoff for starts that succeed but do not last.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use homeostat::base::{Clock, Exponential};
use homeostat::queue::Key;
use homeostat::rt::{Draws, Nanos, Rounded, debug_with_causes};
use homeostat::run::{BoxError, RetryAfter};

use crate::sync::Mutex;

/// The number of records below which expired records are not removed.
const FEW: usize = 16;

/// Backoff per key for processes, connections or sessions that start successfully and end too soon.
///
/// A [`RetryPolicy`](homeostat::RetryPolicy) handles only failed runs. A reconciler that starts a process succeeds even
/// if the process ends a moment later, and would start it again at once. The guard counts such short runs, and returns
/// the time to wait.
///
/// A run is short if it lasts less than `stable_for`. After the `n`-th short run in a row, the key waits for the `n`-th
/// delay of the backoff, with jitter. The backoff's limit of retries does not apply. After a longer run, the count is
/// zero and the key may start at once. The count is also zero if the key is not started within `stable_for` after its
/// delay.
///
/// The guard keeps a record of each key that started or ended recently. A record expires `stable_for` after the start
/// of a run, or `stable_for` after the delay that followed it. New records push out expired ones.
/// [`forget`](Self::forget) removes a record at once.
///
/// # Panics
///
/// All methods panic if the key's `Hash`, `Eq` or `Clone` panics. The guard stays usable.
///
/// # Examples
///
/// In a reconciler:
///
/// ```
/// use homeostat::{Action, BoxError};
/// use homeostat_host::CrashLoopGuard;
///
/// # struct Services;
/// # impl Services {
/// #     fn is_running(&self, _: &str) -> bool { false }
/// #     fn start(&self, _: &str) -> Result<(), BoxError> { Ok(()) }
/// # }
/// fn reconcile(services: &Services, guard: &CrashLoopGuard<String>, name: &String) -> Result<Action, BoxError> {
///     if services.is_running(name) {
///         return Ok(Action::await_change());
///     }
///     guard.check(name)?; // in a crash loop, the run fails, and the key runs again after the delay
///     services.start(name)?;
///     guard.started(name);
///     Ok(Action::await_change())
/// }
/// # let guard = CrashLoopGuard::new(std::time::Duration::from_secs(10), homeostat::Exponential::default());
/// # reconcile(&Services, &guard, &"web".to_owned()).unwrap();
/// ```
///
/// On a held clock:
///
/// ```
/// use homeostat::{Exponential, ManualClock};
/// use homeostat_host::CrashLoopGuard;
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let backoff = Exponential::new(Duration::from_secs(1), Duration::from_secs(60)).jitter(0.0);
/// let guard = CrashLoopGuard::new(Duration::from_secs(10), backoff).clock(clock.clock());
///
/// for delay in [1, 2, 4] {
///     guard.started(&"web");
///     clock.advance(Duration::from_secs(3));
///     assert_eq!(guard.ended(&"web"), Duration::from_secs(delay));
/// }
/// guard.started(&"web");
/// clock.advance(Duration::from_secs(10));
/// assert_eq!(guard.ended(&"web"), Duration::ZERO);
/// ```
#[doc(alias = "CrashLoopBackOff")]
#[doc(alias = "restart")]
pub struct CrashLoopGuard<K> {
    stable_for: Duration,
    backoff: Exponential,
    clock: Clock,
    records: Mutex<RunRecords<K>>,
}

struct RunRecords<K> {
    by_key: HashMap<K, RunRecord>,
    /// The number of records at which expired ones are removed.
    sweep_at: usize,
    draws: Draws,
}

impl<K> RunRecords<K> {
    fn new(clock: &Clock) -> Self {
        Self { by_key: HashMap::new(), sweep_at: FEW, draws: clock.draws() }
    }
}

#[derive(Clone, Copy)]
struct RunRecord {
    /// The number of short runs in a row.
    short_runs: u32,
    phase: RecordPhase,
}

#[derive(Clone, Copy)]
enum RecordPhase {
    Started(Nanos),
    /// The key has ended, and may start again at this time.
    Waiting(Nanos),
}

impl RunRecord {
    /// Returns whether the record can be removed: the run is stable, or the key was not started for `stable_for` after
    /// its delay.
    fn is_expired(&self, now: Nanos, stable_for: Duration) -> bool {
        let (RecordPhase::Started(since) | RecordPhase::Waiting(since)) = self.phase;
        now >= since.after(stable_for)
    }
}

impl<K: Key> CrashLoopGuard<K> {
    /// Creates a guard on the system clock. Runs shorter than `stable_for` count, and `backoff` returns the delays.
    #[must_use]
    pub fn new(stable_for: Duration, backoff: Exponential) -> Self {
        let clock = Clock::system();
        let records = Mutex::new(RunRecords::new(&clock));
        Self { stable_for, backoff, clock, records }
    }

    /// Sets the clock. Forgets all keys.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        let records = Mutex::new(RunRecords::new(&clock));
        Self { clock, records, ..self }
    }

    /// Records a start of `key`.
    pub fn started(&self, key: &K) {
        let now = self.clock.nanos();
        let phase = RecordPhase::Started(now);
        // Dropped without the lock.
        let mut expired = Vec::new();
        let mut records = self.records.lock();
        if let Some(record) = records.by_key.get_mut(key) {
            let short_runs = if record.is_expired(now, self.stable_for) { 0 } else { record.short_runs };
            *record = RunRecord { short_runs, phase };
            return;
        }
        if records.by_key.len() >= records.sweep_at {
            expired.extend(records.by_key.extract_if(|_, record| record.is_expired(now, self.stable_for)));
            records.sweep_at = FEW.max(2 * records.by_key.len());
        }
        records.by_key.insert(key.clone(), RunRecord { short_runs: 0, phase });
    }

    /// Records the end of `key`. Returns the time to wait before its next start.
    ///
    /// Returns zero if the key may start now: after a run of at least `stable_for`, after the delay, or if it was never
    /// started. Only the first call after a start records an end. Later calls return the rest of the delay. Call this
    /// whenever the reconciler finds that the process does not run.
    #[must_use]
    pub fn ended(&self, key: &K) -> Duration {
        self.delay(key).0
    }

    /// Records the end of `key`. Returns the time to wait before its next start, and its number of short runs in a row.
    fn delay(&self, key: &K) -> (Duration, u32) {
        let now = self.clock.nanos();
        let mut records = self.records.lock();
        let RunRecords { by_key, draws, .. } = &mut *records;
        let Some(record) = by_key.get_mut(key) else { return (Duration::ZERO, 0) };
        if record.is_expired(now, self.stable_for) {
            let gone = by_key.remove_entry(key);
            drop(records);
            drop(gone);
            return (Duration::ZERO, 0);
        }
        match record.phase {
            RecordPhase::Waiting(until) => (until.since(now), record.short_runs),
            RecordPhase::Started(_) => {
                let short_runs = record.short_runs.saturating_add(1);
                let delay = self.backoff.jittered(short_runs, draws.draw());
                *record = RunRecord { short_runs, phase: RecordPhase::Waiting(now.after(delay)) };
                (delay, short_runs)
            }
        }
    }

    /// Records the end of `key`, as [`ended`](Self::ended) does, and fails if its next start must wait.
    ///
    /// The error is for the reconciler to return. The run then counts as failed, so status, metrics and logs show the
    /// crash loop, and the key runs again after the delay: the error contains a [`RetryAfter`]. The retry policy must
    /// allow retries.
    ///
    /// # Errors
    ///
    /// If `key` must wait. The message states the number of short runs in a row and the delay.
    pub fn check(&self, key: &K) -> Result<(), BoxError> {
        let (delay, short_runs) = self.delay(key);
        if delay.is_zero() { Ok(()) } else { Err(CrashLoop(short_runs, RetryAfter::new(delay)).into()) }
    }

    /// Returns the number of short runs of `key` in a row.
    #[must_use]
    pub fn short_runs(&self, key: &K) -> u32 {
        let now = self.clock.nanos();
        let records = self.records.lock();
        let recent = records.by_key.get(key).filter(|record| !record.is_expired(now, self.stable_for));
        recent.map_or(0, |record| record.short_runs)
    }

    /// Removes the record of `key`, so that its next run counts as its first. Returns whether there was a record.
    ///
    /// Use it when the process is no longer wanted, or after a change of its configuration.
    pub fn forget(&self, key: &K) -> bool {
        let gone = self.records.lock().by_key.remove_entry(key);
        gone.is_some()
    }
}

/// The number of short runs in a row, and the delay of the next start.
struct CrashLoop(u32, RetryAfter);

impl fmt::Display for CrashLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(short_runs, next) = self;
        let times = if *short_runs == 1 { "once".to_owned() } else { format!("{short_runs} times in a row") };
        write!(f, "ended {times} soon after its start, next start in {}", Rounded(next.delay()))
    }
}

impl Error for CrashLoop {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.1)
    }
}

debug_with_causes!(CrashLoop);

impl<K> fmt::Debug for CrashLoopGuard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashLoopGuard")
            .field("stable_for", &self.stable_for)
            .field("backoff", &self.backoff)
            .field("keys", &self.records.lock().by_key.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use homeostat::ManualClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn guard(clock: &ManualClock) -> CrashLoopGuard<u32> {
        CrashLoopGuard::new(10 * SECOND, Exponential::new(SECOND, 8 * SECOND).jitter(0.0)).clock(clock.clock())
    }

    /// Runs the key for `length`, and returns the following delay.
    fn run(clock: &ManualClock, guard: &CrashLoopGuard<u32>, key: u32, length: Duration) -> Duration {
        guard.started(&key);
        clock.advance(length);
        guard.ended(&key)
    }

    #[test]
    fn delays_grow_with_short_runs_and_begin_anew_after_a_stable_one() {
        let clock = ManualClock::new();
        let guard = guard(&clock);
        for delay in [1, 2, 4, 8, 8] {
            assert_eq!(run(&clock, &guard, 1, (10 * SECOND).saturating_sub(Duration::from_nanos(1))), delay * SECOND);
        }
        assert_eq!((guard.short_runs(&1), guard.short_runs(&2)), (5, 0));
        assert_eq!(run(&clock, &guard, 1, 10 * SECOND), Duration::ZERO);
        assert_eq!(guard.short_runs(&1), 0);
        assert_eq!(run(&clock, &guard, 1, SECOND), SECOND);
    }

    #[test]
    fn a_check_fails_during_the_delay_and_tells_the_short_runs() {
        let clock = ManualClock::new();
        let guard = guard(&clock);
        assert!(guard.check(&1).is_ok());
        for (times, delay) in [("once", "1s"), ("2 times in a row", "2s")] {
            guard.started(&1);
            clock.advance(SECOND);
            let error = guard.check(&1).unwrap_err();
            assert_eq!(error.to_string(), format!("ended {times} soon after its start, next start in {delay}"));
            let least = error.source().and_then(|source| source.downcast_ref::<RetryAfter>());
            assert_eq!(Some(format!("{}", Rounded(least.unwrap().delay()))), Some(delay.to_owned()));
            clock.advance(least.unwrap().delay());
            assert!(guard.check(&1).is_ok());
        }
    }

    /// A key that uses the guard when it drops.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Asks(u32);

    thread_local! {
        static GUARD: std::cell::RefCell<Option<Arc<CrashLoopGuard<Asks>>>> = const { std::cell::RefCell::new(None) };
        static ASKED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }

    impl Drop for Asks {
        fn drop(&mut self) {
            let guard = GUARD.with_borrow(Option::clone);
            if let Some(guard) = guard.filter(|_| self.0 < 100) {
                assert_eq!(guard.short_runs(&Asks(100 + self.0)), 0);
                ASKED.set(ASKED.get() + 1);
            }
        }
    }

    #[test]
    fn a_key_may_use_the_guard_when_it_drops() {
        let clock = ManualClock::new();
        let backoff = Exponential::new(SECOND, 8 * SECOND);
        let guard = Arc::new(CrashLoopGuard::new(10 * SECOND, backoff).clock(clock.clock()));
        for key in 0..16 {
            guard.started(&Asks(key));
        }
        GUARD.set(Some(Arc::clone(&guard)));
        assert!(guard.forget(&Asks(0)));
        clock.advance(10 * SECOND);
        assert!(guard.ended(&Asks(1)).is_zero());
        guard.started(&Asks(200));
        guard.started(&Asks(201));
        guard.started(&Asks(202));
        GUARD.set(None);
        // The two arguments below 100, and all sixteen recorded keys.
        assert_eq!(ASKED.get(), 18);
    }

    #[test]
    fn keys_are_counted_each_by_itself() {
        let clock = ManualClock::new();
        let guard = guard(&clock);
        let _ = run(&clock, &guard, 1, SECOND);
        assert_eq!(run(&clock, &guard, 2, SECOND), SECOND);
        assert_eq!(run(&clock, &guard, 1, SECOND), 2 * SECOND);
    }

    #[test]
    fn a_second_call_returns_the_rest_of_the_delay() {
        let clock = ManualClock::new();
        let guard = guard(&clock);
        let _ = run(&clock, &guard, 1, SECOND);
        assert_eq!(run(&clock, &guard, 1, SECOND), 2 * SECOND);
        clock.advance(SECOND);
        assert_eq!((guard.ended(&1), guard.short_runs(&1)), (SECOND, 2));
        clock.advance(SECOND);
        assert_eq!((guard.ended(&1), guard.short_runs(&1)), (Duration::ZERO, 2));
    }

    #[test]
    fn an_unknown_key_may_start_at_once() {
        let guard = guard(&ManualClock::new());
        assert_eq!(guard.ended(&1), Duration::ZERO);
        assert!(!guard.forget(&1));
    }

    #[test]
    fn a_forgotten_key_begins_anew() {
        let clock = ManualClock::new();
        let guard = guard(&clock);
        for _ in 0..3 {
            let _ = run(&clock, &guard, 1, SECOND);
        }
        assert!(guard.forget(&1));
        assert_eq!(guard.ended(&1), Duration::ZERO);
        assert_eq!(run(&clock, &guard, 1, SECOND), SECOND);
    }

    #[test]
    fn a_key_that_is_not_started_for_long_begins_anew() {
        for (pause, delay) in [((11 * SECOND).saturating_sub(Duration::from_nanos(1)), 2), (11 * SECOND, 1)] {
            let clock = ManualClock::new();
            let guard = guard(&clock);
            assert_eq!(run(&clock, &guard, 1, SECOND), SECOND);
            clock.advance(pause);
            assert_eq!(run(&clock, &guard, 1, SECOND), delay * SECOND);
        }
    }

    #[test]
    fn with_no_time_to_be_stable_no_run_is_short() {
        let guard = CrashLoopGuard::new(Duration::ZERO, Exponential::default());
        guard.started(&1);
        assert_eq!(guard.ended(&1), Duration::ZERO);
    }

    #[test]
    fn jitter_moves_the_delays() {
        let clock = ManualClock::new();
        let guard = CrashLoopGuard::new(SECOND, Exponential::new(100 * SECOND, 1_000 * SECOND)).clock(clock.clock());
        let delays = [1, 2, 3, 4].map(|key| run(&clock, &guard, key, Duration::ZERO));
        assert!(delays.iter().all(|delay| (90 * SECOND..=110 * SECOND).contains(delay)), "{delays:?}");
        assert!(delays.iter().any(|delay| *delay != delays[0]), "{delays:?}");
    }

    #[test]
    fn memory_is_bounded_by_the_keys_of_recent_runs() {
        let clock = ManualClock::new();
        let guard = guard(&clock);
        for key in 0..10_000 {
            guard.started(&key);
            if key % 2 == 0 {
                let _ = guard.ended(&key);
            }
            clock.advance(SECOND);
            // A record is kept for 11 s at most, so only 11 keys are recent.
            let held = guard.records.lock().by_key.len();
            assert!(held <= 2 * 11, "{held}");
        }
    }
}
