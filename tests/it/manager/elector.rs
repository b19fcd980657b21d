//! Terms and electors in general.

use std::error::Error;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Sender, unbounded};
use homeostat::manager::{Candidate, ElectorError, Leadership, Term};
use homeostat::{BoxError, CancellationToken, Clock, Context, Elector};
use log::Level;

use crate::stages::logs::Logs;

/// A leadership that returns the given answers to checks, and reports its drop.
struct ScriptedLeadership {
    answers: Vec<Result<(), &'static str>>,
    checks: Arc<AtomicUsize>,
    given_back: Sender<()>,
}

impl Leadership for ScriptedLeadership {
    fn check(&mut self) -> Result<(), BoxError> {
        self.checks.fetch_add(1, SeqCst);
        self.answers.remove(0).map_err(BoxError::from)
    }
}

impl Drop for ScriptedLeadership {
    fn drop(&mut self) {
        self.given_back.send(()).unwrap();
    }
}

/// An elector without rivals.
struct Unopposed;

impl Elector for Unopposed {
    fn candidate(&self) -> Box<Candidate> {
        Box::new(|_: &Context| Ok(ControlFlow::Break(Term::new("always", ()))))
    }
}

fn messages(logs: &Logs) -> Vec<(Level, String)> {
    logs.all().into_iter().map(|line| (line.level, line.message)).collect()
}

fn line(level: Level, message: &str) -> (Level, String) {
    (level, message.to_owned())
}

#[test]
fn a_term_is_lost_at_the_first_check_that_fails_and_is_not_checked_again() {
    let logs = Logs::of("failing-term");
    let (given_back, seen) = unbounded();
    let checks = Arc::new(AtomicUsize::new(0));
    let answers = vec![Ok(()), Err("the lease is gone")];
    let mut term = Term::new("failing-term", ScriptedLeadership { answers, checks: checks.clone(), given_back });
    let work = term.lost().child();
    let (callback, called) = unbounded();
    let _guard = work.on_cancel(move || callback.send(()).unwrap());

    assert!(term.check().is_ok() && !work.is_cancelled());
    let error = term.check().unwrap_err();
    assert!(work.is_cancelled() && called.try_recv().is_ok());
    assert_eq!(error.to_string(), "the leadership of failing-term is lost");
    assert_eq!(error.source().unwrap().to_string(), "the lease is gone");

    let error = term.check().unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "its token is cancelled");
    assert_eq!(checks.load(SeqCst), 2);
    assert!(seen.is_empty());
    drop(term);
    assert!(seen.try_recv().is_ok());
    // A lost term logs no resignation.
    assert_eq!(
        messages(&logs),
        [
            line(Level::Info, "failing-term: elected"),
            line(Level::Error, "failing-term: the leadership is lost: the lease is gone")
        ]
    );
    assert_eq!(logs.at(Level::Error)[0].field("error"), "the lease is gone");
}

/// An elector that notices the loss by itself cancels the token.
#[test]
fn a_term_whose_token_is_cancelled_is_lost_and_not_checked() {
    let logs = Logs::of("cancelled-term");
    let (given_back, seen) = unbounded();
    let checks = Arc::new(AtomicUsize::new(0));
    let mut term =
        Term::new("cancelled-term", ScriptedLeadership { answers: vec![], checks: checks.clone(), given_back });
    term.lost().clone().cancel();
    assert!(term.check().is_err());
    drop(term);
    assert_eq!((checks.load(SeqCst), seen.len()), (0, 1));
    assert_eq!(messages(&logs), [line(Level::Info, "cancelled-term: elected")]);
}

/// The work that observes the token is cancelled before another process can lead.
#[test]
fn a_term_that_is_dropped_cancels_its_token_and_then_gives_the_leadership_back() {
    let logs = Logs::of("resigns");
    let (given_back, seen) = unbounded();
    let term = Term::new("resigns", ScriptedLeadership { answers: vec![], checks: Arc::default(), given_back });
    let held_still = seen.clone();
    let (callback, called) = unbounded();
    let _guard = term.lost().on_cancel(move || callback.send(held_still.is_empty()).unwrap());
    drop(term);
    assert_eq!(called.try_recv(), Ok(true));
    assert!(seen.try_recv().is_ok());
    assert_eq!(messages(&logs), [line(Level::Info, "resigns: elected"), line(Level::Info, "resigns: resigning")]);
}

#[test]
fn a_panic_while_leading_resigns() {
    let (given_back, seen) = unbounded();
    let term = Term::new("unwinds", ScriptedLeadership { answers: vec![], checks: Arc::default(), given_back });
    let lost = term.lost().clone();
    let caught = catch_unwind(AssertUnwindSafe(move || {
        let _term = term;
        panic!("while leading");
    }));
    assert!(caught.is_err() && lost.is_cancelled() && seen.try_recv().is_ok());
}

#[test]
fn a_leader_without_rivals_leads_at_once_and_for_ever() {
    let stop = CancellationToken::new();
    let cx = Context::detached_with(Clock::system(), stop.clone());
    let mut terms = [Unopposed.campaign(&cx).unwrap(), Unopposed.campaign(&cx).unwrap()];
    for term in &mut terms {
        assert!(term.check().is_ok());
        assert_eq!(term.check_interval(), Duration::MAX);
    }
    stop.cancel();
    assert!(terms[0].check().is_ok());
    assert!(Unopposed.campaign(&cx).unwrap_err().is_cancelled());
}

#[test]
fn an_elector_can_be_an_object() {
    let elector: Box<dyn Elector> = Box::new(Unopposed);
    assert!(elector.campaign(&Context::detached()).is_ok());
}

#[test]
fn an_error_of_a_user_defined_elector_is_shown_unchanged() {
    let error = ElectorError::new(std::io::Error::other("no route"));
    assert_eq!(error.to_string(), "no route");
    assert!(!error.is_cancelled() && error.source().is_none());
}
