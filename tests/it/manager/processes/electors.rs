//! The elector of one machine among processes that are killed. Each leader writes into one file what it does while it leads:
//! if two lead at once, their lines are mixed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use homeostat::{Context, Elector};

use super::{FOLDER, House, Recorder, check, elector, end_with_the_test, lock_file};
use crate::support::MS;

/// How many lines of work a term has, so that it ends by itself.
const LINES: u32 = 10;

#[test]
fn a_leader_that_is_killed_is_followed_by_the_other_one_and_never_do_two_lead() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return candidate(Path::new(&folder), None);
    }
    let mut house = House::new(
        "manager::processes::electors::a_leader_that_is_killed_is_followed_by_the_other_one_and_never_do_two_lead",
    );
    let elector = elector(house.folder.path());
    let lock_file = lock_file(house.folder.path());
    house.start();
    house.wait("a first leader", |lines| !lines.is_empty());
    house.start();
    let inode = fs::metadata(&lock_file).unwrap().ino();
    let kills = 25;
    for kill in 0..kills {
        // At its very beginning, or somewhat later.
        let lines = house.wait("the leader at work", |lines| {
            let term = lines.last().map(|line| line.term.clone());
            lines.iter().rev().take_while(|line| Some(&line.term) == term.as_ref()).count() > 1 + kill % 4 * 3
        });
        let leader = lines.last().unwrap().pid;
        assert_eq!(elector.holder().unwrap().unwrap().pid(), Some(leader));
        house.kill(leader);
        let other = house.pids()[0];
        let lines = house.wait("another leader", |lines| lines.last().is_some_and(|line| line.pid != leader));
        assert_eq!(lines.last().unwrap().pid, other);
        let read = house.orphans.last_mut().unwrap().write_all(b"\n");
        assert!(read.is_ok(), "what the leader had started lives on, and has no lock");
        house.start();
    }
    let terms = check(&house.end());
    assert_eq!(terms.len(), kills + 1);
    assert!(terms.iter().all(|term| !term.has_ended));
    assert_eq!(fs::metadata(lock_file).unwrap().ino(), inode, "the lock file is still the first one");
}

/// Here the leaders resign as well, and those who are killed may be leading, waiting, being elected or resigning.
#[test]
fn among_leaders_that_resign_and_processes_that_are_killed_never_do_two_lead() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return candidate(Path::new(&folder), Some(LINES));
    }
    let mut house = House::new(
        "manager::processes::electors::among_leaders_that_resign_and_processes_that_are_killed_never_do_two_lead",
    );
    for _ in 0..3 {
        house.start();
    }
    for kill in 1..=20 {
        // Wherever it is just now.
        house.wait("more work", |lines| lines.len() > kill * 25);
        house.kill(house.pids()[0]);
        house.start();
    }
    let terms = check(&house.end());
    let ended = terms.iter().filter(|term| term.has_ended).count();
    assert!(ended >= 20 && terms.len() - ended <= 23, "{ended} of {} terms", terms.len());
}

/// What a process does that a test has started, until it is killed or the test is gone. A term goes on for `lines` lines of
/// work, or until the process is killed: then it has a child that outlives it, and that does not have its lock.
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
        // So that others have a chance.
        cx.sleep(MS * 2).unwrap();
    }
}
