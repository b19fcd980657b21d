//! Processes that a test starts and kills, a record of the leaders' work, and a checker. If two lead at once, their
//! lines are mixed.

mod electors;
mod managers;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use homeostat_host::FileElector;
use homeostat_test_support::until::until;
use tempfile::TempDir;

use crate::MS;

/// The environment variable with the folder of the lock and the record. Set in the processes that a test starts.
pub(super) const FOLDER: &str = "HOMEOSTAT_TEST_ELECTOR";

pub(super) fn elector(folder: &Path) -> FileElector {
    FileElector::new(lock_file(folder)).interval(MS)
}

pub(super) fn lock_file(folder: &Path) -> PathBuf {
    folder.join("leader.lock")
}

/// Writes the record.
pub(super) struct Recorder(File);

impl Recorder {
    pub(super) fn open(folder: &Path) -> Self {
        Self(OpenOptions::new().append(true).create(true).open(folder.join("record")).unwrap())
    }

    /// Writes one line. Each line is one write, so the lines are in order. All have the same length, a divisor of the
    /// page size: the system writes page by page, and may stop between pages if the process is killed.
    pub(super) fn say(&mut self, term: u32, what: &str) {
        let line = format!("{:<31}\n", format!("{} {term} {what}", std::process::id()));
        assert_eq!(line.len(), 32);
        self.0.write_all(line.as_bytes()).unwrap();
    }
}

/// Ends this process when the test closes the pipe or ends.
#[expect(clippy::disallowed_methods, reason = "a thread of the test's own, which ends with its process")]
pub(super) fn end_with_the_test() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

/// The processes of one test. On drop, it kills them and closes the pipes of their children, which then end.
pub(super) struct ChildProcesses {
    /// The full name of the test.
    test: &'static str,
    children: Vec<(Child, ChildStdin)>,
    /// The pipes from which the children of killed processes read.
    pub(super) orphans: Vec<ChildStdin>,
    pub(super) folder: TempDir,
}

impl ChildProcesses {
    pub(super) fn new(test: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("record"), "").unwrap();
        Self { test, children: Vec::new(), orphans: Vec::new(), folder }
    }

    pub(super) fn start(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", self.test, "--nocapture"]);
        command.env(FOLDER, self.folder.path()).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let pipe = child.stdin.take().unwrap();
        self.children.push((child, pipe));
    }

    /// Returns the process ids, the oldest first.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.children.iter().map(|(child, _)| child.id()).collect()
    }

    /// Kills a process (`kill -9`), and waits for its end.
    pub(super) fn kill(&mut self, pid: u32) {
        let index = self.children.iter().position(|(child, _)| child.id() == pid).unwrap();
        let (mut child, pipe) = self.children.remove(index);
        self.orphans.push(pipe);
        assert_eq!(child.try_wait().unwrap(), None, "it lives until it is killed");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until a condition holds for the record.
    pub(super) fn wait(&self, what: &str, condition: impl Fn(&[Line]) -> bool) -> Vec<Line> {
        until(what, || Some(self.record()).filter(|lines| condition(lines)))
    }

    fn record(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.folder.path().join("record")).unwrap();
        text.split_inclusive('\n').map(Line::parse).collect()
    }

    /// Kills all processes, the youngest first so that none takes over, and returns the record.
    pub(super) fn end(&mut self) -> Vec<Line> {
        for pid in self.pids().into_iter().rev() {
            self.kill(pid);
        }
        self.record()
    }
}

impl Drop for ChildProcesses {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) pid: u32,
    /// The process and the number of its term.
    pub(super) term: String,
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
pub(super) struct Seen {
    term: String,
    pub(super) lines: u32,
    pub(super) has_ended: bool,
}

/// Fails unless the lines of each term are together: begin, work, and perhaps end.
pub(super) fn check(lines: &[Line]) -> Vec<Seen> {
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

/// The checker finds mixed terms.
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
