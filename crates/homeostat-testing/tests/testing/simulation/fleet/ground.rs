//! The environment of the processes: the store, the network, the machines and the users.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, UNIX_EPOCH};

use homeostat::{CancellationToken, Clock, Context};
use homeostat_objects::{
    Api, Client, ClientError, FENCE_ANNOTATION, Kind, MemoryClient, Object, ObjectKey, ObjectList, ObjectMeta, Query,
    SharedObject, WatchEvent,
};
use homeostat_testing::{SimulatedMachine, Simulation};
use parking_lot::Mutex;
use serde_json::Value;

use super::{Disk, DiskStatus, LEASE, SECOND};
use crate::hooked_client::{Call, HookedClient};

/// The maximum age of the state that a read returns.
const OLDEST: Duration = Duration::from_secs(30);

/// Random numbers from a seed: the generator of Marsaglia, 2003.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The faults that have happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lost: u64,
    pub(super) old_reads: u64,
    pub(super) repeated: u64,
    pub(super) pauses: u64,
}

impl Faults {
    /// Checks that each fault has happened several times in each of `worlds`.
    pub(super) fn check_enough(&self, worlds: u64) {
        let Self { lost, old_reads, repeated, pauses } = *self;
        let is_enough = lost > worlds * 10 && old_reads > worlds * 10 && repeated > worlds * 3 && pauses > worlds;
        assert!(is_enough, "too few in {worlds} worlds: {self:?}");
    }
}

impl std::ops::AddAssign for Faults {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.old_reads += other.old_reads;
        self.repeated += other.repeated;
        self.pauses += other.pauses;
    }
}

/// A state of the store.
struct OldState {
    at: Instant,
    disks: ObjectList<SharedObject>,
    leases: ObjectList<SharedObject>,
}

/// A write that the network will deliver a second time.
struct LateWrite {
    at: Instant,
    verb: &'static str,
    kind: Kind,
    object: Value,
}

/// The parts of the world that outlive a process.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) store: MemoryClient,
    pub(super) clock: Clock,
    pub(super) machines: Arc<Vec<SimulatedMachine>>,
    /// The version at which all disks exist.
    begin: String,
    dice: Arc<Mutex<Dice>>,
    faults: Arc<Mutex<Faults>>,
    is_calm: Arc<Mutex<bool>>,
    old_states: Arc<Mutex<VecDeque<OldState>>>,
    late_writes: Arc<Mutex<Vec<LateWrite>>>,
    /// How often users have raised the size of each disk.
    raised: Arc<Mutex<Vec<u64>>>,
}

impl Ground {
    /// Creates a store with this number of disks, and this number of machines. The clocks of the first two differ most.
    pub(super) fn new(sim: &Simulation, disks: u64, machines: usize) -> Self {
        let clock = sim.clock();
        let mut dice = Dice(sim.seed().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let percent = |dice: &mut Dice, number| match number {
            0 => 80,
            1 => 120,
            _ => 80 + u32::try_from(dice.roll(41)).unwrap(),
        };
        let machines = (0..machines).map(|number| sim.machine(percent(&mut dice, number))).collect();
        let store = MemoryClient::builder().clock(clock.clone()).history(1_000_000).history_bytes(usize::MAX).build();
        let disks_of = Api::<Disk>::new(Arc::new(store.clone()));
        for number in 0..disks {
            let metadata = ObjectMeta::new("default", Self::key(number).name());
            disks_of.create(&Disk { metadata, size: 0, status: DiskStatus::default() }).unwrap();
        }
        let ground = Self {
            begin: store.list(&Disk::KIND, &Query::all()).unwrap().version,
            store,
            clock,
            machines: Arc::new(machines),
            dice: Arc::new(Mutex::new(dice)),
            faults: Arc::default(),
            is_calm: Arc::default(),
            old_states: Arc::default(),
            late_writes: Arc::default(),
            raised: Arc::new(Mutex::new(vec![0; usize::try_from(disks).unwrap()])),
        };
        (0..ground.machines.len()).for_each(|machine| ground.set_a_wall_clock(machine));
        ground
    }

    pub(super) fn key(number: u64) -> ObjectKey {
        ObjectKey::new("default", &format!("disk-{number}"))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = ObjectKey> {
        (0..).map(Self::key).take(self.raised.lock().len())
    }

    pub(super) fn disks(&self) -> Api<Disk> {
        Api::new(Arc::new(self.store.clone()))
    }

    pub(super) fn roll(&self, sides: u64) -> u64 {
        self.dice.lock().roll(sides)
    }

    /// Returns one of `count`.
    pub(super) fn one_of(&self, count: usize) -> usize {
        usize::try_from(self.roll(count as u64)).unwrap()
    }

    pub(super) fn calm_down(&self) {
        *self.is_calm.lock() = true;
    }

    pub(super) fn faults(&self) -> Faults {
        *self.faults.lock()
    }

    /// Sets the wall clock of a machine to a time within a day.
    pub(super) fn set_a_wall_clock(&self, machine: usize) {
        let time = Duration::from_secs(1_800_000_000 + self.roll(24 * 3600));
        self.machines[machine].set_time_of_day(UNIX_EPOCH + time);
    }

    /// Pauses a machine for longer than a lease or for a moment.
    pub(super) fn pause(&self, machine: &SimulatedMachine) -> Duration {
        let pause = Duration::from_millis(self.roll(if self.roll(2) == 0 { 30_000 } else { 3_000 }));
        machine.pause(pause);
        self.faults.lock().pauses += 1;
        pause
    }

    /// Returns a client with undisturbed calls.
    pub(super) fn client(&self) -> Arc<HookedClient> {
        HookedClient::new(self.store.clone())
    }

    /// Disturbs the calls of a client on this machine until the calm.
    pub(super) fn disturb(&self, client: &HookedClient, machine: &SimulatedMachine) {
        let (ground, machine) = (self.clone(), machine.clone());
        client.on_call(move |call| ground.disturb_call(call, &machine));
        let ground = self.clone();
        client.on_read(move |kind, query| ground.older(kind, query));
    }

    fn sleep(&self, duration: Duration) {
        let _ = Context::detached_with(self.clock.clone(), CancellationToken::new()).sleep(duration);
    }

    /// Disturbs a call: it may be late, lost before it reaches the store, lost after the store has executed it, or
    /// executed again later.
    fn disturb_call(&self, call: &mut Call<'_>, machine: &SimulatedMachine) -> Option<ClientError> {
        self.tick();
        if *self.is_calm.lock() || call.verb == "watch" {
            return None;
        }
        let kind = call.object.kind();
        // A call about a lease may hang for longer than the lease lasts.
        let hangs = kind.name() == "Lease" && self.roll(100) == 0;
        if hangs || self.roll(4) == 0 {
            self.sleep(if hangs { 20 * SECOND } else { Duration::from_millis(self.roll(1500)) });
        }
        if self.roll(100) == 0 {
            // The pause falls between the last check of the process and its call.
            self.sleep(self.pause(machine));
        }
        let is_lost = match (self.roll(20), &call.sent) {
            (0 | 1, _) => true,
            (2, Some(sent)) => {
                self.carry_out(call.verb, kind, Value::clone(sent));
                true
            }
            (fault @ (3 | 4), Some(sent)) => {
                let at = self.clock.now() + Duration::from_millis(self.roll(30_000));
                let object = Value::clone(sent);
                self.late_writes.lock().push(LateWrite { at, verb: call.verb, kind: kind.clone(), object });
                self.faults.lock().repeated += 1;
                fault == 3
            }
            _ => return None,
        };
        self.faults.lock().lost += u64::from(is_lost);
        is_lost.then(|| ClientError::transport(call.object.clone(), "the answer was lost"))
    }

    /// Executes a write, but returns no answer.
    fn carry_out(&self, verb: &str, kind: &Kind, object: Value) {
        match verb {
            "create" => drop(self.store.create(kind, object)),
            "update" => drop(self.store.update(kind, object)),
            "update_status" => drop(self.store.update_status(kind, object)),
            _ => {}
        }
    }

    /// Delivers late writes, and keeps the state of the store for late reads.
    pub(super) fn tick(&self) {
        let now = self.clock.now();
        let due: Vec<_> = self.late_writes.lock().extract_if(.., |write| write.at <= now).collect();
        for LateWrite { verb, kind, object, .. } in due {
            self.carry_out(verb, &kind, object);
        }
        let mut states = self.old_states.lock();
        if states.back().is_none_or(|last| now - last.at >= Duration::from_millis(200)) {
            let list = |kind| self.store.list(kind, &Query::all()).unwrap();
            states.push_back(OldState { at: now, disks: list(&Disk::KIND), leases: list(&LEASE) });
            while states.front().is_some_and(|first| now - first.at > OLDEST) {
                states.pop_front();
            }
        }
    }

    /// Returns an older state of all objects of a kind, which answers a get or a list.
    ///
    /// A list is as new as its query [wants](Query::not_older_than). Leases and single disks may be older although
    /// nobody allows that: the server that answers may not know yet that it no longer leads.
    fn older(&self, kind: &Kind, query: Option<&Query>) -> Option<ObjectList<SharedObject>> {
        let is_new =
            |query: &Query| query.continue_token.is_some() || (kind.name() == "Disk" && query.not_older_than.is_none());
        if *self.is_calm.lock() || query.is_some_and(is_new) || self.roll(5) > 0 {
            return None;
        }
        let late = Duration::from_millis(self.roll(if self.roll(8) == 0 { 30_000 } else { 3_000 }));
        let now = self.clock.now();
        let states = self.old_states.lock();
        let state = states.iter().rev().find(|state| now - state.at >= late)?;
        let list = if kind.name() == "Disk" { &state.disks } else { &state.leases };
        let least = query.and_then(|query| query.not_older_than.as_deref()).unwrap_or("0");
        let is_allowed = list.version.parse::<u64>().unwrap() >= least.parse().unwrap();
        self.faults.lock().old_reads += u64::from(is_allowed);
        is_allowed.then(|| list.clone())
    }

    /// Raises the size of a disk like a user, in the version that was read.
    pub(super) fn raise_one(&self) {
        let disks = self.disks();
        let number = self.roll(self.raised.lock().len() as u64);
        let mut disk = disks.get(&Self::key(number)).unwrap();
        disk.size += 1;
        if disks.update(&disk).is_ok() {
            self.raised.lock()[usize::try_from(number).unwrap()] += 1;
        }
    }

    /// Checks that the status of each disk has the size that users want, and that no update is lost.
    pub(super) fn check_settled(&self) {
        for (number, size) in (0..).zip(&*self.raised.lock()) {
            let disk = self.disks().get(&Self::key(number)).unwrap();
            assert_eq!((disk.size, disk.status.size), (*size, *size), "disk {number}");
        }
    }

    /// Checks each accepted write: no size falls, so no update is undone, and no fencing number falls.
    pub(super) fn check_history(&self) {
        let stop = CancellationToken::new();
        let mut stream = self.store.watch(&Disk::KIND, &Query::all(), Some(&self.begin), &stop).unwrap();
        let mut last = BTreeMap::<ObjectKey, [u64; 3]>::new();
        while let Poll::Ready(Some(event)) = stream.poll() {
            if let WatchEvent::Modified(disk) = event.unwrap() {
                let version = disk.resource_version().to_owned();
                let disk: Disk = serde_json::from_value(disk.to_value()).unwrap();
                let number = disk.metadata.annotations.get(FENCE_ANNOTATION).map_or(0, |text| text.parse().unwrap());
                let facts = [disk.size, disk.status.size, number];
                let before = last.insert(disk.metadata.key(), facts).unwrap_or_default();
                assert!(
                    facts.iter().zip(before).all(|(now, before)| *now >= before),
                    "{} falls from {before:?} to {facts:?} at version {version}",
                    disk.metadata.name
                );
            }
        }
        assert_eq!(last.len(), self.raised.lock().len());
    }
}
