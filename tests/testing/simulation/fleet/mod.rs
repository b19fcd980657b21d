//! Several processes of one program over one store, in one simulation: calls are late, lost or answered by nobody, processes are cut
//! off, stopped, killed and started again.

mod leader;
mod shards;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use homeostat::objects::{Api, Client, ClientError, DeleteOptions, Kind, MemoryClient, ObjectKey, ObjectMeta, Query};
use homeostat::testing::Simulation;
use homeostat::{Action, CancellationToken, Clock, Context};
use parking_lot::Mutex;

use super::{Outcome, SECOND};
use crate::hooked_client::{Call, HookedClient};

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");
/// The time with faults, and the time in which everything settles.
const STORM: Duration = Duration::from_secs(90);
const CALM: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Disk {
    metadata: ObjectMeta,
    /// The wanted size, which users raise one by one.
    size: u64,
    #[serde(default)]
    status: DiskStatus,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct DiskStatus {
    size: u64,
}

homeostat::object!(Disk, namespaced, "example.com", "v1", status: DiskStatus);

/// Numbers from a seed: the generator of Marsaglia, 2003.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The parts of the world that outlive a process.
#[derive(Clone)]
struct Ground {
    store: MemoryClient,
    clock: Clock,
    dice: Arc<Mutex<Dice>>,
    faults: Arc<Mutex<u64>>,
    is_calm: Arc<Mutex<bool>>,
    /// How often users have raised the size of each disk.
    raised: Arc<Mutex<Vec<u64>>>,
}

impl Ground {
    /// Creates a store with this number of disks.
    fn new(sim: &Simulation, disks: u64) -> Self {
        let clock = sim.clock();
        let ground = Self {
            store: MemoryClient::builder().clock(clock.clone()).build(),
            clock,
            dice: Arc::new(Mutex::new(Dice(sim.seed().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))),
            faults: Arc::default(),
            is_calm: Arc::default(),
            raised: Arc::new(Mutex::new(vec![0; usize::try_from(disks).unwrap()])),
        };
        for number in 0..disks {
            let metadata = ObjectMeta::new("default", Self::key(number).name());
            ground.disks().create(&Disk { metadata, size: 0, status: DiskStatus::default() }).unwrap();
        }
        ground
    }

    fn key(number: u64) -> ObjectKey {
        ObjectKey::new("default", &format!("disk-{number}"))
    }

    fn keys(&self) -> impl Iterator<Item = ObjectKey> {
        (0..).map(Self::key).take(self.raised.lock().len())
    }

    fn disks(&self) -> Api<Disk> {
        Api::new(Arc::new(self.store.clone()))
    }

    fn roll(&self, sides: u64) -> u64 {
        self.dice.lock().roll(sides)
    }

    /// Returns a client whose calls are disturbed until the calm.
    fn client(&self) -> Arc<HookedClient> {
        HookedClient::new(self.store.clone())
    }

    /// Lets the calls of this client be disturbed.
    fn disturb(&self, client: &HookedClient) {
        let ground = self.clone();
        client.on_call(move |call| ground.disturb_call(call));
    }

    /// Disturbs a call: it may be late, lost before the store, or lost after the store has carried it out.
    fn disturb_call(&self, call: &mut Call<'_>) -> Option<ClientError> {
        if *self.is_calm.lock() || call.verb == "watch" {
            return None;
        }
        let kind = call.object.kind();
        // A call about a lease may hang for longer than the lease lasts.
        let hangs = kind.name() == "Lease" && self.roll(100) == 0;
        if hangs || self.roll(4) == 0 {
            let late = if hangs { 20 * SECOND } else { Duration::from_millis(self.roll(1500)) };
            let _ = Context::detached_with(self.clock.clone(), CancellationToken::new()).sleep(late);
        }
        match (self.roll(12), call.verb, &mut call.sent) {
            (0, ..) => {}
            (1, "update", Some(sent)) => drop(self.store.update(kind, sent.clone())),
            (1, "create", Some(sent)) => drop(self.store.create(kind, sent.clone())),
            (1, "update_status", Some(sent)) => drop(self.store.update_status(kind, sent.clone())),
            _ => return None,
        }
        *self.faults.lock() += 1;
        Some(ClientError::transport(call.object.clone(), "the answer was lost"))
    }

    /// Raises the size of a disk as a user does, in the version that was read.
    fn raise_one(&self) {
        let disks = self.disks();
        let number = self.roll(self.raised.lock().len() as u64);
        let mut disk = disks.get(&Self::key(number)).unwrap();
        disk.size += 1;
        if disks.update(&disk).is_ok() {
            self.raised.lock()[usize::try_from(number).unwrap()] += 1;
        }
    }

    /// Deletes a lease of a member, or the division of the keys, as an operator may do by mistake.
    fn delete_a_lease(&self) {
        let leases = self.store.list(&LEASE, &Query::all().namespace("default")).unwrap().items;
        if !leases.is_empty() {
            let lease = &leases[usize::try_from(self.roll(leases.len() as u64)).unwrap()];
            self.store.delete(&LEASE, &lease.key(), &DeleteOptions::default()).unwrap();
        }
    }

    /// Checks that the status of each disk has the size that users want, and that no update is lost.
    fn check_settled(&self) {
        for (number, size) in (0..).zip(&*self.raised.lock()) {
            let disk = self.disks().get(&Self::key(number)).unwrap();
            assert_eq!((disk.size, disk.status.size), (*size, *size), "disk {number}");
        }
    }
}

/// Writes the wanted size of a disk into its status, and marks the disk with the number of the term.
fn settle(disks: &Api<Disk>, cx: &Context, key: &ObjectKey) -> Outcome {
    let fence = cx.fence()?;
    let mut disk = disks.get(key)?;
    if disk.status.size != disk.size {
        disk.status.size = disk.size;
        cx.fence()?;
        disks.update_status(&disk)?;
    }
    let mut marked = disks.get(key)?;
    fence.mark(&mut marked.metadata)?;
    disks.update(&marked)?;
    Ok(Action::requeue_after(20 * SECOND))
}

/// Runs the seeds `0..most`, or as many as the environment says. Prints the end of the trace if one fails.
#[expect(clippy::print_stdout, reason = "the trace of a failure")]
fn for_seeds(most: u64, run: impl Fn(&Simulation)) -> u64 {
    let most = std::env::var("HOMEOSTAT_FLEET_SEEDS").map_or(most, |seeds| seeds.parse().unwrap());
    Simulation::seeds(0..most, |sim| {
        catch_unwind(AssertUnwindSafe(|| run(sim))).unwrap_or_else(|panic| {
            let trace = sim.trace();
            for turn in &trace[trace.len().saturating_sub(200)..] {
                println!("{turn}");
            }
            resume_unwind(panic)
        });
    });
    most
}
