//! The elector of one machine among processes that are killed. Each leader writes into one file what it does while it leads:
//! if two lead at once, their lines are mixed.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use homeostat::{Context, Elector, FileElector};
use tempfile::TempDir;

use crate::support::MS;

/// What comes has come long before this, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Set in the processes that a test starts: the folder with the lock and the record.
const FOLDER: &str = "HOMEOSTAT_TEST_ELECTOR";

/// How many lines of work a term has, so that it ends by itself.
const LINES: u32 = 10;

#[test]
fn a_leader_that_is_killed_is_followed_by_the_other_one_and_never_do_two_lead() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return candidate(Path::new(&folder), None);
    }
    let mut house = House::new("a_leader_that_is_killed_is_followed_by_the_other_one_and_never_do_two_lead");
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
    let mut house = House::new("among_leaders_that_resign_and_processes_that_are_killed_never_do_two_lead");
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
    let mut record = OpenOptions::new().append(true).create(true).open(folder.join("record")).unwrap();
    let pid = std::process::id();
    for number in 0_u32.. {
        let mut term = elector.campaign(&cx).unwrap();
        // One write a line, so they are in the order in which they were written. All are of one length that pages are a multiple
        // of: the system writes page by page, and stops between two if the process is killed.
        let mut say = |what: &str| {
            let line = format!("{:<31}\n", format!("{pid} {number} {what}"));
            assert_eq!(line.len(), 32);
            record.write_all(line.as_bytes()).unwrap();
        };
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

fn elector(folder: &Path) -> FileElector {
    FileElector::new(lock_file(folder)).interval(MS)
}

fn lock_file(folder: &Path) -> PathBuf {
    folder.join("leader.lock")
}

/// Ends this process when the test that has started it closes the pipe, or is gone.
#[expect(clippy::disallowed_methods, reason = "a thread of the test's own, which ends with its process")]
fn end_with_the_test() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

/// The processes of one test. Dropped, it leaves none behind, whatever has happened: it kills its own, and the children of
/// those end when the pipes are closed from which they read.
struct House {
    test: &'static str,
    children: Vec<(Child, ChildStdin)>,
    /// From which the children of those read that were killed.
    orphans: Vec<ChildStdin>,
    folder: TempDir,
}

impl House {
    fn new(test: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("record"), "").unwrap();
        Self { test, children: Vec::new(), orphans: Vec::new(), folder }
    }

    fn start(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("elector_processes::{}", self.test), "--nocapture"]);
        command.env(FOLDER, self.folder.path()).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let pipe = child.stdin.take().unwrap();
        self.children.push((child, pipe));
    }

    /// From the oldest to the youngest.
    fn pids(&self) -> Vec<u32> {
        self.children.iter().map(|(child, _)| child.id()).collect()
    }

    /// Kills (`kill -9`) a process, and waits until it is dead.
    fn kill(&mut self, pid: u32) {
        let index = self.children.iter().position(|(child, _)| child.id() == pid).unwrap();
        let (mut child, pipe) = self.children.remove(index);
        self.orphans.push(pipe);
        assert_eq!(child.try_wait().unwrap(), None, "it lives until it is killed");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until the record fulfils a condition.
    #[expect(clippy::disallowed_methods, reason = "a wait for other processes, which know no held clock")]
    fn wait(&self, what: &str, condition: impl Fn(&[Line]) -> bool) -> Vec<Line> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines = self.record();
            if condition(&lines) {
                return lines;
            }
            assert!(Instant::now() < deadline, "waited for {what}");
            std::thread::sleep(MS);
        }
    }

    fn record(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.folder.path().join("record")).unwrap();
        text.split_inclusive('\n').map(Line::parse).collect()
    }

    /// Kills all, the youngest first, so that nobody follows the oldest, and returns what they have written.
    fn end(&mut self) -> Vec<Line> {
        for pid in self.pids().into_iter().rev() {
            self.kill(pid);
        }
        self.record()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Clone, Debug)]
struct Line {
    pid: u32,
    /// The process and the number of its term.
    term: String,
    what: String,
}

impl Line {
    fn parse(line: &str) -> Self {
        let mut parts = line.strip_suffix('\n').expect("whole lines").trim_end().splitn(3, ' ');
        let [pid, number, what] = [(); 3].map(|()| parts.next().unwrap().to_owned());
        Self { pid: pid.parse().unwrap(), term: format!("{pid} {number}"), what }
    }
}

#[derive(Debug)]
struct Seen {
    term: String,
    lines: u32,
    has_ended: bool,
}

/// Goes through what was written, and fails unless each term begins, works on and perhaps ends with no other one in between.
fn check(lines: &[Line]) -> Vec<Seen> {
    let mut terms: Vec<Seen> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let context = || format!("line {at}: {:?}", &lines[at.saturating_sub(5)..lines.len().min(at + 5)]);
        if line.what == "start" {
            assert!(terms.iter().all(|seen| seen.term != line.term), "a term starts twice, {}", context());
            terms.push(Seen { term: line.term.clone(), lines: 0, has_ended: false });
            continue;
        }
        let last = terms.last_mut().unwrap_or_else(|| panic!("no start, {}", context()));
        assert!(last.term == line.term && !last.has_ended, "two lead at once, {}", context());
        if line.what == "end" {
            last.has_ended = true;
        } else {
            assert_eq!(line.what, format!("work {}", last.lines), "{}", context());
            last.lines += 1;
        }
    }
    terms
}

/// The checker finds what it is there for.
#[test]
fn terms_that_overlap_are_found() {
    let lines = |text: &str| -> Vec<_> { text.split(';').map(|line| Line::parse(&format!("{line}\n"))).collect() };
    let fine = check(&lines("1 0 start;1 0 work 0;2 0 start;2 0 work 0;2 0 end;1 1 start"));
    assert_eq!(fine.iter().map(|seen| seen.has_ended).collect::<Vec<_>>(), [false, true, false]);
    for wrong in [
        "1 0 work 0",
        "1 0 start;2 0 start;1 0 work 0",
        "1 0 start;2 0 start;1 0 end",
        "1 0 start;1 0 end;1 0 work 0",
        "1 0 start;1 0 work 1",
        "1 0 start;2 0 start;1 0 start",
    ] {
        assert!(std::panic::catch_unwind(|| check(&lines(wrong))).is_err(), "{wrong}");
    }
}
