//! Copies of a leader's handles in a process that was forked without `exec`: they leave the lock of their parent alone.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use homeostat::manager::Term;
use homeostat::{BoxError, Component, Context, Elector, Manager};
use homeostat_host::FileElector;
use homeostat_test_support::forks::{ForkedProcess, ensure, in_a_fork};
use tempfile::TempDir;

use crate::SECOND;

fn elected(elector: &FileElector) -> Term {
    elector.campaign(&Context::detached()).unwrap()
}

/// Tries once to lead. The lock belongs to the open file, so this elector acts like another process.
fn another_leads(elector: &FileElector) -> Option<Term> {
    match elector.candidate()(&Context::detached()).unwrap() {
        ControlFlow::Break(term) => Some(term),
        ControlFlow::Continue(_) => None,
    }
}

fn elector() -> (TempDir, FileElector) {
    let folder = tempfile::tempdir().unwrap();
    let elector = FileElector::new(folder.path().join("leader.lock"));
    (folder, elector)
}

#[test]
fn a_forked_process_that_drops_its_copy_releases_nothing() {
    let (_folder, elector) = elector();
    let mut term = Some(elected(&elector));
    in_a_fork(|| {
        drop(term.take());
        Ok(())
    });
    let mut term = term.unwrap();
    assert!(term.check().is_ok());
    assert!(another_leads(&elector).is_none(), "two leaders");
    drop(term);
    assert!(another_leads(&elector).is_some());
}

#[test]
fn a_forked_process_does_not_lead() {
    let (_folder, elector) = elector();
    let mut term = elected(&elector);
    let (fence, leader) = (term.fence().clone(), std::process::id());
    in_a_fork(|| {
        let error = term.check().err().ok_or("the copy of the term counts")?;
        let text = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        ensure(text.starts_with(&format!("process {leader} owns it, and process {}", std::process::id())), text)?;
        ensure(fence.check().is_err(), "the fence lets the copy write")
    });
    assert!(term.check().is_ok() && fence.check().is_ok());
}

#[test]
fn a_leader_that_resigns_releases_the_lock_while_a_fork_lives() {
    let (_folder, elector) = elector();
    let term = elected(&elector);
    let fork = ForkedProcess::start(|wait| {
        wait();
        Ok(())
    });
    drop(term);
    assert!(another_leads(&elector).is_some());
    fork.end();
}

/// As a daemon does that goes into the background too late.
#[test]
fn a_forked_process_can_lead_after_its_parent() {
    let (_folder, elector) = elector();
    let mut term = Some(elected(&elector));
    let fork = ForkedProcess::start(|wait| {
        drop(term.take());
        wait();
        ensure(another_leads(&elector).is_some(), "the copy still holds the lock")
    });
    drop(term);
    fork.end();
}

#[test]
fn a_forked_process_drops_a_running_manager_without_a_wait() {
    let (_folder, elector) = elector();
    let ran = Arc::new(AtomicBool::new(false));
    let manager = Manager::builder().elector(elector.clone()).build().unwrap();
    let (report, reported) = std::sync::mpsc::channel();
    let leads = Component::function("leads", {
        let ran = Arc::clone(&ran);
        move |cx: &Context| {
            report.send(()).unwrap();
            let _ = cx.sleep(std::time::Duration::MAX);
            ran.store(true, SeqCst);
            Ok::<_, BoxError>(())
        }
    })
    .when_leading();
    manager.add(leads).unwrap();
    let mut running = Some(manager.start().unwrap());
    reported.recv().unwrap();
    in_a_fork(|| {
        drop(running.take());
        ensure(another_leads(&elector).is_none(), "the parent still leads")
    });
    assert!(another_leads(&elector).is_none());
    running.unwrap().shutdown(60 * SECOND).unwrap();
    assert!(ran.load(SeqCst));
    assert!(another_leads(&elector).is_some());
}
