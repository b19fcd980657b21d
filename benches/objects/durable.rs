//! Durable writes by concurrent threads, compared with the bare database with the same group commit on the same disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use criterion::Criterion;
use homeostat_objects::{Client, FileClient, Patch, PatchTarget};
use parking_lot::{Condvar, Mutex};
use redb::{Database, TableDefinition};
use serde_json::json;

use super::{DEPLOYMENT, deployment, is_test, is_wanted, key};

const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
/// The number of objects that a thread writes in turn.
const OBJECTS_OF_A_THREAD: usize = 100;

/// Prints the writes per second of the client and of the bare database. They are measured alternately, because a
/// disk's speed varies.
#[expect(clippy::print_stdout, reason = "criterion does not interleave what it compares")]
pub(crate) fn durable(_c: &mut Criterion) {
    if !is_wanted("objects/durable") {
        return;
    }
    let (rounds, time) = if is_test() { (1, Duration::from_millis(50)) } else { (9, Duration::from_secs(1)) };
    for threads in [1, 8, 32] {
        let folder = tempfile::tempdir().expect("a folder");
        let client = FileClient::open(folder.path().join("objects.redb")).expect("a new file");
        for number in 0..threads * OBJECTS_OF_A_THREAD {
            client.create(&DEPLOYMENT, deployment(number)).expect("a new one");
        }
        let bare = Bare::open(&folder.path().join("bare.redb"));
        let value = serde_json::to_vec(&client.get(&DEPLOYMENT, &key(0)).expect("it is there")).expect("JSON");
        for number in 0..threads * OBJECTS_OF_A_THREAD {
            bare.write(key(number).to_string(), value.clone());
        }
        let (mut ours, mut bares, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let count = AtomicUsize::new(0);
        for _ in 0..rounds {
            let our = writes_a_second(threads, time, |number| {
                // Each write changes something.
                let patch = Patch::Merge(json!({"spec": {"replicas": count.fetch_add(1, Ordering::Relaxed)}}));
                client.patch(&DEPLOYMENT, &key(number), &patch, PatchTarget::Object).expect("a write");
            });
            let bare = writes_a_second(threads, time, |number| bare.write(key(number).to_string(), value.clone()));
            ours.push(our);
            bares.push(bare);
            ratios.push(our / bare);
        }
        let [ours, bares, ratios] = [ours, bares, ratios].map(|mut all| {
            all.sort_by(f64::total_cmp);
            [all[rounds / 2], all[0], all[rounds - 1]]
        });
        let whole = |[median, least, most]: [f64; 3]| format!("{median:.0} ({least:.0}–{most:.0})");
        let [median, least, most] = ratios;
        println!(
            "objects/durable: {threads} threads, writes a second: {}, bare redb {}, ratio {median:.2} ({least:.2}–{most:.2})",
            whole(ours),
            whole(bares),
        );
    }
}

/// Calls `write` on each thread for some time, with the number of an object. Returns the calls per second.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn writes_a_second(threads: usize, time: Duration, write: impl Fn(usize) + Sync) -> f64 {
    let begin = Instant::now();
    let writes: u32 = std::thread::scope(|scope| {
        let threads = (0..threads).map(|thread| {
            let write = &write;
            scope.spawn(move || {
                let mut writes = 0;
                for number in (0..OBJECTS_OF_A_THREAD).cycle() {
                    write(thread * OBJECTS_OF_A_THREAD + number);
                    writes += 1;
                    if begin.elapsed() >= time {
                        break;
                    }
                }
                writes
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer")).sum()
    });
    f64::from(writes) / begin.elapsed().as_secs_f64()
}

/// The bare database with leader and followers: the writer that opens a batch stores it when the previous batch has
/// ended.
struct Bare {
    database: Database,
    open: Mutex<Option<OpenBatch>>,
    leading: Mutex<()>,
}

/// Keys and values, with the batch that they belong to.
type OpenBatch = (Vec<(String, Vec<u8>)>, Arc<Batch>);

#[derive(Default)]
struct Batch {
    is_stored: Mutex<bool>,
    stored: Condvar,
}

impl Bare {
    fn open(path: &Path) -> Self {
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
