//! A watch of the files in a directory, by their metadata.

mod entry;
mod tree;

#[cfg(all(test, unix, not(loom)))]
mod tests;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::entry::{FileKind, FileState};

use self::tree::Tree;
use super::poll::PollWatch;
use crate::run::context::Context;
use crate::run::error::{BoxError, Cancelled};

/// Watches the entries of a directory by polling their metadata. Works on every file system, including network file systems and
/// container mounts, and needs no notification API of the operating system.
///
/// Keys are paths relative to the directory. The directory itself may be a symbolic link. Links below it are entries of their
/// own and are not followed; on Unix, not even a link that replaces a directory during the listing.
///
/// An entry that vanishes during the listing counts as deleted. If the directory or one below it cannot be read, the whole
/// listing fails and changes nothing: the files of an unmounted volume are not treated as deleted.
///
/// An edit is detected if it changes the length, the modification time or the file itself (an editor that renames). An edit
/// that keeps the length, within one tick of the file system clock (often milliseconds), is missed.
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

impl Directory {
    /// Watches the entries of `root`, without the content of its subdirectories.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), recursive: false }
    }

    /// Includes the content of subdirectories, at any depth.
    pub fn recursive(mut self) -> Self {
        self.recursive = true;
        self
    }

    /// Returns a watch that lists the directory every `period`. Call [`start`](PollWatch::start) on it.
    pub fn poll(self, period: Duration) -> PollWatch<PathBuf, FileState> {
        PollWatch::new(period, move |cx: &Context| self.list(cx))
    }

    /// Lists the entries once. A directory comes before its content; the order is otherwise unspecified.
    ///
    /// # Errors
    ///
    /// If a directory cannot be read, or the run has been aborted. A passed deadline does not end the listing. Otherwise
    /// a directory that takes longer than the period would never be listed.
    pub fn list(&self, cx: &Context) -> Result<Vec<(PathBuf, FileState)>, BoxError> {
        self.walk(cx, |_| {})
    }

    /// Lists the entries. Calls `before_open` with the path of each directory below the root before it opens that directory.
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
                // The directory was deleted, with its content, after its parent was listed. The root must exist.
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
        // A large directory may take long, so an abort is checked at each entry.
        unless_aborted(cx).map_err(Fault::Cancelled)?;
        entries.push((folder.join(name), state));
        Ok(())
    })
}

fn unless_aborted(cx: &Context) -> Result<(), Cancelled> {
    cx.check().or_else(|cancelled| if cancelled == Cancelled::DeadlineExceeded { Ok(()) } else { Err(cancelled) })
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

/// Returns whether the directory was removed, or replaced by something else.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
