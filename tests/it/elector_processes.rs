//! The elector of one machine among processes that are killed. Each leader writes into one file what it does while it leads:
//! if two lead at once, their lines are mixed.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use homeostat::{Clock, Context, Elector, FileElector};
use rustix::process::Pid;
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
    let elector = house.elector();
    house.start();
    house.wait("a first leader", |lines| !lines.is_empty());
    house.start();
    let lock_file = house.folder.path().join("leader.lock");
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
        let child = lines.iter().rev().find_map(|line| line.what.strip_prefix("child ")).unwrap();
        let other = house.pids()[0];
        let lines = house.wait("another leader", |lines| lines.last().is_some_and(|line| line.pid != leader));
        assert_eq!(lines.last().unwrap().pid, other);
        assert!(lives(child), "what the leader had started lives on, and has no lock");
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
    let cx = Context::detached_with(Clock::system(), homeostat::CancellationToken::new());
    let mut record = OpenOptions::new().append(true).create(true).open(folder.join("record")).unwrap();
    let pid = std::process::id();
    for number in 0_u32.. {
        let mut term = elector.campaign(&cx).unwrap();
        // One write a line: they are whole, and in the order in which they were written.
        let mut say = |what: &str| record.write_all(format!("{pid} {number} {what}\n").as_bytes()).unwrap();
        say("start");
        if lines.is_none() {
            let child = Command::new("cat").stdin(Stdio::inherit()).stdout(Stdio::null()).spawn().unwrap();
            say(&format!("child {}", child.id()));
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
    FileElector::new(folder.join("leader.lock")).interval(MS)
}

fn lives(pid: &str) -> bool {
    rustix::process::test_kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap()).is_ok()
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
    children: Vec<Child>,
    pipes: Vec<ChildStdin>,
    folder: TempDir,
}

impl House {
    fn new(test: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("record")).unwrap();
        Self { test, children: Vec::new(), pipes: Vec::new(), folder }
    }

    fn elector(&self) -> FileElector {
        elector(self.folder.path())
    }

    fn start(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("elector_processes::{}", self.test), "--nocapture"]);
        command.env(FOLDER, self.folder.path()).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        self.pipes.extend(child.stdin.take());
        self.children.push(child);
    }

    /// From the oldest to the youngest.
    fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// Kills (`kill -9`) a process, and waits until it is dead.
    fn kill(&mut self, pid: u32) {
        let index = self.children.iter().position(|child| child.id() == pid).unwrap();
        let mut child = self.children.remove(index);
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

    /// Kills all, and returns what they have written.
    fn end(&mut self) -> Vec<Line> {
        for pid in self.pids() {
            self.kill(pid);
        }
        self.record()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        for child in &mut self.children {
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
        let mut parts = line.strip_suffix('\n').expect("whole lines").splitn(3, ' ');
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
        match line.what.split_once(' ') {
            Some(("work", number)) => {
                assert_eq!(number, last.lines.to_string(), "{}", context());
                last.lines += 1;
            }
            Some(("child", _)) => {}
            _ => last.has_ended = true,
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
