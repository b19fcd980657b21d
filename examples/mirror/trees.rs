//! The two trees: the desired one in the source, the actual one in the target.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use homeostat::Store;
use homeostat::watch::Index;
use homeostat_host::FileState;

/// The prefix of file names during a copy.
const UNFINISHED: &str = ".mirror-unfinished.";

/// The properties that must be equal in two entries with the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File {
        len: u64,
        modified: Option<SystemTime>,
    },
    Directory,
    /// A symbolic link, a pipe, a socket, a device.
    Other,
}

impl From<&Metadata> for Entry {
    fn from(metadata: &Metadata) -> Self {
        match metadata.file_type() {
            kind if kind.is_file() => Self::File { len: metadata.len(), modified: metadata.modified().ok() },
            kind if kind.is_dir() => Self::Directory,
            _ => Self::Other,
        }
    }
}

impl From<&FileState> for Entry {
    fn from(state: &FileState) -> Self {
        match state {
            file if file.is_file() => Self::File { len: file.len, modified: file.modified },
            other if other.is_dir() => Self::Directory,
            _ => Self::Other,
        }
    }
}

/// The folder of an entry in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Folder {
    There,
    Missing,
    /// A file or link has the name of the directory. Links are not followed.
    Taken,
}

/// Both trees; paths are relative to their roots.
#[derive(Clone, Debug)]
pub(crate) struct Trees {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    /// The last known state of each tree.
    pub(crate) wanted: Store<PathBuf, FileState>,
    pub(crate) seen: Store<PathBuf, FileState>,
    /// The desired entries by their directory.
    pub(crate) within: Index<PathBuf, PathBuf, FileState>,
    /// The delay before a run checks again without an event.
    pub(crate) patience: Duration,
}

impl Trees {
    /// Returns the desired entry at this path.
    pub(crate) fn wanted(&self, path: &Path) -> Option<Entry> {
        self.wanted.get(path).map(|state| Entry::from(&*state))
    }

    /// Returns the entry at this path of the target. Its folder must [exist](Folder::There).
    pub(crate) fn found(&self, path: &Path) -> io::Result<Option<Entry>> {
        look(&self.target.join(path))
    }

    /// Returns whether all directories above this path exist.
    pub(crate) fn folder(&self, path: &Path) -> io::Result<Folder> {
        let mut above: Vec<_> = path.ancestors().skip(1).filter(|above| *above != Path::new("")).collect();
        while let Some(next) = above.pop() {
            match look(&self.target.join(next))? {
                Some(Entry::Directory) => {}
                Some(_) => return Ok(Folder::Taken),
                None => return Ok(Folder::Missing),
            }
        }
        Ok(Folder::There)
    }

    /// Returns the content of both trees, if their last known states are equal.
    pub(crate) fn equal(&self) -> Option<HashMap<PathBuf, Entry>> {
        let entries = |store: &Store<PathBuf, FileState>| -> HashMap<PathBuf, Entry> {
            let all = store.snapshot().into_iter().map(|(path, state)| (path, Entry::from(&*state)));
            all.filter(|(_, entry)| *entry != Entry::Other).collect()
        };
        let mut wanted = entries(&self.wanted);
        wanted.retain(|path, entry| *entry == Entry::Directory || !is_unfinished(path));
        let is_equal = self.wanted.has_synced() && self.seen.has_synced() && wanted == entries(&self.seen);
        is_equal.then_some(wanted)
    }
}

/// Returns the entry at this path. A link is not followed.
pub(crate) fn look(path: &Path) -> io::Result<Option<Entry>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(Entry::from(&metadata))),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the error means that the path, or a directory above it, does not exist.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Returns the name of a file during its copy.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(UNFINISHED);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Returns whether this is the name of a file during its copy. The copying mirror may have been killed.
pub(crate) fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()))
}

/// Returns the final path of a file: its own path, unless it is unfinished. `None` if the name does not show it.
pub(crate) fn finished(path: &Path) -> Option<PathBuf> {
    if !is_unfinished(path) {
        return Some(path.to_owned());
    }
    let name = path.file_name()?.to_str()?.strip_prefix(UNFINISHED).filter(|name| !name.is_empty())?;
    Some(path.with_file_name(name))
}
