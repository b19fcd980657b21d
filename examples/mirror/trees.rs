//! The two trees: what is wanted, and what there is.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use homeostat::Store;
use homeostat::watch::{FileKind, FileState, Index};

/// What the name of a file begins with while it is written.
const UNFINISHED: &str = ".mirror-unfinished.";

/// As far as two entries of one path have to be equal.
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
        match state.kind {
            FileKind::File => Self::File { len: state.len, modified: state.modified },
            FileKind::Directory => Self::Directory,
            _ => Self::Other,
        }
    }
}

/// Where an entry of the target belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Folder {
    There,
    Missing,
    /// Something that is no directory has the name of one: a link must not be followed.
    Taken,
}

/// Both trees; paths are relative to their roots.
#[derive(Clone, Debug)]
pub(crate) struct Trees {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    /// What was last seen of each.
    pub(crate) wanted: Store<PathBuf, FileState>,
    pub(crate) seen: Store<PathBuf, FileState>,
    /// What is wanted, by the directory that it is in.
    pub(crate) within: Index<PathBuf, PathBuf, FileState>,
    /// How long to wait for what a watch ought to tell before.
    pub(crate) patience: Duration,
}

impl Trees {
    /// What is wanted at this path.
    pub(crate) fn wanted(&self, path: &Path) -> Option<Entry> {
        self.wanted.get(path).map(|state| Entry::from(&*state))
    }

    /// What is at this path of the target, whose folder must be [there](Folder::There).
    pub(crate) fn found(&self, path: &Path) -> io::Result<Option<Entry>> {
        look(&self.target.join(path))
    }

    /// Whether all directories above this path are there.
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

    /// What is in both trees, if they were equal when they were last seen.
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

/// What is at this path; a link is not followed.
pub(crate) fn look(path: &Path) -> io::Result<Option<Entry>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(Entry::from(&metadata))),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Nothing is there, or what is above it is no directory any more.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The name under which a file is written before it gets its own.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(UNFINISHED);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Whether this is the name of a file that is being written, or was when a mirror was killed.
pub(crate) fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()))
}

/// The path of the file that this one becomes, which is its own unless it is unfinished. `None`: it cannot be told.
pub(crate) fn finished(path: &Path) -> Option<PathBuf> {
    if !is_unfinished(path) {
        return Some(path.to_owned());
    }
    let name = path.file_name()?.to_str()?.strip_prefix(UNFINISHED).filter(|name| !name.is_empty())?;
    Some(path.with_file_name(name))
}
