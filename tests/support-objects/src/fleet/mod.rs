//! Processes that divide keys and elect a leader over real servers, while they are killed, paused, stopped and started,
//! and while their networks fail.
//!
//! The test of a back end calls [`works`] first, and then [`drive`]. `drive` starts workers: each is a process of the
//! same test, in which `works` does not return before the end. A worker records its runs. After the end of all workers,
//! the records decide; how long something took decides nothing.
//!
//! | file | content |
//! |---|---|
//! | `worker.rs` | a worker: a member of a group, and a candidate for the leader |
//! | `record.rs` | the record of a worker |
//! | `process.rs` | the process of a worker |
//! | `objects.rs` | the objects: their changes, and the conditions at the end |
//! | `world.rs` | one run: the plan of a seed |
//! | `check.rs` | the rules for the records of all workers |
//! | `failover.rs` | the time until the keys of a killed worker run again |
//!
//! `HOMEOSTAT_FLEET_RUNS` sets the number of runs, and `HOMEOSTAT_FLEET_SEED` the seed of the first one.

pub mod check;
mod failover;
mod objects;
mod process;
pub mod record;
mod worker;
mod world;

use std::any::Any;
use std::env;
use std::sync::Arc;
use std::time::Duration;

use homeostat_objects::{Client, Kind};
use homeostat_test_support::system::number_of;
use serde_json::{Value, json};

use self::failover::Summary;

/// The kind of the objects. A back end must serve it and leases.
pub const JOB: Kind = Kind::namespaced("fleet.example.com", "v1", "Job");

/// The name of the object that only the leader writes.
const LEADER: &str = "leader";

/// The annotations that a run writes, beside the fencing number: the worker, the generation that it has seen, and the
/// number of writes.
const OWNER: &str = "fleet.example.com/owner";
const GENERATION: &str = "fleet.example.com/generation";
const WRITES: &str = "fleet.example.com/writes";

/// The finalizer of every other object.
const FINALIZER: &str = "fleet.example.com/job";

/// The environment variable that makes a test a worker.
const WORKER: &str = "HOMEOSTAT_FLEET_WORKER";

/// The longest wait for the fleet. Only a run that fails takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The servers of one run, and the namespace of its objects.
pub struct Ground {
    /// A client of the servers.
    pub client: Arc<dyn Client>,
    /// The host and port of the server. Each worker reaches it through a separate network.
    pub server: String,
    /// Returns the text by which a worker finds the servers, from the host and port of its network.
    pub address: Box<dyn Fn(&str) -> String>,
    /// The namespace of the objects.
    pub namespace: String,
    /// The servers, which end when this is dropped.
    pub servers: Box<dyn Any>,
}

/// The settings of a worker.
#[derive(Clone, Debug)]
struct Orders {
    name: String,
    address: String,
    namespace: String,
    lease: Duration,
    seed: u64,
}

impl Orders {
    fn to_text(&self) -> String {
        let Self { name, address, namespace, lease, seed } = self;
        json!({"name": name, "address": address, "namespace": namespace, "lease": lease.as_secs(), "seed": seed})
            .to_string()
    }

    fn read(text: &str) -> Self {
        let orders: Value = serde_json::from_str(text).unwrap();
        let string = |field: &str| orders[field].as_str().unwrap().to_owned();
        let number = |field: &str| orders[field].as_u64().unwrap();
        Self {
            name: string("name"),
            address: string("address"),
            namespace: string("namespace"),
            lease: Duration::from_secs(number("lease")),
            seed: number("seed"),
        }
    }
}

/// Numbers from a seed: the generator of Marsaglia, 2003.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        // The first numbers of similar seeds are similar.
        for _ in 0..20 {
            dice.roll(2);
        }
        dice
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.roll(range.end - range.start))
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { of.get(usize::try_from(self.roll(of.len() as u64)).unwrap()).copied() }
    }
}

/// Works until standard input ends if this process is a worker. Returns false at once in the process of the test.
pub fn works(connect: impl FnOnce(&str) -> Arc<dyn Client>) -> bool {
    let Ok(orders) = env::var(WORKER) else { return false };
    let orders = Orders::read(&orders);
    let client = connect(&orders.address);
    worker::work(orders, client);
    true
}

/// Runs the fleet for each seed, on the servers that `ground` starts. `test` is the full name of the test.
#[expect(clippy::print_stdout, reason = "the figures, and the story of a failure")]
pub fn drive(test: &str, mut ground: impl FnMut(u64) -> Ground) {
    let (runs, first) = (number_of("HOMEOSTAT_FLEET_RUNS", 2), number_of("HOMEOSTAT_FLEET_SEED", 3));
    let mut total = Summary::default();
    let mut failed = Vec::new();
    for seed in first..first + runs {
        let outcome = world::run(test, seed, &ground(seed));
        println!("seed {seed}: {}", outcome.summary);
        if !outcome.faults.is_empty() {
            println!("seed {seed} has faults:\n{}\n{}", outcome.faults.join("\n"), outcome.story);
            failed.push(seed);
        }
        total.add(outcome.summary);
    }
    println!("{runs} runs: {total}");
    assert!(failed.is_empty(), "the seeds {failed:?} have faults; set HOMEOSTAT_FLEET_SEED and HOMEOSTAT_FLEET_RUNS=1");
    // Each object runs before the first disturbance. Keys of a worker that has ended, was killed or was cut off run
    // elsewhere.
    assert!(total.runs > runs * 17 && total.moves > 0, "{total}");
}
