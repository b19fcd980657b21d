//! The client that keeps its objects in memory and in a file: an embedded database with durable transactions.

mod disk;
mod store;
#[cfg(all(test, not(loom)))]
mod tests;

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::DatabaseError;

use self::disk::{Disk, LockedFile};
use self::store::FileStore;
use super::builder::EmbeddedBuilder;
use super::server::EmbeddedEngine;
use super::state::ServerState;
use homeostat::rt::debug_with_causes;
use homeostat::run::BoxError;

/// A [`Client`](crate::Client) that keeps its objects in memory, like a [`MemoryClient`](crate::MemoryClient), and in a
/// file. Feature `file-client`.
///
/// Clones are cheap and share the objects. The file stays open until the last clone and stream are dropped.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Client, FileClient, Kind, ObjectKey};
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
///
/// # Guarantees
///
/// - **A write returns once it is on the disk.** It survives a crash of the process or the system. Concurrent calls
///   share one sync of the disk.
/// - **A call changes all or nothing**: an object is stored together with the dependents that are deleted with it.
/// - **No answer depends on a change that may be lost.** Reads see only changes that are on the disk. A refused write
///   waits if the change that caused the refusal is not on the disk yet.
/// - **Reads do not wait for the file.** Only a read of events may first delete expired ones.
///
/// # The file
///
/// | topic | rule |
/// |---|---|
/// | processes | only one at a time can open the file |
/// | permissions | only its owner can read and write a new file (mode 0600), because objects may hold secrets. The mode of an existing file stays as it is |
/// | other files | a file that is not empty and not a database of this client is never written |
/// | opening | verifies the checksums of the whole file, which takes as long as reading it |
/// | watches | cannot resume from a version before the opening: it is [gone](crate::ClientErrorKind::Gone) |
/// | events | [an hour](EmbeddedBuilder::event_ttl) after its latest time, an object of kind `Event` is deleted: by the next read of events, or when the file is opened |
/// | size | later writes use the space of deleted objects. Only [`compact`](Self::compact) makes the file smaller |
///
/// # Failures
///
/// | event | effect |
/// |---|---|
/// | the file is damaged | opening it fails. One exception: if the process was killed and the *last* write is damaged too, that write looks unfinished, and the client opens with the state before it |
/// | the disk is full | writes fail with [`Transport`](crate::ClientErrorKind::Transport), and reads continue. The next write, or the drop of the client, removes a failed write from the file. Writes work again once there is space |
/// | a sync fails | all writes that share it fail, and all later writes that build on them |
/// | expired events cannot be deleted | they stay readable until a write succeeds; a line at *warn* says so |
/// | an object is [too large](EmbeddedBuilder::max_object_bytes) or too deep | the write fails. A file from an earlier version may contain such objects: you can read and delete them, and write them if they do not grow |
/// | the process forks without `exec` | the copy reads the objects as they were at the fork. Its writes fail, and its drop neither writes nor unlocks the file. If the parent crashes, no process can open the file until the child drops its copy or ends. Fork before you open the file, or only to call `exec` |
///
/// # Deletions on a full disk
///
/// Deletions have reserved space: 250 KiB of free pages in the file, and a second file with the ending `.reserve`. A
/// deletion that finds no space deletes the second file. The next write that creates or enlarges an object makes it
/// again if there is space, and fails if it would leave no free pages.
///
/// There is no reserve before the first write, and none in the file after a [compaction](Self::compact). A deletion
/// that shares its sync with a failed write fails too: try it again.
#[derive(Clone)]
pub struct FileClient {
    pub(super) server: Arc<EmbeddedEngine>,
    store: Arc<FileStore>,
}

impl FileClient {
    /// Opens a file of objects with default settings. Creates the file if it does not exist.
    ///
    /// # Errors
    ///
    /// If the file is already open, is damaged, cannot be read or created, or is not a database of this client. A file
    /// that is not empty and not a database of this client is left unchanged. The error names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Returns the default settings. Change them, then open the file.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::new()
    }

    /// Compacts the file: moves its contents together, and returns the free space to the file system. Blocks until this
    /// is done.
    ///
    /// Later writes reuse the space of deleted objects, but only this call makes the file smaller. It rewrites much of
    /// the file, so call it after many deletions, when there are few writes. Other writes wait for it, and a read of
    /// events may wait too, because it first deletes expired ones. All other reads and watches continue. If the process
    /// is killed, the file has the same objects as before.
    ///
    /// # Errors
    ///
    /// If the disk fails or is full. No object is lost, neither in memory nor in the file.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::FileClient;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("objects.redb");
    /// let client = FileClient::open(path)?;
    /// let before = client.file_size()?;
    /// client.compact()?;
    /// assert!(client.file_size()? <= before);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn compact(&self) -> Result<(), CompactError> {
        let path = self.store.path();
        self.store.compact().map_err(|source| CompactError { path: path.to_owned(), source })
    }

    /// Returns the size of the file in bytes. This includes free space inside the file until [`compact`](Self::compact)
    /// returns it to the file system.
    ///
    /// # Errors
    ///
    /// If the system cannot tell the size.
    pub fn file_size(&self) -> io::Result<u64> {
        self.store.size()
    }

    /// Sets the gauge `homeostat_file_client_bytes` to the size of the file, with the label `path`. Feature `metrics`.
    ///
    /// Call it before each scrape, like [`MetricsExporter::export`](homeostat::MetricsExporter::export). If the system
    /// cannot tell the size, the gauge keeps its value.
    #[cfg(feature = "metrics")]
    pub fn export_metrics(&self) {
        const BYTES: &str = "homeostat_file_client_bytes";
        metrics::describe_gauge!(BYTES, metrics::Unit::Bytes, "The size of a client's file, including free space");
        if let Ok(bytes) = self.file_size() {
            let path = self.store.path().display().to_string();
            #[expect(clippy::cast_precision_loss, reason = "nobody reads the last digit of a size above 8 PiB")]
            metrics::gauge!(BYTES, "path" => path).set(bytes as f64);
        }
    }

    fn on(settings: EmbeddedBuilder, path: &Path, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let mut state = ServerState::new(&settings);
        let store = FileStore::open(path.to_owned(), disk, &mut state);
        let store = Arc::new(store.map_err(|source| OpenError { path: path.to_owned(), source })?);
        let (shown, version) = (path.display(), state.head);
        log::debug!(path:% = shown, version; "{shown}: opened the file of objects at version {version}");
        let server = EmbeddedEngine::new(settings, Some(Box::new(Arc::clone(&store))), state);
        server.expire();
        Ok(Self { server, store })
    }
}

impl EmbeddedBuilder {
    /// Opens a client that also keeps its objects in this file. Creates the file if it does not exist. Feature
    /// `file-client`.
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

/// The error when compacting a file of objects.
pub struct CompactError {
    path: PathBuf,
    source: BoxError,
}

impl fmt::Display for CompactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, source) = (self.path.display(), &self.source);
        write!(f, "{path}: cannot be compacted: {source}; no object is lost: make room on the disk, then compact again")
    }
}

debug_with_causes!(CompactError);

impl Error for CompactError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// The error when opening a file of objects.
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

debug_with_causes!(OpenError);

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}
