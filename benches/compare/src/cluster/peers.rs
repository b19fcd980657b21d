//! The peers. Each keeps a server's objects in a store, and counts the changes that it sees.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use homeostat::watch::Subscription;
use homeostat::{Running, Store, Subscriber, Watch, WorkQueue};
use homeostat_kubernetes::{Kubeconfig, KubernetesClient};
use homeostat_objects::{Api, DynamicObject, Object, ObjectKey, ObjectWatch, Query};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, Config};
use parking_lot::{Condvar, Mutex};

use super::{CONFIG_MAP, LABEL};

/// A running watch with a store.
pub(super) trait Watcher {
    /// Returns the number of objects in the store.
    fn len(&self) -> usize;

    /// Returns the changes that the consumer has seen.
    fn changes(&self) -> &Changes;

    fn wait_synced(&self, objects: usize) {
        self.changes().wait_for(objects);
        while self.len() < objects {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A count of changes. Waiting for a number of them uses no CPU time.
#[derive(Default)]
pub(super) struct Changes {
    count: AtomicUsize,
    awaited: AtomicUsize,
    reached: Mutex<bool>,
    wake: Condvar,
}

impl Changes {
    fn add(&self) {
        if self.count.fetch_add(1, Ordering::SeqCst) + 1 == self.awaited.load(Ordering::SeqCst) {
            *self.reached.lock() = true;
            self.wake.notify_all();
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(super) fn wait_for(&self, changes: usize) {
        let mut reached = self.reached.lock();
        *reached = false;
        self.awaited.store(changes, Ordering::SeqCst);
        while !*reached && self.count() < changes {
            self.wake.wait(&mut reached);
        }
    }
}

/// A watch of homeostat.
pub(super) struct Homeostat<T> {
    store: Store<ObjectKey, T>,
    changes: Arc<Changes>,
    _running: Running<Watch<ObjectKey, T>>,
    _subscription: Running<Subscription>,
}

pub(super) fn homeostat_typed(kubeconfig: &Path) -> Result<Homeostat<ConfigMap>> {
    homeostat(Api::new(client(kubeconfig)?), counted)
}

pub(super) fn homeostat_queued(kubeconfig: &Path) -> Result<Homeostat<ConfigMap>> {
    homeostat(Api::new(client(kubeconfig)?), queued)
}

pub(super) fn homeostat_dynamic(kubeconfig: &Path) -> Result<Homeostat<DynamicObject>> {
    homeostat(Api::of_kind(client(kubeconfig)?, CONFIG_MAP), counted)
}

fn client(kubeconfig: &Path) -> Result<Arc<KubernetesClient>> {
    Ok(Arc::new(KubernetesClient::new(Kubeconfig::read(kubeconfig)?.config()?)?))
}

/// Creates a subscriber that counts changes.
type Counting<T> = fn(Arc<Changes>) -> Subscriber<ObjectKey, T>;

/// Counts the changes on the watch's thread.
fn counted<T: Object>(changes: Arc<Changes>) -> Subscriber<ObjectKey, T> {
    Subscriber::to(&WorkQueue::<ObjectKey>::new(), move |event| {
        if event.key().is_some() {
            changes.add();
        }
        None
    })
}

/// Counts the keys that a thread takes from a queue.
fn queued<T: Object>(changes: Arc<Changes>) -> Subscriber<ObjectKey, T> {
    let queue = WorkQueue::<ObjectKey>::new();
    let subscriber = Subscriber::to_itself(&queue);
    thread::spawn(move || {
        while let Ok(claim) = queue.dequeue() {
            changes.add();
            claim.done();
        }
    });
    subscriber
}

fn homeostat<T: Object>(api: Api<T>, subscriber: Counting<T>) -> Result<Homeostat<T>> {
    // The same page size as in kube-rs.
    let running = ObjectWatch::new(api).query(Query::all().labels(LABEL.parse()?).limit(500)).start()?;
    let (store, changes) = (running.watch().store(), Arc::<Changes>::default());
    let subscription = running.watch().subscribe(subscriber(Arc::clone(&changes)))?;
    Ok(Homeostat { store, changes, _running: running, _subscription: subscription })
}

impl<T: Object> Watcher for Homeostat<T> {
    fn len(&self) -> usize {
        self.store.len()
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

/// A kube-rs reflector on a runtime with two threads.
pub(super) struct Kube {
    store: reflector::Store<ConfigMap>,
    changes: Arc<Changes>,
    _runtime: tokio::runtime::Runtime,
}

impl Kube {
    pub(super) fn start(kubeconfig: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig)?;
        let (store, writer) = reflector::store();
        let changes = Arc::<Changes>::default();
        let counted = Arc::clone(&changes);
        let client = runtime.block_on(async move {
            let config =
                Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        let api = kube::Api::<ConfigMap>::all(client);
        let events = watcher(api, watcher::Config::default().labels(LABEL)).default_backoff();
        runtime.spawn(reflector(writer, events).for_each(move |event| {
            if let Ok(Event::Apply(_) | Event::InitApply(_) | Event::Delete(_)) = event {
                counted.add();
            }
            futures::future::ready(())
        }));
        Ok(Self { store, changes, _runtime: runtime })
    }
}

impl Watcher for Kube {
    fn len(&self) -> usize {
        self.store.len()
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}
