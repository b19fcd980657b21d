//! The health of sources that hang or fail, as a manager and a controller report it, and their log lines.

use std::convert::Infallible;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::controller::{ControllerBuilder, ControllerError};
use homeostat::watch::SourceHandle;
use homeostat::{
    Action, BoxError, Component, Context, Controller, Enqueue, Manager, ManualClock, Poller, Running, Sources,
    Subscriber, Watch, WorkQueue, WorkerPool,
};
use homeostat_host::Directory;
use log::Level;

use crate::stages::logs::Logs;
use crate::stages::{Director, SECOND, just_before, stage};
use crate::until::until;

type Key = &'static str;
type Plain = ControllerBuilder<Key>;
/// The result of a listing.
type Answer = Result<Vec<Key>, BoxError>;

const PERIOD: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

fn plain(name: &str, clock: &ManualClock) -> Plain {
    let reconcile: fn(&Context, &Key) -> Result<Action, BoxError> = |_, _| Ok(Action::await_change());
    Controller::builder(name, reconcile).clock(clock.clock())
}

fn manager(clock: &ManualClock) -> Manager {
    Manager::builder().clock(clock.clock()).threads(1).build().unwrap()
}

/// Returns a listing function that blocks until the test sends its result.
fn answers() -> (Sender<Answer>, impl FnMut(&Context) -> Answer + Send + 'static) {
    let (answer, answers) = unbounded::<Answer>();
    (answer, move |_: &Context| answers.recv().unwrap_or_else(|_| Ok(vec![])))
}

fn fail(text: &str) -> Answer {
    Err(text.into())
}

/// A listing that blocks until the test lets it continue.
fn hanging() -> (Director<()>, impl FnMut(&Context) -> Result<Vec<Key>, Infallible> + Send + 'static) {
    let (runs, director) = stage();
    let list = move |_: &Context| {
        runs.enter(());
        Ok(vec!["vm-1"])
    };
    (director, list)
}

/// Blocks until `listings` listings of the source have ended.
fn until_listed(source: &SourceHandle, listings: u64) {
    until("the source has listed", || {
        let status = source.status();
        status.listings >= listings && status.listing_for.is_none()
    });
}

/// Blocks until `listings` listings of each source have ended.
fn all_listed(sources: &[SourceHandle], listings: u64) {
    for source in sources {
        until_listed(source, listings);
    }
}

/// Ends the manager, with its running listings.
fn end(manager: &Manager, running: Running<Manager>) {
    manager.stop();
    running.join().unwrap();
}

#[test]
fn live_names_a_hanging_poll_of_a_controller() {
    let clock = ManualClock::new();
    let manager = manager(&clock);
    let (director, list) = hanging();
    let vms = plain("vm", &clock).poller(Poller::new(PERIOD, list).name("inventory")).build().unwrap();
    manager.add(vms).unwrap();
    let running = manager.start().unwrap();
    director.next();
    clock.advance(just_before(PERIOD));
    assert_eq!(manager.live().to_string(), "ok");
    clock.advance(Duration::from_nanos(1));
    let expected = "vm: inventory: a listing has been running for 10s, past its deadline";
    assert_eq!(manager.live().to_string(), expected);
    // The manager still reports the hanging listing while the initial listing is missing. The status contains it too.
    assert!(
        manager.ready().to_string().contains("its first listings have not completed: inventory (a listing has been")
    );
    assert!(manager.status().to_string().contains(expected));
    drop(director);
    let vms = manager.controller::<Key>("vm").unwrap();
    until_listed(&vms.sources()[0], 1);
    assert_eq!(manager.live().to_string(), "ok");
    end(&manager, running);
}

#[test]
fn ready_names_missing_listings_of_suspended_controllers_and_added_sources() {
    let clock = ManualClock::new();
    let manager = manager(&clock);
    let [disks, nics] = ["disks", "nics"].map(|name| Watch::<_, u32>::builder().name(name).clock(clock.clock()).push());
    let vms = plain("vm", &clock).watch(disks.watch(), |event| event.key().copied()).build().unwrap();
    let handle = vms.handle();
    handle.suspend_all();
    manager.add(vms).unwrap();
    let running = manager.start().unwrap();
    assert_eq!(manager.ready().to_string(), "vm: its first listings have not completed: disks");
    handle.resume_all();
    disks.synced();
    handle.wait_synced(Duration::MAX).unwrap();
    assert_eq!(manager.ready().to_string(), "ok");
    let mut sources = Sources::new();
    sources.watch(nics.watch(), |event| event.key().copied());
    handle.add_sources(sources).unwrap();
    assert_eq!(manager.ready().to_string(), "vm: its first listings have not completed: nics");
    // One that ends before its first listing is awaited no more.
    let tags = Watch::<_, u32>::builder().name("tags").clock(clock.clock()).push();
    let mut sources = Sources::new();
    sources.watch(tags.watch(), |event| event.key().copied());
    handle.add_sources(sources).unwrap();
    nics.synced();
    assert_eq!(manager.ready().to_string(), "vm: its first listings have not completed: tags");
    drop(tags);
    assert_eq!(manager.ready().to_string(), "ok");
    end(&manager, running);
}

#[test]
fn live_names_a_hanging_watch_and_the_controllers_that_read_it() {
    let clock = ManualClock::new();
    let manager = manager(&clock);
    let (director, mut list) = hanging();
    let list = move |cx: &Context| list(cx).map(|keys| keys.into_iter().map(|key| (key, 1)).collect::<Vec<_>>());
    let disks = manager.watch("disks", || Poller::new(PERIOD, list).clock(clock.clock()).watch()).unwrap();
    let vms = plain("vm", &clock).watch(&disks, |event| event.key().copied()).build().unwrap();
    manager.add(vms).unwrap();
    let running = manager.start().unwrap();
    director.next();
    clock.advance(12 * SECOND);
    let late = "a listing has been running for 12s, past its deadline";
    let reasons = manager.live().reasons().to_vec();
    assert_eq!(reasons, [format!("disks: {late}"), format!("vm: poller: {late}")]);
    drop(director);
    until_listed(&disks.source(), 1);
    assert!(manager.live().is_ok());
    end(&manager, running);
}

#[test]
fn live_names_a_hanging_poller_that_is_a_component() {
    let clock = ManualClock::new();
    let manager = manager(&clock);
    let queue = WorkQueue::<Key>::builder().clock(clock.clock()).build();
    let (director, list) = hanging();
    manager.add(Component::poller("inventory", Poller::new(PERIOD, list).clock(clock.clock()), &queue)).unwrap();
    let running = manager.start().unwrap();
    director.next();
    assert_eq!(manager.ready().to_string(), "inventory: its first listing has not completed");
    clock.advance(PERIOD);
    assert_eq!(manager.live().to_string(), "inventory: a listing has been running for 10s, past its deadline");
    drop(director);
    until_listed(&manager.source("inventory").unwrap(), 1);
    assert!(manager.live().is_ok() && manager.ready().is_ok());
    end(&manager, running);
}

#[test]
fn ready_names_a_source_that_has_failed_for_longer_than_the_bound() {
    let clock = ManualClock::new();
    let bound = 45 * SECOND;
    let manager = Manager::builder().clock(clock.clock()).threads(1).unready_after(bound).build().unwrap();
    let (answer, list) = answers();
    let (own_answer, own_list) = answers();
    let vms = plain("vm", &clock).poller(Poller::new(PERIOD, list).name("inventory")).build().unwrap();
    // This controller has its own bound.
    let nets = plain("net", &clock).poll(PERIOD, own_list).unready_after(5 * SECOND).build().unwrap();
    manager.add(vms).unwrap();
    manager.add(nets).unwrap();
    let running = manager.start().unwrap();
    let sources = ["vm", "net"].map(|name| manager.controller::<Key>(name).unwrap().sources().remove(0));
    let poll = |polls: u64, vm: Answer, net: Answer| {
        answer.send(vm).unwrap();
        own_answer.send(net).unwrap();
        all_listed(&sources, polls);
    };
    poll(1, Ok(vec![]), Ok(vec![]));
    until("the manager is ready", || manager.ready().is_ok());
    clock.wait_for_sleepers(1);
    let mut polls = 1;
    for _ in 0..5 {
        clock.advance(PERIOD);
        polls += 1;
        poll(polls, fail("no route to host"), fail("refused"));
    }
    // 40 s after the first failure.
    let net = "net: poller: failing for 40s (5 in a row): refused";
    assert_eq!(manager.ready().to_string(), net);
    clock.advance(just_before(6 * SECOND));
    assert_eq!(manager.ready().reasons().len(), 2);
    assert_eq!(manager.ready().reasons()[1], "vm: inventory: failing for 46s (5 in a row): no route to host");
    assert!(manager.live().is_ok(), "a source that fails does not hang");
    clock.advance(PERIOD);
    poll(polls + 1, Ok(vec![]), Ok(vec![]));
    assert_eq!(manager.ready().to_string(), "ok");
    drop((answer, own_answer));
    end(&manager, running);
}

#[test]
fn status_and_metrics_report_a_failing_source() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().clock(clock.clock()).threads(1).start().unwrap();
    let (answer, list) = answers();
    let vms = plain("vm", &clock).poll(PERIOD, list).build().unwrap().start(&pool).unwrap();
    let source = vms.sources().remove(0);
    answer.send(Ok(vec![])).unwrap();
    until_listed(&source, 1);
    for polls in 2..=4 {
        clock.advance(PERIOD);
        answer.send(fail(&format!("no answer {polls}"))).unwrap();
        until_listed(&source, polls);
    }
    let status = vms.status().sources.remove(0);
    assert_eq!((status.name.as_str(), status.synced, status.listings), ("poller", true, 4));
    assert_eq!((status.failures, status.failures_in_a_row), (3, 3));
    assert_eq!((status.failing_for, status.last_error.as_deref()), (Some(2 * PERIOD), Some("no answer 4")));
    assert_eq!(status.to_string(), "poller: failing for 20s (3 in a row): no answer 4");
    assert_eq!((vms.metrics().failing_sources, vms.metrics().source_failures), (1, 3));
    clock.advance(PERIOD);
    answer.send(Ok(vec![])).unwrap();
    until_listed(&source, 5);
    let status = source.status();
    assert_eq!((status.failures, status.failures_in_a_row, status.failing_for), (3, 0, None));
    assert_eq!((status.to_string().as_str(), status.last_error.as_deref()), ("poller: ok", Some("no answer 4")));
    assert_eq!((vms.metrics().failing_sources, vms.metrics().source_failures), (0, 3));
    drop(answer);
    vms.shutdown(Duration::ZERO).unwrap();
    pool.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn failures_are_logged_at_powers_of_two_and_the_recovery_once() {
    let logs = Logs::of("hourly-inventory");
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().clock(clock.clock()).threads(1).start().unwrap();
    let (answer, list) = answers();
    let poller = Poller::new(SECOND, list).name("hourly-inventory");
    let vms = plain("damped", &clock).poller(poller).build().unwrap().start(&pool).unwrap();
    let source = vms.sources().remove(0);
    answer.send(Ok(vec![])).unwrap();
    until_listed(&source, 1);
    for polls in 2..=3601 {
        clock.advance(SECOND);
        answer.send(fail("no route\nto host")).unwrap();
        until_listed(&source, polls);
    }
    clock.advance(SECOND);
    answer.send(Ok(vec![])).unwrap();
    until_listed(&source, 3602);
    let warnings = logs.at(Level::Warn);
    let counts: Vec<_> = warnings.iter().map(|line| line.field("failures").parse::<u32>().unwrap()).collect();
    assert_eq!(counts, (0..12).map(|power| 1 << power).collect::<Vec<u32>>());
    let first = &warnings[0];
    assert_eq!(first.message, "damped: hourly-inventory: failed: no route\\nto host");
    assert_eq!((first.field("controller"), first.field("error")), ("damped", "no route\\nto host"));
    assert_eq!(warnings[2].message, "damped: hourly-inventory: failed 4 times in a row: no route\\nto host");
    let recovered = logs.wait_for(Level::Info, "works again");
    assert_eq!(recovered.message, "damped: hourly-inventory: works again after 3600 failures in 3600s");
    assert_eq!(recovered.field("failures"), "3600");
    drop(answer);
    vms.shutdown(Duration::ZERO).unwrap();
    pool.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_panic_of_a_listing_counts_as_a_failure() {
    let clock = ManualClock::new();
    let manager = manager(&clock);
    let mut polls = 0;
    let list = move |_: &Context| -> Result<[(Key, u32); 1], Infallible> {
        polls += 1;
        assert!(polls == 1, "out of\nluck");
        Ok([("disk-1", 1)])
    };
    let disks = Poller::new(PERIOD, list).name("disks").clock(clock.clock()).watch().unwrap();
    let source = disks.watch().source();
    manager.add(disks).unwrap();
    let running = manager.start().unwrap();
    until_listed(&source, 1);
    clock.wait_for_sleepers(1);
    clock.advance(PERIOD);
    until_listed(&source, 2);
    clock.advance(just_before(PERIOD));
    let expected = "disks: failing for 10s (1 in a row): panic: out of\\nluck";
    assert!(manager.status().to_string().ends_with(&format!("\n{expected}\n")));
    clock.advance(2 * MINUTE);
    assert!(manager.ready().to_string().contains("panic: out of\\nluck"));
    end(&manager, running);
}

#[test]
fn a_missing_directory_is_a_failing_source() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).unready_after(MINUTE).build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let files = Directory::new(&path).poll(PERIOD).name("files").clock(clock.clock()).watch().unwrap();
    let source = files.watch().source();
    manager.add(files).unwrap();
    let running = manager.start().unwrap();
    until_listed(&source, 1);
    folder.close().unwrap();
    assert!(source.trigger());
    until_listed(&source, 2);
    assert!(manager.ready().is_ok());
    clock.advance(2 * MINUTE);
    let report = manager.ready().to_string();
    assert!(
        report.starts_with("files: ")
            && report.contains("failing for 120s (")
            && report.contains("No such file or directory"),
        "{report}"
    );
    end(&manager, running);
}

#[test]
fn a_sync_timeout_names_the_sources_with_their_last_errors() {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().clock(clock.clock()).threads(1).start().unwrap();
    let (answer, list) = answers();
    let disks = Watch::<Key, u32>::builder().name("disks").clock(clock.clock()).push();
    let vms = plain("vm", &clock)
        .poller(Poller::new(PERIOD, list).name("inventory"))
        .watch(disks.watch(), |event| event.key().copied())
        .subscribe(disks.watch(), |queue| Subscriber::to_itself(queue).name("owners"))
        .watch(disks.watch(), |event| event.key().copied())
        .sync_timeout(15 * SECOND)
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    let sources = vms.sources();
    let names: Vec<_> = sources.iter().map(SourceHandle::name).collect();
    assert_eq!(names, ["inventory", "disks", "owners", "disks-2"]);
    answer.send(fail("no route to host")).unwrap();
    until_listed(&sources[0], 1);
    // The pool's thread, its timer thread and the poller.
    clock.wait_for_sleepers(3);
    clock.advance(15 * SECOND);
    until("the controller has failed", || vms.failure().is_some());
    let error = vms.failure().unwrap();
    assert_eq!(
        error.to_string(),
        "controller vm: no initial listing after 15s from \
         inventory (failing for 15s (1 in a row): no route to host), disks, owners, disks-2"
    );
    let Some(ControllerError::SyncTimeout { sources, .. }) = error.downcast_ref() else { panic!("{error}") };
    assert_eq!(sources[0].last_error.as_deref(), Some("no route to host"));
    drop(answer);
    vms.shutdown(Duration::ZERO).unwrap_err();
    pool.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn sources_of_a_manager_can_be_checked_and_triggered() {
    let clock = ManualClock::new();
    let manager = manager(&clock);
    let queue = WorkQueue::<Key>::builder().clock(clock.clock()).build();
    let (listed, seen) = unbounded();
    let lists = |who: Key| {
        let listed: Sender<Key> = listed.clone();
        move |_: &Context| {
            let _ = listed.send(who);
            Ok::<_, Infallible>([(who, 1)])
        }
    };
    let (component, own) = (lists("component"), lists("own"));
    let poller = Poller::new(PERIOD, move |cx: &Context| component(cx).map(|items| items.map(|(key, _)| key)));
    manager.add(Component::poller("component", poller.clock(clock.clock()), &queue)).unwrap();
    manager.add(Poller::new(PERIOD, lists("watch")).name("watch").clock(clock.clock()).watch().unwrap()).unwrap();
    let shared = || Poller::new(PERIOD, lists("shared")).clock(clock.clock()).watch();
    let shared = manager.watch::<Key, i32>("shared", shared).unwrap();
    let own = move |cx: &Context| own(cx).map(|items| items.map(|(key, _)| key));
    manager.add(plain("vm", &clock).poll(PERIOD, own).build().unwrap()).unwrap();
    let running = manager.start().unwrap();
    let mut sources: Vec<_> = ["component", "watch", "shared"].map(|name| manager.source(name).unwrap()).into();
    sources.extend(manager.controller::<Key>("vm").unwrap().sources());
    let sorted = |seen: &Receiver<Key>| {
        let mut seen: Vec<_> = seen.iter().take(4).collect();
        seen.sort_unstable();
        seen
    };
    assert_eq!(sorted(&seen), ["component", "own", "shared", "watch"]);
    all_listed(&sources, 1);
    for source in &sources {
        assert!(source.trigger());
    }
    assert_eq!(sorted(&seen), ["component", "own", "shared", "watch"]);
    all_listed(&sources, 2);
    assert!(sources.iter().all(|source| source.status().synced && source.status().failures == 0));
    assert_eq!(shared.source().status().listings, 2);
    let status = manager.status();
    let names: Vec<_> = status.sources.iter().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["component", "shared", "watch"]);
    let unknown = "source \"vm\" is no poller or watch that has been added to the manager";
    assert_eq!(manager.source("vm").unwrap_err().to_string(), unknown);
    end(&manager, running);
}

#[test]
fn names_and_errors_are_escaped_and_bounded_in_status_and_health() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).unready_after(SECOND).build().unwrap();
    let bad = format!("one\ntwo\x1b[2J{}", "x".repeat(100_000));
    let report = bad.clone();
    let reconcile = move |_: &Context, _: &Key| Err::<Action, BoxError>(report.clone().into());
    let (answer, list) = answers();
    let vms = Controller::builder("v\nm", reconcile).clock(clock.clock());
    let vms = vms.poller(Poller::new(PERIOD, list).name("in\nventory")).build().unwrap();
    let handle = vms.handle();
    manager.add(vms).unwrap();
    let running = manager.start().unwrap();
    let source = handle.sources().remove(0);
    answer.send(Ok(vec!["vm-1"])).unwrap();
    until_listed(&source, 1);
    until("the key has failed", || handle.metrics().failing > 0);
    assert!(source.trigger());
    answer.send(Err(bad.into())).unwrap();
    until_listed(&source, 2);
    clock.advance(2 * SECOND);
    let table = manager.status().to_string();
    let lines: Vec<_> = table.lines().collect();
    let first = |start: &str| lines.iter().find(|line| line.starts_with(start)).copied().unwrap_or_default().to_owned();
    assert!(first("v\\nm: in\\nventory: failing for 2s (1 in a row): one\\ntwo\\u{1b}[2J").ends_with(" more bytes)"));
    assert!(first("v\\nm: \"vm-1\" is failing, failed ").contains(": one\\ntwo\\u{1b}[2J"));
    assert!(lines.iter().all(|line| line.starts_with("v\\nm") || !line.contains("one")), "{table}");
    assert!(lines.iter().all(|line| line.len() < 1500 && !line.contains(char::is_control)));
    let ready = manager.ready();
    assert!(ready.reasons()[0].starts_with("v\\nm: in\\nventory: failing for 2s"));
    assert!(ready.reasons().iter().all(|reason| reason.len() < 1500 && !reason.contains(char::is_control)));
    assert!(source.status().last_error.unwrap().len() < 1100, "the stored text is bounded too");
    drop(answer);
    end(&manager, running);
}

/// A key that counts how often it is copied or shown.
struct Counted(u32, Arc<AtomicUsize>);

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.1.fetch_add(1, SeqCst);
        Self(self.0, Arc::clone(&self.1))
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.fetch_add(1, SeqCst);
        self.0.fmt(f)
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn live_and_ready_look_at_no_delayed_key() {
    let clock = ManualClock::new();
    let manager = manager(&clock);
    let reconcile = |_: &Context, _: &Counted| Ok::<_, BoxError>(Action::await_change());
    let vms = Controller::builder("vm", reconcile).clock(clock.clock()).build().unwrap();
    let handle = vms.handle();
    manager.add(vms).unwrap();
    let running = manager.start().unwrap();
    handle.wait_synced(Duration::MAX).unwrap();
    let looks = Arc::new(AtomicUsize::new(0));
    for number in 0..10 {
        handle.queue().enqueue_after(Counted(number, Arc::clone(&looks)), SECOND);
    }
    let before = looks.load(SeqCst);
    assert!(manager.live().is_ok() && manager.ready().is_ok());
    assert_eq!(looks.load(SeqCst), before);
    drop(manager.status());
    assert!(looks.load(SeqCst) > before, "the status has the next delayed key");
    end(&manager, running);
}
