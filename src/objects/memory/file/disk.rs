//! The file of the database. It stays locked while the database is closed and opened again.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

use crate::run::error::BoxError;

/// A file for the database. Tests use a disk in memory.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Returns the bytes of the file.
    fn bytes(&self) -> &dyn StorageBackend;

    /// Syncs the folder, so that a new file survives a crash of the system.
    fn sync_folder(&self) -> io::Result<()>;
}

/// A file that this process has locked.
#[derive(Debug)]
pub(super) struct LockedFile {
    path: PathBuf,
    bytes: FileBackend,
}

impl LockedFile {
    /// Opens and locks a file. Creates it if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Self, BoxError> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let bytes = FileBackend::new(file)?;
        match bytes.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
            // If the system has no file locks, the user must take care, as with the database itself.
            Ok(true) | Err(BackendError::Unsupported) => {}
            Ok(false) => return Err(DatabaseError::DatabaseAlreadyOpen.into()),
            Err(BackendError::Io(error)) => return Err(error.into()),
            Err(error) => return Err(format!("the file cannot be locked: {error:?}").into()),
        }
        // Resolve the path now, because the process may change its working directory.
        Ok(Self { path: fs::canonicalize(path)?, bytes })
    }
}

impl Disk for LockedFile {
    fn bytes(&self) -> &dyn StorageBackend {
        &self.bytes
    }

    #[cfg(unix)]
    fn sync_folder(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(&self.path);
        match fs::File::open(folder)?.sync_all() {
            // Some file systems cannot sync a folder.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            synced => synced,
        }
    }

    /// On other systems the standard library cannot open a folder.
    #[cfg(not(unix))]
    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Unlock explicitly: closing is not enough if a forked process holds the file too.
        let _ = self.bytes.close();
    }
}

/// The storage backend for the database. The disk stays locked when the database is closed.
#[derive(Debug)]
pub(super) struct Storage(pub(super) Arc<dyn Disk>);

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        self.0.bytes().len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.bytes().read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.bytes().set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.bytes().sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.bytes().write(offset, data)
    }

    fn try_lock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn unlock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }
}
