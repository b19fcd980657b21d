//! The metadata of a directory entry.

use std::time::SystemTime;

/// The identity of a directory: its device and inode. While a directory is open, no other directory gets the same
/// identity.
pub(super) type FolderId = (u64, u64);

/// The metadata of an entry. A difference in any field, or in the kind, is a change of the entry.
///
/// # Examples
///
/// ```
/// use homeostat::Context;
/// use homeostat_host::Directory;
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
    pub(super) kind: FileKind,
    /// The length of a file in bytes; 0 for other kinds.
    pub len: u64,
    /// The time of the last modification, if the platform has it. For a directory, when an entry was last added or
    /// removed.
    pub modified: Option<SystemTime>,
    /// The inode number. A new number means a new file with the same name.
    pub inode: u64,
}

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    File,
    Directory,
    Symlink,
    /// Anything else, such as a socket, a pipe or a device.
    Other,
}

impl FileState {
    /// Returns whether the entry is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    /// Returns whether the entry is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns whether the entry is a symbolic link, to anything.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }
}
