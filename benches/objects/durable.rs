//! Durable writes of concurrent threads, beside the bare database with the same group commit on the same disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use homeostat::objects::{Client, FileClient, Patch, PatchTarget};
use parking_lot::{Condvar, Mutex};
use redb::{Database, TableDefinition};
use serde_json::json;

use super::{DEPLOYMENT, deployment, key};

const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
/// The objects that a thread writes in turn.
const OBJECTS_OF_A_THREAD: usize = 100;

pub(crate) fn durable(c: &mut Criterion) {
    let mut group = c.benchmark_group("objects/durable");
    for threads in [1, 8, 32] {
        group.throughput(Throughput::Elements(threads as u64));
        let folder = tempfile::tempdir().expect("a folder");
        let client = FileClient::open(folder.path().join("objects.redb")).expect("a new file");
        for number in 0..threads * OBJECTS_OF_A_THREAD {
            client.create(&DEPLOYMENT, deployment(number)).expect("a new one");
        }
        group.bench_function(BenchmarkId::new("file-client", threads), |b| {
            let mut round = 0;
            b.iter_custom(|writes| {
                round += 1;
                side_by_side(threads, writes, |number, at| {
                    let patch = Patch::Merge(json!({"spec": {"replicas": round * 1_000_000 + at}}));
                    client.patch(&DEPLOYMENT, &key(number), &patch, PatchTarget::Object).expect("a write");
                })
            });
        });
        let bare = Bare::open(&folder.path().join("bare.redb"));
        let value = serde_json::to_vec(&*client.get(&DEPLOYMENT, &key(0)).expect("it is there")).expect("JSON");
        group.bench_function(BenchmarkId::new("bare-redb", threads), |b| {
            b.iter_custom(|writes| {
                side_by_side(threads, writes, |number, _| bare.write(key(number).to_string(), value.clone()))
            });
        });
    }
}

/// Runs `write` this many times on each thread, with the number of an object and of the write. Returns the time for all.
fn side_by_side(threads: usize, writes: u64, write: impl Fn(usize, u64) + Sync) -> Duration {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let write = &write;
            scope.spawn(move || {
                for (number, at) in (0..OBJECTS_OF_A_THREAD).cycle().zip(0..writes) {
                    write(thread * OBJECTS_OF_A_THREAD + number, at);
                }
            });
        }
    });
    begin.elapsed()
}

/// The database alone, with leader and followers: the writer that opens a batch stores it when the batch before has ended.
struct Bare {
    database: Database,
    open: Mutex<Option<(Vec<(String, Vec<u8>)>, Arc<Batch>)>>,
    leading: Mutex<()>,
}

#[derive(Default)]
struct Batch {
    is_stored: Mutex<bool>,
    stored: Condvar,
}

impl Bare {
    fn open(path: &std::path::Path) -> Self {
        let database = Database::create(path).expect("a new file");
        Self { database, open: Mutex::default(), leading: Mutex::default() }
    }

    fn write(&self, key: String, value: Vec<u8>) {
        let mut open = self.open.lock();
        if let Some((rows, batch)) = &mut *open {
            rows.push((key, value));
            let batch = Arc::clone(batch);
            drop(open);
            let mut is_stored = batch.is_stored.lock();
            while !*is_stored {
                batch.stored.wait(&mut is_stored);
            }
            return;
        }
        *open = Some((vec![(key, value)], Arc::default()));
        drop(open);
        let leading = self.leading.lock();
        let Some((rows, batch)) = self.open.lock().take() else { return };
        let writing = self.database.begin_write().expect("a transaction");
        {
            let mut objects = writing.open_table(OBJECTS).expect("a table");
            for (key, value) in rows {
                objects.insert(&*key, &*value).expect("a row");
            }
        }
        writing.commit().expect("a commit");
        drop(leading);
        *batch.is_stored.lock() = true;
        batch.stored.notify_all();
    }
}
