//! The shipped queue in every interleaving of a few threads.
//!
//! Each model asserts a promise of the contract. Most models deadlock if a wakeup is lost, and the checker reports
//! that. The clock is held, so there is no timer thread; `timer::models` covers it. Reference counts and the counters
//! of the models are from the standard library. The checker switches threads at locks, condition variables, and the
//! atomics of [`Busy`].
//!
//! A condition variable of the checker wakes its waiters in order, and never without cause. If the result depends on
//! the order, the model runs with either thread asleep first.
//!
//! # Bounds
//!
//! [`explore`] takes the maximum number of preemptions in an execution: switches away from a thread that is not
//! blocked. Switches away from a blocked thread are free, so under any bound each thread runs first once, and sleeps
//! before or after its wakeup. The smallest models have no bound. The others have three to five, as many as a few
//! seconds allow. More would explore millions of executions, but a wakeup decided between a look and a sleep takes only
//! one or two.

mod closing;
mod timing;
mod waking;

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool as PlainBool, Ordering::SeqCst};
use std::time::Duration;

use super::WorkQueue;
use crate::base::clock::ManualClock;
use crate::base::sync::atomic::AtomicBool;

const SECOND: Duration = Duration::from_secs(1);

/// A hasher that is the same in each execution, as the checker requires.
type Fixed = BuildHasherDefault<DefaultHasher>;
type Queue = WorkQueue<u8, Fixed>;

fn queue() -> (ManualClock, Queue) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).hasher(Fixed::default()).build();
    (clock, queue)
}

/// The outcomes that some execution had. Each must occur, because a model shows nothing if its threads never meet.
#[derive(Debug)]
struct Seen {
    outcomes: Vec<(&'static str, PlainBool)>,
}

impl Seen {
    fn note(&self, outcome: &'static str) {
        match self.outcomes.iter().find(|(name, _)| *name == outcome) {
            Some((_, met)) => met.store(true, SeqCst),
            None => panic!("{outcome:?} is not among {:?}", self.outcomes),
        }
    }
}

/// Runs `model` in every interleaving with at most `preemptions` preemptions (`None`: any number). Then checks that
/// each of `outcomes` was noted.
fn explore(
    preemptions: impl Into<Option<usize>>,
    outcomes: &[&'static str],
    model: impl Fn(&Arc<Seen>) + Send + Sync + 'static,
) {
    let outcomes = outcomes.iter().map(|name| (*name, PlainBool::new(false))).collect();
    let seen = Arc::new(Seen { outcomes });
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions.into();
    builder.check({
        let seen = Arc::clone(&seen);
        move || model(&seen)
    });
    for (name, met) in &seen.outcomes {
        assert!(met.load(SeqCst), "no execution was: {name}");
    }
}

/// A resource for one thread at a time. While it is held, other threads may run.
#[derive(Clone, Debug)]
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    fn section(&self) {
        assert!(!self.0.swap(true, SeqCst), "two claims of one key");
        self.0.store(false, SeqCst);
    }
}
