//! The client that keeps its objects in memory and in a file: an embedded database with durable transactions.

mod disk;
mod store;
#[cfg(all(test, not(loom)))]
mod tests;

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::DatabaseError;

use self::disk::{Disk, LockedFile};
use self::store::FileStore;
use super::builder::EmbeddedBuilder;
use super::server::Server;
use super::state::ServerState;
use crate::run::error::BoxError;

/// A [`Client`](crate::objects::Client) that keeps its objects in memory, like a [`MemoryClient`](crate::objects::MemoryClient),
/// and in a file. Feature `file-client`.
///
/// Clones are cheap and share the objects. A write returns once it is on the disk, so it survives a crash of the process or the
/// system. The changes of one call (an object and the dependents deleted with it) are stored together or not at all. Reads do not
/// wait for the file, except that a read of events may first delete expired ones. Watches cannot resume from a version before the
/// file was opened: it is [gone](crate::objects::ClientError::Gone).
///
/// Objects of kind `Event` expire [an hour](EmbeddedBuilder::event_ttl) after the latest time that they state. Opening the file
/// deletes events that have expired meanwhile.
///
/// Only one process at a time can open the file. It stays open until the last clone and stream are dropped.
///
/// # Failures
///
/// - **Damage**: opening verifies the checksums of the whole file, which takes as long as reading it. A damaged file is an error,
///   with one exception: if the process was killed and the *last* write is damaged too, that write looks unfinished, and the
///   client opens with the state before it.
/// - **Full disk**: writes fail with [`ClientError::Transport`](crate::objects::ClientError::Transport), and reads go on. Each
///   write opens the database again, so writing works again once there is room. A failed write is removed from the file by the
///   next write or when the client is dropped. After a failed write, expired events stay readable until a write succeeds. If
///   their deletion fails, the log says so at *warn*.
/// - **Limits**: writing an object that is [too large](EmbeddedBuilder::max_object_bytes) or too deep is an error. A file from an
///   earlier version with such objects can be opened. They can be read and deleted, and written if they do not grow.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Client, FileClient, Kind, ObjectKey};
/// use serde_json::json;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("objects.redb");
/// let client = FileClient::open(&path)?;
/// client.create(&CONFIG_MAP, json!({
///     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "colours"},
/// }))?;
/// drop(client);
///
/// let client = FileClient::open(&path)?;
/// assert!(client.get(&CONFIG_MAP, &ObjectKey::new("default", "colours")).is_ok());
/// assert!(FileClient::open(&path).unwrap_err().is_open_elsewhere());
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[derive(Clone)]
pub struct FileClient {
    pub(super) server: Arc<Server>,
}

impl FileClient {
    /// Opens a file of objects with default settings. Creates the file if it does not exist.
    ///
    /// # Errors
    ///
    /// If the file is already open, is damaged, cannot be read or created, or is not a database of this client. A file of another
    /// program is left unchanged. The error names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Returns the default settings, to be changed before the file is opened.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::new()
    }

    fn on(settings: EmbeddedBuilder, path: &Path, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let mut state = ServerState::new(&settings);
        let store = FileStore::open(path.to_owned(), disk, &mut state);
        let store = store.map_err(|source| OpenError { path: path.to_owned(), source })?;
        let (shown, version) = (path.display(), state.head);
        log::debug!(path:% = shown, version; "{shown}: opened the file of objects at version {version}");
        let server = Server::new(settings, Box::new(store), state);
        server.expire();
        Ok(Self { server })
    }
}

impl EmbeddedBuilder {
    /// Opens a client that also keeps its objects in this file. Creates the file if it does not exist. Feature `file-client`.
    ///
    /// # Errors
    ///
    /// The same as [`FileClient::open`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<FileClient, OpenError> {
        let path = path.as_ref();
        let disk = LockedFile::open(path).map_err(|source| OpenError { path: path.to_owned(), source })?;
        FileClient::on(self, path, Arc::new(disk))
    }
}

/// The error of opening a file of objects.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    source: BoxError,
}

impl OpenError {
    /// Returns whether the file is already open, in this process or in another.
    #[must_use]
    pub fn is_open_elsewhere(&self) -> bool {
        matches!(self.source.downcast_ref(), Some(DatabaseError::DatabaseAlreadyOpen))
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        if self.is_open_elsewhere() {
            return write!(f, "{path}: already open in this or another process; only one can have the file open");
        }
        write!(f, "{path}: {}", self.source)
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}
