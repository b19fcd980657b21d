//! Objects in memory, and in a file that outlives the process: an embedded database, whose transactions are on the disk when they are
//! acknowledged.

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

/// A [`Client`](crate::objects::Client) that keeps its objects in memory, as a [`MemoryClient`](crate::objects::MemoryClient)
/// does, and in a file. A cheap handle; clones have the same objects. Feature `file-client`.
///
/// A write returns once it is on the disk: what has been acknowledged outlives a crash of the process, and of the system. What was
/// asked for by one call (an object and what is deleted along with it) is stored as one. Reads do not touch the file, nor wait for
/// it, with one exception: a read of events after some have expired. Watches cannot go on from before the file was opened: they are told that the version is [gone](crate::objects::ClientError::Gone).
///
/// Objects of kind `Event` expire [an hour](EmbeddedBuilder::event_ttl) after the last time that they tell, also while the file is
/// closed: opening it deletes those that have expired meanwhile.
///
/// One process at a time has the file open, until the last handle and stream are dropped.
///
/// # Failures
///
/// - **Damage**: opening verifies the checksums of the whole file, which takes as long as reading it. A damaged file is an error.
///   There is one exception. If the process was killed and the *last* write is damaged too, that write looks unfinished, and the
///   client opens with the state before it.
/// - **A full disk**: while nothing can be written, writes fail with [`ClientError::Transport`](crate::objects::ClientError::Transport),
///   and reads go on. Each write opens the database again, so writing works again once there is room. A write that failed is
///   removed from the file by the next write, or as the client is dropped. After a failed write, expired
///   events can be read until a write succeeds. If the deletion of expired events is what failed, the log says so at *warn*.
/// - **Limits**: an object can be [too large](EmbeddedBuilder::max_object_bytes) or too deep to be written. A file that holds such
///   objects from an earlier version is opened; they can be read, deleted, and written as long as they do not grow.
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
    /// Opens a file of objects, or makes one, with default settings.
    ///
    /// # Errors
    ///
    /// If the file is open already, is damaged, or cannot be read or made; if it is no database, or a database of another program,
    /// to which nothing is added. The error names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Settings for a client.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::new()
    }

    fn on(settings: EmbeddedBuilder, path: &Path, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let mut state = ServerState::new(&settings);
        let store = FileStore::open(path.to_owned(), disk, &mut state);
        let store = store.map_err(|source| OpenError { path: path.to_owned(), source })?;
        let (shown, version) = (path.display(), state.head);
        log::debug!(path:% = shown, version; "{shown}: the file of objects is open, at version {version}");
        let server = Server::new(settings, Box::new(store), state);
        server.expire();
        Ok(Self { server })
    }
}

impl EmbeddedBuilder {
    /// Opens a client that also keeps its objects in this file. Creates the file if there is none. Feature `file-client`.
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

/// Why a file of objects could not be opened.
#[derive(Debug)]
pub struct OpenError {
    path: PathBuf,
    source: BoxError,
}

impl OpenError {
    /// Whether it is open already, in this process or in another.
    #[must_use]
    pub fn is_open_elsewhere(&self) -> bool {
        matches!(self.source.downcast_ref(), Some(DatabaseError::DatabaseAlreadyOpen))
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        if self.is_open_elsewhere() {
            return write!(f, "{path}: it is open already, in this process or another: one at a time may have it");
        }
        write!(f, "{path}: {}", self.source)
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}
