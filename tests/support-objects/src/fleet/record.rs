//! The record of a worker: a line at the start of each run, after each write, and at the end.
//!
//! All times are nanoseconds of one clock of the machine, which all processes read. A time is taken *before* a fence is
//! asked: if the fence answers that the term lasts, it lasted at that time.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat::run::Fence;
use homeostat_objects::ClientError;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// The start of the lines. Standard output also has the lines of the test's own runner.
const MARK: &str = "fleet ";

/// Returns the time since the start of the machine, in nanoseconds. It is the same in all processes.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// Writes the record of this process to standard output. Each line is one call of the system: a kill leaves at most one
/// part of a line.
pub(super) struct Recorder {
    output: Mutex<File>,
    runs: AtomicU64,
}

impl Recorder {
    pub(super) fn new() -> Self {
        let output = File::from(std::io::stdout().as_fd().try_clone_to_owned().unwrap());
        let recorder = Self { output: Mutex::new(output), runs: AtomicU64::new(0) };
        // Ends a line that the test's own runner has begun.
        recorder.output.lock().write_all(b"\n").unwrap();
        recorder
    }

    fn say(&self, line: &str) {
        self.output.lock().write_all(format!("{MARK}{line}\n").as_bytes()).unwrap();
    }

    /// Records a violation.
    pub(super) fn fault(&self, text: &str) {
        self.say(&format!("fault {}", text.replace('\n', " ")));
    }

    /// Records that a run of a key begins. Its end is recorded on drop.
    pub(super) fn begin(&self, key: &str, fence: &Fence) -> RunLines<'_> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let begin = now();
        let number = fence.number().unwrap_or_default();
        let remaining = fence.check().ok().and_then(|()| fence.remaining()).map_or(0, |left| left.as_nanos());
        let until = if remaining == 0 { 0 } else { begin + u64::try_from(remaining).unwrap() };
        self.say(&format!("begin {run} {key} {number} {begin} {until}"));
        RunLines { recorder: self, run, fence: fence.clone() }
    }
}

/// The lines of one run.
pub(super) struct RunLines<'a> {
    recorder: &'a Recorder,
    run: u64,
    fence: Fence,
}

impl RunLines<'_> {
    /// Makes a write, and records it.
    pub(super) fn write<T>(&self, write: impl FnOnce() -> Result<T, ClientError>) -> Result<T, ClientError> {
        let sent = now();
        let result = write();
        let done = now();
        let outcome = match &result {
            Ok(_) => "ok",
            Err(error) if error.is_conflict() || error.is_not_found() => "refused",
            Err(_) => "unknown",
        };
        self.recorder.say(&format!("write {} {sent} {done} {outcome}", self.run));
        result
    }
}

impl Drop for RunLines<'_> {
    fn drop(&mut self) {
        let at = now();
        let lasts = self.fence.check().is_ok();
        self.recorder.say(&format!("end {} {at} {lasts}", self.run));
    }
}

/// A run of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The number of the process. Each start has its own.
    pub process: usize,
    /// The key that runs.
    pub key: String,
    /// The fencing number.
    pub number: u64,
    /// The time of the beginning.
    pub begin: u64,
    /// The end of the term as it was known at the beginning: the term lasts at least until then. Zero if it had ended
    /// already.
    pub until: u64,
    /// The writes, in their order.
    pub writes: Vec<WriteRecord>,
    /// The end. `None` if the process was killed before.
    pub end: Option<RunEnd>,
}

impl RunRecord {
    /// Returns the time until which the run was active within its term for certain. Zero if it never was.
    pub(super) fn certain_until(&self) -> u64 {
        match &self.end {
            _ if self.until == 0 => 0,
            Some(end) if end.lasts => end.at,
            Some(end) => end.at.min(self.until),
            None => self.until,
        }
    }
}

/// The end of a run, and whether its term still lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The time of the end.
    pub at: u64,
    /// Whether the term still lasted.
    pub lasts: bool,
}

/// A write of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRecord {
    /// The time before the call.
    pub sent: u64,
    /// The time after the call.
    pub done: u64,
    /// The answer.
    pub outcome: WriteOutcome,
}

/// The answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The write was made.
    Made,
    /// The write was not made.
    Refused,
    /// The answer was an error that does not tell.
    Unknown,
}

/// Reads the record of a process. Returns its runs and its violations.
pub fn parse(process: usize, text: &str) -> (Vec<RunRecord>, Vec<String>) {
    let mut runs: Vec<RunRecord> = Vec::new();
    let mut faults = Vec::new();
    // A line without an end is a part of one.
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.strip_prefix(MARK));
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap_or_else(|_| panic!("line {line:?} of a record"));
        if words[0] == "fault" {
            faults.push(format!("worker {process}: {line}"));
            continue;
        }
        let at = usize::try_from(number(1)).unwrap();
        match words[0] {
            "begin" => {
                // Two threads may write their lines in the other order.
                if runs.len() <= at {
                    runs.resize(at + 1, RunRecord::missing(process));
                }
                let (key, writes) = (words[2].to_owned(), Vec::new());
                runs[at] = RunRecord {
                    process,
                    key,
                    number: number(3),
                    begin: number(4),
                    until: number(5),
                    writes,
                    end: None,
                };
            }
            "write" => {
                let outcome = match words[4] {
                    "ok" => WriteOutcome::Made,
                    "refused" => WriteOutcome::Refused,
                    _ => WriteOutcome::Unknown,
                };
                runs[at].writes.push(WriteRecord { sent: number(2), done: number(3), outcome });
            }
            "end" => runs[at].end = Some(RunEnd { at: number(2), lasts: words[3] == "true" }),
            _ => panic!("line {line:?} of a record"),
        }
    }
    runs.retain(|run| !run.key.is_empty());
    (runs, faults)
}

impl RunRecord {
    fn missing(process: usize) -> Self {
        Self { process, key: String::new(), number: 0, begin: 0, until: 0, writes: Vec::new(), end: None }
    }
}
