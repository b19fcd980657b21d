//! The last hour of each controller: depth, runs and run times. Also its recent runs.
//!
//! A thread takes a sample every five seconds, even if no page is open: people open the page after a problem has
//! begun, and need to see the beginning. A sample takes one lock per queue, and does not visit keys. Twelve samples
//! together are a sample of the last hour. An hour of one controller takes 6 KiB.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::http::{HttpCounts, value};
use crate::status::RunLogs;
use crate::sync::Mutex;
use homeostat::base::{Running, StartError};
use homeostat::controller::ControllerStatus;
use homeostat::manager::{Manager, WeakManager};
use homeostat::rt::{AutoResetEvent, Nanos, Next, Task, ThreadGroup, ThreadGroupKind};

/// The interval of samples.
const PERIOD: Duration = Duration::from_secs(5);

/// How many samples of each length are kept: five minutes of the short ones, and an hour of the long ones.
pub(super) const SAMPLES: usize = 60;

/// How many short samples are a long one.
const SHORT_PER_LONG: u32 = 12;

/// How many short samples a minute has.
pub(super) const PER_MINUTE: usize = SHORT_PER_LONG as usize;

/// The time that a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    FiveMinutes,
    Hour,
}

impl Past {
    /// Returns the interval of its samples.
    fn period(self) -> Duration {
        match self {
            Self::FiveMinutes => PERIOD,
            Self::Hour => PERIOD * SHORT_PER_LONG,
        }
    }
}

/// The samples of a chart.
#[derive(Debug)]
pub(super) struct PastSamples {
    /// The oldest first.
    pub(super) samples: Vec<HistorySample>,
    /// The begin and the end of the chart. `None` for an unknown controller.
    pub(super) range: Option<(SystemTime, SystemTime)>,
}

impl PastSamples {
    /// Returns the short samples of the last minute, and those of the minute before.
    pub(super) fn two_minutes(&self) -> [&[HistorySample]; 2] {
        let minute = |samples: &[HistorySample]| samples.len().saturating_sub(PER_MINUTE);
        let (rest, last) = self.samples.split_at(minute(&self.samples));
        [last, &rest[minute(rest)..]]
    }

    /// Adds the samples of another controller: the newest to the newest. Long samples may be up to a minute apart.
    fn add(mut self, other: &Self) -> Self {
        let missing = other.samples.len().saturating_sub(self.samples.len());
        self.samples.splice(..0, vec![HistorySample::default(); missing]);
        for (sum, sample) in self.samples.iter_mut().rev().zip(other.samples.iter().rev()) {
            *sum = sum.add(sample);
        }
        Self { samples: self.samples, range: self.range.or(other.range) }
    }

    /// Returns the last value, and the largest value with the end of its sample. `None` if no sample has a value.
    pub(super) fn now_and_most(
        &self,
        of: impl Fn(&HistorySample) -> Option<f64>,
    ) -> Option<(Option<f64>, (f64, SystemTime))> {
        let ((begin, end), mut most) = (self.range?, None);
        let step = end.duration_since(begin).unwrap_or_default() / u32::try_from(SAMPLES).unwrap_or(1);
        for (age, sample) in (0_u32..).zip(self.samples.iter().rev()) {
            if let Some(value) = of(sample)
                && most.is_none_or(|(most, _)| value > most)
            {
                most = Some((value, end.checked_sub(step * age)?));
            }
        }
        Some((of(self.samples.last()?), most?))
    }
}

/// One controller's activity within one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HistorySample {
    /// The largest known number of ready keys.
    pub(super) depth: usize,
    /// Runs per second.
    pub(super) runs: f64,
    /// Failed runs per second.
    pub(super) errors: f64,
    /// The mean duration of the runs that ended. `None` if no run ended.
    pub(super) run_time: Option<Duration>,
    /// The mean number of active runs.
    pub(super) active: f64,
}

impl HistorySample {
    /// Returns the activity of two controllers together.
    fn add(&self, other: &Self) -> Self {
        let weighed = |of: &Self| of.run_time.map(|time| time.as_secs_f64() * of.runs);
        let time = weighed(self).unwrap_or_default() + weighed(other).unwrap_or_default();
        let runs = self.runs + other.runs;
        let has_runs = self.run_time.is_some() || other.run_time.is_some();
        Self {
            depth: self.depth + other.depth,
            runs,
            errors: self.errors + other.errors,
            run_time: (has_runs && runs > 0.0).then(|| Duration::from_secs_f64(time / runs)),
            active: self.active + other.active,
        }
    }
}

/// A controller's counters at the time of a sample.
#[derive(Clone, Copy, Debug)]
struct Totals {
    at: Nanos,
    /// The same time on the wall clock.
    time: SystemTime,
    runs: u64,
    errors: u64,
    timed: u64,
    run_time: Duration,
    /// The time of all runs, including the active ones.
    busy: Duration,
}

/// The samples of one length, oldest first.
#[derive(Debug)]
struct Samples {
    last: Totals,
    samples: VecDeque<HistorySample>,
}

/// The samples of one controller.
#[derive(Debug)]
struct ControllerHistory {
    short: Samples,
    long: Samples,
    /// The number of short samples since the last long one, and the largest depth among them.
    since: (u32, usize),
}

/// The samples of all controllers, by name, and their recent runs.
#[derive(Debug, Default)]
pub(super) struct History {
    controllers: Mutex<BTreeMap<String, ControllerHistory>>,
    pub(super) runs: Arc<RunLogs>,
    /// The counts of the server, and the numbers of refused logins at the times of the short samples, oldest first.
    logins: Mutex<Option<(Arc<HttpCounts>, VecDeque<u64>)>>,
}

impl History {
    /// Starts a thread that takes samples until the handle is dropped or the manager is gone.
    pub(super) fn start(manager: &Manager) -> Result<(Arc<Self>, Running<()>), StartError> {
        let history = Arc::new(Self::default());
        history.runs.record(manager);
        let (clock, name) = (manager.clock().clone(), format!("{}-history", manager.name()));
        let group = ThreadGroup::new(ThreadGroupKind::Component, name, clock.clone(), 1);
        let event = AutoResetEvent::new(clock);
        let sampler = Sampler {
            group: Arc::clone(&group),
            manager: manager.downgrade(),
            history: Arc::clone(&history),
            due: Nanos::ZERO,
        };
        let handle = group.start_one(manager.thread_options(), sampler, event, None, || ())?;
        Ok((history, Running::new((), handle.that_may_end(), Duration::MAX)))
    }

    /// Returns the samples of a controller.
    pub(super) fn of(&self, controller: &str, past: Past) -> PastSamples {
        let controllers = self.controllers.lock();
        let samples = controllers.get(controller).map(|known| match past {
            Past::FiveMinutes => &known.short,
            Past::Hour => &known.long,
        });
        let length = past.period() * u32::try_from(SAMPLES).unwrap_or(1);
        let range = samples.and_then(|of| Some((of.last.time.checked_sub(length)?, of.last.time)));
        PastSamples { samples: samples.map(|of| of.samples.iter().copied().collect()).unwrap_or_default(), range }
    }

    /// Returns the samples of these controllers together.
    pub(super) fn of_all<'a>(&self, controllers: impl IntoIterator<Item = &'a str>, past: Past) -> PastSamples {
        let none = PastSamples { samples: Vec::new(), range: None };
        controllers.into_iter().fold(none, |sum, controller| sum.add(&self.of(controller, past)))
    }

    /// Samples the refused logins of a server from now on.
    pub(super) fn watch_logins(&self, counts: Arc<HttpCounts>) {
        let first = value(&counts.unauthenticated);
        *self.logins.lock() = Some((counts, VecDeque::from([first])));
    }

    /// Returns the number of refused logins in the last five minutes.
    pub(super) fn refused_logins(&self) -> u64 {
        let logins = self.logins.lock();
        let of = logins.as_ref().and_then(|(counts, past)| Some(value(&counts.unauthenticated) - past.front()?));
        of.unwrap_or_default()
    }

    /// Adds a sample of each controller. Forgets removed controllers.
    fn add(&self, controllers: &[ControllerStatus], now: Nanos, time: SystemTime) {
        if let Some((counts, past)) = &mut *self.logins.lock() {
            past.push_back(value(&counts.unauthenticated));
            if past.len() > SAMPLES {
                past.pop_front();
            }
        }
        let is_known = |name: &str| controllers.iter().any(|controller| controller.name == name);
        self.runs.retain(is_known);
        let mut known = self.controllers.lock();
        known.retain(|name, _| is_known(name));
        for ControllerStatus { name, metrics, .. } in controllers {
            let totals = Totals {
                at: now,
                time,
                runs: metrics.runs.runs(),
                errors: metrics.runs.errors(),
                timed: metrics.work_time.count(),
                run_time: metrics.work_time.sum(),
                busy: metrics.work_time.sum() + metrics.unfinished_work,
            };
            match known.get_mut(name) {
                Some(samples) => samples.add(totals, metrics.queue.depth()),
                None => drop(known.insert(name.clone(), ControllerHistory::new(totals))),
            }
        }
    }
}

impl ControllerHistory {
    fn new(totals: Totals) -> Self {
        let samples = || Samples { last: totals, samples: VecDeque::new() };
        Self { short: samples(), long: samples(), since: (0, 0) }
    }

    fn add(&mut self, now: Totals, depth: usize) {
        self.short.add(now, depth);
        let (count, most) = (self.since.0 + 1, self.since.1.max(depth));
        self.since = (count, most);
        if count == SHORT_PER_LONG {
            self.long.add(now, most);
            self.since = (0, 0);
        }
    }
}

impl Samples {
    fn add(&mut self, now: Totals, depth: usize) {
        let Totals { at, runs, errors, timed, run_time, busy, .. } = std::mem::replace(&mut self.last, now);
        let period = now.at.since(at).as_secs_f64().max(0.001);
        // A controller that was removed and added again counts from zero.
        #[expect(clippy::cast_precision_loss, reason = "a rate, shown with two digits")]
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / period;
        let ended = u32::try_from(now.timed.saturating_sub(timed)).unwrap_or(u32::MAX);
        let sample = HistorySample {
            depth,
            runs: rate(now.runs, runs),
            errors: rate(now.errors, errors),
            run_time: (ended > 0).then(|| now.run_time.saturating_sub(run_time) / ended),
            active: now.busy.saturating_sub(busy).as_secs_f64() / period,
        };
        if self.samples.len() >= SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

/// The task of the sampling thread.
struct Sampler {
    group: Arc<ThreadGroup>,
    manager: WeakManager,
    history: Arc<History>,
    due: Nanos,
}

impl Task for Sampler {
    fn step(&mut self, now: Nanos) -> Next {
        if self.group.is_stopping() {
            return Next::Finished;
        }
        if now >= self.due {
            let Some(manager) = self.manager.upgrade() else { return Next::Finished };
            self.history.add(&manager.controllers(), now, manager.clock().time_of_day());
            self.due = now.after(PERIOD);
        }
        Next::At(self.due)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::http::increment;
    use homeostat::base::ManualClock;
    use homeostat::queue::Enqueue;
    use homeostat::{Action, BoxError, Context, Controller};

    #[test]
    fn a_thread_samples_each_controller_and_ends_with_its_handle() {
        let held = ManualClock::new();
        let manager = Manager::builder().clock(held.clock()).build().unwrap();
        let reconcile = |_cx: &Context, _key: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
        let controller = Controller::builder("vm", reconcile).clock(held.clock()).build().unwrap();
        let queue = controller.handle().queue().clone();
        manager.add(controller).unwrap();
        let (history, running) = History::start(&manager).unwrap();
        for round in 0..SAMPLES + 2 {
            held.wait_for_sleepers(1);
            if round == 1 {
                queue.enqueue("vm-1");
            }
            held.advance(PERIOD);
        }
        held.wait_for_sleepers(1);
        let samples = history.of("vm", Past::FiveMinutes).samples;
        assert_eq!(samples.len(), SAMPLES);
        assert_eq!((samples[SAMPLES - 1].depth, samples[SAMPLES - 1].run_time), (1, None));
        assert!(history.of("disk", Past::FiveMinutes).samples.is_empty());
        assert_eq!(history.of("vm", Past::Hour).samples.len(), 5);
        drop(running);
    }

    #[test]
    fn a_chart_knows_its_last_and_its_largest_value_with_their_times() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let samples = [1, 7, 7, 2].map(|depth| HistorySample { depth, ..HistorySample::default() }).into();
        let past = PastSamples { samples, range: Some((at(1000), at(1300))) };
        let (now, most) = past.now_and_most(|sample| Some(f64::from(u32::try_from(sample.depth).unwrap()))).unwrap();
        assert_eq!((now, most), (Some(2.0), (7.0, at(1295))));
        assert_eq!(past.now_and_most(|_| None), None);
    }

    #[test]
    fn refused_logins_count_for_five_minutes() {
        let (history, counts) = (History::default(), Arc::<HttpCounts>::default());
        history.watch_logins(Arc::clone(&counts));
        increment(&counts.unauthenticated);
        for _ in 1..SAMPLES {
            history.add(&[], Nanos::ZERO, UNIX_EPOCH);
            assert_eq!(history.refused_logins(), 1);
        }
        history.add(&[], Nanos::ZERO, UNIX_EPOCH);
        assert_eq!(history.refused_logins(), 0);
    }

    #[test]
    fn rates_and_means_come_from_two_samples() {
        let totals = |at, runs, errors, run_time| Totals {
            at: Nanos::ZERO.after(Duration::from_secs(at)),
            time: UNIX_EPOCH + Duration::from_secs(at),
            runs,
            errors,
            timed: runs,
            run_time: Duration::from_secs(run_time),
            // One run has begun, but not ended.
            busy: Duration::from_secs(run_time + at),
        };
        let mut samples = Samples { last: totals(10, 100, 5, 50), samples: VecDeque::new() };
        samples.add(totals(15, 110, 10, 70), 3);
        let run_time = Some(Duration::from_secs(2));
        let expected = HistorySample { depth: 3, runs: 2.0, errors: 1.0, run_time, active: 5.0 };
        assert_eq!(samples.samples, [expected]);
        // A counter that starts again shows zero, not a negative rate.
        samples.add(totals(20, 0, 0, 0), 0);
        assert_eq!(samples.samples[1], HistorySample::default());
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let totals = |at: u64| Totals {
            at: Nanos::ZERO.after(Duration::from_secs(at)),
            time: UNIX_EPOCH + Duration::from_secs(at),
            runs: at,
            errors: 0,
            timed: at,
            run_time: Duration::from_secs(at),
            busy: Duration::from_secs(at),
        };
        let mut history = ControllerHistory::new(totals(0));
        for sample in 1..=1_000_u64 {
            // One short sample of each minute is deep.
            history.add(totals(sample * 5), if sample % 12 == 7 { 9 } else { 0 });
        }
        assert_eq!((history.short.samples.len(), history.long.samples.len()), (SAMPLES, SAMPLES));
        let run_time = Some(Duration::from_secs(1));
        let minute = HistorySample { depth: 9, runs: 1.0, errors: 0.0, run_time, active: 1.0 };
        assert!(history.long.samples.iter().all(|sample| *sample == minute), "{:?}", history.long.samples);
    }
}
