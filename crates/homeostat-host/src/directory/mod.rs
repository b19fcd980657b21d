//! A watch of the files in a directory, by their metadata.

mod entry;
mod tree;
mod volumes;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat::run::{BoxError, Cancelled, Context};
use homeostat::watch::Poller;

pub use self::entry::FileState;

use self::entry::FolderId;
use self::tree::Folder;
use self::volumes::Volumes;

/// The number of times that a listing is tried while directories are exchanged.
const TRIES: u32 = 5;

const UNMOUNTED: &str = "the volume is not mounted: mount it, or start the watch again if it is gone for good";

/// Watches the entries of a directory by polling their metadata. Works on every file system, including network file
/// systems and container mounts, and needs no notification API of the operating system. Available on Unix.
///
/// Keys are paths relative to the directory. The directory itself may be a symbolic link. Links below it are entries of
/// their own and are not followed, not even a link that replaces a directory during the listing.
///
/// An entry that vanishes during the listing counts as deleted. If the directory or one below it cannot be read, the
/// whole listing fails and changes nothing. The listing is repeated if another directory takes the place of one of them
/// meanwhile. It fails after five tries.
///
/// An edit is detected if it changes the length, the modification time or the file itself (an editor that renames). An
/// edit that keeps the length, within one tick of the file system clock (often milliseconds), is missed.
///
/// # Volumes
///
/// After a volume was unmounted, its directory usually still exists and is empty. Its files are not treated as deleted:
/// the listing fails until a volume is mounted there again. A listing fails
///
/// - if the watched directory has the same real path as in the last listing, but now lies outside of the volume that it
///   was on;
/// - if, with [`recursive`](Self::recursive), a directory below it was a mount point in the last listing but no longer
///   is. A mount point that was removed counts as deleted, with its content.
///
/// Linux 5.8 and later distinguish any two mounts. Other systems distinguish mounts by their device, so they do not
/// notice the end of a bind mount of the same file system. If a volume was removed permanently, start the watch again.
///
/// A watch cannot notice a volume that was unmounted before it started. If your program may start before its volume is
/// mounted, watch a *subdirectory* of the volume: each listing fails while the subdirectory is missing.
///
/// # Mounted configuration
///
/// Kubernetes mounts a config map or a secret as a directory with links: `app.toml` leads to `..data/app.toml`, and
/// `..data` to a directory with a time as its name. For an update, Kubernetes makes a new directory, replaces `..data`
/// in one step, and removes the old directory. Watch the directory *behind* the link, as in
/// `Directory::new("/etc/app/..data")`. The keys are the names of the files.
///
/// After an update, the next listing reports every remaining file as updated, because it is a new file. It reports
/// added files as created, and missing files as deleted. A watch of `/etc/app` itself reports only that `..data` and
/// the directories with times have changed. A file that is mounted with `subPath` is never updated.
///
/// # Examples
///
/// ```
/// use homeostat::{Predicate, Subscriber, WorkQueue};
/// use homeostat_host::{Directory, FileState};
/// use std::path::{Path, PathBuf};
/// use std::time::Duration;
///
/// let folder = std::env::temp_dir().join(format!("homeostat-directory-{}", std::process::id()));
/// std::fs::create_dir_all(folder.join("conf.d"))?;
/// std::fs::write(folder.join("conf.d/web.toml"), "port = 80")?;
///
/// let files = Directory::new(&folder).recursive().poll(Duration::from_millis(100)).name("conf").watch()?;
/// let queue = WorkQueue::<PathBuf>::new();
/// let only_files = Predicate::matching(FileState::is_file);
/// let subscription = files.subscribe(Subscriber::to_itself(&queue).when(only_files))?;
/// assert_eq!(*queue.dequeue()?, Path::new("conf.d/web.toml"));
///
/// std::fs::remove_file(folder.join("conf.d/web.toml"))?;
/// assert_eq!(*queue.dequeue()?, Path::new("conf.d/web.toml"));
/// # drop((subscription, files));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<_, homeostat::BoxError>(())
/// ```
///
/// A controller whose keys are the paths:
///
/// ```
/// # use homeostat::{Action, BoxError, Context, Controller, Manager};
/// # use homeostat_host::Directory;
/// # use std::path::PathBuf;
/// # use std::time::Duration;
/// # let manager = Manager::builder().build()?;
/// # let copy = |_cx: &Context, _path: &PathBuf| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let files =
///     manager.watch("conf", || Directory::new("/etc/app").poll(Duration::from_secs(1)).name("conf").watch())?;
/// manager.add(Controller::builder("copies", copy).watch(&files, |event| event.key().cloned()).build()?)?;
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a directory is not watched until it is polled"]
pub struct Directory {
    root: PathBuf,
    recursive: bool,
}

impl Directory {
    /// Watches the entries of `root`, without the content of its subdirectories. A relative path is resolved now,
    /// against the current directory of the process.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        // The process may change its directory later. This fails for an empty path, which cannot be listed either.
        Self { root: std::path::absolute(&root).unwrap_or(root), recursive: false }
    }

    /// Includes the content of subdirectories, at any depth.
    pub fn recursive(mut self) -> Self {
        self.recursive = true;
        self
    }

    /// Returns a poller that lists the directory every `period`. Call [`watch`](Poller::watch) on it.
    pub fn poll(self, period: Duration) -> Poller<Vec<(PathBuf, FileState)>> {
        let mut volumes = Volumes::default();
        Poller::new(period, move |cx: &Context| self.list_again(cx, &mut volumes, |_| {}))
    }

    /// Lists the entries once. A directory comes before its content; the order is otherwise unspecified.
    ///
    /// Without an earlier listing to compare with, this cannot notice an unmounted volume.
    ///
    /// # Errors
    ///
    /// If a directory cannot be read or was exchanged in each of five tries, or if the run has been aborted. The
    /// listing continues after its deadline: otherwise a directory that takes longer than the period would never be
    /// listed.
    pub fn list(&self, cx: &Context) -> Result<Vec<(PathBuf, FileState)>, BoxError> {
        self.list_again(cx, &mut Volumes::default(), |_| {})
    }

    /// Lists the entries. Fails if a volume of the last listing is missing. Calls `before` with the path of the root
    /// before it reads that directory, and with the path of each directory below before it opens that one.
    fn list_again(
        &self,
        cx: &Context,
        volumes: &mut Volumes,
        mut before: impl FnMut(&Path),
    ) -> Result<ListedFiles, BoxError> {
        let mut fault = String::new();
        for _ in 0..TRIES {
            let root = match Folder::root(&self.root) {
                // The root may be a link to a directory that was just removed.
                Err(error) if is_gone(&error) => {
                    fault = error.to_string();
                    continue;
                }
                root => root.map_err(|error| self.fault(Path::new(""), error))?,
            };
            let mut walk = Walk { directory: self, cx, levels: Vec::new(), entries: Vec::new() };
            if walk.run(root, volumes, &mut before)? {
                return Ok(walk.entries);
            }
            fault = format!("a directory was exchanged during each of {TRIES} listings; the next poll tries again");
        }
        Err(self.fault(Path::new(""), fault))
    }

    /// Returns an error that names a directory.
    fn fault(&self, folder: &Path, fault: impl fmt::Display) -> BoxError {
        let folder: PathBuf = self.root.iter().chain(folder).collect();
        format!("{}: {fault}", folder.display()).into()
    }
}

type ListedFiles = Vec<(PathBuf, FileState)>;

/// One listing, depth first.
struct Walk<'a> {
    directory: &'a Directory,
    cx: &'a Context,
    levels: Vec<Level>,
    entries: ListedFiles,
}

/// An open directory with its entries already read. Its subdirectories follow.
struct Level {
    folder: Folder,
    path: PathBuf,
    /// The number of entries before its content.
    start: usize,
    /// The subdirectories that are not listed yet.
    below: Vec<(PathBuf, FolderId)>,
}

impl Walk<'_> {
    /// Lists the entries. Returns false if a directory was exchanged meanwhile, or if the root is gone.
    fn run(&mut self, folder: Folder, volumes: &mut Volumes, before: &mut impl FnMut(&Path)) -> Result<bool, BoxError> {
        let (directory, top) = (self.directory, Path::new(""));
        if volumes.has_lost_root(&directory.root, &folder) {
            return Err(directory.fault(top, UNMOUNTED));
        }
        let (root, mut mounts, mut seen) = ((folder.id, folder.mount), Vec::new(), BTreeSet::new());
        before(top);
        if !self.enter(folder, top.to_owned())? {
            return Ok(false);
        }
        while let Some(level) = self.levels.last_mut() {
            let Some((path, id)) = level.below.pop() else {
                if self.leave()? {
                    continue;
                }
                return Ok(false);
            };
            before(&path);
            let folder = match level.folder.below(path.file_name().unwrap_or_default()) {
                Err(error) if is_gone(&error) => continue,
                folder => folder.map_err(|error| directory.fault(&path, error))?,
            };
            // A directory that is found twice was moved meanwhile.
            if folder.id != id || !seen.insert((id, folder.mount)) {
                return Ok(false);
            }
            if folder.mount != level.folder.mount {
                mounts.push(path.clone());
            } else if volumes.had(&path, root.0) {
                return Err(directory.fault(&path, UNMOUNTED));
            }
            self.enter(folder, path)?;
        }
        volumes.found(&directory.root, root, mounts);
        Ok(true)
    }

    /// Reads the entries of a directory. Returns false if the root is gone.
    fn enter(&mut self, folder: Folder, path: PathBuf) -> Result<bool, BoxError> {
        let Self { directory, cx, levels, entries } = self;
        let (start, mut below) = (entries.len(), Vec::new());
        unless_aborted(cx)?;
        let read = folder.entries(|name, state, id| {
            // A large directory may take long, so an abort is checked at each entry.
            unless_aborted(cx).map_err(io::Error::other)?;
            let path = path.join(name);
            if directory.recursive && state.is_dir() {
                below.push((path.clone(), id));
            }
            entries.push((path, state));
            Ok(())
        });
        unless_aborted(cx)?;
        match read {
            Ok(()) => levels.push(Level { folder, path, start, below }),
            // The directory was deleted, with its content, after its parent was read.
            Err(error) if is_gone(&error) => entries.truncate(start),
            Err(error) => return Err(directory.fault(&path, error)),
        }
        Ok(!levels.is_empty())
    }

    /// Leaves a directory after everything in it was read. Returns false if another directory has its path now, or if
    /// the root is gone.
    fn leave(&mut self) -> Result<bool, BoxError> {
        let Some(Level { folder, path, start, .. }) = self.levels.pop() else { return Ok(true) };
        let now = match self.levels.last() {
            Some(parent) => parent.folder.below(path.file_name().unwrap_or_default()),
            None => Folder::root(&self.directory.root),
        };
        match now {
            Ok(now) => Ok(now.id == folder.id),
            Err(error) if !is_gone(&error) => Err(self.directory.fault(&path, error)),
            Err(_) => {
                // The directory was deleted, with its content. If it was the root, the listing is repeated.
                self.entries.truncate(start);
                Ok(!self.levels.is_empty())
            }
        }
    }
}

fn unless_aborted(cx: &Context) -> Result<(), Cancelled> {
    cx.check().or_else(|cancelled| if cancelled == Cancelled::DeadlineExceeded { Ok(()) } else { Err(cancelled) })
}

/// Returns whether the directory was removed, or replaced by something else.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
