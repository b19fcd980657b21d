//! File electors in processes that are killed. Each leader records its work in one file: if two lead at once, their
//! lines are mixed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use homeostat::{Context, Elector};

use super::{ChildProcesses, FOLDER, Recorder, check, elector, end_with_the_test, lock_file};
use crate::MS;

/// The number of work lines after which a term ends.
const LINES: u32 = 10;

#[test]
fn a_leader_that_is_killed_is_followed_by_the_other_one_and_never_do_two_lead() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return candidate(Path::new(&folder), None);
    }
    let mut children = ChildProcesses::new(
        "processes::electors::a_leader_that_is_killed_is_followed_by_the_other_one_and_never_do_two_lead",
    );
    let elector = elector(children.folder.path());
    let lock_file = lock_file(children.folder.path());
    children.start();
    children.wait("a first leader", |lines| !lines.is_empty());
    children.start();
    let inode = fs::metadata(&lock_file).unwrap().ino();
    let kills = 25;
    for kill in 0..kills {
        // The kill comes early or later in the term.
        let lines = children.wait("the leader at work", |lines| {
            let term = lines.last().map(|line| line.term.clone());
            lines.iter().rev().take_while(|line| Some(&line.term) == term.as_ref()).count() > 1 + kill % 4 * 3
        });
        let leader = lines.last().unwrap().pid;
        assert_eq!(elector.holder().unwrap().unwrap().pid, Some(leader));
        children.kill(leader);
        let other = children.pids()[0];
        let lines = children.wait("another leader", |lines| lines.last().is_some_and(|line| line.pid != leader));
        assert_eq!(lines.last().unwrap().pid, other);
        let read = children.orphans.last_mut().unwrap().write_all(b"\n");
        assert!(read.is_ok(), "the leader's child lives on without the lock");
        children.start();
    }
    let terms = check(&children.end());
    assert_eq!(terms.len(), kills + 1);
    assert!(terms.iter().all(|term| !term.has_ended));
    assert_eq!(fs::metadata(lock_file).unwrap().ino(), inode, "the lock file is still the first one");
}

/// Leaders also resign, and killed processes may be leading, waiting, being elected or resigning.
#[test]
fn among_leaders_that_resign_and_processes_that_are_killed_never_do_two_lead() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return candidate(Path::new(&folder), Some(LINES));
    }
    let mut children = ChildProcesses::new(
        "processes::electors::among_leaders_that_resign_and_processes_that_are_killed_never_do_two_lead",
    );
    for _ in 0..3 {
        children.start();
    }
    for kill in 1..=20 {
        // The kill may hit any state.
        children.wait("more work", |lines| lines.len() > kill * 25);
        children.kill(children.pids()[0]);
        children.start();
    }
    let terms = check(&children.end());
    let ended = terms.iter().filter(|term| term.has_ended).count();
    assert!(ended >= 20 && terms.len() - ended <= 23, "{ended} of {} terms", terms.len());
}

/// Runs the body of a started process, until it is killed or the test ends. A term has `lines` lines of work. A
/// killed process leaves a child, which does not hold its lock.
#[expect(clippy::zombie_processes, reason = "the child is there to outlive this process")]
fn candidate(folder: &Path, lines: Option<u32>) {
    end_with_the_test();
    let elector = elector(folder);
    let cx = Context::detached();
    let mut record = Recorder::open(folder);
    for number in 0_u32.. {
        let mut term = elector.campaign(&cx).unwrap();
        let mut say = |what: &str| record.say(number, what);
        say("start");
        if lines.is_none() {
            Command::new("cat").stdout(Stdio::null()).spawn().unwrap();
        }
        for line in 0..lines.unwrap_or(u32::MAX) {
            term.check().unwrap();
            say(&format!("work {line}"));
            cx.sleep(MS / 4).unwrap();
        }
        say("end");
        drop(term);
        // Other processes get a chance to lead.
        cx.sleep(MS * 2).unwrap();
    }
}
