//! Complete controllers: a producer supplies objects, a store keeps them, and an empty reconciler looks each key's
//! object up.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use homeostat::watch::Push;
use homeostat::{Action, Context, Controller, Manager, Running, Subscriber, Watch};
use homeostat_objects::ObjectKey;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::controller::{self, applier, trigger_self};
use kube_runtime::watcher::Event;
use kube_runtime::{WatchStreamExt, reflector};
use tokio::runtime::Builder;

use crate::meter::{Figures, Stopwatch, resident};

/// How often each object changes in the storm.
const CHANGES: usize = 20;

/// The interval of each key's runs without changes, in the variant `resync`.
const PERIOD: Duration = Duration::from_secs(1);

/// How long resyncs are measured.
const RESYNCS: Duration = Duration::from_secs(5);

/// An object with about 500 bytes of JSON. Its `data` contains its number and revision.
fn object(number: usize, revision: usize) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("default".to_owned());
    object.metadata.name = Some(name(number));
    object.metadata.uid = Some(format!("00000000-0000-4000-8000-{number:012}"));
    object.metadata.resource_version = Some((1 + number + revision * 1_000_000).to_string());
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    object.metadata.labels = Some([label("app", "bench"), label("tier", "web")].into());
    let data = [
        label("number", &number.to_string()),
        label("revision", &revision.to_string()),
        ("text".to_owned(), "x".repeat(120)),
    ];
    object.data = Some(BTreeMap::from(data));
    object
}

fn name(number: usize) -> String {
    format!("object-{number}")
}

fn field(object: &ConfigMap, name: &str) -> usize {
    object.data.as_ref().and_then(|data| data.get(name)?.parse().ok()).expect("each object has it")
}

/// The revisions that runs have seen, and the number of runs.
struct Seen {
    /// The last revision of each object.
    revisions: Vec<AtomicUsize>,
    runs: AtomicUsize,
}

impl Seen {
    fn new(objects: usize) -> Arc<Self> {
        let revisions = (0..objects).map(|_| AtomicUsize::new(usize::MAX)).collect();
        Arc::new(Self { revisions, runs: AtomicUsize::new(0) })
    }

    fn note(&self, object: &ConfigMap) {
        self.revisions[field(object, "number")].store(field(object, "revision"), SeqCst);
        self.runs.fetch_add(1, SeqCst);
    }

    fn wait_for(&self, revision: usize) {
        while self.revisions.iter().any(|seen| seen.load(SeqCst) != revision) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A running controller.
trait Peer {
    /// With `period`, each key runs again after this time.
    fn start(seen: &Arc<Seen>, period: Option<Duration>) -> Result<Self>
    where
        Self: Sized;

    /// Replaces all objects, as after a first listing.
    fn list(&self, objects: Vec<ConfigMap>);

    fn change(&self, object: ConfigMap);

    fn stop(self);
}

/// A manager with one controller on two threads, and a watch with a store.
struct Homeostat {
    push: Push<ObjectKey, ConfigMap>,
    running: Running<Manager>,
}

fn key(object: &ConfigMap) -> ObjectKey {
    let meta = &object.metadata;
    ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

impl Peer for Homeostat {
    fn start(seen: &Arc<Seen>, period: Option<Duration>) -> Result<Self> {
        let push = Watch::push();
        let (store, seen) = (push.watch().store(), Arc::clone(seen));
        let reconcile = move |_cx: &Context, key: &ObjectKey| -> Result<Action, Infallible> {
            if let Some(object) = store.get(key) {
                seen.note(&object);
            }
            Ok(Action::await_change())
        };
        let manager = Manager::builder().threads(2).build()?;
        let mut controller = Controller::builder("bench", reconcile).max_concurrent_reconciles(2);
        if let Some(period) = period {
            controller = controller.resync(period);
        }
        manager.add(controller.subscribe(push.watch(), Subscriber::to_itself).build()?)?;
        Ok(Self { running: manager.start()?, push })
    }

    fn list(&self, objects: Vec<ConfigMap>) {
        self.push.replace_all(objects.into_iter().map(|object| (key(&object), object)));
    }

    fn change(&self, object: ConfigMap) {
        self.push.set(key(&object), object);
    }

    fn stop(self) {
        self.running.shutdown(Duration::ZERO).expect("it ends without a failure");
    }
}

/// kube-runtime's reflector, triggers and applier, connected as in its `Controller`, on a runtime with two threads.
struct KubeRuntime {
    events: UnboundedSender<Result<Event<ConfigMap>, kube_runtime::watcher::Error>>,
    thread: thread::JoinHandle<()>,
}

impl Peer for KubeRuntime {
    fn start(seen: &Arc<Seen>, period: Option<Duration>) -> Result<Self> {
        let (events, receiver) = unbounded();
        let seen = Arc::clone(seen);
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
        let thread = thread::spawn(move || {
            let (store, writer) = reflector::store();
            let changes = reflector(writer, receiver).touched_objects();
            let reconcile = move |object: Arc<ConfigMap>, _: Arc<()>| {
                seen.note(&object);
                let next = period.map_or_else(controller::Action::await_change, controller::Action::requeue);
                futures::future::ready(Ok::<_, Infallible>(next))
            };
            let on_error = |_: Arc<ConfigMap>, _: &Infallible, _: Arc<()>| controller::Action::await_change();
            let config = controller::Config::default();
            let runs = applier(reconcile, on_error, Arc::new(()), store, trigger_self(changes, ()), config);
            runtime
                .block_on(async move { tokio::spawn(runs.for_each(|_| futures::future::ready(()))).await })
                .expect("it does not panic");
        });
        Ok(Self { events, thread })
    }

    fn list(&self, objects: Vec<ConfigMap>) {
        let all = objects.into_iter().map(Event::InitApply);
        for event in std::iter::once(Event::Init).chain(all).chain([Event::InitDone]) {
            self.events.unbounded_send(Ok(event)).expect("the controller runs");
        }
    }

    fn change(&self, object: ConfigMap) {
        self.events.unbounded_send(Ok(Event::Apply(object))).expect("the controller runs");
    }

    fn stop(self) {
        drop(self.events);
        self.thread.join().expect("it does not panic");
    }
}

/// Measures one controller.
///
/// - `create`: a first listing of all objects, until each has run.
/// - `storm`: each object changes twenty times, until a run has seen each last state. An operation is a change.
/// - `waves`: the same, but no object changes again before a run has seen its previous change.
/// - `resync`: each key runs once a second without a change. An operation is a run.
pub(super) fn run(variant: &str, peer: &str, objects: usize) -> Result<Figures> {
    match peer {
        "homeostat" => measure::<Homeostat>(variant, objects),
        "kube-controller" => measure::<KubeRuntime>(variant, objects),
        _ => bail!("no peer {peer}"),
    }
}

fn measure<P: Peer>(variant: &str, objects: usize) -> Result<Figures> {
    let seen = Seen::new(objects);
    let first: Vec<_> = (0..objects).map(|number| object(number, 0)).collect();
    let storm: Vec<_> = match variant {
        "create" | "resync" => Vec::new(),
        "storm" | "waves" => {
            (1..=CHANGES).flat_map(|revision| (0..objects).map(move |number| object(number, revision))).collect()
        }
        _ => bail!("no variant {variant}"),
    };
    let (before, _) = resident()?;
    let watch = Stopwatch::start();
    let running = P::start(&seen, (variant == "resync").then_some(PERIOD))?;
    running.list(first);
    seen.wait_for(0);
    let created = watch.stop();
    let mut figures = match variant {
        "create" => {
            let mut figures = created.per(objects);
            figures.insert("bytes".to_owned(), (resident()?.1 - before).max(0.0) / objects as f64);
            figures
        }
        "storm" | "waves" => {
            let changes = storm.len();
            let (watch, first) = (Stopwatch::start(), seen.runs.load(SeqCst));
            for object in storm {
                let last = field(&object, "number") + 1 == objects;
                let revision = field(&object, "revision");
                running.change(object);
                if variant == "waves" && last {
                    seen.wait_for(revision);
                }
            }
            seen.wait_for(CHANGES);
            let mut figures = watch.stop().per(changes);
            figures.insert("runs".to_owned(), (seen.runs.load(SeqCst) - first) as f64 / changes as f64);
            figures
        }
        _ => {
            let (watch, first) = (Stopwatch::start(), seen.runs.load(SeqCst));
            thread::sleep(RESYNCS);
            let (spent, runs) = (watch.stop(), seen.runs.load(SeqCst) - first);
            let mut figures = spent.per(runs);
            figures.insert("runs".to_owned(), runs as f64 / (objects as f64 * spent.wall.as_secs_f64()));
            figures
        }
    };
    running.stop();
    figures.retain(|_, value| value.is_finite());
    Ok(figures)
}
