//! The cases of openclarity's simple-controller-runtime, `queue_test.go`: `TestQueue` (Apache-2.0), rewritten against
//! this API. Each test names its case.

use std::collections::HashMap;

use homeostat::queue::EnqueueMethod;
use homeostat::{Claim, Enqueue, EnqueueOutcome, WorkQueue};

/// One step of a case.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(&'static str, EnqueueOutcome),
    /// The next key must be this key.
    Get(&'static str),
    Has(&'static str, bool),
    Done(&'static str),
}
use Step::{Add, Done, Get, Has};

/// Plays a case with one enqueue method. In the end, the queue must be empty.
fn play(verb: EnqueueMethod, steps: &[Step]) {
    let queue = WorkQueue::new();
    let mut claims: HashMap<&str, Claim<&str>> = HashMap::new();
    for (number, &step) in steps.iter().enumerate() {
        match step {
            Add(key, admission) => assert_eq!(queue.request(key, verb.into()), admission, "step {number}, {step:?}"),
            Get(key) => match queue.try_dequeue() {
                Ok(claim) if *claim == key => drop(claims.insert(key, claim)),
                other => panic!("step {number}, {step:?}: {other:?}"),
            },
            Has(key, has) => assert_eq!(queue.contains(&key), has, "step {number}, {step:?}"),
            Done(key) => claims.remove(key).into_iter().for_each(Claim::done),
        }
    }
    assert!(claims.is_empty());
    assert_eq!((queue.len(), queue.processing_count()), (0, 0));
}

const ADDS: [EnqueueMethod; 3] = [EnqueueMethod::EnqueueIfAbsent, EnqueueMethod::Enqueue, EnqueueMethod::EnqueueNow];

/// "sanity".
#[test]
fn first_in_first_out() {
    for verb in ADDS {
        play(
            verb,
            &[
                Add("foo", EnqueueOutcome::Queued),
                Add("bar", EnqueueOutcome::Queued),
                Add("baz", EnqueueOutcome::Queued),
                Get("foo"),
                Done("foo"),
                Get("bar"),
                Done("bar"),
                Get("baz"),
                Done("baz"),
            ],
        );
    }
}

/// "readd the same item before being processed". There the queue drops a key that is added during its run, which is
/// right only for a feeder that will add it again.
#[test]
fn enqueue_if_absent_ignores_a_key_that_is_ready_or_in_process() {
    play(
        EnqueueMethod::EnqueueIfAbsent,
        &[
            Add("foo", EnqueueOutcome::Queued),
            Add("bar", EnqueueOutcome::Queued),
            Add("foo", EnqueueOutcome::Ignored),
            Get("foo"),
            Add("foo", EnqueueOutcome::Ignored),
            Done("foo"),
            Get("bar"),
            Done("bar"),
        ],
    );
}

/// The same case with `enqueue`, which guarantees a run.
#[test]
fn enqueue_during_a_run_is_one_more_run() {
    play(
        EnqueueMethod::Enqueue,
        &[
            Add("foo", EnqueueOutcome::Queued),
            Add("bar", EnqueueOutcome::Queued),
            Add("foo", EnqueueOutcome::Merged),
            Get("foo"),
            Add("foo", EnqueueOutcome::Rerun),
            Done("foo"),
            Get("bar"),
            Done("bar"),
            Get("foo"),
            Done("foo"),
        ],
    );
}

/// "readd the same item after being processed".
#[test]
fn a_key_can_be_added_again_after_its_run() {
    for verb in ADDS {
        play(
            verb,
            &[
                Add("foo", EnqueueOutcome::Queued),
                Add("bar", EnqueueOutcome::Queued),
                Get("foo"),
                Done("foo"),
                Add("foo", EnqueueOutcome::Queued),
                Get("bar"),
                Done("bar"),
                Get("foo"),
                Done("foo"),
            ],
        );
    }
}

/// "check queue has item", extended to the time during and after the run.
#[test]
fn contains_is_true_for_ready_and_running_keys() {
    play(
        EnqueueMethod::Enqueue,
        &[
            Add("foo", EnqueueOutcome::Queued),
            Add("bar", EnqueueOutcome::Queued),
            Has("foo", true),
            Has("bar", true),
            Has("baz", false),
            Get("foo"),
            Has("foo", true),
            Done("foo"),
            Has("foo", false),
            Get("bar"),
            Done("bar"),
        ],
    );
}
