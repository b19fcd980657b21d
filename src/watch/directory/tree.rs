//! Opens the directories of a tree and reads their entries, without following a symbolic link below the root.

#[cfg(not(unix))]
pub(super) use self::others::Tree;
#[cfg(unix)]
pub(super) use self::unix::Tree;

/// Opens each directory from its parent, one name at a time, so that a link which replaces a directory is never followed.
#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::io::{self, ErrorKind};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat};
    use rustix::io::Errno;

    use crate::watch::directory::entry::{FileKind, FileState};

    /// The open root directory.
    pub(crate) struct Tree(OwnedFd);

    impl Tree {
        pub(crate) fn open(root: &Path) -> io::Result<Self> {
            open(CWD, root.as_os_str(), OFlags::empty()).map(Self)
        }

        /// Calls `each` with the name and the metadata of each entry of `folder`, a path relative to the root.
        pub(crate) fn entries<E: From<io::Error>>(
            &self,
            folder: &Path,
            mut each: impl FnMut(&OsStr, FileState) -> Result<(), E>,
        ) -> Result<(), E> {
            let mut opened = None;
            for name in folder {
                let parent = opened.as_ref().unwrap_or(&self.0);
                opened = Some(open(parent, name, OFlags::NOFOLLOW)?);
            }
            let folder = opened.as_ref().unwrap_or(&self.0);
            for entry in Dir::read_from(folder).map_err(io::Error::from)? {
                let entry = entry.map_err(io::Error::from)?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => each(name, state(&stat))?,
                    // The entry was deleted after it was read.
                    Err(Errno::NOENT) => {}
                    Err(error) => return Err(io::Error::from(error).into()),
                }
            }
            Ok(())
        }
    }

    fn open(parent: impl AsFd, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(parent, name, flags, Mode::empty()).map_err(|error| match error {
            // Some systems report a symbolic link with these errors.
            Errno::LOOP | Errno::MLINK => ErrorKind::NotADirectory.into(),
            other => other.into(),
        })
    }

    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_lossless,
        clippy::useless_conversion,
        reason = "the types of these fields differ from platform to platform"
    )]
    fn state(stat: &Stat) -> FileState {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => FileKind::Symlink,
            FileType::Directory => FileKind::Directory,
            FileType::RegularFile => FileKind::File,
            _ => FileKind::Other,
        };
        let len = if kind == FileKind::File { u64::try_from(stat.st_size).unwrap_or_default() } else { 0 };
        let modified = time(stat.st_mtime as i64, stat.st_mtime_nsec as u64);
        FileState { kind, len, modified, inode: Some(stat.st_ino as u64) }
    }

    fn time(seconds: i64, nanos: u64) -> Option<SystemTime> {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let epoch = SystemTime::UNIX_EPOCH;
        let time = if seconds < 0 { epoch.checked_sub(whole) } else { epoch.checked_add(whole) };
        time?.checked_add(Duration::from_nanos(nanos))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn times_before_and_after_the_epoch_are_those_of_the_standard_library() {
            let file = std::env::current_exe().unwrap();
            let metadata = std::fs::symlink_metadata(&file).unwrap();
            let stat = rustix::fs::lstat(&file).unwrap();
            assert_eq!(state(&stat).modified, metadata.modified().ok());
            assert_eq!(state(&stat).len, metadata.len());
            let half = Duration::from_millis(500);
            assert_eq!(time(-1, 500_000_000), Some(SystemTime::UNIX_EPOCH - half));
            assert_eq!(time(1, 500_000_000), Some(SystemTime::UNIX_EPOCH + half * 3));
        }
    }
}

/// Without `openat`: opens a directory by its path, after a check that the path is no link.
#[cfg(not(unix))]
mod others {
    use std::ffi::OsStr;
    use std::fs::{self, Metadata};
    use std::io::{self, ErrorKind};
    use std::path::{Path, PathBuf};

    use crate::watch::directory::entry::{FileKind, FileState};

    /// The path of the root.
    pub(crate) struct Tree(PathBuf);

    impl Tree {
        #[expect(clippy::unnecessary_wraps, reason = "opening a root can fail elsewhere")]
        pub(crate) fn open(root: &Path) -> io::Result<Self> {
            Ok(Self(root.to_owned()))
        }

        /// Calls `each` with the name and the metadata of each entry of `folder`, a path relative to the root.
        pub(crate) fn entries<E: From<io::Error>>(
            &self,
            folder: &Path,
            mut each: impl FnMut(&OsStr, FileState) -> Result<(), E>,
        ) -> Result<(), E> {
            let path = self.0.join(folder);
            if folder != Path::new("") && !fs::symlink_metadata(&path)?.is_dir() {
                return Err(io::Error::from(ErrorKind::NotADirectory).into());
            }
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                match entry.metadata() {
                    Ok(metadata) => each(&entry.file_name(), state(&metadata))?,
                    // The entry was deleted after it was read.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        }
    }

    fn state(metadata: &Metadata) -> FileState {
        let kind = match metadata.file_type() {
            kind if kind.is_symlink() => FileKind::Symlink,
            kind if kind.is_dir() => FileKind::Directory,
            kind if kind.is_file() => FileKind::File,
            _ => FileKind::Other,
        };
        let len = if kind == FileKind::File { metadata.len() } else { 0 };
        FileState { kind, len, modified: metadata.modified().ok(), inode: None }
    }
}
