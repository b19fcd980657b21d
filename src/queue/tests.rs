//! The fast paths of requests, dequeues and endings, checked against the rules and the slow paths in every state.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::time::Duration;

use super::request::{EnqueueMethod, EnqueueRequest};
use super::state::{Bounds, RecordState, RerunKind};
use super::*;
use crate::base::clock::ManualClock;

const KEY: &str = "key";
const FLOOR: Duration = Duration::from_secs(3);
const SHORT: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(60);
const PRIORITIES: [Priority; 3] = Priority::SERVED;

type Queue = WorkQueue<String>;

/// How a key gets into its state.
type Before = fn(&Queue);

/// How a request is made.
type Way = fn(&Queue, EnqueueRequest) -> EnqueueOutcome;

/// Every state that a key can have, with and without delays and failures.
const STATES: [(&str, Before); 17] = [
    ("idle", |_| {}),
    ("ready", |queue| admit(queue, EnqueueMethod::Enqueue)),
    ("ready for a reason", |queue| {
        queue.because(Reasons::POLL).enqueue(KEY.into());
    }),
    ("ready at high priority", |queue| {
        queue.at(Priority::High).enqueue(KEY.into());
    }),
    ("ready at low priority", |queue| {
        queue.at(Priority::Low).enqueue(KEY.into());
    }),
    ("ready behind another key", |queue| {
        queue.enqueue("other".into());
        queue.enqueue(KEY.into());
    }),
    ("ready after a failure", |queue| {
        end(queue, Ending::Retry(Duration::ZERO));
    }),
    ("delayed", |queue| admit(queue, EnqueueMethod::EnqueueAfter(LONG))),
    ("debounced", |queue| admit(queue, EnqueueMethod::EnqueueDebounced { quiet: SHORT, max_wait: LONG })),
    ("in backoff", |queue| end(queue, Ending::Retry(LONG))),
    ("deferred", |queue| end(queue, Ending::Defer(Reasons::EVENT, Duration::MAX))),
    ("cooling", |queue| end(queue, Ending::CoolDown(LONG))),
    ("processing", |queue| take(queue)),
    ("processing, soft", |queue| rerun(queue, EnqueueMethod::Enqueue)),
    ("processing, at", |queue| rerun(queue, EnqueueMethod::EnqueueAfter(SHORT))),
    ("processing, debounced", |queue| {
        rerun(queue, EnqueueMethod::EnqueueNowDebounced { quiet: SHORT, max_wait: LONG });
    }),
    ("processing, now", |queue| rerun(queue, EnqueueMethod::EnqueueNow)),
];

const METHODS: [EnqueueMethod; 14] = [
    EnqueueMethod::EnqueueIfAbsent,
    EnqueueMethod::Enqueue,
    EnqueueMethod::EnqueueNow,
    EnqueueMethod::EnqueueAfter(Duration::ZERO),
    EnqueueMethod::EnqueueAfter(SHORT),
    EnqueueMethod::EnqueueAfter(Duration::MAX),
    EnqueueMethod::Reschedule(Duration::ZERO),
    EnqueueMethod::Reschedule(SHORT),
    EnqueueMethod::EnqueueDebounced { quiet: SHORT, max_wait: LONG },
    EnqueueMethod::EnqueueDebounced { quiet: Duration::ZERO, max_wait: LONG },
    EnqueueMethod::EnqueueNowDebounced { quiet: SHORT, max_wait: LONG },
    EnqueueMethod::EnqueueNowDebounced { quiet: Duration::ZERO, max_wait: LONG },
    EnqueueMethod::EnqueueResync,
    EnqueueMethod::EnqueueSelected,
];

const ENDINGS: [Ending; 10] = [
    Ending::Done,
    Ending::Leave,
    Ending::CoolDown(Duration::ZERO),
    Ending::CoolDown(SHORT),
    Ending::RequeueAfter(Duration::ZERO),
    Ending::RequeueAfter(SHORT),
    Ending::Retry(Duration::ZERO),
    Ending::Retry(SHORT),
    Ending::PutBack(Reasons::MANUAL),
    Ending::Defer(Reasons::MANUAL, Duration::MAX),
];

fn admit(queue: &Queue, method: EnqueueMethod) {
    queue.request(KEY.into(), method.into());
}

/// Claims the key. The claim never ends.
fn take(queue: &Queue) {
    admit(queue, EnqueueMethod::Enqueue);
    std::mem::forget(queue.try_dequeue().unwrap());
}

fn rerun(queue: &Queue, method: EnqueueMethod) {
    take(queue);
    admit(queue, method);
}

fn end(queue: &Queue, ending: Ending) {
    admit(queue, EnqueueMethod::Enqueue);
    queue.try_dequeue().unwrap().end(ending);
}

/// Returns a queue with the key in this state. A restless queue takes only the slow paths.
fn queue(before: Before, timing: bool, restless: bool) -> (ManualClock, Queue) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let queue = WorkQueue::builder().clock(clock.clock()).floor(FLOOR).timing(timing).build();
    queue.shared.locked.lock().restless = restless;
    before(&queue);
    clock.advance(Duration::from_secs(1));
    (clock, queue)
}

/// Returns the state of the key's record, its bounds, and the counts of the queue.
fn seen(queue: &Queue) -> (Option<(RecordState, Bounds)>, QueueMetrics, Option<u32>) {
    let hash = queue.hash(KEY);
    let records = &queue.shared.locked.lock().records;
    let record = records.find(hash, |known| known == KEY);
    (record.map(|index| (records.state(index), records.bounds(index))), records.metrics(), records.front())
}

fn requests() -> impl Iterator<Item = EnqueueRequest> {
    let at = METHODS.into_iter().flat_map(|method| PRIORITIES.map(|priority| EnqueueRequest::new(method).at(priority)));
    at.flat_map(|request| [Reasons::NONE, Reasons::EVENT].map(|reasons| request.because(reasons)))
}

/// Returns every way to make this request.
fn ways(request: &EnqueueRequest) -> Vec<Way> {
    let mut ways: Vec<Way> = vec![
        |queue, request| queue.request(KEY.into(), request),
        |queue, request| queue.request_ref(KEY, request),
        |queue, request| {
            let tally = queue.request_all(&mut [KEY.into()].into_iter(), request);
            let outcomes = [EnqueueOutcome::Queued, EnqueueOutcome::Merged, EnqueueOutcome::Scheduled];
            let others = [EnqueueOutcome::Held, EnqueueOutcome::Rerun, EnqueueOutcome::Ignored];
            outcomes.into_iter().chain(others).find(|&outcome| tally.of(outcome) == 1).unwrap()
        },
    ];
    let view: Way = match request.method {
        EnqueueMethod::EnqueueIfAbsent => {
            |queue, request| queue.at(request.priority).because(request.reasons).enqueue_if_absent(KEY.into())
        }
        EnqueueMethod::Enqueue => {
            |queue, request| queue.at(request.priority).because(request.reasons).enqueue(KEY.into())
        }
        EnqueueMethod::EnqueueNow => {
            |queue, request| queue.at(request.priority).because(request.reasons).enqueue_now(KEY.into())
        }
        _ => return ways,
    };
    ways.push(view);
    if request.priority == Priority::Normal && request.reasons.is_empty() {
        ways.push(match request.method {
            EnqueueMethod::EnqueueIfAbsent => |queue, _| queue.enqueue_if_absent(KEY.into()),
            EnqueueMethod::Enqueue => |queue, _| queue.enqueue(KEY.into()),
            _ => |queue, _| queue.enqueue_now(KEY.into()),
        });
    }
    ways
}

#[test]
fn every_way_of_every_request_is_as_the_rule_says_in_every_state() {
    for (name, before) in STATES {
        for request in requests() {
            for (number, way) in ways(&request).into_iter().enumerate() {
                let case = format!("way {number} of {request:?} of a key that is {name}");
                let (clock, queue) = queue(before, number % 2 == 0, false);
                let idle = RecordState { priority: request.priority, ..RecordState::default() };
                let (mut state, mut bounds) = seen(&queue).0.unwrap_or((idle, Bounds::NONE));
                let decision = state.request(&mut bounds, &request, FLOOR, || clock.nanos());
                assert_eq!(way(&queue, request), decision.outcome, "{case}");
                assert_eq!(seen(&queue).0, Some((state, bounds)), "{case}");
            }
        }
    }
}

#[test]
fn every_way_of_every_request_leaves_the_queue_as_the_long_way_does() {
    for (name, before) in STATES {
        for request in requests() {
            let (_clock, restless) = queue(before, false, true);
            let outcome = restless.request(KEY.into(), request);
            for (number, way) in ways(&request).into_iter().enumerate() {
                let case = format!("way {number} of {request:?} of a key that is {name}");
                let (_clock, queue) = queue(before, false, false);
                assert_eq!(way(&queue, request), outcome, "{case}");
                assert_eq!(seen(&queue), seen(&restless), "{case}");
            }
        }
    }
}

/// Returns the values of a claim. The claim does not end.
fn taken(claim: Result<Claim<String>, DequeueError>) -> Result<(String, Reasons, u32, Priority, bool), DequeueError> {
    claim.map(|claim| {
        let taken = (claim.clone(), claim.reasons(), claim.failures(), claim.priority(), claim.leaves_more());
        std::mem::forget(claim);
        taken
    })
}

#[test]
fn a_dequeue_is_as_the_rule_says_and_as_the_long_way_in_every_state() {
    for (name, before) in STATES {
        for timing in [false, true] {
            let (_clock, restless) = queue(before, timing, true);
            let (_clock, queue) = queue(before, timing, false);
            let (record, metrics, _) = seen(&queue);
            let got = taken(queue.try_dequeue());
            assert_eq!(got, taken(restless.try_dequeue()), "{name}");
            assert_eq!(seen(&queue), seen(&restless), "{name}");
            let Ok((key, reasons, failures, priority, more)) = got else {
                assert_eq!(metrics.depth(), 0, "{name}");
                continue;
            };
            assert_eq!(more, metrics.depth() > 1, "{name}");
            if key == KEY {
                let (before, _) = record.unwrap();
                assert_eq!((reasons, failures, priority), (before.reasons, before.failures, before.priority), "{name}");
                let phase = Phase::Processing(RerunKind::None);
                let after = RecordState { phase, reasons: Reasons::NONE, ..before };
                assert_eq!(seen(&queue).0, Some((after, Bounds::NONE)), "{name}");
            }
        }
    }
}

/// Claims the key, then makes a request for it.
fn claimed(queue: &Queue, rerun: Option<EnqueueMethod>) -> Claim<String> {
    admit(queue, EnqueueMethod::Enqueue);
    let claim = queue.try_dequeue().unwrap();
    if let Some(method) = rerun {
        admit(queue, method);
    }
    claim
}

#[test]
fn every_ending_is_as_the_rule_says_and_as_the_long_way() {
    for ending in ENDINGS {
        for rerun in std::iter::once(None).chain(METHODS.map(Some)) {
            for turn in [false, true] {
                let case = format!("{ending:?} after {rerun:?}, turn: {turn}");
                let [(clock, queue), (_, restless)] = [false, true].map(|restless| queue(|_| {}, false, restless));
                let [claim, other] = [&queue, &restless].map(|queue| claimed(queue, rerun));
                let (mut state, mut bounds) = seen(&queue).0.unwrap();
                let dropped = state.end(&mut bounds, ending, FLOOR, None, || clock.nanos());
                assert_eq!(dropped, None);
                if turn {
                    let next = |mut claim: Claim<String>| {
                        let turned = claim.turn(ending, || false).is_ok();
                        taken(if turned { Ok(claim) } else { Err(DequeueError::Empty) })
                    };
                    let got = next(claim);
                    assert_eq!(got, next(other), "{case}");
                    assert_eq!(got.is_ok(), state.phase == Phase::Ready, "{case}");
                } else {
                    claim.end(ending);
                    other.end(ending);
                    let expected = (state.phase != Phase::Idle).then_some((state, bounds));
                    assert_eq!(seen(&queue).0, expected, "{case}");
                }
                assert_eq!(seen(&queue), seen(&restless), "{case}");
            }
        }
    }
}

#[test]
fn a_selective_request_ignores_the_other_keys() {
    let selects = Box::new(|key: &u32| key.is_multiple_of(2));
    let queue = WorkQueue::builder()
        .hooks(QueueHooks { on_ready: None, on_cancel: None, on_forgotten: None, selects: Some(selects) })
        .build();
    let request = EnqueueRequest::new(EnqueueMethod::EnqueueSelected);
    assert_eq!(queue.request(1, request), EnqueueOutcome::Ignored);
    assert_eq!(queue.request(2, request), EnqueueOutcome::Queued);
    let tally = queue.request_all(&mut [3, 4, 5, 6, 6].into_iter(), request);
    let counts = [EnqueueOutcome::Ignored, EnqueueOutcome::Queued, EnqueueOutcome::Merged].map(|of| tally.of(of));
    assert_eq!((counts, tally.total()), ([3, 2, 0], 5));
    assert_eq!(queue.enqueue_resync(1), EnqueueOutcome::Queued);

    // A bare queue takes each key.
    assert_eq!(WorkQueue::new().request(1, request), EnqueueOutcome::Queued);
}
