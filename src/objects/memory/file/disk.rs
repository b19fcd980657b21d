//! The file of the database. It stays locked while the database is closed and opened again.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

use crate::base::process::OwnerProcess;
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
    owner: OwnerProcess,
}

impl LockedFile {
    /// Opens and locks a file. Creates it if it does not exist, for its owner only: objects may be secret.
    pub(super) fn open(path: &Path) -> Result<Self, BoxError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path)?;
        if !file.metadata()?.is_file() {
            return Err("it is not a regular file".into());
        }
        let bytes = FileBackend::new(file)?;
        match bytes.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
            // If the system has no file locks, the user must take care, as with the database itself.
            Ok(true) | Err(BackendError::Unsupported) => {}
            Ok(false) => return Err(DatabaseError::DatabaseAlreadyOpen.into()),
            Err(BackendError::Io(error)) => return Err(error.into()),
            Err(error) => return Err(format!("the file cannot be locked: {error:?}").into()),
        }
        // Resolve the path now, because the process may change its working directory.
        Ok(Self { path: fs::canonicalize(path)?, bytes, owner: OwnerProcess::current() })
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
        // Unlock explicitly: closing is not enough if a forked process has the file open too. In such a process, unlocking would
        // unlock the file of its parent.
        if self.owner.is_current() {
            let _ = self.bytes.close();
        }
    }
}

/// The storage backend for the database. The disk stays locked when the database is closed. In a forked process, nothing is written.
#[derive(Debug)]
pub(super) struct Storage {
    disk: Arc<dyn Disk>,
    owner: OwnerProcess,
}

impl Storage {
    pub(super) fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk, owner: OwnerProcess::current() }
    }

    /// Returns the disk for a write.
    fn writable(&self) -> io::Result<&dyn StorageBackend> {
        self.owner.check().map_err(io::Error::other)?;
        Ok(self.disk.bytes())
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> io::Result<u64> {
        self.disk.bytes().len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.bytes().read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.writable()?.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.writable()?.write(offset, data)
    }

    fn try_lock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn unlock_range(&self, _start: Bound<u64>, _end: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }
}
