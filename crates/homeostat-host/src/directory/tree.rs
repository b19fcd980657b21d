//! Opens the directories of a tree and reads their entries, without following a symbolic link below the root.
//!
//! Opens each directory from its parent, so that a link which replaces a directory is never followed.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::entry::{FileKind, FileState, FolderId};

/// An open directory.
pub(crate) struct Folder {
    fd: OwnedFd,
    pub(crate) id: FolderId,
    /// The number of the mounted file system. The number of its device, if the system does not number mounts.
    pub(crate) mount: u64,
}

impl Folder {
    pub(crate) fn root(path: &Path) -> io::Result<Self> {
        Self::open(CWD, path.as_os_str(), OFlags::empty())
    }

    /// Opens the directory `name` in this one.
    pub(crate) fn below(&self, name: &OsStr) -> io::Result<Self> {
        Self::open(&self.fd, name, OFlags::NOFOLLOW)
    }

    fn open(parent: impl AsFd, name: &OsStr, flags: OFlags) -> io::Result<Self> {
        let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(parent, name, flags, Mode::empty()).map_err(|error| match error {
            // Some systems report a symbolic link with these errors.
            Errno::LOOP | Errno::MLINK => ErrorKind::NotADirectory.into(),
            other => io::Error::from(other),
        })?;
        let stat = fstat(&fd)?;
        Ok(Self { id: id(&stat), mount: mount(&fd, OsStr::new("."), &stat), fd })
    }

    /// Returns the number of the mount at this path.
    pub(crate) fn mount_at(path: &Path) -> io::Result<u64> {
        Ok(mount(CWD, path.as_os_str(), &statat(CWD, path, AtFlags::empty())?))
    }

    /// Calls `each` with the name, the metadata and the identity of each entry.
    pub(crate) fn entries(
        &self,
        mut each: impl FnMut(&OsStr, FileState, FolderId) -> io::Result<()>,
    ) -> io::Result<()> {
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => each(name, state(&stat), id(&stat))?,
                // The entry was deleted after it was read.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

#[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "the types differ from platform to platform")]
fn id(stat: &Stat) -> FolderId {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Returns the mount number of a directory. Two mounts of one file system have different numbers.
#[cfg(target_os = "linux")]
fn mount(parent: impl AsFd, name: &OsStr, stat: &Stat) -> u64 {
    use rustix::fs::{StatxFlags, statx};
    match statx(parent, name, AtFlags::empty(), StatxFlags::MNT_ID) {
        Ok(found) if found.stx_mask & StatxFlags::MNT_ID.bits() != 0 => found.stx_mnt_id,
        // On an old kernel, or in a sandbox that forbids the call, the device number replaces it.
        _ => id(stat).0,
    }
}

#[cfg(not(target_os = "linux"))]
fn mount(_parent: impl AsFd, _name: &OsStr, stat: &Stat) -> u64 {
    id(stat).0
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
    FileState { kind, len, modified, inode: stat.st_ino as u64 }
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
