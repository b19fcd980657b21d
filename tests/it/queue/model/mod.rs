//! The queue compared with a naive model, in random programs on a held clock.

mod naive;

use std::time::Duration;

use homeostat::queue::{DequeueError, DrainReport, DroppedRun, EnqueueMethod, EnqueueRequest, KeyState, PendingRerun};
use homeostat::{Claim, Enqueue, EnqueueOutcome, Exponential, ManualClock, Priority, Reasons, Shutdown, WorkQueue};
use proptest::prelude::*;
use proptest::sample::Index;

use self::naive::{BACKOFF, End, FLOOR, KEYS, Model, NEVER, State, Wanted};

#[derive(Clone, Debug)]
enum Step {
    Ask(u8, EnqueueRequest),
    AskAll(Vec<u8>, EnqueueRequest),
    Cancel(u8),
    Take,
    /// Ends one of the current claims.
    End(Index, End),
    DoneAndNext(Index),
    Advance(Duration),
    Shutdown(Shutdown),
    Drain,
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![1 => Just(Duration::ZERO), 12 => (1..9_u64).prop_map(Duration::from_secs), 1 => Just(Duration::MAX)]
}

fn method() -> impl Strategy<Value = EnqueueMethod> {
    prop_oneof![
        1 => Just(EnqueueMethod::EnqueueIfAbsent),
        2 => Just(EnqueueMethod::Enqueue),
        2 => Just(EnqueueMethod::EnqueueNow),
        2 => duration().prop_map(EnqueueMethod::EnqueueAfter),
        2 => duration().prop_map(EnqueueMethod::Reschedule),
        3 => (duration(), duration()).prop_map(|(quiet, max_wait)| EnqueueMethod::EnqueueDebounced { quiet, max_wait }),
        3 => (duration(), duration()).prop_map(|(quiet, max_wait)| EnqueueMethod::EnqueueNowDebounced { quiet, max_wait }),
        1 => Just(EnqueueMethod::EnqueueResync),
        1 => Just(EnqueueMethod::EnqueueSelected),
    ]
}

fn request() -> impl Strategy<Value = EnqueueRequest> {
    let level = prop_oneof![1 => Just(Priority::High), 2 => Just(Priority::Normal), 1 => Just(Priority::Low)];
    (method(), level, 0..5_u32)
        .prop_map(|(method, level, why)| EnqueueRequest::new(method).at(level).because(Reasons::user(why)))
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        2 => Just(End::Done),
        2 => duration().prop_map(End::CoolDown),
        2 => duration().prop_map(End::RequeueAfter),
        2 => duration().prop_map(End::RetryAfter),
        2 => Just(End::Retry),
        1 => Just(End::Drop),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS;
    let mode =
        prop_oneof![2 => Just(Shutdown::RunDelayedNow), 2 => Just(Shutdown::ServeReady), 1 => Just(Shutdown::Discard)];
    prop_oneof![
        24 => (key.clone(), request()).prop_map(|(key, request)| Step::Ask(key, request)),
        2 => (prop::collection::vec(key.clone(), 0..5), request()).prop_map(|(keys, request)| Step::AskAll(keys, request)),
        3 => key.prop_map(Step::Cancel),
        14 => Just(Step::Take),
        10 => (any::<Index>(), end()).prop_map(|(which, end)| Step::End(which, end)),
        3 => any::<Index>().prop_map(Step::DoneAndNext),
        10 => duration().prop_filter("ends", |&d| d < Duration::MAX).prop_map(Step::Advance),
        1 => mode.prop_map(Step::Shutdown),
        1 => Just(Step::Drain),
    ]
}

/// The queue, the model, and the current claims.
struct Pair {
    clock: ManualClock,
    queue: WorkQueue<u8>,
    model: Model,
    claims: Vec<Claim<u8>>,
    /// A drain shuts the queue down, so it is the last step, or follows a shutdown.
    may_drain: bool,
}

impl Pair {
    /// Creates a queue whose minimum interval is this many seconds.
    fn new(interval: u64) -> Self {
        let clock = ManualClock::new();
        let queue = WorkQueue::builder()
            .clock(clock.clock())
            .floor(Duration::from_secs(FLOOR))
            .min_interval(Duration::from_secs(interval))
            .backoff(Exponential::new(Duration::from_secs(BACKOFF[0]), Duration::from_secs(BACKOFF[3])).jitter(0.0))
            .build();
        Self { clock, queue, model: Model::new(interval), claims: Vec::new(), may_drain: false }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask(key, request) => {
                assert_eq!(self.queue.request(*key, *request), self.model.request(*key, *request));
            }
            Step::AskAll(keys, request) => {
                let tally = self.queue.request_all(&mut keys.iter().copied(), *request);
                let expected: Vec<_> = keys.iter().map(|&key| self.model.request(key, *request)).collect();
                for outcome in [
                    EnqueueOutcome::Queued,
                    EnqueueOutcome::Merged,
                    EnqueueOutcome::Scheduled,
                    EnqueueOutcome::Held,
                    EnqueueOutcome::Rerun,
                    EnqueueOutcome::Ignored,
                    EnqueueOutcome::Closed,
                ] {
                    assert_eq!(tally.of(outcome), expected.iter().filter(|&&other| other == outcome).count());
                }
            }
            Step::Cancel(key) => {
                let found = seen(self.model.state(*key), &self.clock, self.model.now);
                assert_eq!(self.queue.cancel(key), found);
                self.model.cancel(*key);
            }
            Step::Take => {
                let claim = self.queue.try_dequeue();
                self.taken(claim);
            }
            Step::End(which, end) => {
                if let Some(claim) = self.pick(*which) {
                    self.model.end(*claim, *end);
                    match *end {
                        End::Done => claim.done(),
                        End::CoolDown(delay) => claim.cool_down(delay),
                        End::RequeueAfter(delay) => claim.requeue_after(delay),
                        End::RetryAfter(backoff) => claim.retry_after(backoff),
                        End::Retry => claim.retry(),
                        End::Drop => drop(claim),
                    }
                }
            }
            Step::DoneAndNext(which) => {
                if let Some(claim) = self.pick(*which) {
                    self.model.end(*claim, End::Done);
                    let next = claim.done_and_next();
                    self.taken(next);
                }
            }
            Step::Advance(by) => {
                self.model.advance(by.as_secs());
                self.clock.advance(*by);
            }
            Step::Shutdown(mode) => {
                self.model.shut_down(*mode);
                self.queue.shutdown(*mode);
            }
            Step::Drain => self.drain(),
        }
        self.check();
    }

    fn pick(&mut self, which: Index) -> Option<Claim<u8>> {
        (!self.claims.is_empty()).then(|| self.claims.remove(which.index(self.claims.len())))
    }

    fn taken(&mut self, claim: Result<Claim<u8>, DequeueError>) {
        match claim {
            Ok(claim) => {
                let run = self.model.take(*claim);
                assert_eq!((claim.failures(), claim.reasons(), claim.priority()), run, "of {}", *claim);
                assert!(self.claims.iter().all(|other| **other != *claim), "two claims of {}", *claim);
                self.claims.push(claim);
            }
            Err(error) => {
                assert_eq!(self.model.ready(), 0);
                let expected = if self.model.is_over() { DequeueError::Closed } else { DequeueError::Empty };
                assert_eq!(error, expected);
            }
        }
    }

    fn drain(&mut self) {
        if !self.may_drain && self.model.mode.is_none() {
            return;
        }
        self.model.shut_down(self.model.mode.unwrap_or(Shutdown::ServeReady));
        let DrainReport { ready, mut processing, mut dropped, .. } = self.queue.drain(Duration::ZERO);
        assert_eq!(ready, self.model.line());
        processing.sort_unstable();
        assert_eq!(processing, self.model.claimed());
        let order = |&(key, wake): &(u8, DroppedRun)| (key, format!("{wake:?}"));
        dropped.sort_by_key(order);
        let mut expected = self.model.dropped().to_vec();
        expected.sort_by_key(order);
        assert_eq!(dropped, expected);
    }

    fn check(&self) {
        for key in 0..KEYS {
            let expected = seen(self.model.state(key), &self.clock, self.model.now);
            assert_eq!(self.queue.state(&key), expected, "state of {key}");
            assert_eq!(self.queue.contains(&key), expected != KeyState::Idle);
        }
        let counts = (self.queue.len(), self.queue.metrics().delayed, self.queue.metrics().processing);
        assert_eq!(counts, (self.model.ready(), self.model.delayed(), self.model.claimed().len()));
        let next_due = self.model.next_due().and_then(|due| instant(due, &self.clock, self.model.now));
        assert_eq!(self.queue.next_due(), next_due);
    }

    /// Serves all keys, in any mode, and checks the report.
    fn finish(mut self) {
        self.may_drain = true;
        self.drain();
        self.check();
        while let Some(claim) = self.claims.pop() {
            self.model.end(*claim, End::Retry);
            claim.retry();
            self.check();
        }
        while self.model.ready() > 0 {
            self.step(&Step::Take);
            let claim = self.claims.pop().unwrap();
            self.model.end(*claim, End::Done);
            claim.done();
            self.check();
        }
        self.drain();
        assert!(self.model.is_over() && self.queue.drain(Duration::MAX).is_drained());
    }
}

fn instant(at: u64, clock: &ManualClock, now: u64) -> Option<std::time::Instant> {
    if at == NEVER {
        return None;
    }
    let shown = clock.now();
    Some(if at >= now {
        shown + Duration::from_secs(at - now)
    } else {
        shown.checked_sub(Duration::from_secs(now - at)).unwrap()
    })
}

fn seen(state: Option<State>, clock: &ManualClock, now: u64) -> KeyState {
    match state {
        None => KeyState::Idle,
        Some(State::Ready(level)) => KeyState::Ready(level),
        Some(State::Delayed(at)) => KeyState::Delayed(instant(at, clock, now)),
        Some(State::Claimed(wanted)) => KeyState::Processing(match wanted {
            Wanted::Nothing => PendingRerun::None,
            Wanted::Soft => PendingRerun::Soft,
            Wanted::At(at) | Wanted::Debounced(at) => PendingRerun::At(instant(at, clock, now)),
            Wanted::Now => PendingRerun::Now,
        }),
    }
}

fn run(steps: &[Step], interval: u64) {
    let mut pair = Pair::new(interval);
    for step in steps {
        pair.step(step);
    }
    pair.finish();
}

proptest! {
    #[test]
    fn the_queue_equals_the_model(steps in prop::collection::vec(step(), 0..80)) {
        run(&steps, 0);
    }

    #[test]
    fn a_queue_with_a_minimum_interval_equals_the_model(
        steps in prop::collection::vec(step(), 0..80),
        interval in 1..9_u64,
    ) {
        run(&steps, interval);
    }
}
