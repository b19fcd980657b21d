//! Leader election among processes of one machine: whoever holds the lock of a file leads.

#[cfg(all(test, not(loom)))]
mod tests;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::ElectorError;
use super::holder::{Holder, is_ours, text};
use super::{Elector, Leadership, Term};
use crate::run::context::Context;
use crate::run::error::BoxError;

/// Elects among the processes of one machine, by the lock of a file: `flock` on Unix, `LockFileEx` on Windows.
///
/// The lock goes with the process: however the leader ends, by a crash or `kill -9` too, the system gives the lock back,
/// and another candidate has it after at most its [interval](Self::interval). A leader that hangs or is halted goes on to lead:
/// no time runs out. Which of several candidates comes next is left to chance.
///
/// The file is made if it is not there, for its owner alone (mode 0600), and **never deleted**: two processes might else hold
/// locks of two files of one name. If somebody else deletes or replaces it, the leader finds that at its next
/// [check](Term::check), and its term is [lost](Term::lost); until then there may be two. An election looks as well, after it has
/// the lock. (On systems other than Unix the standard library cannot tell two files apart: there only a file that is missing is
/// noticed.) So the file belongs into a directory that only the program's user may write, such as one under `/run`; its directory
/// is not made.
///
/// While somebody leads, the file says who, see [`holder`](Self::holder); afterwards, who was the last. That is for people; only
/// the lock decides. A disk that is full, or a file that had another content before (which is left as it is), does not keep anyone
/// from leading.
///
/// Waiting and leading cost a look at the file each interval, so a process with this elector does wake up while it is idle.
///
/// # Limits
///
/// - **Not for network file systems**: with NFS and the like it depends on server, version and mount options whether locks hold
///   between machines, or at all, and they may be lost without notice.
/// - The lock belongs to the open file, not to the process. A program that is started is not given it (the file is closed on
///   `exec`); a process that is forked off without an `exec` shares it, and keeps others from leading as long as it lives
///   if the leader crashes. A leader that resigns gives the lock back in any case.
/// - What a leader has started, such as child processes, may still be at work after it was killed, when the next one leads.
/// - Containers share it if they share the file, not the path.
///
/// # Examples
///
/// ```
/// use homeostat::{CancellationToken, Clock, Context, Elector, FileElector};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("leader.lock");
///
/// let elector = FileElector::new(path).name("appliance-a");
/// let stop = CancellationToken::new();
/// let term = elector.campaign(&Context::detached_with(Clock::system(), stop.clone()))?; // blocks until elected
/// # #[cfg(unix)]
/// assert_eq!(elector.holder()?.unwrap().name(), Some("appliance-a"));
///
/// // Another one waits, here until it is told to stop, else until this term ends.
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
    /// Elects by the lock of the file at `path`. A relative path is taken from the directory that is the current one now.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self {
            // The process may change its directory, as daemons do, and must not lose its leadership by that. It
            // fails if the path is empty, or there is no current directory: then opening it fails too.
            path: std::path::absolute(&path).unwrap_or(path),
            name: "elector".to_owned(),
            interval: Duration::from_secs(1),
        }
    }

    /// The name in log lines, and in the file while this process leads: of this process or this installation. One line: spaces
    /// stand in for control characters. Default `elector`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into().replace(char::is_control, " ");
        self
    }

    /// The time from one look at the file to the next: a candidate's, whether it can lead, and the leader's
    /// [check](Term::check), whether it still does. At least 1 ms; default 1 s.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Who leads, as far as the lock file tells; `None` if nobody does.
    ///
    /// For status pages, not for decisions: it may no longer be so when this returns, and of a leader that was elected this
    /// moment the file may tell nothing yet, or still its predecessor. While nobody leads, asking takes a shared lock for a
    /// moment; a candidate that comes just then tries again an interval later.
    ///
    /// # Errors
    ///
    /// If the file cannot be read. On Windows that is so while another process leads: nobody else may read a locked file there.
    pub fn holder(&self) -> io::Result<Option<Holder>> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(Holder::parse(&beginning(&file)?))),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock; `None` if somebody else has it. `locked` is called between locking the file and looking whether it is
    /// still the one at the path.
    fn lock(&self, locked: impl FnOnce()) -> io::Result<Option<Lock>> {
        let file = open(&self.path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let lock = Lock { file, path: self.path.clone(), interval: self.interval };
        locked();
        // Others lock the file that is there now. This one may have been deleted or replaced since it was opened.
        Ok(lock.is_at_its_path()?.then_some(lock))
    }
}

impl Elector for FileElector {
    fn campaign(&self, cx: &Context) -> Result<Term, ElectorError> {
        let (elector, path) = (self.name.as_str(), self.path.display());
        log::info!(elector, path:%; "{elector}: campaigning for {path}");
        loop {
            cx.check()?;
            if let Some(lock) = self.lock(|| {}).map_err(|error| ElectorError::lock(&self.path, error))? {
                let text = text(elector, std::process::id(), cx.clock().time_of_day());
                if let Err(error) = write_to(&lock.file, &text) {
                    log::warn!(elector, path:%, error:%; "{elector}: cannot write to {path} who leads: {error}");
                }
                return Ok(Term::new(elector, lock));
            }
            cx.sleep(self.interval)?;
        }
    }
}

/// The lock of a file that was at `path` when it was locked.
#[derive(Debug)]
struct Lock {
    file: File,
    path: PathBuf,
    interval: Duration,
}

impl Lock {
    /// Whether the path still leads to the very file that is locked.
    #[cfg(unix)]
    fn is_at_its_path(&self) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;

        let there = match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            there => there?,
        };
        // An open file's number is not given to another one.
        let held = self.file.metadata()?;
        Ok((there.dev(), there.ino()) == (held.dev(), held.ino()))
    }

    /// Whether there is a file at the path: the standard library does not tell which.
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
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would do, but not while a forked process has it too.
        let _ = self.file.unlock();
    }
}

/// Opens a lock file, and makes it if it is not there. The standard library has it closed on `exec`.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The beginning of a file: more than what is ours is long, unless it has a very long name.
fn beginning(mut file: &File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.rewind()?;
    file.take(4096).read_to_end(&mut content)?;
    Ok(content)
}

/// Replaces the content of a lock file. One that is not ours is left as it is.
fn write_to(mut file: &File, text: &str) -> io::Result<()> {
    if is_ours(&beginning(file)?) {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}
