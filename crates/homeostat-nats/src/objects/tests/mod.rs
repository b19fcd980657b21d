//! All worlds of one to three processes that delete an owner, up to their ends: between two requests of one process,
//! others may do anything. Few faults happen: a request fails, its answer is lost, it arrives after its sender has
//! given up, or a process is killed.
//!
//! The processes run the code of the client itself, on a bucket that is a plain value. A process pauses between any two
//! requests for any time, so all that it has read may be old.
//!
//! All worlds together have some 110,000 states, which 300,000 steps reach. The longest way to an end has 72 steps. The
//! exploration takes 75 seconds of CPU time without optimisation.
//!
//! Not covered: servers in a cluster that disagree; full buckets; the removal of markers; cluster-wide owners; several
//! kinds; more than two faults; a listing of a new client that is not read at one moment.

#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

mod bucket;
mod process;

use self::bucket::{Bucket, Request};
use self::process::{Call, Process, node};
use homeostat_objects::Propagation::{self, Background, Foreground, Orphan};
use homeostat_test_support::explore::{World, explore};
use serde_json::{Value, json};

/// A fault of the client, of its caller or of the server that the exploration must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// The store ignores the expected revision of a write.
    AnyRevision,
    /// Reads show the bucket as it was before its last write.
    OldReads,
    /// A dependent is not named before it is stored.
    Unnamed,
    /// The names of dependents are removed together with their owner.
    ForgetsEarly,
    /// A new client does not finish what killed ones have left.
    NoRepair,
}

#[derive(Clone, Debug)]
struct CascadeWorld {
    mutation: Mutation,
    bucket: Bucket,
    /// The bucket before its last write.
    older: Option<Box<Bucket>>,
    processes: Vec<Process>,
    /// Writes that have not arrived, although their senders no longer wait for them.
    stray: Vec<Request>,
    faults_left: u8,
    /// Whether a new client must finish the work: a process was killed, or its last call had a fault.
    needs_repair: bool,
    /// The objects that a caller deletes.
    deleted: &'static [&'static str],
    /// The objects that remain.
    survivors: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The bucket executes the next request of a process, and answers it.
    Answer(usize),
    /// The request is lost.
    Lose(usize),
    /// The request is executed, but the answer is lost.
    LoseAnswer(usize),
    /// The request arrives after its sender has given up.
    Delay(usize),
    Kill(usize),
    StrayWrite,
}

fn key(name: &str) -> String {
    format!("x=2Eio.Node.n.{name}")
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|found| found == name))
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns whether an object waits until its dependents have been deleted.
fn waits(object: &Value) -> bool {
    is_deleting(object) && has_finalizer(object, "foregroundDeletion")
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

impl CascadeWorld {
    /// Returns a world in which these objects exist: names, each with the owner's name and its finalizers.
    fn new(mutation: Mutation, existing: &[(&'static str, Option<&str>, &[&str])]) -> Self {
        let mut world = Self {
            mutation: Mutation::None,
            bucket: Bucket::default(),
            older: None,
            processes: Vec::new(),
            stray: Vec::new(),
            faults_left: 0,
            needs_repair: false,
            deleted: &[],
            survivors: &[],
        };
        for (seed, (name, owner, finalizers)) in (100..).zip(existing) {
            let mut object = world.node(name, *owner);
            if !finalizers.is_empty() {
                object["metadata"]["finalizers"] = json!(finalizers);
            }
            world.processes = vec![Process::new(vec![Call::Create(object, seed)])];
            world.finish().unwrap();
        }
        world.processes.clear();
        Self { mutation, older: None, ..world }
    }

    fn node(&self, name: &str, owner: Option<&str>) -> Value {
        let owner = owner.map(|owner| (owner, uid(&self.bucket.object(&key(owner)).unwrap()).to_owned()));
        let owner = owner.as_ref().map(|(name, uid)| (*name, uid.as_str()));
        node(name, owner.as_slice())
    }

    /// Adds a process with these calls.
    fn process(mut self, calls: impl IntoIterator<Item = Call>) -> Self {
        self.processes.push(Process::new(calls.into_iter().collect()));
        self
    }

    fn faults(self, faults_left: u8) -> Self {
        Self { faults_left, ..self }
    }

    fn deletes(self, deleted: &'static [&'static str]) -> Self {
        Self { deleted, ..self }
    }

    fn keeps(self, survivors: &'static [&'static str]) -> Self {
        Self { survivors, ..self }
    }

    /// Executes a request. Returns an error if it deletes an object whose owner lives.
    fn execute(&mut self, request: Request) -> Result<String, String> {
        let request = if self.mutation == Mutation::AnyRevision { request.without_condition() } else { request };
        if self.mutation == Mutation::Unnamed && request.written_key().is_some_and(|key| key.starts_with("_owners.")) {
            return Ok(json!({"stream": "KV_B", "seq": 1}).to_string());
        }
        if !request.is_write() {
            let read = match &self.older {
                Some(older) if self.mutation == Mutation::OldReads => (**older).clone().execute(&request),
                _ => self.bucket.execute(&request),
            };
            return Ok(read);
        }
        let before = self.bucket.clone();
        let answer = self.bucket.execute(&request);
        if answer.contains("\"error\"") {
            return Ok(answer);
        }
        if let Some(written) = request.written_key()
            && let Some(old) = before.object(written)
            && !is_deleting(&old)
            && request.object().is_none_or(|object| is_deleting(&object))
        {
            self.check_deletion(&before, &old)?;
            if self.mutation == Mutation::ForgetsEarly && request.object().is_none() {
                let names = format!("_owners.{}", uid(&old));
                self.bucket.entries.retain(|key, _| !key.starts_with(&names));
            }
        }
        self.older = (self.mutation == Mutation::OldReads).then(|| Box::new(before));
        Ok(answer)
    }

    fn check_deletion(&self, bucket: &Bucket, object: &Value) -> Result<(), String> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let lives = |owner: &&Value| {
            let found = bucket.object(&key(owner["name"].as_str().unwrap()));
            let found = found.filter(|found| uid(found) == owner["uid"]);
            found.is_some_and(|found| !waits(&found))
        };
        if !self.deleted.contains(&name)
            && (owners(object).next().is_none() || owners(object).any(|owner| lives(&owner)))
        {
            return Err(format!("{name} is deleted, but its owner lives"));
        }
        Ok(())
    }

    fn answer(&mut self, who: usize) -> Result<(), String> {
        let request = self.processes[who].request().cloned().unwrap();
        let answer = self.execute(request)?;
        self.processes[who].answered(Some(answer.into()));
        Ok(())
    }

    /// Records that a request of a process has failed.
    fn fail(&mut self, who: usize) {
        // A later call of the process does the work that this one leaves.
        self.needs_repair |= self.processes[who].is_in_last_call();
        self.processes[who].answered(None);
    }

    /// Continues without faults, until all processes have ended.
    fn finish(&mut self) -> Result<(), String> {
        while let Some(who) = self.processes.iter().position(|process| process.request().is_some()) {
            self.answer(who)?;
        }
        Ok(())
    }

    /// Checks the end of a world: nothing is left to do.
    fn check_end(&self) -> Result<(), String> {
        let mut world = self.clone();
        if self.needs_repair && self.mutation != Mutation::NoRepair {
            world.processes = vec![Process::new(vec![Call::Repair])];
            world.finish()?;
        }
        let bucket = &world.bucket;
        for (_, object) in bucket.objects() {
            let name = &object["metadata"]["name"];
            for owner in owners(&object) {
                let found = bucket.object(&key(owner["name"].as_str().unwrap()));
                let found = found.filter(|found| uid(found) == owner["uid"]);
                if found.is_none_or(|found| waits(&found)) && !is_deleting(&object) {
                    return Err(format!("{name} is not deleted with its owner"));
                }
            }
            let blocks = |other: &Value| owners(other).any(|owner| owner["uid"] == uid(&object));
            if waits(&object) && !bucket.objects().any(|(_, other)| blocks(&other)) {
                return Err(format!("{name} waits for no dependent"));
            }
            if is_deleting(&object) && has_finalizer(&object, "orphan") {
                return Err(format!("{name} has not orphaned its dependents"));
            }
        }
        match self.survivors.iter().find(|name| bucket.object(&key(name)).is_none()) {
            Some(lost) => Err(format!("{lost} is lost")),
            None => Ok(()),
        }
    }
}

impl World for CascadeWorld {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (who, process) in self.processes.iter().enumerate() {
            let Some(request) = process.request() else { continue };
            steps.push(Step::Answer(who));
            if self.faults_left > 0 {
                steps.extend([Step::Lose(who), Step::Kill(who)]);
                steps.extend(
                    request.is_write().then_some([Step::LoseAnswer(who), Step::Delay(who)]).into_iter().flatten(),
                );
            }
        }
        if !self.stray.is_empty() {
            steps.push(Step::StrayWrite);
        }
        steps
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        self.faults_left -= u8::from(!matches!(step, Step::Answer(_) | Step::StrayWrite));
        match step {
            Step::Answer(who) => self.answer(who)?,
            Step::Lose(who) => self.fail(who),
            Step::LoseAnswer(who) => {
                let request = self.processes[who].request().cloned().unwrap();
                self.execute(request)?;
                self.fail(who);
            }
            Step::Delay(who) => {
                self.stray.extend(self.processes[who].request().cloned());
                // All clients that could do the work may end before the write arrives.
                self.needs_repair = true;
                self.fail(who);
            }
            Step::Kill(who) => {
                self.needs_repair = true;
                self.processes[who].kill();
            }
            Step::StrayWrite => {
                let request = self.stray.remove(0);
                self.execute(request)?;
            }
        }
        if self.steps().is_empty() { self.check_end() } else { Ok(()) }
    }
}

/// The objects of most worlds: an owner, its dependent, and a dependent of that one.
const FAMILY: &[(&str, Option<&str>, &[&str])] = &[("o", None, &[]), ("d", Some("o"), &[]), ("g", Some("d"), &[])];
const PAIR: &[(&str, Option<&str>, &[&str])] = &[("o", None, &[]), ("d", Some("o"), &[])];

/// Returns the worlds in which an owner is deleted, each with its name.
fn worlds(how: Propagation, mutation: Mutation) -> Vec<(&'static str, CascadeWorld)> {
    let delete = |name: &'static str, how: Propagation| Call::Delete(name, how);
    let with = |existing| CascadeWorld::new(mutation, existing).deletes(&["o"]);
    let (alone, pair, family) = (with(&PAIR[..1]), with(PAIR), with(FAMILY));
    let create = |seed: u64| Call::Create(alone.node("d", Some("o")), seed);
    let survivors: &[&[&str]] = if how == Orphan { &[&["d"], &["d", "g"]] } else { &[&[], &[]] };
    // The second call does the work that the first one leaves.
    let next_write = Call::Create(node("t", &[]), 9);
    let mut worlds = vec![
        ("its process fails", family.process([delete("o", how), next_write]).keeps(survivors[1]).faults(2)),
        ("a dependent is created", alone.clone().process([delete("o", how)]).process([create(1)]).faults(1)),
        (
            "a client starts",
            pair.clone().process([delete("o", how)]).process([Call::Repair]).keeps(survivors[0]).faults(1),
        ),
        (
            "the dependent is deleted",
            pair.clone().deletes(&["o", "d"]).process([delete("o", how)]).process([delete("d", Background)]).faults(1),
        ),
    ];
    match how {
        Foreground => {
            let held = with(&[("o", None, &[]), ("d", Some("o"), &["x"])]);
            let release = Call::Patch("d", json!({"metadata": {"finalizers": null}}));
            let world = held.process([delete("o", how)]).process([release]).faults(1);
            worlds.push(("a finalizer is removed", world));
            let second = Call::Create(pair.node("e", Some("o")), 1);
            worlds.push(("a second dependent is created", pair.process([delete("o", how)]).process([second])));
        }
        Orphan => {
            // The other choice may delete the dependent first.
            let world = pair.deletes(&["o", "d"]).process([delete("o", how)]).process([delete("o", Foreground)]);
            worlds.push(("another caller chooses the foreground", world));
        }
        Background => {
            let world = alone.clone().process([delete("o", how)]).process([create(1)]).process([Call::Repair]);
            worlds.push(("a dependent is created, and a client starts", world));
        }
    }
    worlds
}

/// Returns the world in which the dependent gets another owner, while its first one is deleted.
fn adoption(how: Propagation, mutation: Mutation) -> (&'static str, CascadeWorld) {
    let two = CascadeWorld::new(mutation, &[("o", None, &[]), ("p", None, &[]), ("d", Some("o"), &[])]).deletes(&["o"]);
    let owners = two.node("d", Some("p"))["metadata"]["ownerReferences"].clone();
    let adopt = Call::Patch("d", json!({"metadata": {"ownerReferences": owners}}));
    ("the dependent gets another owner", two.process([Call::Delete("o", how)]).process([adopt]).faults(1))
}

/// Explores these worlds to their ends. Returns a report.
fn explore_all(worlds: impl IntoIterator<Item = (&'static str, CascadeWorld)>) -> String {
    let (mut report, mut states, mut steps) = (Vec::new(), 0, 0);
    for (name, world) in worlds {
        let explored = explore(world, usize::MAX).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        report.push(format!("{name}: {} states, {} steps deep", explored.states, explored.depth));
        (states, steps) = (states + explored.states, steps + explored.steps);
    }
    assert!(states > 4_000, "{states} states");
    report.push(format!("in all: {states} states, {steps} steps"));
    report.join("\n")
}

#[test]
fn in_all_small_worlds_a_background_deletion_ends_and_deletes_no_other_objects() {
    println!("{}", explore_all(worlds(Background, Mutation::None)));
}

#[test]
fn in_all_small_worlds_a_foreground_deletion_ends_and_deletes_no_other_objects() {
    println!("{}", explore_all(worlds(Foreground, Mutation::None)));
}

#[test]
fn in_all_small_worlds_an_orphaning_deletion_ends_and_keeps_the_dependents() {
    println!("{}", explore_all(worlds(Orphan, Mutation::None)));
}

#[test]
fn in_all_small_worlds_a_dependent_that_gets_another_owner_is_deleted_with_its_owner_only() {
    println!("{}", explore_all([Background, Foreground].map(|how| adoption(how, Mutation::None))));
}

#[test]
fn the_exploration_of_cascades_finds_each_seeded_fault() {
    for mutation in
        [Mutation::AnyRevision, Mutation::OldReads, Mutation::Unnamed, Mutation::ForgetsEarly, Mutation::NoRepair]
    {
        let worlds = match mutation {
            Mutation::AnyRevision => vec![adoption(Background, mutation)],
            _ => worlds(Background, mutation),
        };
        let fault = worlds.into_iter().find_map(|(name, world)| {
            let fault = explore(world, usize::MAX).err()?;
            Some(format!("{name}: {}", fault.lines().next().unwrap_or_default()))
        });
        println!("{mutation:?}: {fault:?}");
        assert!(fault.is_some(), "{mutation:?} is not found");
    }
}
