//! A ready-made listing: the files of a directory, by their metadata.

mod tree;

#[cfg(all(test, unix, not(loom)))]
mod tests;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use self::tree::Tree;
use super::poll::PollWatch;
use crate::run::context::Context;
use crate::run::error::{BoxError, Cancelled};

/// Watches the entries of a directory by looking at their metadata from time to time: works on every file system, network ones
/// and containers' mounts too, and needs nothing of the operating system.
///
/// Keys are paths relative to the directory. Symbolic links are entries of their own and are not followed, on Unix also not where
/// one takes the place of a directory during the listing; the directory itself may be one. What vanishes while it looks has been deleted. A directory that cannot be read, the watched one or one below, is an
/// error of the whole listing, which changes nothing: an unmounted volume has not had its files deleted.
///
/// An edit is seen if it changes the length, the time of modification or the file (an editor that renames). One that keeps the
/// length within one tick of the file system's clock (often milliseconds) is not.
///
/// # Examples
///
/// ```
/// use homeostat::{Predicate, Subscriber, WorkQueue};
/// use homeostat::watch::Directory;
/// use std::path::{Path, PathBuf};
/// use std::time::Duration;
///
/// let folder = std::env::temp_dir().join(format!("homeostat-directory-{}", std::process::id()));
/// std::fs::create_dir_all(folder.join("conf.d"))?;
/// std::fs::write(folder.join("conf.d/web.toml"), "port = 80")?;
///
/// let files = Directory::new(&folder).recursive().poll(Duration::from_millis(100)).name("conf").start()?;
/// let queue = WorkQueue::<PathBuf>::new();
/// let only_files = Predicate::matching(homeostat::watch::FileState::is_file);
/// let subscription = files.watch().subscribe(Subscriber::to_itself(&queue).when(only_files))?;
/// assert_eq!(*queue.dequeue()?, Path::new("conf.d/web.toml"));
///
/// std::fs::remove_file(folder.join("conf.d/web.toml"))?;
/// assert_eq!(*queue.dequeue()?, Path::new("conf.d/web.toml"));
/// # drop((subscription, files));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a directory is not watched until it is polled"]
pub struct Directory {
    root: PathBuf,
    recursive: bool,
}

/// The metadata of an entry, as far as a change of it is a change of the entry.
///
/// # Examples
///
/// ```
/// use homeostat::Context;
/// use homeostat::watch::{Directory, FileKind};
/// use std::path::Path;
///
/// let entries = Directory::new(env!("CARGO_MANIFEST_DIR")).list(&Context::detached())?;
/// let (_, manifest) = entries.iter().find(|(path, _)| path == Path::new("Cargo.toml")).unwrap();
/// assert!(manifest.is_file() && manifest.len > 0 && manifest.modified.is_some());
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileState {
    /// What it is.
    pub kind: FileKind,
    /// Its length in bytes; 0 of what is no file.
    pub len: u64,
    /// When it was last modified, where the platform says so. Of a directory: when an entry was last added or removed.
    pub modified: Option<SystemTime>,
    /// The number of the file in its file system, on Unix: another one means another file of the same name.
    pub inode: Option<u64>,
}

/// What an entry of a directory is.
///
/// # Examples
///
/// ```
/// use homeostat::watch::FileKind;
///
/// assert_ne!(FileKind::Symlink, FileKind::File);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, wherever it leads.
    Symlink,
    /// A socket, a pipe, a device.
    Other,
}

impl FileState {
    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

impl Directory {
    /// The entries of `root`, not those of directories in it.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), recursive: false }
    }

    /// Also the entries of directories in it, however deep.
    pub fn recursive(mut self) -> Self {
        self.recursive = true;
        self
    }

    /// A watch that looks every `period`, to be [started](PollWatch::start).
    pub fn poll(self, period: Duration) -> PollWatch<PathBuf, FileState> {
        PollWatch::new(period, move |cx: &Context| self.list(cx))
    }

    /// Looks once: the entries, directories before what they hold, otherwise in no order.
    ///
    /// # Errors
    ///
    /// If a directory cannot be read, or the run has been aborted. A deadline that passes does not end it: one that takes longer
    /// than the period of its polls would never be listed at all.
    pub fn list(&self, cx: &Context) -> Result<Vec<(PathBuf, FileState)>, BoxError> {
        self.walk(cx, |_| {})
    }

    /// Lists the entries, and calls `before_open` with the path of each directory below the watched one before that is opened.
    fn walk(&self, cx: &Context, mut before_open: impl FnMut(&Path)) -> Result<Vec<(PathBuf, FileState)>, BoxError> {
        unless_aborted(cx)?;
        let tree = Tree::open(&self.root).map_err(|error| self.unreadable(Path::new(""), &error))?;
        let mut entries = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            unless_aborted(cx)?;
            before_open(&folder);
            let before = entries.len();
            match list_one(cx, &tree, &folder, &mut entries) {
                Ok(()) => {}
                // Gone since it was listed: it has been deleted, with all in it. The watched one must be there.
                Err(Fault::Read(error)) if folder != Path::new("") && is_gone(&error) => entries.truncate(before),
                Err(Fault::Read(error)) => return Err(self.unreadable(&folder, &error)),
                Err(Fault::Cancelled(cancelled)) => return Err(cancelled.into()),
            }
            if self.recursive {
                let found = entries[before..].iter().filter(|(_, state): &&(_, FileState)| state.is_dir());
                folders.extend(found.map(|(path, _)| path.clone()));
            }
        }
        Ok(entries)
    }

    fn unreadable(&self, folder: &Path, error: &io::Error) -> BoxError {
        format!("{}: {error}", self.root.join(folder).display()).into()
    }
}

fn list_one(cx: &Context, tree: &Tree, folder: &Path, entries: &mut Vec<(PathBuf, FileState)>) -> Result<(), Fault> {
    tree.entries(folder, |name, state| {
        // A large directory may take long.
        unless_aborted(cx).map_err(Fault::Cancelled)?;
        entries.push((folder.join(name), state));
        Ok(())
    })
}

fn unless_aborted(cx: &Context) -> Result<(), Cancelled> {
    cx.check().or_else(|cancelled| if cancelled == Cancelled::Aborted { Err(cancelled) } else { Ok(()) })
}

enum Fault {
    Read(io::Error),
    Cancelled(Cancelled),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// Removed, or replaced by something that is no directory.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
