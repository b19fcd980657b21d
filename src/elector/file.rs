//! Leader election among processes of one machine: whoever holds the lock of a file leads.

#[cfg(all(test, not(loom)))]
mod tests;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{ElectorError, REGULAR};
use super::holder::{Holder, is_ours, text};
use super::{Elector, Tenure, Term};
use crate::backoff::{Draws, unit};
use crate::clock::Clock;
use crate::error::StartError;
use crate::reconcile::context::Context;
use crate::reconcile::error::BoxError;

/// Elects among the processes of one machine, by the lock of a file: `flock` on Unix, `LockFileEx` on Windows.
///
/// The lock goes with the process: however the leader ends, by a crash or `kill -9` too, the system gives the lock back,
/// and another candidate has it after at most its [retry interval](FileElectorBuilder::retry_interval). A leader that hangs or is
/// halted goes on to lead: no time runs out. Which of several candidates comes next is left to chance.
///
/// The file is made if it is not there, for its owner alone (mode 0600), and **never deleted**: two processes might else hold
/// locks of two files of one name. If somebody else deletes or replaces it, the leader finds that at its next
/// [check](FileElectorBuilder::check_interval), and its term is [lost](Term::lost); until then there may be two. (On systems
/// other than Unix the standard library cannot tell two files apart: there only a file that is missing is noticed.) An election looks
/// as well, after it has the lock. So the file belongs into a directory that only the program's user may write, such as one under
/// `/run`; its directory is not made.
///
/// While somebody leads, the file says who: see [`holder`](Self::holder). That is for people; only the lock decides. A disk that is
/// full, or a file that had another content before (which is left as it is), does not keep anyone from leading.
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
/// let elector = FileElector::builder(path).name("appliance-a").build()?;
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
pub struct FileElector {
    path: PathBuf,
    name: String,
    retry_interval: Duration,
    check_interval: Duration,
    jitter: f64,
}

impl FileElector {
    /// Elects by the lock of the file at `path`, with default settings. A relative path is taken from the directory that is the
    /// current one now.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::builder(path).elector
    }

    /// Settings for an elector by the lock of the file at `path`, as for [`new`](Self::new).
    pub fn builder(path: impl Into<PathBuf>) -> FileElectorBuilder {
        let path = path.into();
        FileElectorBuilder {
            elector: Self {
                // The process may change its directory, as daemons do, and must not lose its leadership by that. It
                // fails if the path is empty, or there is no current directory: then opening it fails too.
                path: std::path::absolute(&path).unwrap_or(path),
                name: "elector".to_owned(),
                retry_interval: Duration::from_secs(1),
                check_interval: Duration::from_secs(1),
                jitter: 0.1,
            },
        }
    }

    /// The lock file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name that the [builder](FileElectorBuilder::name) gave.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who leads, as far as the lock file tells; `None` if nobody does. Returns at once.
    ///
    /// For status pages, not for decisions: it may no longer be so when this returns, and of a leader that was elected this
    /// moment the file may tell nothing yet, or still its predecessor. While nobody leads, asking takes a shared lock for a
    /// moment; a candidate that comes just then tries again an interval later.
    ///
    /// # Errors
    ///
    /// If the file cannot be read. On Windows that is so while another process leads: nobody else may read a locked file there.
    pub fn holder(&self) -> Result<Option<Holder>, ElectorError> {
        let failed = |doing| move |error| ElectorError::file(doing, &self.path, error);
        match fs::metadata(&self.path) {
            // Opening a pipe would wait for its writer.
            Ok(metadata) if !metadata.is_file() => return Err(failed(REGULAR)(not_regular(&metadata))),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed("open"))?,
        };
        match file.try_lock_shared() {
            Ok(()) => {
                file.unlock().map_err(failed("unlock"))?;
                Ok(None)
            }
            Err(TryLockError::WouldBlock) => Ok(Some(Holder::parse(&content(&file).map_err(failed("read"))?))),
            Err(TryLockError::Error(error)) => Err(failed("lock")(error)),
        }
    }

    /// The time until the next try.
    fn pause(&self, draws: &mut Draws) -> Duration {
        self.retry_interval.saturating_add(self.retry_interval.mul_f64(self.jitter * unit(draws.next())))
    }
}

impl Elector for FileElector {
    fn campaign(&self, cx: &Context) -> Result<Term, ElectorError> {
        let (elector, path) = (self.name.as_str(), self.path.display());
        log::info!(elector, path:%; "campaigning");
        let mut draws = Draws::random();
        loop {
            cx.check()?;
            if let Some(lock) = Lock::take(&self.path, || {})? {
                return Ok(Term::new(elector, lock.sign(self, cx.clock())));
            }
            cx.sleep(self.pause(&mut draws))?;
        }
    }
}

/// The settings of a [`FileElector`].
///
/// # Examples
///
/// ```
/// use homeostat::FileElector;
/// use std::time::Duration;
///
/// let error = FileElector::builder("leader.lock").retry_interval(Duration::ZERO).build().unwrap_err();
/// assert_eq!(error.to_string(), "retry_interval is 0ns, but must be longer than zero");
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct FileElectorBuilder {
    elector: FileElector,
}

impl FileElectorBuilder {
    /// The name in log lines, and in the file for as long as this process leads: of this process, this host or this
    /// installation. Default `elector`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.elector.name = name.into();
        self
    }

    /// How long a candidate waits from one try to the next. Default: 1 s.
    pub fn retry_interval(mut self, interval: Duration) -> Self {
        self.elector.retry_interval = interval;
        self
    }

    /// How long the leader waits from one [check](Term::check) to the next: for so long it may not know that its file was
    /// deleted or replaced. Default: 1 s.
    pub fn check_interval(mut self, interval: Duration) -> Self {
        self.elector.check_interval = interval;
        self
    }

    /// Makes each wait for the next try longer by a random time of up to `share` of the interval, so that candidates do not all
    /// try at once. From 0 to 1; default 0.1.
    pub fn jitter(mut self, share: f64) -> Self {
        self.elector.jitter = share;
        self
    }

    /// Makes the elector. Does not touch the file.
    ///
    /// # Errors
    ///
    /// If an interval is zero, the jitter is not between 0 and 1, or the name has more than one line.
    pub fn build(self) -> Result<FileElector, StartError> {
        let elector = self.elector;
        for (field, interval) in
            [("retry_interval", elector.retry_interval), ("check_interval", elector.check_interval)]
        {
            if interval.is_zero() {
                return Err(StartError::setting(field, &interval, "longer than zero"));
            }
        }
        if !(0.0..=1.0).contains(&elector.jitter) {
            return Err(StartError::setting("jitter", &elector.jitter, "between 0 and 1"));
        }
        if elector.name.contains(char::is_control) {
            return Err(StartError::setting("name", &elector.name, "one line of text"));
        }
        Ok(elector)
    }
}

/// The lock of the file that is at a path.
#[derive(Debug)]
struct Lock {
    file: File,
    path: PathBuf,
    check_interval: Duration,
    /// Whether the file says who leads.
    signed: bool,
}

impl Lock {
    /// How often a file that is replaced at the very moment is tried again at once.
    const TRIES: u32 = 8;

    /// Takes the lock; `None` if somebody else has it. `locked` is called between locking the file and looking whether it is
    /// still the one at the path.
    fn take(path: &Path, mut locked: impl FnMut()) -> Result<Option<Self>, ElectorError> {
        let failed = |doing| move |error| ElectorError::file(doing, path, error);
        for _ in 0..Self::TRIES {
            let file = open(path).map_err(failed("open"))?;
            let metadata = file.metadata().map_err(failed("look at"))?;
            if !metadata.is_file() {
                return Err(failed(REGULAR)(not_regular(&metadata)));
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
            }
            let lock = Self { file, path: path.to_owned(), check_interval: Duration::MAX, signed: false };
            locked();
            // Others lock the file that is there. This one was deleted or replaced since it was opened.
            if is_at(&lock.file, path).map_err(failed("look at"))? {
                return Ok(Some(lock));
            }
        }
        Ok(None)
    }

    /// Writes into the file who leads.
    fn sign(mut self, elector: &FileElector, clock: &Clock) -> Self {
        self.check_interval = elector.check_interval;
        let text = text(&elector.name, std::process::id(), clock.time_of_day());
        let (elector, path) = (elector.name.as_str(), self.path.display());
        match write_to(&self.file, &text) {
            Ok(signed) => self.signed = signed,
            Err(error) => log::warn!(elector, path:%, error:%; "the lock file does not say who leads"),
        }
        self
    }
}

impl Tenure for Lock {
    fn check(&mut self) -> Result<(), BoxError> {
        if is_at(&self.file, &self.path)? {
            Ok(())
        } else {
            Err(format!("{} was deleted or replaced", self.path.display()).into())
        }
    }

    fn check_interval(&self) -> Duration {
        self.check_interval
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before it is unlocked: afterwards it may have the next leader's text. Nothing goes wrong if it stays.
        if self.signed {
            let _ = self.file.set_len(0);
        }
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

/// Whether `path` leads to the very file that is open.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    let there = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        there => there?,
    };
    // An open file's number is not given to another one.
    let held = file.metadata()?;
    Ok((there.dev(), there.ino()) == (held.dev(), held.ino()))
}

/// Whether there is a file at `path`: the standard library does not tell which.
#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> io::Result<bool> {
    path.try_exists()
}

fn not_regular(metadata: &fs::Metadata) -> io::Error {
    io::Error::from(if metadata.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::InvalidInput })
}

/// What is ours is shorter.
const LONGEST: u64 = 4096;

/// The beginning of a file.
fn content(mut file: &File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.rewind()?;
    file.take(LONGEST).read_to_end(&mut content)?;
    Ok(content)
}

/// Replaces the content of a lock file. One that is not ours is left as it is, and the answer is `false`.
fn write_to(mut file: &File, text: &str) -> io::Result<bool> {
    if !is_ours(&content(file)?) {
        return Ok(false);
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    Ok(true)
}
