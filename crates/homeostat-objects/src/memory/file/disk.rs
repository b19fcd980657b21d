//! The file of the database. It stays locked while the database is closed and opened again.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

use crate::sync::atomic::{AtomicBool, Ordering};
use homeostat::rt::OwnerProcess;
use homeostat::run::BoxError;

/// A file for the database. Tests use a disk in memory.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Returns access to the bytes of the file.
    fn bytes(&self) -> &dyn StorageBackend;

    /// Syncs the folder, so that a new file survives a crash of the system.
    fn sync_folder(&self) -> io::Result<()>;

    /// Reserves space on the disk for deletions, if there is space and it is not reserved already.
    fn take_reserve(&self);

    /// Gives that space back to the disk. Returns whether there was any.
    fn release_reserve(&self) -> bool;
}

/// The size of the reserve in bytes. A deletion copies the pages on the paths to its rows.
const RESERVED: usize = 512 << 10;
/// The first line of the reserve file. Files with another first line are left alone.
const RESERVE_HEAD: &[u8] = b"homeostat reserve for deletions on a full disk\n";

/// A file that this process has locked.
#[derive(Debug)]
pub(super) struct LockedFile {
    path: PathBuf,
    bytes: FileBackend,
    owner: OwnerProcess,
    has_reserve: AtomicBool,
}

impl LockedFile {
    /// Opens and locks a file. Creates it if it does not exist, for its owner only: objects may be secret.
    pub(super) fn open(path: &Path) -> Result<Self, BoxError> {
        let file = private(OpenOptions::new().read(true).write(true).create(true).truncate(false)).open(path)?;
        if !file.metadata()?.is_file() {
            return Err("it is not a regular file".into());
        }
        let bytes = FileBackend::new(file)?;
        match bytes.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
            // Without file locks, the user must ensure that one process opens the file, as with the database itself.
            Ok(true) | Err(BackendError::Unsupported) => {}
            Ok(false) => return Err(DatabaseError::DatabaseAlreadyOpen.into()),
            Err(BackendError::Io(error)) => return Err(error.into()),
            Err(error) => return Err(format!("the file cannot be locked: {error:?}").into()),
        }
        // Resolve the path now, because the process may change its working directory.
        let (path, owner) = (fs::canonicalize(path)?, OwnerProcess::current());
        Ok(Self { path, bytes, owner, has_reserve: AtomicBool::new(false) })
    }

    /// Returns the path of the reserve file.
    fn reserve(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".reserve");
        path.into()
    }

    /// Creates the reserve file, unless it is already complete.
    fn make_reserve(&self) -> io::Result<()> {
        let path = self.reserve();
        if !self.owns_reserve()? || fs::metadata(&path).is_ok_and(|file| file.len() == RESERVED as u64) {
            return Ok(());
        }
        let mut content = RESERVE_HEAD.to_vec();
        content.resize(RESERVED, b'.');
        let mut file = private(OpenOptions::new().write(true).create(true).truncate(true)).open(&path)?;
        file.write_all(&content)?;
        file.sync_data()
    }

    /// Returns whether the reserve may be written: either its file does not exist, or this crate has created it.
    fn owns_reserve(&self) -> io::Result<bool> {
        let mut head = Vec::new();
        match fs::File::open(self.reserve()) {
            Ok(file) => file.take(RESERVE_HEAD.len() as u64).read_to_end(&mut head)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        };
        // A process that ended while it wrote the file may have left only a part.
        Ok(RESERVE_HEAD.starts_with(&head))
    }
}

/// Lets only the owner of a new file read and write it.
fn private(options: &mut OpenOptions) -> &OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

impl Disk for LockedFile {
    fn bytes(&self) -> &dyn StorageBackend {
        &self.bytes
    }

    fn take_reserve(&self) {
        if self.has_reserve.load(Ordering::Relaxed) {
            return;
        }
        let Err(error) = self.make_reserve() else { return self.has_reserve.store(true, Ordering::Relaxed) };
        // An incomplete reserve is useless.
        self.release_reserve();
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        // For example, if the folder is not writable, trying again does not help.
        self.has_reserve.store(!is_full, Ordering::Relaxed);
    }

    fn release_reserve(&self) -> bool {
        self.has_reserve.store(false, Ordering::Relaxed);
        self.owns_reserve().is_ok_and(|owns| owns) && fs::remove_file(self.reserve()).is_ok()
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
        // Unlock explicitly: closing is not enough if a forked process also has the file open. A forked process must
        // not unlock: that would unlock the file of its parent.
        if self.owner.is_current() {
            let _ = self.bytes.close();
        }
    }
}

/// The storage backend for the database. The file stays locked when the database is closed. In a forked process,
/// nothing is written.
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
