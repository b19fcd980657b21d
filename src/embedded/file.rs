//! Objects in memory, and in a file that outlives the process: an embedded database, whose transactions are on the disk when they are
//! acknowledged.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::Value;

use super::state::{Change, State};
use super::{EmbeddedBuilder, Journal, Server};
use crate::objects::Kind;
use crate::reconcile::error::BoxError;

/// The JSON of an object by `apiVersion`, `kind` and path (namespace and name).
const OBJECTS: TableDefinition<(&str, &str, &str), &[u8]> = TableDefinition::new("objects");
/// Numbers by name.
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
/// The version of the last change.
const HEAD: &str = "head";
/// How the tables are to be read.
const FORMAT: &str = "format";
const THIS_FORMAT: u64 = 1;

/// A [`Client`](crate::objects::Client) that keeps its objects in memory, as a [`MemoryClient`](crate::objects::MemoryClient)
/// does, and in a file. A cheap handle; clones have the same objects. Feature `file-client`.
///
/// A write returns once it is on the disk: what has been acknowledged outlives a crash of the process, and of the system. What was
/// asked for by one call (an object and what is deleted along with it) is stored as one. Reads do not touch the file, nor wait for
/// it. Watches cannot go on from before the file was opened: they are told that the version is [gone](crate::objects::ClientError::Gone).
///
/// One process at a time has the file open, until the last handle and stream are dropped.
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
    /// If it is open already, holds something else, or cannot be read or made.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().open(path)
    }

    /// Settings for a client.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::new()
    }

    pub(super) fn with(settings: EmbeddedBuilder, path: &Path) -> Result<Self, OpenError> {
        let failed = |source: BoxError| OpenError { path: path.to_owned(), source };
        let database = Database::create(path).map_err(|error| failed(error.into()))?;
        let mut state = State::new(settings.history);
        load(&database, &mut state).map_err(failed)?;
        let (shown, version) = (path.display(), state.head);
        log::debug!(path:% = shown, version; "{shown}: the file of objects is open, at version {version}");
        Ok(Self { server: Server::new(settings, Box::new(File { database }), state) })
    }
}

/// Reads all that is stored.
fn load(database: &Database, state: &mut State) -> Result<(), BoxError> {
    // A new file gets its tables.
    let writing = database.begin_write()?;
    {
        let mut numbers = writing.open_table(NUMBERS)?;
        let format = numbers.get(FORMAT)?.map(|format| format.value());
        match format {
            Some(THIS_FORMAT) => {}
            Some(other) => return Err(format!("it is of format {other}, and this version reads {THIS_FORMAT}").into()),
            None => drop(numbers.insert(FORMAT, THIS_FORMAT)?),
        }
        writing.open_table(OBJECTS)?;
    }
    writing.commit()?;

    let reading = database.begin_read()?;
    if let Some(head) = reading.open_table(NUMBERS)?.get(HEAD)? {
        state.head = head.value();
    }
    for entry in reading.open_table(OBJECTS)?.iter()? {
        let (key, json) = entry?;
        let (api_version, kind, path) = key.value();
        let object: Value =
            serde_json::from_slice(json.value()).map_err(|error| format!("{kind} {path} cannot be read: {error}"))?;
        state.load(&Kind::of(api_version, kind), object);
    }
    Ok(())
}

struct File {
    database: Database,
}

impl Journal for File {
    fn store(&self, changes: &[Change]) -> Result<(), BoxError> {
        let writing = self.database.begin_write()?;
        {
            let mut objects = writing.open_table(OBJECTS)?;
            let mut numbers = writing.open_table(NUMBERS)?;
            for change in changes {
                let (api_version, path) = (change.place.kind.api_version(), change.place.key.to_string());
                let key = (&*api_version, change.place.kind.name(), path.as_str());
                if change.removed {
                    objects.remove(key)?;
                } else {
                    objects.insert(key, serde_json::to_vec(&*change.object)?.as_slice())?;
                }
                numbers.insert(HEAD, change.version)?;
            }
        }
        writing.commit()?;
        Ok(())
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
