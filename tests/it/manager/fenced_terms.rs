//! A user-defined elector. Its terms have a number and an end.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use homeostat::manager::{Candidate, Leadership, Term};
use homeostat::run::{Cancelled, Fence, TermLimit};
use homeostat::{Action, BoxError, CancellationToken, Clock, Context, Controller, Elector, Manager, ManualClock};

use parking_lot::Mutex;

use crate::stages::just_before;
use crate::support::SECOND;

const TERM: Duration = Duration::from_secs(10);

/// An elector. A test can make its renewals hang or fail.
#[derive(Clone, Default)]
struct RowElector {
    number: Arc<AtomicU64>,
    /// Set while renewals do not reach the row.
    is_cut_off: Arc<std::sync::atomic::AtomicBool>,
}

struct RowLock {
    row: RowElector,
    limit: Arc<RowLimit>,
}

/// The end of a term, with the sleep of the machine.
struct RowLimit {
    clock: Clock,
    end: Mutex<Instant>,
}

impl RowLimit {
    fn new(clock: &Clock) -> Arc<Self> {
        let limit = Arc::new(Self { clock: clock.clone(), end: Mutex::new(clock.now()) });
        limit.renew();
        limit
    }

    fn now(&self) -> Instant {
        self.clock.now() + self.clock.slept().unwrap_or_default()
    }

    fn renew(&self) {
        *self.end.lock() = self.now() + TERM;
    }
}

impl TermLimit for RowLimit {
    fn remaining(&self) -> Option<Duration> {
        Some(self.end.lock().saturating_duration_since(self.now()))
    }
}

impl Elector for RowElector {
    fn candidate(&self) -> Box<Candidate> {
        let row = self.clone();
        Box::new(move |cx: &Context| {
            let clock = cx.clock().clone();
            let number = row.number.fetch_add(1, SeqCst) + 1;
            let limit = RowLimit::new(&clock);
            let lock = RowLock { row: row.clone(), limit: limit.clone() };
            Ok(ControlFlow::Break(Term::fenced("row", Fence::limited(number, limit), lock)))
        })
    }

    fn stop_margin(&self) -> Option<Duration> {
        Some(2 * SECOND)
    }
}

impl Leadership for RowLock {
    fn check(&mut self) -> Result<(), BoxError> {
        if !self.row.is_cut_off.load(SeqCst) {
            self.limit.renew();
        }
        Ok(())
    }
}

fn elected(row: &RowElector, clock: &ManualClock) -> Term {
    row.campaign(&Context::detached_with(clock.clock(), CancellationToken::new())).unwrap()
}

#[test]
fn a_term_has_its_number_and_ends_unless_it_is_renewed() {
    let (row, clock) = (RowElector::default(), ManualClock::new());
    let mut term = elected(&row, &clock);
    let fence = term.fence().clone();
    assert_eq!((fence.number(), fence.remaining()), (Some(1), Some(TERM)));
    clock.advance(9 * SECOND);
    assert_eq!(fence.remaining(), Some(SECOND));
    term.check().unwrap();
    assert_eq!(fence.remaining(), Some(TERM));
    row.is_cut_off.store(true, SeqCst);
    clock.advance(just_before(TERM));
    assert!(term.check().is_ok() && fence.check().is_ok());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(fence.check(), Err(Cancelled::TermEnded));
    fence.limit::<RowLimit>().unwrap().renew();
    assert_eq!(fence.check(), Err(Cancelled::TermEnded), "a term that has ended never begins again");
    let lost = term.check().unwrap_err();
    assert_eq!(lost.to_string(), "the leadership of row is lost");
    assert!(term.lost().is_cancelled());
    assert_eq!(elected(&row, &clock).fence().number(), Some(2));
}

/// The time advances while the machine sleeps, although timers do not.
#[test]
fn a_term_ends_while_the_machine_sleeps() {
    let (row, clock) = (RowElector::default(), ManualClock::new());
    let term = elected(&row, &clock);
    clock.suspend(TERM);
    assert_eq!(term.fence().check(), Err(Cancelled::TermEnded));
}

#[test]
fn a_fence_needs_neither_a_number_nor_an_end() {
    let clock = ManualClock::new();
    let endless = Fence::unlimited(7);
    clock.advance(1_000_000 * SECOND);
    assert_eq!((endless.number(), endless.remaining(), endless.check()), (Some(7), None, Ok(())));
    let nameless = Fence::limited(None, RowLimit::new(&clock.clock()));
    assert_eq!((nameless.number(), nameless.remaining()), (None, Some(TERM)));
}

#[test]
fn a_manager_gives_the_number_to_runs_and_fails_when_the_term_runs_out() {
    let (row, clock) = (RowElector::default(), ManualClock::new());
    let (report, reported) = crossbeam_channel::unbounded();
    let reconcile = move |cx: &Context, _key: &&str| -> Result<Action, BoxError> {
        report.send(cx.fence()?.number())?;
        Ok(Action::await_change())
    };
    let manager = Manager::builder().clock(clock.clock()).abort_grace(SECOND).elector(row.clone()).build().unwrap();
    let disks = Controller::builder("disk", reconcile).clock(clock.clock()).build().unwrap();
    disks.handle().enqueue("disk-1");
    manager.add(disks).unwrap();
    let running = manager.start().unwrap();
    assert_eq!(reported.recv().unwrap(), Some(1));
    row.is_cut_off.store(true, SeqCst);
    clock.wait_for_sleepers(1);
    // No check is needed: the watchdog ends the term.
    clock.suspend(TERM);
    clock.advance(2 * SECOND);
    let error = running.join().unwrap_err();
    assert!(error.to_string().contains("elector"), "{error}");
}
