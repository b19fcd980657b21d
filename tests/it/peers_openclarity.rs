//! The cases of openclarity's simple-controller-runtime, `queue_test.go`: `TestQueue` (Apache-2.0), written anew against
//! this API. Each test names its case.

use std::collections::HashMap;

use homeostat::{Admission, Claim, Enqueue, Verb, WorkQueue};

/// One step of a case.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(&'static str, Admission),
    /// The next key must be this one.
    Get(&'static str),
    Has(&'static str, bool),
    Done(&'static str),
}
use Step::{Add, Done, Get, Has};

/// Plays a case with one verb. At the end nothing may be left.
fn play(verb: Verb, steps: &[Step]) {
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

const ADDS: [Verb; 3] = [Verb::EnqueueIfAbsent, Verb::Enqueue, Verb::EnqueueNow];

/// "sanity".
#[test]
fn first_in_first_out() {
    for verb in ADDS {
        play(
            verb,
            &[
                Add("foo", Admission::Queued),
                Add("bar", Admission::Queued),
                Add("baz", Admission::Queued),
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

/// "readd the same item before being processed": the queue there drops what is added during a run. That is right for
/// a feeder that will say it again.
#[test]
fn enqueue_if_absent_adds_nothing_to_a_key_in_line_or_in_process() {
    play(
        Verb::EnqueueIfAbsent,
        &[
            Add("foo", Admission::Queued),
            Add("bar", Admission::Queued),
            Add("foo", Admission::Ignored),
            Get("foo"),
            Add("foo", Admission::Ignored),
            Done("foo"),
            Get("bar"),
            Done("bar"),
        ],
    );
}

/// The same case with the verb that promises a run.
#[test]
fn enqueue_during_a_run_is_one_more_run() {
    play(
        Verb::Enqueue,
        &[
            Add("foo", Admission::Queued),
            Add("bar", Admission::Queued),
            Add("foo", Admission::Merged),
            Get("foo"),
            Add("foo", Admission::Rerun),
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
                Add("foo", Admission::Queued),
                Add("bar", Admission::Queued),
                Get("foo"),
                Done("foo"),
                Add("foo", Admission::Queued),
                Get("bar"),
                Done("bar"),
                Get("foo"),
                Done("foo"),
            ],
        );
    }
}

/// "check queue has item", and further than there: during and after the run.
#[test]
fn the_queue_says_what_it_holds() {
    play(
        Verb::Enqueue,
        &[
            Add("foo", Admission::Queued),
            Add("bar", Admission::Queued),
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
