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
use homeostat::controller::{ControllerMetrics, ControllerPhase, ControllerStatus};
use homeostat::manager::{Manager, WeakManager};
use homeostat::rt::{AutoResetEvent, Nanos, Next, Task, ThreadGroup, ThreadGroupKind};

/// The interval of samples.
pub(super) const PERIOD: Duration = Duration::from_secs(5);

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
    /// The begin and the end of the chart. `None` before the first look at the controller.
    pub(super) range: Option<(SystemTime, SystemTime)>,
}

impl PastSamples {
    /// Returns the short samples of the last minute, and those of the minute before.
    pub(super) fn two_minutes(&self) -> [&[HistorySample]; 2] {
        let minute = |samples: &[HistorySample]| samples.len().saturating_sub(PER_MINUTE);
        let (rest, last) = self.samples.split_at(minute(&self.samples));
        [last, &rest[minute(rest)..]]
    }

    /// Returns the samples without the keys that controllers hold.
    pub(super) fn without_held(mut self) -> Self {
        self.samples.iter_mut().for_each(|sample| sample.held = 0);
        self
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

/// The activity of one controller, or of all, within one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HistorySample {
    /// The largest known number of ready keys that wait for a thread.
    pub(super) waiting: usize,
    /// The largest known number of ready keys whose controller takes no keys: it is suspended, in standby, or before
    /// its first listings.
    pub(super) held: usize,
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
    /// Returns the activity of these controllers together, in one interval.
    fn sum<'a>(of: impl Iterator<Item = &'a Self> + Clone) -> Self {
        Self {
            waiting: of.clone().map(|sample| sample.waiting).sum(),
            held: of.clone().map(|sample| sample.held).sum(),
            runs: of.clone().map(|sample| sample.runs).sum(),
            errors: of.clone().map(|sample| sample.errors).sum(),
            run_time: Self::mean_run_time(of.clone()),
            active: of.map(|sample| sample.active).sum(),
        }
    }

    /// Returns the activity in these intervals of one length together.
    fn over<'a>(of: &(impl ExactSizeIterator<Item = &'a Self> + Clone)) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a handful of samples")]
        let count = of.len().max(1) as f64;
        let most = |number: fn(&Self) -> usize| of.clone().map(number).max().unwrap_or_default();
        let Self { runs, errors, run_time, active, .. } = Self::sum(of.clone());
        let (waiting, held) = (most(|sample| sample.waiting), most(|sample| sample.held));
        Self { waiting, held, runs: runs / count, errors: errors / count, run_time, active: active / count }
    }

    fn mean_run_time<'a>(of: impl Iterator<Item = &'a Self> + Clone) -> Option<Duration> {
        let timed = of.filter_map(|sample| Some((sample.runs, sample.run_time?)));
        let runs: f64 = timed.clone().map(|(runs, _)| runs).sum();
        let time: f64 = timed.map(|(runs, time)| runs * time.as_secs_f64()).sum();
        (runs > 0.0).then(|| Duration::from_secs_f64(time / runs))
    }
}

/// A controller's counters at the time of a sample.
#[derive(Clone, Copy, Debug)]
struct Totals {
    at: Nanos,
    runs: u64,
    errors: u64,
    timed: u64,
    run_time: Duration,
    /// The time of all runs, including the active ones.
    busy: Duration,
}

impl Totals {
    fn of(metrics: &ControllerMetrics, at: Nanos) -> Self {
        Self {
            at,
            runs: metrics.runs.runs(),
            errors: metrics.runs.errors(),
            timed: metrics.work_time.count(),
            run_time: metrics.work_time.sum(),
            busy: metrics.work_time.sum() + metrics.unfinished_work,
        }
    }

    /// Returns the sample from an earlier time to this one, without waiting keys.
    fn since(&self, before: &Self) -> HistorySample {
        let period = self.at.since(before.at).as_secs_f64().max(0.001);
        // A controller that was removed and added again counts from zero.
        #[expect(clippy::cast_precision_loss, reason = "a rate, shown with two digits")]
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / period;
        let ended = u32::try_from(self.timed.saturating_sub(before.timed)).unwrap_or(u32::MAX);
        HistorySample {
            runs: rate(self.runs, before.runs),
            errors: rate(self.errors, before.errors),
            run_time: (ended > 0).then(|| self.run_time.saturating_sub(before.run_time) / ended),
            active: self.busy.saturating_sub(before.busy).as_secs_f64() / period,
            ..HistorySample::default()
        }
    }
}

/// The samples of both lengths, the oldest first.
#[derive(Debug)]
struct Samples {
    short: VecDeque<HistorySample>,
    long: VecDeque<HistorySample>,
    /// The number of short samples since the last long one.
    since: u32,
    /// The times of the last short sample and of the last long one.
    times: [SystemTime; 2],
}

impl Samples {
    fn new(time: SystemTime) -> Self {
        Self { short: VecDeque::new(), long: VecDeque::new(), since: 0, times: [time; 2] }
    }

    fn add(&mut self, sample: HistorySample, time: SystemTime) {
        push(&mut self.short, sample);
        (self.since, self.times[0]) = (self.since + 1, time);
        if self.since == SHORT_PER_LONG {
            push(&mut self.long, HistorySample::over(&self.short.iter().rev().take(PER_MINUTE)));
            (self.since, self.times[1]) = (0, time);
        }
    }

    fn past(&self, past: Past) -> PastSamples {
        let [short, long] = self.times;
        let (samples, end) = match past {
            Past::FiveMinutes => (&self.short, short),
            Past::Hour => (&self.long, long),
        };
        let length = past.period() * u32::try_from(SAMPLES).unwrap_or(1);
        PastSamples {
            samples: samples.iter().copied().collect(),
            range: end.checked_sub(length).map(|begin| (begin, end)),
        }
    }
}

/// Adds a sample. The oldest one makes room.
fn push(samples: &mut VecDeque<HistorySample>, sample: HistorySample) {
    if samples.len() >= SAMPLES {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The samples of one controller.
#[derive(Debug)]
struct ControllerHistory {
    last: Totals,
    samples: Samples,
}

/// The samples of all controllers, by name, and their recent runs.
#[derive(Debug, Default)]
pub(super) struct History {
    controllers: Mutex<BTreeMap<String, ControllerHistory>>,
    /// The samples of all controllers together, from the first sample on.
    together: Mutex<Option<Samples>>,
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
        shown(controllers.get(controller).map(|known| &known.samples), past)
    }

    /// Returns the samples of all controllers together.
    pub(super) fn of_all(&self, past: Past) -> PastSamples {
        shown(self.together.lock().as_ref(), past)
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
        for ControllerStatus { name, metrics, phase, .. } in controllers {
            let totals = Totals::of(metrics, now);
            let new = || ControllerHistory { last: totals, samples: Samples::new(time) };
            let history = known.entry(name.clone()).or_insert_with(new);
            let last = std::mem::replace(&mut history.last, totals);
            if totals.at > last.at {
                let (depth, sample) = (metrics.queue.depth(), totals.since(&last));
                let (waiting, held) = if *phase == ControllerPhase::Running { (depth, 0) } else { (0, depth) };
                history.samples.add(HistorySample { waiting, held, ..sample }, time);
            }
        }
        let newest = known.values().filter_map(|history| history.samples.short.back());
        let mut together = self.together.lock();
        if newest.clone().next().is_some() || together.is_some() {
            together.get_or_insert_with(|| Samples::new(time)).add(HistorySample::sum(newest), time);
        }
    }
}

fn shown(samples: Option<&Samples>, past: Past) -> PastSamples {
    samples.map_or(PastSamples { samples: Vec::new(), range: None }, |samples| samples.past(past))
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
        assert_eq!((samples[SAMPLES - 1].held, samples[SAMPLES - 1].run_time), (1, None));
        assert!(history.of("disk", Past::FiveMinutes).samples.is_empty());
        assert_eq!(history.of("vm", Past::Hour).samples.len(), 5);
        assert_eq!(history.of_all(Past::FiveMinutes).samples, samples);
        drop(running);
    }

    #[test]
    fn a_chart_knows_its_last_and_its_largest_value_with_their_times() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let samples = [1, 7, 7, 2].map(|waiting| HistorySample { waiting, ..HistorySample::default() }).into();
        let past = PastSamples { samples, range: Some((at(1000), at(1300))) };
        let (now, most) = past.now_and_most(|sample| Some(f64::from(u32::try_from(sample.waiting).unwrap()))).unwrap();
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

    fn totals(at: u64, runs: u64, errors: u64, run_time: u64) -> Totals {
        Totals {
            at: Nanos::ZERO.after(Duration::from_secs(at)),
            runs,
            errors,
            timed: runs,
            run_time: Duration::from_secs(run_time),
            // One run has begun, but not ended.
            busy: Duration::from_secs(run_time + at),
        }
    }

    #[test]
    fn rates_and_means_come_from_two_times() {
        let sample = totals(15, 110, 10, 70).since(&totals(10, 100, 5, 50));
        let run_time = Some(Duration::from_secs(2));
        let expected = HistorySample { runs: 2.0, errors: 1.0, run_time, active: 5.0, ..HistorySample::default() };
        assert_eq!(sample, expected);
        // A counter that starts again shows zero, not a negative rate.
        assert_eq!(totals(20, 0, 0, 0).since(&totals(30, 10, 1, 70)), HistorySample::default());
    }

    #[test]
    fn the_peak_of_all_controllers_is_the_largest_sum_at_one_time() {
        let waiting = |waiting, held| HistorySample { waiting, held, ..HistorySample::default() };
        let [vm, disk] = [[waiting(9, 0), waiting(0, 0)], [waiting(1, 5), waiting(4, 6)]];
        let together = [0, 1].map(|time| HistorySample::sum([vm[time], disk[time]].iter()));
        assert_eq!(HistorySample::over(&together.iter()), waiting(10, 6));
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let time = |sample: u64| UNIX_EPOCH + PERIOD * u32::try_from(sample).unwrap();
        let mut samples = Samples::new(UNIX_EPOCH);
        for sample in 1..=1_000_u64 {
            // One short sample of each minute is deep, and half of them have runs.
            let (runs, run_time) = if sample % 2 == 0 { (2.0, Some(Duration::from_secs(3))) } else { (0.0, None) };
            let waiting = if sample % 12 == 7 { 9 } else { 0 };
            let new = HistorySample { waiting, runs, run_time, active: 1.0, ..HistorySample::default() };
            samples.add(new, time(sample));
        }
        assert_eq!((samples.short.len(), samples.long.len()), (SAMPLES, SAMPLES));
        let run_time = Some(Duration::from_secs(3));
        let minute = HistorySample { waiting: 9, runs: 1.0, run_time, active: 1.0, ..HistorySample::default() };
        assert!(samples.long.iter().all(|sample| *sample == minute), "{:?}", samples.long);
        let hour = samples.past(Past::Hour).range.unwrap();
        assert_eq!(hour, (time(996 - 720), time(996)));
    }
}
