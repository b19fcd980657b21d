//! Leader election between processes on one machine: the owner of a file lock leads.
//!
//! # Invariants
//!
//! - A process leads only if the file that it has locked is still the file at the path. No process deletes the file.

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat::base::StartError;
use homeostat::manager::{Candidate, Elector, ElectorError, Holder, Leadership, Term};
use homeostat::rt::{Chain, OwnerProcess};
use homeostat::run::{BoxError, Context};

use crate::lock_text::{is_ours, parse, text};

/// Elects a leader among the processes of one machine with a file lock: `flock` on Unix, `LockFileEx` on Windows.
///
/// The system releases the lock when the process ends, even by a crash or `kill -9`. Another candidate then leads after
/// at most its [interval](Self::interval). The lock does not expire: a leader that hangs or is halted still leads. The
/// order of the candidates is random.
///
/// The file is created if it is missing, for its owner only (mode 0600), and is **never deleted**: otherwise two
/// processes might hold locks of different files with the same name. If another program deletes or replaces it, the
/// leader notices at its next [check](Term::check), and its term is [lost](Term::lost). Until then there may be two
/// leaders. A candidate makes the same check after it has locked the file. (On systems other than Unix, the standard
/// library cannot tell two files apart. There, only a missing file is noticed.) Put the file in a directory that only
/// the program's user can write, such as one under `/run`, and not in the temporary directory: many systems delete old
/// files there, also locked ones. The directory must exist.
///
/// An error at the first try ends the candidacy: the path is probably wrong. After that, an error is logged as a
/// warning (in a series the first, second, fourth and so on), and the candidate tries again after its interval. A
/// standby thus survives a process that runs out of file descriptors.
///
/// While a process leads, the file names it; see [`holder`](Self::holder). Afterwards the file names the last leader.
/// The text is for people: only the lock decides. A full disk does not prevent leadership. A file with foreign content
/// is left as it is, and does not prevent leadership either.
///
/// Waiting and leading access the file once per interval, so this elector wakes an idle process.
///
/// # Limits
///
/// - **Not for network file systems.** With NFS and similar systems, server, version and mount options decide whether
///   locks hold between machines, or at all. They may be lost without notice.
/// - The lock belongs to the open file, not to the process. A child process does not inherit it across `exec`, which
///   closes the file. A process that is forked without `exec` shares the open file, but does not lead: there,
///   [`Term::check`] fails, and dropping the copy of the term releases nothing. A leader that resigns releases the
///   lock, even if such a process has the file open. But if the leader crashes, no other process leads until that
///   process drops its copy or ends. A daemon that forks into the background must do so before it campaigns.
/// - Child processes of a killed leader may still work when the next process leads.
/// - Containers elect one leader if they share the file. An equal path is not enough.
///
/// # Examples
///
/// ```
/// use homeostat::{CancellationToken, Clock, Context, Elector};
/// use homeostat_host::FileElector;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("leader.lock");
///
/// let elector = FileElector::new(path).name("appliance-a");
/// let stop = CancellationToken::new();
/// let term = elector.campaign(&Context::detached_with(Clock::system(), stop.clone()))?; // blocks until elected
/// # #[cfg(unix)]
/// assert_eq!(elector.holder()?.unwrap().name.as_deref(), Some("appliance-a"));
///
/// // Another one waits, here until it is cancelled, or until this term ends.
/// std::thread::scope(|scope| {
///     let other = scope.spawn(|| elector.campaign(&Context::detached_with(Clock::system(), stop.clone())));
///     stop.cancel();
///     assert!(other.join().unwrap().unwrap_err().is_cancelled());
/// });
///
/// drop(term); // resigns
/// assert_eq!(elector.holder()?, None);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "lease")]
#[doc(alias = "leader election")]
pub struct FileElector {
    path: PathBuf,
    name: String,
    interval: Duration,
}

impl FileElector {
    /// Creates an elector on the file at `path`. A relative path refers to the directory that is current now.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self {
            // The process may change its directory later, as daemons do, and must not lose its leadership. This fails
            // if the path is empty or there is no current directory; opening the file then fails too.
            path: std::path::absolute(&path).unwrap_or(path),
            name: "elector".to_owned(),
            interval: Duration::from_secs(1),
        }
    }

    /// Sets the name of this process or installation, in log lines and in the lock file. Control characters become
    /// spaces. Default: `elector`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into().replace(char::is_control, " ");
        self
    }

    /// Sets the time between two tries of a candidate, or two [checks](Term::check) of the leader. At least 1 ms.
    /// Default: 1 s.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Returns the leader according to the lock file. `None` if no process leads.
    ///
    /// Use this for status pages, not for decisions. The answer may be outdated when it arrives. Right after an
    /// election, the file may still be empty or name the last leader. Without a leader, this call takes a shared lock
    /// for a moment: a candidate that tries at that moment tries again after its interval.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read. On Windows, other processes cannot read a locked file, so this
    /// fails while another process leads.
    pub fn holder(&self) -> io::Result<Option<Holder>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(parse(&beginning(&file)?))),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Tries to take the lock, and writes the name of the leader to the file.
    fn try_lead(&self, cx: &Context) -> Result<ControlFlow<Term, Duration>, ElectorError> {
        let (elector, path) = (self.name.as_str(), self.path.display());
        let cannot = |error| ElectorError::new(StartError::unavailable(format!("cannot lock {path}"), error));
        let Some(lock) = self.lock(|| {}).map_err(cannot)? else {
            return Ok(ControlFlow::Continue(self.interval));
        };
        let text = text(elector, std::process::id(), cx.clock().time_of_day());
        if let Err(error) = write_to(&lock.file, &text) {
            log::warn!(elector, path:%, error:%; "{elector}: cannot write the leader's name to {path}: {error}");
        }
        Ok(ControlFlow::Break(Term::new(elector, lock)))
    }

    /// Takes the lock, or returns `None` if another process has it. Calls `locked` after locking the file and before
    /// checking that it is still the file at the path.
    fn lock(&self, locked: impl FnOnce()) -> io::Result<Option<Lock>> {
        let file = open(&self.path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let (path, interval, owner) = (self.path.clone(), self.interval, OwnerProcess::current());
        let lock = Lock { file, path, interval, owner };
        locked();
        // Others lock the file that is at the path now. This file may have been deleted or replaced since it was
        // opened.
        Ok(lock.is_at_its_path()?.then_some(lock))
    }
}

impl Elector for FileElector {
    fn candidate(&self) -> Box<Candidate> {
        let file = self.clone();
        let (elector, path) = (self.name.as_str(), self.path.display());
        log::info!(elector, path:%; "{elector}: campaigning for {path}");
        // The errors in a row. `None` until a try has worked.
        let mut errors: Option<u32> = None;
        Box::new(move |cx: &Context| {
            let error = match file.try_lead(cx) {
                Err(error) if errors.is_some() => error,
                tried => {
                    errors = tried.is_ok().then_some(0);
                    return tried;
                }
            };
            let (elector, shown) = (file.name.as_str(), Chain(&error));
            let count = errors.unwrap_or_default().saturating_add(1);
            errors = Some(count);
            let level = if count.is_power_of_two() { log::Level::Warn } else { log::Level::Debug };
            log::log!(
                level, elector, count, error:% = shown;
                "{elector}: cannot try to lead (errors in a row: {count}), and tries again: {shown}"
            );
            Ok(ControlFlow::Continue(file.interval))
        })
    }

    fn leader(&self) -> Option<Holder> {
        self.holder().ok().flatten()
    }
}

/// The lock of a file that was at `path` when it was locked.
#[derive(Debug)]
struct Lock {
    file: File,
    path: PathBuf,
    interval: Duration,
    owner: OwnerProcess,
}

impl Lock {
    /// Returns whether the locked file is still the file at the path.
    #[cfg(unix)]
    fn is_at_its_path(&self) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;

        let there = match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            there => there?,
        };
        // The inode number of an open file is not reused.
        let held = self.file.metadata()?;
        Ok((there.dev(), there.ino()) == (held.dev(), held.ino()))
    }

    /// Returns whether a file is at the path. The standard library cannot tell which one.
    #[cfg(not(unix))]
    fn is_at_its_path(&self) -> io::Result<bool> {
        self.path.try_exists()
    }
}

impl Leadership for Lock {
    fn check(&mut self) -> Result<(), BoxError> {
        if self.is_at_its_path()? {
            Ok(())
        } else {
            Err(format!("{} was deleted or replaced", self.path.display()).into())
        }
    }

    fn check_interval(&self) -> Duration {
        self.interval
    }

    /// Closes the file. The parent has it open too, so the lock stays.
    fn drop_copy(self: Box<Self>) {}
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would release the lock, but not if a forked process also has the file open. In such a
        // process, unlocking would release the lock of its parent.
        if self.owner.is_current() {
            let _ = self.file.unlock();
        }
    }
}

/// Opens a lock file, and creates it if it is missing. The standard library closes it on `exec`.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Reads the beginning of a file. Our text is shorter, unless the name is very long.
fn beginning(mut file: &File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.rewind()?;
    file.take(4096).read_to_end(&mut content)?;
    Ok(content)
}

/// Replaces the content of a lock file. Leaves a file of another program as it is.
fn write_to(mut file: &File, text: &str) -> io::Result<()> {
    if is_ours(&beginning(file)?) {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}
