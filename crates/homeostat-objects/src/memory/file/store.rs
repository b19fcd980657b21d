//! The database in a file: reads all objects when it is opened, stores changes, and recovers from disk failures.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{
    Database, MultimapTableHandle, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, Table,
    TableDefinition, TableHandle, WriteTransaction,
};
use serde_json::Value;

use super::disk::{Disk, Storage};
use crate::json::meta_string;
use crate::json_text::{altered_integer, parse_deep};
use crate::memory::journal::ChangeJournal;
use crate::memory::state::ServerState;
use crate::rules::change::{Location, ObjectChange};
use crate::sync::Mutex;
use crate::{Kind, SharedObject};
use homeostat::rt::{OwnerProcess, panic_message};
use homeostat::run::BoxError;

/// The database key of an object: `apiVersion`, `kind` and path (namespace and name).
type RowKey = (&'static str, &'static str, &'static str);

/// The JSON of an object by its key.
const OBJECTS: TableDefinition<RowKey, &[u8]> = TableDefinition::new("objects");
/// Numbers, by their names.
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
/// The version of the last change.
const HEAD: &str = "head";
/// The format of the tables.
const FORMAT: &str = "format";
const THIS_FORMAT: u64 = 1;
/// Never stored in the file: a transaction that creates this table also deletes it.
const RESERVE: TableDefinition<(), &[u8]> = TableDefinition::new("reserve");
/// The free bytes of the file that a deletion may need. It copies the pages on the paths to its rows.
const RESERVED: usize = 250 << 10;

/// A database in a file. It is closed after a failure, and the next write opens it again.
pub(super) struct FileStore {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    file: Mutex<File>,
    owner: OwnerProcess,
}

struct File {
    /// `None` after a failure.
    database: Option<Database>,
    /// The last version that is certainly on the disk.
    head: u64,
    /// The present state of objects after failed writes. The file may contain such a write, so the next write stores
    /// these states again.
    doubtful: HashMap<Location, Option<SharedObject>>,
}

impl FileStore {
    /// Opens the database, creates it if the disk is empty, and reads all objects into the state.
    pub(super) fn open(path: PathBuf, disk: Arc<dyn Disk>, state: &mut ServerState) -> Result<Self, BoxError> {
        let mut file = File { database: None, head: 0, doubtful: HashMap::new() };
        let opened = guard(|| {
            if is_unfinished(disk.bytes())? {
                disk.bytes().set_len(0)?;
            }
            let database = file.database.insert(open(&disk)?);
            let reading = database.begin_read()?;
            if !is_empty(&reading)? {
                return load(&reading, state);
            }
            // Sync before the tables exist: later, their existence proves that the folder was synced.
            disk.sync_folder()?;
            create_tables(database)
        });
        if let Err(error) = opened {
            file.close();
            return Err(error);
        }
        file.head = state.head;
        Ok(Self { path, disk, file: Mutex::new(file), owner: OwnerProcess::current() })
    }
}

impl FileStore {
    /// Moves the contents of the file together and cuts off the free end. Stores wait until this is done.
    pub(super) fn compact(&self) -> Result<(), BoxError> {
        self.owner.check()?;
        self.file.lock().compact(&self.disk)
    }

    /// Returns the length of the file in bytes.
    pub(super) fn size(&self) -> io::Result<u64> {
        self.disk.bytes().len()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl ChangeJournal for Arc<FileStore> {
    fn check(&self) -> Result<(), Arc<str>> {
        self.owner.check().map_err(|forked| {
            let path = self.path.display();
            format!("{path}: {forked}: open the file in process {} once the owner has closed it", std::process::id())
                .into()
        })
    }

    fn store(&self, changes: &[Arc<ObjectChange>]) -> Result<(), BoxError> {
        let stored = self.file.lock().store(&self.disk, changes);
        stored.map_err(|error| format!("{}: {error}", self.path.display()).into())
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        #[cfg(not(all(test, loom)))]
        if !self.owner.is_current() {
            // The owner still writes to the file. When the database closes, the storage refuses its writes.
            if self.file.try_lock().is_none() {
                // Another thread was using the database when the process was forked, so its locks may never be
                // released.
                std::mem::forget(self.file.get_mut().database.take());
            }
            return self.file.get_mut().close();
        }
        let mut file = self.file.lock();
        if !file.doubtful.is_empty()
            && let Err(error) = file.store(&self.disk, &[])
        {
            let path = self.path.display();
            log::warn!(path:%, error:%; "{path}: a write that failed may still be in the file: {error}");
        }
        file.close();
    }
}

impl File {
    fn store(&mut self, disk: &Arc<dyn Disk>, changes: &[Arc<ObjectChange>]) -> Result<(), BoxError> {
        let needs_room = changes.iter().any(|change| needs_room(change));
        if needs_room {
            disk.take_reserve();
        }
        let stored = self.write(disk, changes, needs_room);
        // On a full disk, releasing the reserve makes space for deletions, once.
        if stored.is_err() && !needs_room && disk.release_reserve() {
            return self.write(disk, changes, false);
        }
        stored
    }

    fn write(&mut self, disk: &Arc<dyn Disk>, changes: &[Arc<ObjectChange>], needs_room: bool) -> Result<(), BoxError> {
        self.reopen(disk)?;
        let Some(database) = &self.database else { return Ok(()) };
        let head = changes.last().map_or(self.head, |change| change.version);
        let written = guard(|| {
            let writing = database.begin_write()?;
            {
                let mut objects = writing.open_table(OBJECTS)?;
                for (location, object) in &self.doubtful {
                    put(&mut objects, location, object.as_ref())?;
                }
                for change in changes {
                    let ObjectChange { location, object, removed, .. } = &**change;
                    put(&mut objects, location, (!removed).then_some(object))?;
                }
                writing.open_table(NUMBERS)?.insert(HEAD, head)?;
            }
            if needs_room {
                reserve(&writing)?;
            }
            Ok(writing.commit()?)
        });
        if let Err(error) = written {
            for change in changes {
                let ObjectChange { location, old, .. } = &**change;
                // If one object changes several times, its first change holds the present state.
                self.doubtful.entry(location.clone()).or_insert_with(|| old.clone());
            }
            self.close();
            return Err(error);
        }
        self.head = head;
        self.doubtful.clear();
        Ok(())
    }

    fn compact(&mut self, disk: &Arc<dyn Disk>) -> Result<(), BoxError> {
        // Also opens the database again, and removes failed writes.
        self.store(disk, &[])?;
        let Some(database) = &mut self.database else { return Ok(()) };
        let compacted = guard(|| Ok(database.compact()?));
        if compacted.is_err() {
            self.close();
        }
        compacted.map(drop)
    }

    /// Opens the database again if the previous call has closed it after a failure.
    ///
    /// # Errors
    ///
    /// If the database cannot be opened, or if it lacks an acknowledged write.
    fn reopen(&mut self, disk: &Arc<dyn Disk>) -> Result<(), BoxError> {
        if self.database.is_some() {
            return Ok(());
        }
        let head = guard(|| {
            let database = self.database.insert(open(disk)?);
            let head = head(&database.begin_read()?)?;
            if head < self.head {
                let stored = self.head;
                return Err(format!(
                    "version {stored} was stored, but the file has version {head} now: it has lost acknowledged writes, and \
                     nothing more is written to it; the next process that opens it finds the older objects"
                )
                .into());
            }
            Ok(head)
        });
        if head.as_ref().is_ok_and(|head| *head == self.head) {
            self.doubtful.clear();
        }
        if head.is_err() {
            self.close();
        }
        head.map(drop)
    }

    fn close(&mut self) {
        let database = self.database.take();
        // Ignore errors: closing writes nothing that we need.
        let _ = guard(|| {
            drop(database);
            Ok(())
        });
    }
}

/// Calls the database. A panic becomes an error, because only a damaged file can cause it. The call must not drop a
/// database, which could panic again during the unwinding.
fn guard<T>(call: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|panic| Err(format!("the database is damaged: {}", panic_message(&*panic)).into()))
}

/// Opens the database and verifies the checksums of all its pages.
fn open(disk: &Arc<dyn Disk>) -> Result<Database, BoxError> {
    let storage = Storage::on(Arc::clone(disk));
    Ok(Database::builder().set_check_integrity_on_open(true).create_with_backend(storage)?)
}

/// Returns whether the process that created the file ended before the database was complete. Such a file has the length
/// of a new database, and each byte is either zero or equal to the header of a new database. Only the magic number is
/// missing.
fn is_unfinished(bytes: &dyn StorageBackend) -> Result<bool, BoxError> {
    const PIECE: usize = 4_096;
    let mut piece = [0; PIECE];
    let len = bytes.len()?;
    if len < PIECE as u64 {
        return Ok(false);
    }
    bytes.read(0, &mut piece)?;
    if piece[..9] != [0; 9] {
        return Ok(false);
    }
    let new = NewDatabase::default();
    // Fails at the first sync, which comes before the magic number.
    drop(Database::builder().create_with_backend(new.clone()));
    let (new_len, header) = new.0.lock().clone();
    if len != new_len {
        return Ok(false);
    }
    for at in (0..len).step_by(PIECE) {
        let piece = &mut piece[..usize::try_from(len - at).map_or(PIECE, |left| left.min(PIECE))];
        bytes.read(at, piece)?;
        let expected = header.iter().skip(usize::try_from(at)?).chain(std::iter::repeat(&0));
        if piece.iter().zip(expected).any(|(byte, expected)| *byte != 0 && byte != expected) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Learns the length and the header of a new database, as they are before the magic number is written.
#[derive(Clone, Debug, Default)]
struct NewDatabase(Arc<Mutex<(u64, Vec<u8>)>>);

impl StorageBackend for NewDatabase {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().0)
    }

    fn read(&self, _offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.fill(0);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().0 = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::Error::other("the header is complete"))
    }

    fn write(&self, _offset: u64, data: &[u8]) -> io::Result<()> {
        data.clone_into(&mut self.0.lock().1);
        Ok(())
    }
}
/// Returns whether a change must leave the reserve for deletions. A deletion, each of its steps, and a change that
/// makes an object smaller may use it, so that a full store can be emptied.
fn needs_room(change: &ObjectChange) -> bool {
    let ObjectChange { object, old, removed, .. } = change;
    let grows = || old.as_ref().is_none_or(|old| old.to_string().len() < object.to_string().len());
    !removed && !object.is_deleting() && grows()
}

/// Makes sure that the file has free pages for the next deletion: allocates them, and frees them again.
fn reserve(writing: &WriteTransaction) -> Result<(), BoxError> {
    writing.open_table(RESERVE)?.insert_reserve((), RESERVED)?;
    writing.delete_table(RESERVE)?;
    Ok(())
}

fn is_empty(reading: &ReadTransaction) -> Result<bool, BoxError> {
    Ok(reading.list_tables()?.next().is_none() && reading.list_multimap_tables()?.next().is_none())
}

fn create_tables(database: &Database) -> Result<(), BoxError> {
    let writing = database.begin_write()?;
    writing.open_table(NUMBERS)?.insert(FORMAT, THIS_FORMAT)?;
    writing.open_table(OBJECTS)?;
    Ok(writing.commit()?)
}

/// Reads all objects. Refuses a database of another program.
fn load(reading: &ReadTransaction, state: &mut ServerState) -> Result<(), BoxError> {
    match format(reading) {
        Some(THIS_FORMAT) => {}
        Some(other) => {
            return Err(format!("the file has format {other}, but this version reads format {THIS_FORMAT}").into());
        }
        None => {
            let tables = reading.list_tables()?.map(|table| table.name().to_owned());
            let multimaps = reading.list_multimap_tables()?.map(|table| table.name().to_owned());
            let tables = tables.chain(multimaps).collect::<Vec<_>>().join(", ");
            return Err(format!("the file is a redb database of another program, with the tables {tables}").into());
        }
    }
    state.head = head(reading)?;
    for entry in reading.open_table(OBJECTS)?.iter()? {
        let (key, json) = entry?;
        let (api_version, kind, path) = key.value();
        let object = parse(json.value()).map_err(|error| format!("{kind} {path} cannot be read: {error}"))?;
        let kind = Kind::of(api_version, kind);
        let is_namespaced = !meta_string(&object, "namespace").is_empty();
        state.load(&if is_namespaced { kind } else { kind.in_no_namespace() }, object);
    }
    Ok(())
}

/// Returns the format of the tables, if they belong to this store.
fn format(reading: &ReadTransaction) -> Option<u64> {
    reading.open_table(OBJECTS).ok()?;
    Some(reading.open_table(NUMBERS).ok()?.get(FORMAT).ok()??.value())
}

fn head(reading: &ReadTransaction) -> Result<u64, BoxError> {
    Ok(reading.open_table(NUMBERS)?.get(HEAD)?.map_or(0, |head| head.value()))
}

fn put(
    objects: &mut Table<'_, RowKey, &[u8]>,
    location: &Location,
    object: Option<&SharedObject>,
) -> Result<(), BoxError> {
    let (api_version, path) = (location.kind.api_version(), location.key.to_string());
    let key = (&*api_version, location.kind.name(), path.as_str());
    match object {
        Some(object) => objects.insert(key, object.to_string().as_bytes())?,
        None => objects.remove(key)?,
    };
    Ok(())
}

/// Parses the JSON of an object. Earlier versions have also stored objects that are too deep for `serde_json`.
fn parse(json: &[u8]) -> Result<Value, BoxError> {
    if let Some(integer) = altered_integer(json) {
        return Err(format!("the integer {integer} does not fit into 64 bits").into());
    }
    Ok(serde_json::from_slice(json).or_else(|error| parse_deep(json).map_err(|_| error))?)
}
