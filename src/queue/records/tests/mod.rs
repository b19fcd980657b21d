//! The number of records that each step of a bulk operation visits.

mod slack;

use super::super::request::BATCH;
use super::*;

const KEYS: u32 = 5_000;

fn settings(tick_shift: u32, slack: TimerSlack) -> RecordSettings {
    RecordSettings { floor: Duration::ZERO, min_interval: Duration::ZERO, timing: false, tick_shift, slack }
}

/// Returns records of `KEYS` keys, each requested with its `method`.
fn records(method: impl Fn(u64) -> super::super::request::EnqueueMethod) -> Records<u32> {
    let mut records = Records::new(settings(0, TimerSlack::NONE));
    for key in 0..KEYS {
        let request = EnqueueRequest::new(method(u64::from(key)));
        let wanted = Wanted { key: &mut Some(key), hash: key, request: &request };
        records.request(wanted, |one, other| one == other, |key| key, &|| Nanos::ZERO, &mut Effects::default());
    }
    records
}

fn delayed() -> Records<u32> {
    records(|key| super::super::request::EnqueueMethod::EnqueueAfter(Duration::from_nanos(1 + key * key)))
}

fn ready() -> Records<u32> {
    records(|_| super::super::request::EnqueueMethod::Enqueue)
}

/// Shuts down in steps. Returns the number of records that each step changed.
fn shut_down(records: &mut Records<u32>, mode: Shutdown) -> Vec<usize> {
    records.begin_shutdown(mode);
    let mut steps = Vec::new();
    loop {
        let waiting = |records: &Records<u32>| (records.counts.delayed, records.ready());
        let before = waiting(records);
        let swept = records.sweep(BATCH, &|| Nanos::ZERO, &mut Effects::default());
        let after = waiting(records);
        steps.push(before.0.abs_diff(after.0).max(before.1.abs_diff(after.1)));
        assert!(swept.panic.is_none() && swept.gone.is_empty());
        if !swept.more {
            return steps;
        }
        assert!(!records.is_over() && !records.is_drained(), "not before the last step");
    }
}

#[test]
fn each_step_of_a_shutdown_changes_a_bounded_number_of_records() {
    for (mut records, mode) in [
        (delayed(), Shutdown::RunDelayedNow),
        (delayed(), Shutdown::ServeReady),
        (delayed(), Shutdown::Discard),
        (ready(), Shutdown::Discard),
    ] {
        let steps = shut_down(&mut records, mode);
        assert!(steps.iter().all(|&changed| changed <= BATCH as usize), "{mode:?}: {steps:?}");
        assert_eq!(steps.iter().sum::<usize>(), KEYS as usize, "{mode:?}");
    }
}

#[test]
fn a_shutdown_that_drops_nothing_takes_one_step() {
    for mode in [Shutdown::RunDelayedNow, Shutdown::ServeReady] {
        assert_eq!(shut_down(&mut ready(), mode), [0], "{mode:?}");
    }
}

#[test]
fn a_ready_key_is_not_served_after_the_start_of_a_discard() {
    let mut records = ready();
    records.begin_shutdown(Shutdown::Discard);
    assert_eq!((records.front(), records.has_ready(), records.is_over()), (None, false, false));
}

#[test]
fn a_rerun_is_dropped_even_if_its_claim_ends_before_the_shutdown_reaches_it() {
    use super::super::request::EnqueueMethod;
    for (method, mode) in [
        (EnqueueMethod::EnqueueAfter(Duration::MAX), Shutdown::ServeReady),
        (EnqueueMethod::Enqueue, Shutdown::Discard),
    ] {
        let mut records = ready();
        let (now, mut effects) = (|| Nanos::ZERO, Effects::default());
        let index = records.front().unwrap();
        let key = *records.key(index);
        records.take(index, key, &now);
        let wanted = Wanted { key: &mut Some(key), hash: key, request: &method.into() };
        assert_eq!(
            records.request(wanted, |one, other| one == other, |key| key, &now, &mut effects),
            EnqueueOutcome::Rerun
        );
        records.begin_shutdown(mode);
        records.end(index, Ending::Done, &now, &mut effects);
        let mut report = super::super::report::DrainReport::new();
        records.dropped.append_to(&mut report.dropped, 1);
        assert_eq!(report.dropped, [(key, super::super::request::DroppedRun::PendingRerun)], "{mode:?}");
    }
}

#[test]
fn the_minimum_interval_begins_only_after_a_run() {
    use super::super::request::{EnqueueMethod, Reasons};
    // The key is enqueued again during the claim, or not.
    let phase_after = |ending, again: bool| {
        let interval = Duration::from_secs(600);
        let mut records = Records::new(RecordSettings { min_interval: interval, ..settings(0, TimerSlack::NONE) });
        let (now, mut effects, key) = (|| Nanos::ZERO, Effects::default(), 7);
        let mut enqueue = |records: &mut Records<u32>| {
            let wanted = Wanted { key: &mut Some(key), hash: key, request: &EnqueueMethod::Enqueue.into() };
            records.request(wanted, |one, other| one == other, |key| key, &now, &mut effects);
        };
        enqueue(&mut records);
        let index = records.front().unwrap();
        records.take(index, key, &now);
        if again {
            enqueue(&mut records);
        }
        let gone = records.end(index, ending, &now, &mut Effects::default());
        if gone.is_some() { Phase::Idle } else { records.state(index).phase }
    };
    for (ending, after, after_another) in [
        (Ending::Done, Phase::Cooling, Phase::Delayed),
        (Ending::PutBack(Reasons::NONE), Phase::Delayed, Phase::Delayed),
        (Ending::Leave, Phase::Idle, Phase::Ready),
        (Ending::Defer(Reasons::NONE, Duration::ZERO), Phase::Ready, Phase::Ready),
    ] {
        assert_eq!([phase_after(ending, false), phase_after(ending, true)], [after, after_another], "{ending:?}");
    }
}

#[test]
fn a_report_adds_a_bounded_number_of_dropped_runs_per_step() {
    let mut records = delayed();
    shut_down(&mut records, Shutdown::ServeReady);
    let mut report = super::super::report::DrainReport::new();
    let count = records.report_left(&mut report);
    assert_eq!(count, KEYS as usize);
    let mut before = 0;
    while report.dropped.len() < count {
        records.dropped.append_to(&mut report.dropped, count);
        assert!((1..=BATCH as usize).contains(&(report.dropped.len() - before)));
        before = report.dropped.len();
    }
    let mut keys: Vec<_> = report.dropped.into_iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..KEYS));
}

#[test]
fn the_next_delayed_key_is_found_without_a_look_at_all_keys() {
    let records = delayed();
    let before = records.wheel.visits();
    assert_eq!(records.next_delayed().map(|(key, due)| (*key, due)), Some((0, Nanos(1))));
    let visits = records.wheel.visits() - before;
    assert!(visits <= 64, "{visits} looks");
}
