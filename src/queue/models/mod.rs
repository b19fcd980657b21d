//! The shipped queue in every interleaving of a few threads.
//!
//! Each model asserts what the contract promises, and most deadlock where a wake is lost, which the model checker
//! reports. The clock is a held one, so no timer thread takes part; `shared::models` has that one. Reference counts and
//! the models' own counters are the standard library's: the checker switches threads at locks, condition variables,
//! and the atomics of [`Busy`].
//!
//! A condition variable of the checker wakes its sleepers first come, first served, and never without cause. What depends
//! on who is woken is therefore modelled with either thread asleep first.
//!
//! # What is bounded
//!
//! [`explore`] takes the most preemptions that an execution may have: switches away from a thread that could go on.
//! Switches away from a blocked thread are free, so under any bound each thread still comes first once, and sleeps before
//! or after what wakes it. The smallest models have no bound, the others three to five, as many as a few seconds allow:
//! beyond that the executions grow from thousands into millions, and what is looked for here (a wake decided between a
//! look and a sleep) takes one or two.

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

/// The same in each execution, which the checker relies on.
type Fixed = BuildHasherDefault<DefaultHasher>;
type Queue = WorkQueue<u8, Fixed>;

fn queue() -> (ManualClock, Queue) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).hasher(Fixed::default()).build();
    (clock, queue)
}

/// Which outcomes of a model some execution has had. A model whose threads never meet shows nothing, so each must occur.
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

/// Runs `model` in every interleaving with at most `preemptions` preemptions (`None`: any number), and then checks that
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

/// What only one thread may hold at a time, with a chance for others to run while it does.
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
