//! Managers with an elector: user-defined electors, and managers of one process that share a lock file.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use homeostat::manager::{ElectorError, Leadership, Term};
use homeostat::run::Cancelled;
use homeostat::{
    Action, BoxError, CancellationToken, Component, Context, Controller, Elector, Manager, ManualClock, Running,
};
use homeostat_host::FileElector;
use parking_lot::Mutex;

use crate::stages::SECOND;
use crate::support::{HOUR, MS};
use crate::until::until;

type Key = &'static str;
type Notes = Arc<Mutex<Vec<String>>>;

/// An elector that calls a closure.
struct ElectorFn<F>(F);

impl<F: Fn(&Context) -> Result<Term, ElectorError> + Clone + Send + Sync + 'static> Elector for ElectorFn<F> {
    fn candidate(&self) -> Box<homeostat::manager::Candidate> {
        let campaign = self.0.clone();
        Box::new(move |cx: &Context| campaign(cx).map(ControlFlow::Break))
    }
}

/// A leadership that calls a closure to check, and notes its drop.
struct CheckedLeadership<F> {
    check: F,
    interval: Duration,
    notes: Notes,
}

impl<F: FnMut() -> Result<(), BoxError> + Send> Leadership for CheckedLeadership<F> {
    fn check(&mut self) -> Result<(), BoxError> {
        (self.check)()
    }

    fn check_interval(&self) -> Duration {
        self.interval
    }
}

impl<F> Drop for CheckedLeadership<F> {
    fn drop(&mut self) {
        self.notes.lock().push("given back".to_owned());
    }
}

/// Returns an elector that leads at once, as long as `check` succeeds.
fn leading<C>(interval: Duration, notes: &Notes, check: C) -> impl Elector + use<C>
where
    C: FnMut() -> Result<(), BoxError> + Clone + Send + Sync + 'static,
{
    let notes = Arc::clone(notes);
    ElectorFn(move |_: &Context| {
        let held = CheckedLeadership { check: check.clone(), interval, notes: Arc::clone(&notes) };
        Ok(Term::new("told", held))
    })
}

/// Returns a controller with one run. The run waits for cancellation and for `allowed`, then notes its end.
fn working(notes: &Notes, entered: Sender<()>, allowed: Receiver<()>) -> Controller<Key> {
    let notes = Arc::clone(notes);
    let reconcile = move |cx: &Context, _: &Key| -> Result<Action, BoxError> {
        entered.send(())?;
        cx.token().wait();
        let _ = allowed.recv();
        notes.lock().push("the run ends".to_owned());
        Ok(Action::await_change())
    };
    let vms = Controller::builder("vm", reconcile).build().unwrap();
    vms.handle().enqueue("vm-1");
    vms
}

/// The loss may be a false alarm, so no other process may lead before the runs have ended.
#[test]
fn a_loss_aborts_the_runs_and_the_term_is_given_up_after_them() {
    for panics in [false, true] {
        let notes = Notes::default();
        let lost = Arc::new(Mutex::new(false));
        let check = {
            let lost = Arc::clone(&lost);
            move || {
                let lost = *lost.lock();
                assert!(!(lost && panics), "out of luck");
                if lost { Err("the disk does not answer".into()) } else { Ok(()) }
            }
        };
        let manager = Manager::builder()
            .elector(leading(MS, &notes, check))
            .shutdown_grace(HOUR)
            .abort_grace(HOUR)
            .build()
            .unwrap();
        let ((entered, seen), (go, gate)) = (bounded(1), bounded::<()>(0));
        manager.add(working(&notes, entered, gate)).unwrap();
        let running = manager.start().unwrap();
        seen.recv().unwrap();
        assert!(manager.is_leading());
        *lost.lock() = true;
        until("the manager stops without leading", || !manager.is_leading() && manager.status().doing == "stopping");
        drop(go);
        let error = running.join().unwrap_err();
        assert_eq!(error.component(), Some("elector"));
        let expected =
            if panics { "elector: it panicked: out of luck" } else { "elector: the leadership of told is lost" };
        assert_eq!(error.to_string(), expected);
        assert_eq!(*notes.lock(), ["the run ends", "given back"]);
    }
}

/// The term is kept while a run is left, because the next leader must not work beside it.
#[test]
fn a_run_that_does_not_end_keeps_the_leadership() {
    let notes = Notes::default();
    let manager = Manager::builder()
        .elector(leading(MS, &notes, || Ok(())))
        .shutdown_grace(Duration::ZERO)
        .abort_grace(Duration::ZERO)
        .build()
        .unwrap();
    let ((entered, seen), (go, gate)) = (bounded(1), bounded::<()>(0));
    manager.add(working(&notes, entered, gate)).unwrap();
    let running = manager.start().unwrap();
    seen.recv().unwrap();
    manager.stop();
    let error = running.join().unwrap_err();
    assert!(error.still_running()[0].starts_with("manager-pool-"), "{error}");
    assert!(manager.is_leading());
    drop(go);
    until("the run has ended", || !notes.lock().is_empty());
    assert_eq!(*notes.lock(), ["the run ends"]);
}

/// An elector that notices a loss between two checks cancels the token of the term.
#[test]
fn a_loss_between_two_checks_takes_effect_at_once() {
    let notes = Notes::default();
    let token = Arc::new(Mutex::new(None));
    let (own, given) = (Arc::clone(&token), Arc::clone(&notes));
    let elector = ElectorFn(move |_: &Context| {
        let term = Term::new(
            "told",
            CheckedLeadership { check: || Ok(()), interval: Duration::MAX, notes: Arc::clone(&given) },
        );
        *own.lock() = Some(term.lost().clone());
        Ok(term)
    });
    let manager = Manager::builder().abort_grace(HOUR).elector(elector).shutdown_grace(HOUR).build().unwrap();
    let ((entered, seen), (go, gate)) = (bounded(1), bounded::<()>(0));
    drop(go);
    manager.add(working(&notes, entered, gate)).unwrap();
    let running = manager.start().unwrap();
    seen.recv().unwrap();
    token.lock().take().unwrap().cancel();
    assert_eq!(running.join().unwrap_err().to_string(), "elector: the leadership of told is lost");
    assert_eq!(*notes.lock(), ["the run ends", "given back"]);
}

#[test]
fn components_added_to_a_leader_start_to_lead_too() {
    let notes = Notes::default();
    let manager = Manager::builder().abort_grace(HOUR).elector(leading(MS, &notes, || Ok(()))).build().unwrap();
    let (report, reported) = bounded(0);
    let leads = |name: &'static str| {
        let report = report.clone();
        Component::function(name, move |_: &Context| report.send(name)).when_leading()
    };
    manager.add(leads("first")).unwrap();
    let running = manager.start().unwrap();
    assert_eq!(reported.recv(), Ok("first"));
    manager.add(leads("late")).unwrap();
    assert_eq!(reported.recv(), Ok("late"));
    let (run, begun) = bounded(1);
    manager.add(working(&notes, run, bounded(0).1)).unwrap();
    begun.recv().unwrap();
    manager.abort();
    running.join().unwrap();
    assert_eq!(*notes.lock(), ["the run ends", "given back"]);
}

#[test]
fn a_campaign_that_cannot_be_won_is_a_failure() {
    let fails = |campaign: fn(&Context) -> Result<Term, ElectorError>| {
        let manager = Manager::builder().abort_grace(HOUR).elector(ElectorFn(campaign)).build().unwrap();
        manager.run(&CancellationToken::new()).unwrap_err().to_string()
    };
    assert_eq!(fails(|_| panic!("out of luck")), "elector: it panicked: out of luck");
    assert_eq!(fails(|_| Err(ElectorError::new("no such database"))), "elector: no such database");
    assert_eq!(fails(|_| Err(Cancelled::Aborted.into())), "elector: the campaign was cancelled", "by nobody");
}

#[test]
fn an_elector_that_does_not_end_is_named() {
    let clock = ManualClock::new();
    let ((entered, seen), (go, gate)) = (bounded(1), bounded::<()>(0));
    let elector = ElectorFn(move |cx: &Context| {
        let _ = entered.send(());
        let _ = gate.recv();
        cx.check()?;
        Err(ElectorError::new("it was to stop"))
    });
    let manager = Manager::builder().clock(clock.clock()).threads(1).elector(elector).build().unwrap();
    let running = manager.start().unwrap();
    // A candidate does not try after a stop.
    seen.recv().unwrap();
    manager.stop();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.join());
        // The driver waits for the idle threads of the pool first, as long as for the elector.
        until("the manager gives up", || {
            clock.advance(SECOND);
            waiting.is_finished()
        });
        assert_eq!(waiting.join().unwrap().unwrap_err().to_string(), "still running: manager-elector-0");
    });
    drop(go);
}

/// A leadership that asks its manager on drop whether it leads.
struct AskingLeadership(Arc<Mutex<Option<Manager>>>, Notes);

impl Leadership for AskingLeadership {
    fn check(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl Drop for AskingLeadership {
    fn drop(&mut self) {
        let leads = self.0.lock().as_ref().map(Manager::is_leading);
        self.1.lock().push(format!("{leads:?}"));
    }
}

#[test]
fn the_manager_reports_the_end_of_its_leadership_before_it_resigns() {
    let leads = Arc::new(Mutex::new(None::<Manager>));
    let notes = Notes::default();
    let (own, report) = (Arc::clone(&leads), Arc::clone(&notes));
    let elector =
        ElectorFn(move |_: &Context| Ok(Term::new("asks", AskingLeadership(Arc::clone(&own), Arc::clone(&report)))));
    let manager = Manager::builder().abort_grace(HOUR).elector(elector).build().unwrap();
    *leads.lock() = Some(manager.clone());
    let running = manager.start().unwrap();
    until("the manager leads", || manager.is_leading());
    manager.stop();
    running.join().unwrap();
    assert_eq!(*notes.lock(), ["Some(false)"]);
    assert!(!manager.is_leading());
    *leads.lock() = None;
}

/// Records the work of the leaders, and checks that no two of them work at once.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<(usize, &'static str)>>>);

impl Record {
    fn say(&self, who: usize, what: &'static str) {
        self.0.lock().push((who, what));
    }

    /// Returns the leaders in order. Fails if one of them works between another's begin and end.
    fn check(&self) -> Vec<usize> {
        let mut at_work: Vec<usize> = Vec::new();
        let mut terms = Vec::new();
        for &(who, what) in &*self.0.lock() {
            if what == "begin" {
                at_work.push(who);
            } else if let Some(at) = at_work.iter().position(|&other| other == who) {
                at_work.remove(at);
            }
            assert!(at_work.iter().all(|&other| other == who), "two lead at once: {at_work:?}");
            if terms.last() != Some(&who) {
                terms.push(who);
            }
        }
        terms
    }
}

#[test]
fn the_checker_finds_two_that_work_at_once() {
    let record = Record::default();
    for (who, what) in [(1, "begin"), (1, "end"), (2, "begin"), (2, "end"), (1, "begin")] {
        record.say(who, what);
    }
    assert_eq!(record.check(), [1, 2, 1]);
    record.say(1, "begin");
    record.say(1, "end");
    record.say(2, "begin");
    assert!(catch_unwind(AssertUnwindSafe(|| record.check())).is_err());
}

/// A term of a file that can also be lost while the file is still locked.
struct Lossy {
    file: Term,
    lost: Arc<AtomicBool>,
}

impl Leadership for Lossy {
    fn check(&mut self) -> Result<(), BoxError> {
        if self.lost.load(SeqCst) {
            return Err("the disk does not answer".into());
        }
        Ok(self.file.check()?)
    }

    fn check_interval(&self) -> Duration {
        self.file.check_interval()
    }
}

/// A manager with a file elector. Its runs and its function record their begin and end.
struct Candidate {
    who: usize,
    manager: Manager,
    running: Running<Manager>,
    lost: Arc<AtomicBool>,
}

impl Candidate {
    fn start(path: &Path, who: usize, record: &Record) -> Self {
        let file = FileElector::new(path).name(format!("candidate-{who}")).interval(MS);
        let lost = Arc::<AtomicBool>::default();
        let notice = Arc::clone(&lost);
        let elector = ElectorFn(move |cx: &Context| {
            let file = file.campaign(cx)?;
            Ok(Term::new("lossy", Lossy { file, lost: Arc::clone(&notice) }))
        });
        let manager = Manager::builder().elector(elector).threads(2).abort_grace(HOUR).build().unwrap();
        let report = record.clone();
        let reconcile = move |cx: &Context, _: &u64| -> Result<Action, BoxError> {
            report.say(who, "begin");
            let slept = cx.sleep(MS / 4);
            report.say(who, "end");
            slept?;
            Ok(Action::requeue_after(Duration::ZERO))
        };
        manager.add(Controller::builder("vm", reconcile).build().unwrap()).unwrap();
        manager.enqueue("vm", 0_u64).unwrap();
        let report = record.clone();
        let janitor = move |cx: &Context| -> Result<(), BoxError> {
            report.say(who, "begin");
            while cx.sleep(MS).is_ok() {}
            // The function does not end at once after its cancellation.
            std::thread::yield_now();
            report.say(who, "end");
            cx.check()?;
            Ok(())
        };
        manager.add(Component::function("janitor", janitor).when_leading()).unwrap();
        let running = manager.start().unwrap();
        Self { who, manager, running, lost }
    }
}

/// Waits until this candidate has recorded six more entries.
fn wait_for_entries(record: &Record, who: usize) {
    let count = || record.0.lock().iter().filter(|&&(other, _)| other == who).count();
    let before = count();
    until("the candidate has worked again", || count() >= before + 6);
}

/// Some leaders stop, and some lose their leadership.
#[test]
fn only_one_of_two_managers_over_one_file_works_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leader.lock");
    let record = Record::default();
    let mut leader = Candidate::start(&path, 0, &record);
    wait_for_entries(&record, 0);
    for who in 1..=12 {
        let follower = Candidate::start(&path, who, &record);
        wait_for_entries(&record, leader.who);
        assert!(leader.manager.is_leading() && !follower.manager.is_leading());
        let Candidate { manager, running, lost, .. } = leader;
        if who % 2 == 0 {
            manager.stop();
            running.join().unwrap();
        } else {
            lost.store(true, SeqCst);
            let error = running.join().unwrap_err();
            assert_eq!(error.to_string(), "elector: the leadership of lossy is lost");
        }
        leader = follower;
        wait_for_entries(&record, who);
    }
    leader.manager.stop();
    leader.running.join().unwrap();
    assert_eq!(record.check(), (0..=12).collect::<Vec<_>>());
}

/// The leader is aborted after its file was deleted. The next candidate creates a new file and leads.
#[test]
fn a_manager_is_aborted_after_its_lock_file_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leader.lock");
    let record = Record::default();
    let first = Candidate::start(&path, 0, &record);
    wait_for_entries(&record, 0);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(first.running.join().unwrap_err().to_string(), "elector: the leadership of lossy is lost");
    let next = Candidate::start(&path, 1, &record);
    wait_for_entries(&record, 1);
    next.manager.stop();
    next.running.join().unwrap();
    assert_eq!(record.check(), [0, 1]);
}
