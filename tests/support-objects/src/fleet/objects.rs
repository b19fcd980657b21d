//! The objects, the users that change them, an observer of all versions, and the conditions at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use homeostat::CancellationToken;
use homeostat_objects::{
    Client, ClientError, DeleteOptions, FENCE_ANNOTATION, Ignore, ObjectKey, Patch, PatchTarget, Query, SharedObject,
    ValueRef,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::record::now;
use super::{Dice, FINALIZER, GENERATION, Ground, JOB, LEADER, OWNER};
use homeostat_test_support::system::pause;

/// The number of jobs at most.
const JOBS: u64 = 16;

/// A job as its users know it.
struct KnownJob {
    uid: String,
    /// The size that users want.
    size: u64,
    /// The time of the creation.
    since: u64,
}

/// The jobs, which users create, change and delete.
pub(super) struct Objects {
    client: Arc<dyn Client>,
    namespace: String,
    known: BTreeMap<String, KnownJob>,
    /// The last size. Each change has another one.
    size: u64,
}

impl Objects {
    /// Creates all jobs, and the object of the leader.
    pub(super) fn new(ground: &Ground) -> Self {
        let (client, namespace) = (ground.client.clone(), ground.namespace.clone());
        let mut objects = Self { client, namespace, known: BTreeMap::new(), size: 0 };
        objects.client.create(&JOB, objects.json(LEADER, 0)).unwrap();
        for number in 0..JOBS {
            objects.create(&name_of(number));
        }
        objects
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.namespace, name)
    }

    /// Returns a new object. Every other job has a finalizer.
    fn json(&self, name: &str, size: u64) -> Value {
        let mut meta = json!({"namespace": self.namespace, "name": name});
        if name.ends_with(['0', '2', '4', '6', '8']) {
            meta["finalizers"] = json!([FINALIZER]);
        }
        json!({"apiVersion": JOB.api_version(), "kind": JOB.name(), "metadata": meta, "spec": {"size": size}})
    }

    /// Creates, deletes or resizes one job.
    pub(super) fn change(&mut self, dice: &mut Dice) {
        let name = name_of(dice.roll(JOBS));
        match dice.roll(8) {
            0 => self.delete(&name),
            _ if self.known.contains_key(&name) => self.resize(&name),
            _ => self.create(&name),
        }
    }

    fn create(&mut self, name: &str) {
        self.size += 1;
        // The job cannot be created while its deletion has not ended.
        let created = self.client.create(&JOB, self.json(name, self.size)).ignore_already_exists();
        self.note(name, created);
    }

    fn resize(&mut self, name: &str) {
        self.size += 1;
        let patch = Patch::Merge(json!({"spec": {"size": self.size}}));
        let patched = self.client.patch(&JOB, &self.key(name), &patch, PatchTarget::Object).ignore_not_found();
        self.note(name, patched);
    }

    fn delete(&mut self, name: &str) {
        self.known.remove(name);
        let deleted = self.client.delete(&JOB, &self.key(name), &DeleteOptions::default()).ignore_not_found();
        if let Err(error) = deleted {
            self.note(name, Err(error));
        }
    }

    /// Notes the answer to a change. After an error, the object itself says whether the change was made.
    fn note(&mut self, name: &str, answer: Result<Option<SharedObject>, ClientError>) {
        let answer = answer.unwrap_or_else(|_| {
            let found = self.client.get(&JOB, &self.key(name)).ignore_not_found().unwrap();
            self.known.remove(name);
            found.filter(|job| !job.is_deleting())
        });
        if let Some(job) = answer {
            let since = self.known.get(name).map_or_else(now, |known| known.since);
            let (uid, size) = (job.uid().to_owned(), size_of(&job));
            self.known.insert(name.to_owned(), KnownJob { uid, size, since });
        }
    }

    /// Returns the names of the jobs that have existed since this time or longer.
    pub(super) fn since(&self, time: u64) -> impl Iterator<Item = &str> {
        self.known.iter().filter(move |(_, job)| job.since < time).map(|(name, _)| name.as_str())
    }

    /// Returns the reasons why the fleet has not settled. Once it has settled, each job has its last size, one of these
    /// workers has handled its last generation, and all deletions have ended.
    pub(super) fn unsettled(&self, workers: &[&str]) -> Vec<String> {
        let listed = self.client.list(&JOB, &Query::all().namespace(&self.namespace));
        let items = match listed {
            Ok(list) => list.items,
            Err(error) => return vec![format!("the list fails: {error}")],
        };
        let mut reasons = Vec::new();
        for object in &items {
            let name = object.name();
            let owner = annotation(object, OWNER).unwrap_or_default();
            let generation = object.pointer("/metadata/generation").and_then(ValueRef::as_u64);
            let seen = annotation(object, GENERATION).and_then(|text| text.parse().ok());
            if object.is_deleting() {
                reasons.push(format!("{name} is being deleted"));
            } else if !workers.contains(&owner.as_str()) {
                reasons.push(format!("{name} belongs to {owner:?}"));
            } else if seen != generation {
                reasons.push(format!("{name} has the generation {generation:?}, and {owner} has seen {seen:?}"));
            }
            let known = self.known.get(name).map(|known| (known.uid.as_str(), known.size));
            let found = (object.uid(), size_of(object));
            if name != LEADER && !object.is_deleting() && known != Some(found) {
                reasons.push(format!("{name} is {found:?}, and its users have written {known:?}"));
            }
        }
        let is_missing = |name: &&String| items.iter().all(|object| object.name() != *name);
        reasons.extend(self.known.keys().filter(is_missing).map(|name| format!("{name} is missing")));
        reasons
    }
}

fn size_of(job: &SharedObject) -> u64 {
    job.pointer("/spec/size").and_then(ValueRef::as_u64).unwrap_or_default()
}

fn annotation(object: &SharedObject, name: &str) -> Option<String> {
    let annotations = object.pointer("/metadata/annotations")?;
    Some(annotations.get(name)?.as_str()?.to_owned())
}

fn name_of(number: u64) -> String {
    format!("job-{number:02}")
}

/// Watches all versions of all objects. The number in an object must not fall.
#[derive(Default)]
pub(super) struct Observer {
    /// The last number in each object, by uid.
    numbers: Mutex<BTreeMap<String, u64>>,
    faults: Mutex<Vec<String>>,
}

impl Observer {
    /// Watches until `stop`.
    pub(super) fn watch(&self, client: &dyn Client, namespace: &str, stop: &CancellationToken) {
        let query = Query::all().namespace(namespace);
        while !stop.is_cancelled() {
            // After a failure, the watch begins again with all objects as they are then.
            let events = client.watch(&JOB, &query, None, stop).into_iter().flatten();
            for event in events.map_while(Result::ok) {
                event.object().into_iter().for_each(|object| self.see(object));
            }
            pause(Duration::from_millis(20));
        }
    }

    fn see(&self, object: &SharedObject) {
        let number = annotation(object, FENCE_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or_default();
        let before = self.numbers.lock().insert(object.uid().to_owned(), number).unwrap_or_default();
        if number < before {
            let (name, version) = (object.name(), object.resource_version());
            self.faults
                .lock()
                .push(format!("{name} has the number {number} in version {version}, and had {before} before"));
        }
    }

    pub(super) fn faults(&self) -> Vec<String> {
        self.faults.lock().clone()
    }
}
