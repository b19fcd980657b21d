//! The cost of reading, writing, listing and watching one hundred thousand objects, in memory and in a file.

#![expect(clippy::expect_used, reason = "a bench ends where its premise fails")]

mod durable;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use homeostat::CancellationToken;
use homeostat::base::Running;
use homeostat::watch::Watch;
use homeostat_objects::{
    Api, Client, DynamicObject, Kind, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectWatch, Patch, PatchTarget,
    Query, SharedObject,
};
use peak_alloc::PeakAlloc;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment");

fn name(number: usize) -> String {
    format!("web-{number:06}")
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::new("default", &name(number))
}

/// A type for the part of a deployment that a controller uses.
#[derive(Clone, Serialize, Deserialize)]
struct Deployment {
    metadata: ObjectMeta,
    spec: DeploymentSpec,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeploymentSpec {
    replicas: u32,
    selector: Value,
    template: PodTemplate,
}

#[derive(Clone, Serialize, Deserialize)]
struct PodTemplate {
    metadata: ObjectMeta,
    spec: PodSpec,
}

#[derive(Clone, Serialize, Deserialize)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Container {
    name: String,
    image: String,
}

homeostat_objects::object!(Deployment, namespaced, "apps", "v1");

/// A small deployment. Stored, it has 624 bytes of JSON.
fn deployment(number: usize) -> Value {
    let name = name(number);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "default", "name": name, "labels": {"app": name, "tier": format!("t{}", number % 100)}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "web", "image": format!("registry.example.com/web:{number}"),
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}}}]},
        }},
    })
}

fn filled(count: usize) -> MemoryClient {
    filled_with(MemoryClient::new(), count)
}

fn filled_with(client: MemoryClient, count: usize) -> MemoryClient {
    for number in 0..count {
        client.create(&DEPLOYMENT, deployment(number)).expect("a new one");
    }
    client
}

/// Returns whether this run only tests that everything works.
fn is_test() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// Returns whether the command line selects this group. The others are skipped, because they would fill the memory
/// before it.
fn is_wanted(group: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| filter.starts_with(group))
}

/// Returns the numbers of objects to measure with.
fn counts() -> &'static [usize] {
    if is_test() { &[1_000] } else { &[1_000, 100_000] }
}

fn read(c: &mut Criterion) {
    if !is_wanted("objects/read") {
        return;
    }
    let mut group = c.benchmark_group("objects/read");
    for &count in counts() {
        let client = filled(count);
        let api = Api::<DynamicObject>::of_kind(Arc::new(client.clone()), DEPLOYMENT);
        let key = key(count / 2);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("get", count), |b| b.iter(|| client.get(&DEPLOYMENT, &key)));
        group.bench_function(BenchmarkId::new("get-typed", count), |b| b.iter(|| api.get(&key)));
        let typed = Api::<Deployment>::new(Arc::new(client.clone()));
        group.bench_function(BenchmarkId::new("get-a-struct", count), |b| b.iter(|| typed.get(&key)));
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("list-typed", count), |b| b.iter(|| api.list(&Query::all())));
        group.bench_function(BenchmarkId::new("list-structs", count), |b| b.iter(|| typed.list(&Query::all())));
        group.bench_function(BenchmarkId::new("watch-to-synced", count), |b| b.iter(|| synced(&api)));
        group.bench_function(BenchmarkId::new("watch-structs-to-synced", count), |b| b.iter(|| synced(&typed)));
        group.bench_function(BenchmarkId::new("list", count), |b| b.iter(|| client.list(&DEPLOYMENT, &Query::all())));
        let hundredth = Query::all().labels("tier=t7".parse().expect("a selector"));
        group.bench_function(BenchmarkId::new("list-a-hundredth", count), |b| {
            b.iter(|| client.list(&DEPLOYMENT, &hundredth));
        });
        let indexed = filled_with(MemoryClient::builder().index_label("tier").build(), count);
        group.bench_function(BenchmarkId::new("list-a-hundredth-by-index", count), |b| {
            b.iter(|| indexed.list(&DEPLOYMENT, &hundredth));
        });
        group.bench_function(BenchmarkId::new("watch-from-none", count), |b| {
            b.iter(|| {
                let stop = CancellationToken::new();
                let watch = client.watch(&DEPLOYMENT, &Query::all(), None, &stop).expect("a watch");
                black_box(watch.take(count).count())
            });
        });
    }
}

fn write(c: &mut Criterion) {
    if !is_wanted("objects/write") {
        return;
    }
    let mut group = c.benchmark_group("objects/write");
    group.throughput(Throughput::Elements(1));
    for &count in counts() {
        let client = filled(count);
        let mut next = 0_usize;
        group.bench_function(BenchmarkId::new("patch", count), |b| {
            b.iter(|| {
                next += 1;
                let patch = Patch::Merge(json!({"spec": {"replicas": next}}));
                client.patch(&DEPLOYMENT, &key(next % count), &patch, PatchTarget::Object)
            });
        });
        group.bench_function(BenchmarkId::new("update", count), |b| {
            b.iter(|| {
                next += 1;
                let mut object = client.get(&DEPLOYMENT, &key(next % count)).expect("it is there").to_value();
                object["spec"]["replicas"] = next.into();
                client.update(&DEPLOYMENT, object)
            });
        });
    }
}

/// Prints how long a get takes while one thread lists all objects again and again, and another thread writes.
#[expect(clippy::print_stdout, reason = "criterion shows no percentiles")]
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn get_while_listing(_c: &mut Criterion) {
    if !is_wanted("objects/get-while-listing") {
        return;
    }
    let count = counts()[counts().len() - 1];
    let time = if is_test() { Duration::from_millis(50) } else { Duration::from_secs(3) };
    let client = filled(count);
    let is_done = AtomicBool::new(false);
    let (lists, writes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                black_box(client.list(&DEPLOYMENT, &Query::all()).expect("a list"));
                lists.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let next = writes.fetch_add(1, Ordering::Relaxed);
                let patch = Patch::Merge(json!({"spec": {"replicas": next}}));
                client.patch(&DEPLOYMENT, &key(next % count), &patch, PatchTarget::Object).expect("a write");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let begin = Instant::now();
        while begin.elapsed() < time {
            let begin = Instant::now();
            black_box(client.get(&DEPLOYMENT, &key(times.len() % count)).expect("it is there"));
            times.push(begin.elapsed());
            std::thread::sleep(Duration::from_micros(100));
        }
        is_done.store(true, Ordering::Relaxed);
    });
    times.sort();
    let at = |part: usize| times[times.len() * part / 1_000];
    let [p50, p99, p999] = [500, 990, 999].map(at);
    let (lists, writes) = (lists.into_inner(), writes.into_inner());
    println!(
        "objects/get-while-listing: {count} objects, {lists} lists, {writes} writes: p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}"
    );
}

/// The time from a write on one thread to the event on another, and back.
fn follow(c: &mut Criterion) {
    if !is_wanted("objects/follow") {
        return;
    }
    let mut group = c.benchmark_group("objects/follow");
    let client = filled(1_000);
    let stop = CancellationToken::new();
    let mut watch = client.watch(&DEPLOYMENT, &Query::all(), None, &stop).expect("a watch");
    watch.by_ref().take(1_001).for_each(drop);
    // More than any existing number of replicas, so each write changes something.
    let mut next = 1_000_usize;
    group.throughput(Throughput::Elements(100));
    group.bench_function("write-100-and-see-them", |b| {
        b.iter(|| {
            std::thread::scope(|scope| {
                let client = &client;
                scope.spawn(move || {
                    for number in 0..100 {
                        let patch = Patch::Merge(json!({"spec": {"replicas": next + number}}));
                        client.patch(&DEPLOYMENT, &key(number), &patch, PatchTarget::Object).expect("a write");
                    }
                });
                black_box(watch.by_ref().take(100).count())
            });
            next += 1_000;
        });
    });
}

/// Starts a watch and waits for its first listing.
fn synced<T: Object>(api: &Api<T>) -> Running<Watch<ObjectKey, T>> {
    let watch = ObjectWatch::new(api.clone()).start().expect("a thread");
    assert!(watch.watch().store().wait_synced(Duration::from_secs(60)), "the listing takes less than a minute");
    watch
}

/// Reads one object in the forms in which it could be stored.
fn form(c: &mut Criterion) {
    if !is_wanted("objects/form") {
        return;
    }
    let mut group = c.benchmark_group("objects/form");
    let stored = filled(1).get(&DEPLOYMENT, &key(0)).expect("it is there");
    let (value, text) = (stored.to_value(), stored.to_string());
    let label = "/metadata/labels/tier";
    group.bench_function("label-in-a-value", |b| b.iter(|| black_box(&value).pointer(label).and_then(Value::as_str)));
    group.bench_function("label", |b| {
        b.iter(|| black_box(&stored).pointer(label).and_then(homeostat_objects::ValueRef::as_str).map(str::len));
    });
    group.bench_function("struct-from-a-value", |b| b.iter(|| Deployment::deserialize(black_box(&value))));
    group.bench_function("struct-from-text", |b| b.iter(|| serde_json::from_str::<Deployment>(black_box(&text))));
    group.bench_function("struct", |b| b.iter(|| black_box(&stored).to_typed::<Deployment>()));
    group.bench_function("make-a-value-from-text", |b| b.iter(|| serde_json::from_str::<Value>(black_box(&text))));
    group.bench_function("copy-a-value", |b| b.iter(|| black_box(&value).clone()));
    group.bench_function("pack", |b| b.iter(|| SharedObject::from(black_box(&value))));
    group.bench_function("to-value", |b| b.iter(|| black_box(&stored).to_value()));
}

/// Prints the memory of an object with all keys and indexes, and the memory of its copy in a watch.
#[expect(clippy::print_stdout, reason = "figures that are no times")]
fn memory(_c: &mut Criterion) {
    if !is_wanted("objects/memory") {
        return;
    }
    let count = counts()[counts().len() - 1];
    let json = filled(1).get(&DEPLOYMENT, &key(0)).expect("it is there").to_string();
    let print = |what: &str, before: usize| {
        let each = (ALLOCATOR.current_usage() - before) / count;
        println!("objects/memory: {what}: {each} bytes each; {count} objects of {} bytes of JSON", json.len());
    };
    let before = ALLOCATOR.current_usage();
    let values: Vec<Value> = (0..count).map(|_| serde_json::from_str(&json).expect("JSON")).collect();
    print("values alone", before);
    let before = ALLOCATOR.current_usage();
    let packed: Vec<SharedObject> = values.iter().map(SharedObject::from).collect();
    print("shared objects alone", before);
    drop((values, packed));
    let before = ALLOCATOR.current_usage();
    let client = filled(count);
    print("objects in a memory client", before);
    let before = ALLOCATOR.current_usage();
    let watch = synced(&Api::<DynamicObject>::of_kind(Arc::new(client.clone()), DEPLOYMENT));
    print("copies in a watch", before);
    drop(watch);
    let before = ALLOCATOR.current_usage();
    let watch = synced(&Api::<Deployment>::new(Arc::new(client)));
    print("structs in a watch", before);
    drop(watch);
}

fn quick() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
}

criterion_group! {
    name = objects;
    config = quick();
    targets = memory, form, get_while_listing, read, write, durable::durable, follow
}
criterion_main!(objects);
