//! The cost of leases and of divided keys while nothing changes, and the share of keys that move when a member joins
//! or leaves.
//!
//! All members live in this process and share one store in memory, so the figures are totals. The work of a real
//! client and its server would be additional. With `--test`, the numbers are small.
//!
//! | figure | setting |
//! |---|---|
//! | `terms` | 100 electors, each in its own manager, that renew leases of 15 s |
//! | `keys` | five members with leases of 15 s, and each with a controller of the same 100,000 keys |
//! | `join`, `leave` | a sixth member |

#![expect(clippy::expect_used, reason = "a bench ends where its premise fails")]
#![expect(clippy::print_stdout, reason = "criterion measures no idle time")]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use homeostat::{Action, BoxError, Component, Context, Controller, ControllerHandle, Manager, Running, Subscriber};
use homeostat_objects::{
    Api, Client, ClientAnswer, ClientCall, ClientError, ClientLayer, ControllerExt, ControllerHandleExt, DynamicObject,
    Kind, LeaseElector, Members, MemoryClient, ObjectKey, ObjectWatch, ShardHash,
};
use serde_json::json;

const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");

/// The verbs that are counted.
const VERBS: [&str; 5] = ["get", "list", "create", "update", "other"];

/// The store, with the number of calls of each verb.
struct CountingClient {
    store: MemoryClient,
    calls: [AtomicU64; VERBS.len()],
}

impl CountingClient {
    fn new(store: &MemoryClient) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), calls: [const { AtomicU64::new(0) }; VERBS.len()] })
    }

    fn calls(&self) -> [u64; VERBS.len()] {
        std::array::from_fn(|at| self.calls[at].load(Ordering::Relaxed))
    }
}

impl ClientLayer for CountingClient {
    fn inner(&self) -> &dyn Client {
        &self.store
    }

    fn around(&self, _: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        None
    }

    fn call(&self, kind: &Kind, call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        let at = VERBS.iter().position(|known| *known == call.verb().as_str()).unwrap_or(VERBS.len() - 1);
        self.calls[at].fetch_add(1, Ordering::Relaxed);
        call.send(&self.store, kind)
    }
}

/// The sizes of the measurements.
struct Sizes {
    terms: usize,
    keys: usize,
    idle: Duration,
    /// How long no run may happen until the members count as settled.
    quiet: Duration,
}

impl Sizes {
    fn new() -> Self {
        if std::env::args().any(|argument| argument == "--test") {
            Self { terms: 5, keys: 1_000, idle: Duration::from_millis(200), quiet: Duration::from_millis(100) }
        } else {
            Self { terms: 100, keys: 100_000, idle: Duration::from_secs(30), quiet: Duration::from_secs(4) }
        }
    }
}

/// Returns the CPU time of this process, in user and kernel mode. `None` if the system does not provide it.
fn process_cpu() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // After the name in parentheses, the 12th and 13th fields count ticks of 10 ms.
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Some(Duration::from_millis(10 * ticks))
}

/// Returns the CPU time of threads by name, ignoring numbers in names.
fn thread_cpu() -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let name: String = read("comm").trim().chars().filter(|c| !c.is_ascii_digit()).collect();
        let nanos = read("schedstat").split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default();
        *times.entry(name).or_insert(Duration::ZERO) += Duration::from_nanos(nanos);
    }
    times
}

/// Prints how much of a core this process uses in a time span, the threads that use most of it, and the calls of each
/// client.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn measure(what: &str, time: Duration, clients: &[Arc<CountingClient>]) {
    let calls = || clients.iter().map(|client| client.calls()).collect::<Vec<_>>();
    let (calls_before, cpu_before, threads_before, begin) = (calls(), process_cpu(), thread_cpu(), Instant::now());
    std::thread::sleep(time);
    let (elapsed, calls_after) = (begin.elapsed(), calls());
    let seconds = elapsed.as_secs_f64();
    let (cpu, threads) = (process_cpu(), thread_cpu());
    let percent = |spent: Duration| 100.0 * spent.as_secs_f64() / seconds;
    match cpu.zip(cpu_before) {
        Some((after, before)) => {
            println!("{what}: {:.3} % of a core in {seconds:.1} s", percent(after.saturating_sub(before)));
        }
        None => println!("{what}: the CPU time of this process is unknown"),
    }
    let spent = |(name, after): (&String, &Duration)| {
        let before = threads_before.get(name).copied().unwrap_or_default();
        (after.saturating_sub(before), name.clone())
    };
    let mut threads: Vec<_> = threads.iter().map(spent).collect();
    threads.sort_unstable_by(|one, other| other.cmp(one));
    for (spent, name) in threads.iter().take(5) {
        println!("{what}: threads {name}: {:.3} %", percent(*spent));
    }
    for (at, verb) in VERBS.iter().enumerate() {
        let each = calls_after.iter().zip(&calls_before).map(|(after, before)| after[at] - before[at]);
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rates: Vec<_> = each.map(|calls| calls as f64 / seconds).collect();
        let (least, most) = (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
        println!("{what}: {verb}: {least:.2} to {most:.2} calls a second for each of {}", rates.len());
    }
}

#[expect(clippy::disallowed_methods, reason = "no event reports it")]
fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Measures leaders that renew their leases.
fn terms(sizes: &Sizes) {
    let store = MemoryClient::new();
    let clients: Vec<_> = (0..sizes.terms).map(|_| CountingClient::new(&store)).collect();
    let lead = |(number, client): (usize, &Arc<CountingClient>)| {
        let elector = LeaseElector::builder(client.clone(), "default", &format!("lease-{number}"));
        let elector = elector.identity("leader").build().expect("the times fit together");
        let manager = Manager::builder().name(format!("m{number}")).threads(1).elector(elector);
        let manager = manager.build().expect("the settings are right");
        let running = manager.start().expect("threads are there");
        (manager, running)
    };
    let leaders: Vec<_> = clients.iter().enumerate().map(lead).collect();
    until(|| leaders.iter().all(|(manager, _)| manager.is_leading()));
    measure(&format!("{} terms", sizes.terms), sizes.idle, &clients);
    for (manager, _) in &leaders {
        manager.stop();
    }
    for (_, running) in leaders {
        running.join().expect("it stops in order");
    }
}

/// A member of the group, with a controller.
struct Member {
    client: Arc<CountingClient>,
    members: Members,
    sites: ControllerHandle<ObjectKey>,
    runs: Arc<AtomicU64>,
    manager: Manager,
    running: Running<Manager>,
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::new("default", &format!("site-{number}"))
}

impl Member {
    fn join(store: &MemoryClient, number: usize) -> Self {
        let client = CountingClient::new(store);
        let members = Members::builder(client.clone(), "default", "group").identity(format!("node-{number}"));
        let members = members.build().expect("the times fit together");
        let sites = Api::<DynamicObject>::of_kind(client.clone(), SITE);
        let watch = ObjectWatch::new(sites).start().expect("threads are there");
        let runs = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&runs);
        let reconcile = move |_cx: &Context, _key: &ObjectKey| -> Result<Action, BoxError> {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(Action::await_change())
        };
        let controller = Controller::builder("site-owner", reconcile)
            .shards(members.shards(), |site: &ObjectKey| ShardHash::of([site.namespace(), site.name()]))
            .subscribe(&watch, Subscriber::to_itself)
            .build()
            .expect("the settings are right");
        let sites = controller.handle();
        let manager = Manager::builder().name(format!("node-{number}")).build().expect("the settings are right");
        let member = Component::running("group-member", members.start().expect("threads are there"));
        manager.add(member).expect("the name is free");
        manager.add(controller).expect("the name is free");
        manager.add(watch).expect("the name is free");
        let running = manager.start().expect("threads are there");
        Self { client, members, sites, runs, manager, running }
    }

    fn leave(self) {
        self.manager.stop();
        self.running.join().expect("it stops in order");
    }
}

/// Waits until these members divide the keys and have run nothing for a while.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn settled(members: &[Member], sizes: &Sizes) {
    until(|| {
        members.iter().all(|member| {
            let status = member.members.status();
            status.members.len() == members.len() && status.waits_for.is_empty()
        })
    });
    let runs = || members.iter().map(|member| member.runs.load(Ordering::Relaxed)).sum::<u64>();
    // Once a member has run all of its keys, its watch has listed them.
    until(|| {
        let owners = owners(members, sizes.keys);
        let owned = |number: usize| owners.iter().filter(|owner| **owner == Some(number)).count() as u64;
        let has_run = |(number, member): (usize, &Member)| member.runs.load(Ordering::Relaxed) >= owned(number);
        owners.iter().all(Option::is_some) && members.iter().enumerate().all(has_run)
    });
    // After a change of members, each watch lists all objects once more.
    let mut last = (Instant::now(), runs());
    until(|| {
        let is_still = runs() == last.1 && members.iter().all(|member| member.sites.queue().is_empty());
        if !is_still {
            last = (Instant::now(), runs());
        }
        last.0.elapsed() >= sizes.quiet
    });
}

/// Returns each key's owner.
fn owners(members: &[Member], keys: usize) -> Vec<Option<usize>> {
    (0..keys).map(|number| members.iter().position(|member| member.sites.owns(&key(number)))).collect()
}

/// Measures a change of members: CPU time, and the share of keys with a new owner.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
#[expect(clippy::cast_precision_loss, reason = "a share")]
fn change(what: &str, members: &mut Vec<Member>, sizes: &Sizes, change: impl FnOnce(&mut Vec<Member>)) {
    let keys = sizes.keys;
    let before = owners(members, keys);
    let runs =
        |members: &[Member]| -> Vec<u64> { members.iter().map(|member| member.runs.load(Ordering::Relaxed)).collect() };
    let most = members.len();
    let (cpu, begin, runs_before) = (process_cpu(), Instant::now(), runs(members));
    change(members);
    settled(members, sizes);
    let (cpu, time) = (process_cpu().zip(cpu).map(|(after, before)| after.saturating_sub(before)), begin.elapsed());
    let moved = owners(members, keys).iter().zip(&before).filter(|(after, before)| after != before).count();
    let share = moved as f64 / keys as f64;
    let limit = 1.2 / most.max(members.len()) as f64;
    let earlier = runs_before.into_iter().chain(std::iter::repeat(0));
    let ran: u64 = runs(members).iter().zip(earlier).map(|(after, before)| after - before).sum();
    println!(
        "{what}: {:.2} % of the keys have moved, at most {:.2} % may; {ran} runs, {cpu:?} of CPU time with the checks, {time:.1?}",
        100.0 * share,
        100.0 * limit
    );
    assert!(keys < 10_000 || share <= limit, "too many keys have moved");
}

/// Measures members that divide keys.
fn keys(sizes: &Sizes) {
    let store = MemoryClient::new();
    for number in 0..sizes.keys {
        let metadata = json!({"namespace": "default", "name": key(number).name()});
        let site = json!({"apiVersion": SITE.api_version(), "kind": SITE.name(), "metadata": metadata});
        store.create(&SITE, site).expect("a new one");
    }
    let mut members: Vec<_> = (0..5).map(|number| Member::join(&store, number)).collect();
    settled(&members, sizes);
    let clients: Vec<_> = members.iter().map(|member| member.client.clone()).collect();
    measure(&format!("5 members with {} keys", sizes.keys), sizes.idle, &clients);
    change("join", &mut members, sizes, |members| members.push(Member::join(&store, 5)));
    change("leave", &mut members, sizes, |members| members.pop().into_iter().for_each(Member::leave));
    members.into_iter().for_each(Member::leave);
}

/// Returns whether the command line selects this figure.
fn is_wanted(figure: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| filter == figure)
}

fn main() {
    let sizes = Sizes::new();
    if is_wanted("terms") {
        terms(&sizes);
    }
    if is_wanted("keys") {
        keys(&sizes);
    }
}
