//! The file elector within one process. The lock belongs to the open file, so two electors here behave like two
//! processes.

use std::error::Error;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};
use std::{fs, io};

use homeostat::manager::{ElectorError, Term};
use homeostat::{CancellationToken, Clock, Context, Elector, ManualClock};
use homeostat_host::FileElector;
use homeostat_test_support::logs::Logs;
use log::Level;
use tempfile::TempDir;

use crate::SECOND;

/// Returns a folder, and the path of a lock file in it that does not exist yet.
fn lock_file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leader.lock");
    (folder, path)
}

fn elector(path: &PathBuf, name: &str) -> FileElector {
    FileElector::new(path).name(name)
}

fn elected(elector: &FileElector) -> Term {
    elector.campaign(&Context::detached()).unwrap()
}

/// Returns whether the lock is held.
fn is_led(elector: &FileElector) -> bool {
    elector.holder().unwrap().is_some()
}

/// A candidate on its own thread and a held clock. Its campaign is cancelled on drop.
struct Candidate {
    clock: ManualClock,
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<Result<Term, ElectorError>>>,
}

impl Candidate {
    #[expect(clippy::disallowed_methods, reason = "a thread of the test's own, which it joins")]
    fn start(elector: &FileElector) -> Self {
        let (clock, stop) = (ManualClock::new(), CancellationToken::new());
        let cx = Context::detached_with(clock.clock(), stop.clone());
        let elector = elector.clone();
        let thread = thread::spawn(move || elector.campaign(&cx));
        Self { clock, stop, thread: Some(thread) }
    }

    fn end(&mut self) -> Result<Term, ElectorError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[test]
fn a_second_candidate_waits_and_leads_when_the_first_one_resigns() {
    let (_folder, path) = lock_file();
    let logs = Logs::of("successor");
    let term = elected(&elector(&path, "first"));
    let mut second = Candidate::start(&elector(&path, "successor"));
    for _ in 0..3 {
        second.clock.wait_for_sleepers(1);
        second.clock.advance(SECOND);
    }
    second.clock.wait_for_sleepers(1);
    drop(term);
    // The candidate looks only at intervals.
    second.clock.advance(SECOND.saturating_sub(Duration::from_nanos(1)));
    assert_eq!(second.clock.sleepers(), 1);
    second.clock.advance(Duration::from_nanos(1));
    let mut term = second.end().unwrap();
    assert!(term.check().is_ok());
    drop(term);
    let lines: Vec<_> = logs.all().into_iter().map(|line| (line.level, line.message)).collect();
    let path = path.display().to_string();
    let campaigning = format!("campaigning for {path}");
    let name = logs.all()[0].field("elector").to_owned();
    let report = [campaigning.as_str(), "elected", "resigning"];
    assert_eq!(lines, report.map(|message| (Level::Info, format!("{name}: {message}"))));
    assert_eq!(logs.all()[0].field("path"), path);
}

#[test]
fn a_waiting_candidate_can_be_cancelled() {
    let (_folder, path) = lock_file();
    let mut term = elected(&elector(&path, "first"));
    let mut second = Candidate::start(&elector(&path, "second"));
    second.clock.wait_for_sleepers(1);
    second.stop.cancel();
    let error = second.end().unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(error.to_string(), "the campaign was cancelled");
    assert_eq!((second.clock.sleepers(), second.clock.next_alarm()), (0, None));
    assert!(term.check().is_ok());
}

#[test]
fn a_candidate_that_was_cancelled_before_does_not_lead_and_makes_no_file() {
    let (_folder, path) = lock_file();
    let stop = CancellationToken::new();
    stop.cancel();
    let cx = Context::detached_with(Clock::system(), stop);
    assert!(elector(&path, "late").campaign(&cx).unwrap_err().is_cancelled());
    assert!(!path.exists());
}

#[test]
fn one_elector_has_one_term_at_a_time() {
    let (_folder, path) = lock_file();
    let elector = elector(&path, "twice");
    let term = elected(&elector);
    let mut again = Candidate::start(&elector);
    again.clock.wait_for_sleepers(1);
    drop(term);
    again.clock.advance(SECOND);
    assert!(again.end().is_ok());
}

#[test]
fn a_panic_while_leading_gives_the_lock_back() {
    let (_folder, path) = lock_file();
    let elector = elector(&path, "panics");
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _term = elected(&elector);
        panic!("while leading");
    }));
    assert!(caught.is_err());
    drop(elected(&elector));
}

#[cfg(unix)]
#[test]
fn a_leader_notices_that_its_file_was_deleted_replaced_or_moved() {
    type Way = fn(&PathBuf);
    let ways: [(&'static str, Way); 4] = [
        ("deleted", |path| fs::remove_file(path).unwrap()),
        ("moved", |path| fs::rename(path, path.with_extension("old")).unwrap()),
        ("replaced", |path| {
            let new = path.with_extension("new");
            fs::write(&new, "").unwrap();
            fs::rename(new, path).unwrap();
        }),
        ("unreachable", |path| {
            let folder = path.parent().unwrap();
            fs::rename(folder, folder.with_extension("old")).unwrap();
            fs::write(folder, "").unwrap();
        }),
    ];
    for (name, way) in ways {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/leader.lock");
        fs::create_dir(path.parent().unwrap()).unwrap();
        let logs = Logs::of(name);
        let mut term = elected(&elector(&path, name));
        let work = term.lost().child();
        assert!(term.check().is_ok());
        way(&path);
        // The loss is unknown before the check.
        assert!(!work.is_cancelled());
        let error = term.check().unwrap_err();
        assert!(work.is_cancelled() && error.source().is_some());
        let report = logs.at(Level::Error);
        assert_eq!(report.len(), 1);
        if name != "unreachable" {
            assert_eq!(report[0].field("error"), format!("{} was deleted or replaced", path.display()));
            // The lock of the old file blocks no other elector.
            drop(elected(&elector(&path, "next")));
        }
        drop(term);
        assert_eq!(logs.at(Level::Info).len(), 2, "it does not resign a lost leadership");
    }
}

/// The old leader resigns after the election of the new one, on the new file, which stays unchanged.
#[cfg(unix)]
#[test]
fn an_old_leader_leaves_the_file_of_the_next_one_unchanged() {
    let (_folder, path) = lock_file();
    let old = elected(&elector(&path, "old"));
    fs::remove_file(&path).unwrap();
    let next_elector = elector(&path, "next");
    let mut next = elected(&next_elector);
    drop(old);
    assert!(next.check().is_ok());
    assert_eq!(next_elector.holder().unwrap().unwrap().name.as_deref(), Some("next"));
}

#[test]
fn the_file_names_the_leader_and_is_never_deleted() {
    let (_folder, path) = lock_file();
    let elector = elector(&path, "appliance a");
    assert_eq!(elector.holder().unwrap(), None);
    assert!(!path.exists());
    let clock = ManualClock::new();
    clock.advance(90 * SECOND);
    let term = elector.campaign(&Context::detached_with(clock.clock(), CancellationToken::new())).unwrap();
    let pid = std::process::id();
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let text = format!("homeostat leader\nname: appliance a\npid: {pid}\nsince: 90\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let holder = elector.holder().unwrap().unwrap();
        assert_eq!((holder.name.as_deref(), holder.pid), (Some("appliance a"), Some(pid)));
        assert_eq!(holder.since, Some(UNIX_EPOCH + 90 * SECOND));
        assert_eq!(holder.to_string(), format!("appliance a (pid {pid})"));
    }
    drop(term);
    assert!(path.exists());
    assert_eq!(elector.holder().unwrap(), None);
}

/// A killed leader leaves such a file.
#[test]
fn the_entry_of_a_dead_leader_names_no_holder_and_is_replaced() {
    let (_folder, path) = lock_file();
    let long = "x".repeat(300);
    fs::write(&path, format!("homeostat leader\nname: {long}\npid: 1\n")).unwrap();
    let elector = elector(&path, "next");
    assert_eq!(elector.holder().unwrap(), None);
    drop(elected(&elector));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("homeostat leader\nname: next\n") && text.lines().count() == 4, "{text}");
}

#[test]
fn a_file_with_foreign_content_is_locked_and_left_unchanged() {
    for content in ["root:x:0:0\n".to_owned(), "\0".repeat(5000)] {
        let (_folder, path) = lock_file();
        fs::write(&path, &content).unwrap();
        let elector = elector(&path, "careful");
        let term = elected(&elector);
        #[cfg(unix)]
        assert_eq!(elector.holder().unwrap().unwrap().to_string(), "somebody unknown");
        drop(term);
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
        assert!(!is_led(&elector));
    }
}

#[cfg(unix)]
#[test]
fn a_link_locks_the_file_that_it_leads_to() {
    let (folder, path) = lock_file();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut term = elected(&elector(&link, "by link"));
    assert!(term.check().is_ok() && is_led(&elector(&path, "by name")));
}

#[test]
fn errors_name_the_path_and_have_the_cause_as_source() {
    let (folder, path) = lock_file();
    fs::write(&path, "").unwrap();
    for path in [folder.path().join("missing/lock"), folder.path().to_owned(), path.join("lock"), PathBuf::new()] {
        let error = elector(&path, "none").campaign(&Context::detached()).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot lock {}", path.display()));
        let cause = error.source().unwrap();
        assert!(cause.is::<io::Error>() && !error.is_cancelled());
        assert_eq!(format!("{error:?}"), format!("{error}\nCaused by: {cause}"));
    }
    // Without a file there is no leader.
    assert!(!is_led(&FileElector::new(folder.path().join("missing/lock"))));
}

/// The path is a pipe here; a full disk fails the same way.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_written_does_not_prevent_an_election() {
    let (_folder, path) = lock_file();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let logs = Logs::of("unwritten");
    let mut term = elected(&elector(&path, "unwritten"));
    assert!(term.check().is_ok());
    let report = logs.at(Level::Warn);
    assert_eq!(report.len(), 1);
    assert!(
        report[0].message.starts_with(&format!("unwritten: cannot write the leader's name to {}: ", path.display())),
        "{report:?}"
    );
}

/// As a process that runs out of file descriptors for a while.
#[cfg(unix)]
#[test]
fn a_candidate_survives_errors_after_its_first_try() {
    let folder = tempfile::tempdir().unwrap();
    let (place, aside) = (folder.path().join("run"), folder.path().join("aside"));
    fs::create_dir(&place).unwrap();
    let path = place.join("leader.lock");
    let logs = Logs::of("standby");
    let term = elected(&elector(&path, "first"));
    let (standby, clock) = (elector(&path, "standby"), ManualClock::new());
    let cx = Context::detached_with(clock.clock(), CancellationToken::new());
    let mut candidate = standby.candidate();
    let mut tries = |count: usize| -> Vec<_> { (0..count).map(|_| candidate(&cx)).collect() };
    let waits =
        |tried: &Result<ControlFlow<Term, Duration>, ElectorError>| matches!(tried, Ok(ControlFlow::Continue(SECOND)));
    assert!(tries(1).iter().all(waits));
    fs::rename(&place, &aside).unwrap();
    assert!(tries(5).iter().all(waits));
    fs::rename(&aside, &place).unwrap();
    assert!(tries(1).iter().all(waits));
    fs::rename(&place, &aside).unwrap();
    assert!(tries(1).iter().all(waits));
    fs::rename(&aside, &place).unwrap();
    drop(term);
    assert!(matches!(tries(1)[..], [Ok(ControlFlow::Break(_))]));
    let name = logs.all()[0].field("elector").to_owned();
    let warnings: Vec<_> = logs.all().into_iter().filter(|line| line.level == Level::Warn).collect();
    let counts: Vec<_> = warnings.iter().map(|line| line.field("count").to_owned()).collect();
    assert_eq!(counts, ["1", "2", "4", "1"]);
    let says =
        format!("{name}: cannot try to lead (errors in a row: 2), and tries again: cannot lock {}: ", path.display());
    assert!(warnings[1].message.starts_with(&says), "{}", warnings[1].message);
}

/// The path of a candidate that has never worked is probably wrong.
#[test]
fn an_error_at_the_first_try_ends_the_candidacy() {
    let folder = tempfile::tempdir().unwrap();
    let mut candidate = FileElector::new(folder.path().join("missing/leader.lock")).candidate();
    for _ in 0..2 {
        assert!(!candidate(&Context::detached()).unwrap_err().is_cancelled());
    }
}
