//! The driver of a manager asks only the components that it has heard: a removal or an end costs nothing for the
//! others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use homeostat::base::{EndError, EndHook, Runnable, RunningStatus};
use homeostat::{BoxError, Component, Manager, ManualClock};
use parking_lot::Mutex;

use crate::support::HOUR;
use crate::until::until;

/// A component without a thread. It counts the questions about its end and its failure.
#[derive(Default)]
struct Part {
    /// Whether it calls no hook, and ends only when the test says so.
    is_silent: bool,
    has_ended: AtomicBool,
    questions: AtomicUsize,
    hooks: Mutex<Vec<EndHook>>,
}

impl Part {
    fn end(&self) {
        self.has_ended.store(true, SeqCst);
        let hooks = self.hooks.lock().clone();
        for hook in hooks {
            hook();
        }
    }

    fn questions(&self) -> usize {
        self.questions.load(SeqCst)
    }
}

struct PartBody(Arc<Part>);

impl Runnable for PartBody {
    fn stop(&self) {
        if !self.0.is_silent {
            self.0.end();
        }
    }

    fn join_timeout(&mut self, _timeout: Duration) -> Result<(), EndError> {
        self.0.questions.fetch_add(1, SeqCst);
        if self.0.has_ended.load(SeqCst) { Ok(()) } else { Err(EndError::of_threads(["part"])) }
    }

    fn detach(&mut self) {}

    fn status(&self) -> RunningStatus {
        self.0.questions.fetch_add(1, SeqCst);
        RunningStatus::new("part", false, ["part"])
    }

    fn on_end(&self, hook: EndHook) {
        self.0.hooks.lock().push(hook);
    }

    fn failure(&self) -> Option<Arc<BoxError>> {
        self.0.questions.fetch_add(1, SeqCst);
        None
    }

    fn may_end(&self) -> bool {
        true
    }
}

fn add(manager: &Manager, name: &str) -> Arc<Part> {
    let part = Arc::<Part>::default();
    manager.add(Component::running(name, PartBody(Arc::clone(&part)))).unwrap();
    part
}

#[test]
fn removals_and_ends_ask_no_other_component() {
    let manager = Manager::builder().build().unwrap();
    let early: Vec<_> = (0..10).map(|number| add(&manager, &format!("early-{number}"))).collect();
    let running = manager.start().unwrap();
    let late: Vec<_> = (0..10).map(|number| add(&manager, &format!("late-{number}"))).collect();
    let removed: Vec<_> = (0..50).map(|number| format!("removed-{number}")).collect();
    for name in &removed {
        add(&manager, name);
    }
    // The answer comes after the driver has taken over all components.
    manager.remove(&removed[0], HOUR).unwrap();
    let questions = || early.iter().chain(&late).map(|part| part.questions()).collect::<Vec<_>>();
    let before = questions();
    for name in &removed[1..40] {
        manager.remove(name, HOUR).unwrap();
    }
    let ending = add(&manager, "ending");
    for _ in 0..20 {
        ending.end();
        manager.remove(&removed[40], HOUR).unwrap();
        add(&manager, &removed[40]);
    }
    assert_eq!(questions(), before);
    manager.stop();
    running.join().unwrap();
    let after = questions();
    let asked = after.iter().zip(&before).map(|(after, before)| after - before);
    assert!(asked.clone().all(|times| times <= 4), "a stop asks each a few times: {:?}", asked.collect::<Vec<_>>());
}

#[test]
fn a_component_that_tells_no_end_is_asked_at_the_stop_and_at_the_abort() {
    for ends_before_the_stop in [true, false] {
        let clock = ManualClock::new();
        let manager = Manager::builder().clock(clock.clock()).shutdown_grace(HOUR).abort_grace(HOUR).build().unwrap();
        let part = Arc::new(Part { is_silent: true, ..Part::default() });
        manager.add(Component::running("silent", PartBody(Arc::clone(&part)))).unwrap();
        let running = manager.start().unwrap();
        part.has_ended.store(ends_before_the_stop, SeqCst);
        manager.stop();
        if !ends_before_the_stop {
            until("the driver waits", || clock.next_alarm() == Some(clock.now() + HOUR));
            part.has_ended.store(true, SeqCst);
            clock.advance(HOUR);
        }
        running.join().unwrap();
    }
}
