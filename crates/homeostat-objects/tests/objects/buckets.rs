//! Processes that divide buckets of keys, and watch only the objects in their own buckets: the method that the guide
//! describes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use homeostat::{
    Action, BoxError, Component, Context, Controller, ControllerHandle, Manager, Running, Sources, Subscriber, Watch,
};
use homeostat_objects::{
    Api, Client, ControllerExt, DeleteOptions, DynamicObject, Ignore, Kind, LabelSelector, LeaseTiming, Members,
    MemoryClient, ObjectKey, ObjectWatch, Query, ShardHash,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::waits::until;

const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
const LABEL: &str = "example.com/bucket";
const BUCKETS: u64 = 64;
const SITES: u32 = 64;

type Watches = BTreeMap<u64, Running<Watch<ObjectKey, DynamicObject>>>;

fn bucket_of(site: &ObjectKey) -> u64 {
    ShardHash::of([site.namespace(), site.name()]).bucket(BUCKETS)
}

fn hash_of(bucket: u64) -> ShardHash {
    ShardHash::of([bucket.to_string()])
}

fn site(number: u32) -> ObjectKey {
    ObjectKey::new("default", &format!("site-{number}"))
}

fn create(client: &MemoryClient, key: &ObjectKey) {
    let meta = json!({"namespace": "default", "name": key.name(), "labels": {LABEL: bucket_of(key).to_string()}});
    client.create(&SITE, json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": meta})).unwrap();
}

/// A process, with a watch for each of its buckets.
struct Process {
    members: Members,
    watches: Arc<Mutex<Watches>>,
    /// The keys that ran, and whether their objects existed.
    runs: Receiver<(ObjectKey, bool)>,
    manager: Manager,
    running: Option<Running<Manager>>,
}

impl Process {
    fn start(client: &MemoryClient, name: &str) -> Self {
        let members = Members::builder(Arc::new(client.clone()), "default", "sites").identity(name);
        // The periods are short, and the lease is long: only a release or an announcement can move a bucket.
        let timing = LeaseTiming::new(Duration::from_secs(3600)).retry_period(Duration::from_millis(25));
        let members = members.timing(timing).build().unwrap();
        let manager = Manager::builder().build().unwrap();
        let (note, runs) = unbounded();
        let sites = Api::<DynamicObject>::of_kind(Arc::new(client.clone()), SITE);
        let api = sites.clone();
        let reconcile = move |_cx: &Context, key: &ObjectKey| -> Result<Action, BoxError> {
            note.send((key.clone(), api.get(key).ignore_not_found()?.is_some()))?;
            Ok(Action::await_change())
        };
        let controller = Controller::builder("site", reconcile);
        let controller = controller.shards(members.shards(), |site: &ObjectKey| hash_of(bucket_of(site)));
        let controller = controller.build().unwrap();
        let (handle, watches) = (controller.handle(), Arc::new(Mutex::new(Watches::new())));
        let (shards, filled) = (members.shards().clone(), Arc::clone(&watches));
        let owns = move |bucket| shards.owns(hash_of(bucket));
        manager.add(Component::running("sites-member", members.start().unwrap())).unwrap();
        manager.add(controller).unwrap();
        let follow = move |cx: &Context| follow(cx, &sites, owns, &handle, &filled);
        manager.add(Component::function("buckets", follow)).unwrap();
        let running = Some(manager.start().unwrap());
        Self { members, watches, runs, manager, running }
    }

    /// Returns the keys of the objects in the stores of all watches, in order.
    fn stored(&self) -> Vec<ObjectKey> {
        let watches = self.watches.lock();
        let mut keys: Vec<_> = watches.values().flat_map(|watch| watch.store().keys()).collect();
        keys.sort();
        keys
    }

    /// Returns the keys of objects that belong to this process, in order.
    fn owned(&self) -> Vec<ObjectKey> {
        let mut keys: Vec<_> = (0..SITES).map(site).collect();
        keys.retain(|key| self.members.shards().owns(hash_of(bucket_of(key))));
        keys.sort();
        keys
    }

    fn stop(&mut self) {
        self.manager.stop();
        self.running.take().unwrap().join().unwrap();
    }
}

/// Follows the changes of the buckets that belong to this process.
fn follow(
    cx: &Context,
    sites: &Api<DynamicObject>,
    owns: impl Fn(u64) -> bool,
    to: &ControllerHandle<ObjectKey>,
    watches: &Mutex<Watches>,
) -> Result<(), BoxError> {
    while cx.sleep(Duration::from_millis(5)).is_ok() {
        for bucket in 0..BUCKETS {
            let name = format!("sites-{bucket}");
            let mut watches = watches.lock();
            if owns(bucket) == watches.contains_key(&bucket) {
                continue;
            }
            if watches.remove(&bucket).is_some() {
                to.remove_source(&name, Duration::from_secs(60))?;
                continue;
            }
            let query = Query::all().labels(LabelSelector::label(LABEL, bucket.to_string()));
            let watch = ObjectWatch::new(sites.clone()).query(query).name(name.as_str()).start()?;
            let mut sources = Sources::new();
            sources.subscribe(&watch, move |queue| Subscriber::to_itself(queue).name(name));
            // This fails while the manager stops.
            if to.add_sources(sources).is_ok() {
                watches.insert(bucket, watch);
            }
        }
    }
    Ok(())
}

/// Waits until each object is in the store of its owner and in no other, and returns the shares of the processes.
#[track_caller]
fn shares<const N: usize>(processes: [&Process; N]) -> [Vec<ObjectKey>; N] {
    until!({
        processes.iter().all(|process| {
            let status = process.members.status();
            status.members.len() == N && status.waits_for.is_empty() && process.stored() == process.owned()
        })
    });
    let shares = processes.map(Process::owned);
    assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), SITES as usize);
    shares
}

/// Waits until a process has run all these keys.
#[track_caller]
fn runs(process: &Process, keys: &[ObjectKey]) {
    let mut missing = keys.to_vec();
    until!({
        let ran: Vec<_> = process.runs.try_iter().collect();
        missing.retain(|key| !ran.contains(&(key.clone(), true)));
        missing.is_empty()
    });
}

#[test]
fn a_process_watches_only_the_objects_of_its_own_buckets() {
    let client = MemoryClient::new();
    let all: Vec<_> = (0..SITES).map(site).collect();
    for key in &all {
        create(&client, key);
    }
    let mut a = Process::start(&client, "a");
    let [of_a] = shares([&a]);
    assert_eq!(of_a.len(), all.len());
    runs(&a, &all);

    let b = Process::start(&client, "b");
    let [of_a, of_b] = shares([&a, &b]);
    assert!(of_a.len().min(of_b.len()) > 0, "{of_a:?} {of_b:?}");
    runs(&b, &of_b);

    // Each process is notified when one of its own objects changes.
    for key in &all {
        client.delete(&SITE, key, &DeleteOptions::default()).unwrap();
        create(&client, key);
    }
    runs(&a, &of_a);
    runs(&b, &of_b);
    assert_eq!(shares([&a, &b]), [of_a.clone(), of_b]);

    a.stop();
    let [of_b] = shares([&b]);
    assert_eq!(of_b.len(), all.len());
    runs(&b, &of_a);
}
