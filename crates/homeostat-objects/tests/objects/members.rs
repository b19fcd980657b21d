//! Keys divided among processes, on real threads. No lease expires during a test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use homeostat::watch::Push;
use homeostat::{
    Action, BoxError, Component, Context, Controller, ControllerHandle, Manager, ManualClock, Running, Watch,
};
use homeostat_objects::{
    Client, ClientError, ControllerExt, ControllerHandleExt, DeleteOptions, FENCE_ANNOTATION, Kind, LeaseTiming,
    Members, MemoryClient, ObjectKey, ObjectMeta, Patch, PatchTarget, Query, ShardHash,
};

use crate::hooked_client::HookedClient;
use crate::waits::until;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");
const KEYS: u32 = 64;

/// One process of a group, with a controller of numbers.
struct Process {
    members: Members,
    numbers: ControllerHandle<u32>,
    /// Dropping it ends the watch.
    _source: Push<u32, ()>,
    running: Option<Running<Manager>>,
    manager: Manager,
}

impl Process {
    /// Starts a process. Each run calls `run` with its fencing number.
    fn start(client: &MemoryClient, name: &str, run: impl Fn(u32, u64) + Send + Sync + 'static) -> Self {
        Self::start_with(client, name, move |cx, key| {
            run(key, cx.fence()?.number().unwrap());
            Ok(())
        })
    }

    fn start_with(
        client: &MemoryClient,
        name: &str,
        run: impl Fn(&Context, u32) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        let members = Members::builder(Arc::new(client.clone()), "default", "numbers").identity(name);
        // The periods are short, and the lease is long: only a release or an announcement can move a key.
        let timing = LeaseTiming::new(Duration::from_secs(3600)).retry_period(Duration::from_millis(25));
        let members = members.timing(timing).build().unwrap();
        let manager = Manager::builder().threads(2).build().unwrap();
        let numbers = Watch::<u32, ()>::push();
        let reconcile = move |cx: &Context, key: &u32| -> Result<Action, BoxError> {
            run(cx, *key)?;
            Ok(Action::await_change())
        };
        let controller = Controller::builder("numbers", reconcile).max_concurrent_reconciles(2);
        let controller = controller.shards(members.shards(), |key: &u32| ShardHash::of([key.to_string()]));
        let controller = controller.watch(numbers.watch(), |event| event.key().copied()).build().unwrap();
        let handle = controller.handle();
        manager.add(Component::running("numbers-member", members.start().unwrap())).unwrap();
        manager.add(controller).unwrap();
        let running = Some(manager.start().unwrap());
        numbers.replace_all((0..KEYS).map(|key| (key, ())));
        Self { members, numbers: handle, _source: numbers, running, manager }
    }

    fn owned(&self) -> Vec<u32> {
        (0..KEYS).filter(|key| self.numbers.owns(key)).collect()
    }

    fn stop(&mut self) {
        self.manager.stop();
        self.running.take().unwrap().join().unwrap();
    }
}

/// Waits until each key belongs to exactly one of these processes, and returns their shares.
#[track_caller]
fn shares(processes: &[&Process]) -> Vec<Vec<u32>> {
    let settled = |process: &&Process| {
        let status = process.members.status();
        status.members.len() == processes.len() && status.waits_for.is_empty()
    };
    until!(processes.iter().all(settled));
    let shares: Vec<_> = processes.iter().map(|process| process.owned()).collect();
    let mut all: Vec<_> = shares.iter().flatten().copied().collect();
    all.sort_unstable();
    assert_eq!(all, (0..KEYS).collect::<Vec<_>>());
    shares
}

fn noted() -> (impl Fn(u32, u64) + Send + Sync + 'static + Clone, Receiver<(u32, u64)>) {
    let (note, notes): (Sender<(u32, u64)>, _) = unbounded();
    (move |key, number| note.send((key, number)).unwrap(), notes)
}

#[test]
fn a_process_that_joins_takes_keys_and_one_that_leaves_gives_its_keys_back_at_once() {
    let client = MemoryClient::new();
    let (note, of_a) = noted();
    let mut a = Process::start(&client, "a", note);
    assert_eq!(shares(&[&a]), [(0..KEYS).collect::<Vec<_>>()]);
    until!(of_a.len() >= KEYS as usize);
    let first: Vec<_> = of_a.try_iter().map(|(_, number)| number).collect();
    assert!(first.iter().all(|number| *number == 1), "{first:?}");

    let (note, of_b) = noted();
    let b = Process::start(&client, "b", note);
    let both = shares(&[&a, &b]);
    assert!(both.iter().all(|share| share.len() > 10), "{both:?}");
    // The new owner runs all its keys, and only them.
    let mut ran = BTreeSet::new();
    until!({
        ran.extend(of_b.try_iter());
        ran.len() >= both[1].len()
    });
    assert_eq!(ran, both[1].iter().map(|key| (*key, 2)).collect());

    a.stop();
    assert_eq!(a.owned(), Vec::<u32>::new());
    assert_eq!(shares(&[&b]), [(0..KEYS).collect::<Vec<_>>()]);
    // The remaining process runs the keys that it has received.
    let mut ran = Vec::new();
    until!({
        ran.extend(of_b.try_iter());
        both[0].iter().all(|key| ran.contains(&(*key, 3)))
    });
    let status = b.manager.status().to_string();
    let member = b.members.status();
    assert!(member.name.starts_with("numbers-b-"), "{member}");
    assert!(status.contains(&format!("numbers: {member}")), "{status}");
}

/// Starts process `a`. Returns it with the two keys that run there, until the sender is dropped.
fn busy(client: &MemoryClient) -> (Process, [u32; 2], Sender<()>) {
    let (begun, begins) = unbounded();
    let (release, gate) = bounded::<()>(0);
    let a = Process::start(client, "a", move |key, _| {
        begun.send(key).unwrap();
        let _ = gate.recv();
    });
    let running = [begins.recv().unwrap(), begins.recv().unwrap()];
    (a, running, release)
}

#[test]
fn a_key_does_not_move_before_its_run_has_ended() {
    // In three of four rounds, one of the two running keys moves.
    assert!((0..30).any(|_| moves_a_running_key()));
}

/// Lets a process join while another one runs two keys. Returns whether one of these keys moves. Checks that this key
/// waits.
fn moves_a_running_key() -> bool {
    let client = MemoryClient::new();
    let (a, running, release) = busy(&client);
    let (note, of_b) = noted();
    let b = Process::start(&client, "b", note);
    let of_a = a.members.status().name;
    until!([&a, &b].iter().all(|process| process.members.status().number == 2));
    let moves = !running.iter().all(|key| a.owned().contains(key));
    if moves {
        // A lost key is running, so `a` hands over no key.
        assert_eq!(b.members.status().waits_for, std::slice::from_ref(&of_a));
        assert_eq!(b.owned(), Vec::<u32>::new());
        assert!(of_b.is_empty());
        assert!(b.members.status().to_string().ends_with(&format!("waits for {of_a}")));
    }
    drop(release);
    let both = shares(&[&a, &b]);
    until!(of_b.len() >= both[1].len());
    moves
}

#[test]
fn processes_join_and_leave_while_a_lost_key_runs() {
    // In three of four rounds, one of the two running keys moves.
    assert!((0..30).any(|_| changes_beside_running_keys()));
}

/// Lets processes join and leave while another one runs two keys. Returns whether one of these keys moves.
fn changes_beside_running_keys() -> bool {
    let client = MemoryClient::new();
    let (a, running, release) = busy(&client);
    let divided = |processes: &[&Process], number: u64| {
        until!(processes.iter().all(|process| process.members.status().number == number));
    };
    let (note, of_b) = noted();
    let b = Process::start(&client, "b", note);
    divided(&[&a, &b], 2);
    let moves = !running.iter().all(|key| a.owned().contains(key));
    let (note, of_c) = noted();
    let mut c = Process::start(&client, "c", note);
    divided(&[&a, &b, &c], 3);
    if moves {
        // All keys belonged to `a`, which still runs one that it has lost.
        assert_eq!((b.owned(), c.owned()), (Vec::new(), Vec::new()));
        assert!(of_b.is_empty() && of_c.is_empty());
    }
    c.stop();
    divided(&[&a, &b], 4);
    drop(release);
    let both = shares(&[&a, &b]);
    until!(of_b.len() >= both[1].len());
    moves
}

#[test]
fn a_process_that_stops_keeps_its_lease_until_its_last_run_has_ended() {
    let client = MemoryClient::new();
    let (mut a, running, release) = busy(&client);
    let of_a = a.members.status().name;
    a.manager.stop();
    until!(a.owned().is_empty());
    let (note, of_b) = noted();
    let b = Process::start(&client, "b", note);
    until!(b.members.status().number == 2);
    assert_eq!(b.members.status().members.first(), Some(&of_a));
    assert_eq!((b.members.status().waits_for, b.owned()), (vec![of_a], Vec::new()));
    assert!(of_b.is_empty());
    drop(release);
    a.running.take().unwrap().join().unwrap();
    shares(&[&b]);
    let mut ran = BTreeSet::new();
    until!({
        ran.extend(of_b.try_iter().map(|(key, _)| key));
        running.iter().all(|key| ran.contains(key))
    });
}

#[test]
fn a_member_whose_lease_was_cleared_runs_nothing_until_it_has_joined_again() {
    let client = MemoryClient::new();
    let (note, runs) = noted();
    let a = Process::start(&client, "a", note);
    shares(&[&a]);
    until!(runs.len() >= KEYS as usize);
    let first = a.members.status();
    let key = ObjectKey::new("default", &first.name);
    let mut lease = client.get(&LEASE, &key).unwrap().to_value();
    assert_eq!(lease["metadata"]["labels"]["homeostat.dev/group"], "numbers");
    lease["spec"]["holderIdentity"] = serde_json::json!("");
    // Each renewal changes the version.
    until!({
        lease["metadata"]["resourceVersion"] = client.get(&LEASE, &key).unwrap().resource_version().into();
        client.update(&LEASE, lease.clone()).is_ok()
    });
    until!({
        let status = a.members.status();
        !status.name.is_empty() && status.name != first.name && status.waits_for.is_empty()
    });
    assert_eq!(shares(&[&a]), [(0..KEYS).collect::<Vec<_>>()]);
    // All keys run again, with a greater number.
    until!(runs.try_iter().any(|(_, number)| number > first.number));
    // The lease of the first membership is deleted once no assignment needs it.
    let (note, _runs) = noted();
    let b = Process::start(&client, "b", note);
    shares(&[&a, &b]);
    let names = || -> BTreeSet<_> {
        let leases = client.list(&LEASE, &Query::all()).unwrap().items;
        leases.iter().map(|lease| lease.name().to_owned()).collect()
    };
    let expected = BTreeSet::from(["numbers".to_owned(), a.members.status().name, b.members.status().name]);
    until!(names() == expected);
}

/// Clears the lease of a member, like another member that has not seen its renewals.
fn expel(client: &MemoryClient, name: &str) {
    let key = ObjectKey::new("default", name);
    let cleared = Patch::Merge(serde_json::json!({"spec": {"holderIdentity": ""}}));
    client.patch(&LEASE, &key, &cleared, PatchTarget::Object).unwrap();
}

#[test]
fn the_runs_of_a_member_that_was_expelled_are_cancelled() {
    let client = MemoryClient::new();
    let (begun, begins) = unbounded();
    let (ended, ends) = unbounded();
    let is_first = AtomicBool::new(true);
    let a = Process::start_with(&client, "a", move |cx, _| {
        if is_first.swap(false, SeqCst) {
            begun.send(())?;
            cx.token().wait();
            ended.send(cx.fence().is_err())?;
        }
        Ok(())
    });
    begins.recv().unwrap();
    expel(&client, &a.members.status().name);
    assert_eq!(ends.recv(), Ok(true));
}

/// The thread of the member cannot end them, because it waits for the call.
#[test]
fn the_runs_of_a_member_end_with_its_lease_while_a_call_hangs() {
    let (client, clock) = (HookedClient::new(MemoryClient::new()), ManualClock::new());
    let members = Members::builder(client.clone(), "default", "numbers").identity("a").clock(clock.clock());
    let members = members.build().unwrap();
    let manager = Manager::builder().clock(clock.clock()).threads(1).build().unwrap();
    let (begun, begins) = unbounded();
    let (ended, ends) = unbounded();
    let reconcile = move |cx: &Context, _: &u32| -> Result<Action, BoxError> {
        begun.send(())?;
        cx.token().wait();
        ended.send(cx.fence().is_err())?;
        Ok(Action::await_change())
    };
    let controller = Controller::builder("numbers", reconcile).clock(clock.clock());
    let controller = controller.shards(members.shards(), |key: &u32| ShardHash::of([key.to_string()])).build().unwrap();
    controller.handle().enqueue(7);
    manager.add(Component::running("numbers-member", members.start().unwrap())).unwrap();
    manager.add(controller).unwrap();
    let running = manager.start().unwrap();
    let advance = || clock.advance(Duration::from_millis(10));
    until!({
        advance();
        begins.try_recv().is_ok()
    });
    let (release, gate) = bounded::<()>(0);
    let (hanging, hangs) = unbounded();
    client.before(move |_, _| {
        hanging.send(()).unwrap();
        let _ = gate.recv();
        None
    });
    until!({
        advance();
        hangs.try_recv().is_ok()
    });
    clock.advance(Duration::from_secs(8));
    assert_eq!(ends.recv(), Ok(true));
    client.heal();
    drop(release);
    drop(running);
}

/// A run of an earlier membership has a fencing number that nobody remembers.
#[test]
fn a_group_begins_again_after_its_leases_were_deleted_beside_a_run() {
    let client = MemoryClient::new();
    let (begun, begins) = unbounded();
    let (release, gate) = bounded::<()>(0);
    let a = Process::start(&client, "a", move |key, _| {
        if key == 0 {
            begun.send(()).unwrap();
            let _ = gate.recv();
        }
    });
    begins.recv().unwrap();
    let name = a.members.status().name;
    let leases = client.list(&LEASE, &Query::all()).unwrap().items;
    assert_eq!(leases.len(), 2);
    for lease in leases {
        client.delete(&LEASE, &lease.key(), &DeleteOptions::default()).unwrap();
    }
    until!(a.members.status().name != name && a.owned().len() == KEYS as usize);
    drop(release);
}

/// The fencing number rises within a membership, so a greater number in an object does not mean that the membership has
/// ended.
#[test]
fn an_object_with_a_greater_number_fails_one_run_and_does_not_end_the_membership() {
    let client = MemoryClient::new();
    let (report, reports) = unbounded();
    let a = Process::start_with(&client, "a", move |cx, key| {
        if key == 0 {
            let mut meta = ObjectMeta::new("default", "shared");
            meta.annotations.insert(FENCE_ANNOTATION.to_owned(), "1000".to_owned());
            report.send(meta.mark_term(&cx.fence()?).is_err())?;
            cx.fence()?;
        }
        Ok(())
    });
    assert_eq!(reports.recv(), Ok(true));
    let name = a.members.status().name;
    until!(a.numbers.queue().is_empty());
    assert_eq!((a.members.status().name, a.owned().len()), (name, KEYS as usize));
}

#[test]
fn members_join_once_at_a_time() {
    let members = Members::builder(Arc::new(MemoryClient::new()), "default", "numbers").identity("a").build().unwrap();
    let running = members.start().unwrap();
    let error = members.clone().start().unwrap_err();
    assert_eq!(error.to_string(), "group \"numbers\" has been joined by these members already");
    running.shutdown(Duration::from_secs(30)).unwrap();
    drop(members.start().unwrap());
}

/// Once a member's lease has been cleared, the others consider the member permanently gone, even if it has not learned
/// that it had created the lease.
#[test]
fn a_member_does_not_take_its_cleared_lease_again() {
    let store = MemoryClient::new();
    let client = HookedClient::new(store.clone());
    let (report, reports) = bounded(1);
    let created_in = store.clone();
    client.on_call(move |call| {
        let name = call.object.key().name().to_owned();
        if call.verb != "create" || !name.starts_with("numbers-a-") || report.is_full() {
            return None;
        }
        created_in.create(&LEASE, call.sent.as_deref().cloned().unwrap()).unwrap();
        expel(&created_in, &name);
        report.send(name).unwrap();
        Some(ClientError::transport(call.object.clone(), "the answer was lost"))
    });
    let members = Members::builder(client, "default", "numbers").identity("a");
    let timing = LeaseTiming::new(Duration::from_secs(3600)).retry_period(Duration::from_millis(25));
    let members = members.timing(timing).build().unwrap();
    let running = members.start().unwrap();
    until!(!members.status().name.is_empty());
    let first = reports.recv().unwrap();
    assert_ne!(members.status().name, first);
    let left = store.get(&LEASE, &ObjectKey::new("default", &first)).ok();
    assert!(left.is_none_or(|lease| lease.pointer("/spec/holderIdentity").unwrap().to_value() == ""));
    running.shutdown(Duration::from_secs(30)).unwrap();
}

/// Another member is expelled only in the version that was seen unchanged, because it may have renewed its lease since.
#[test]
fn a_member_that_renews_its_lease_at_the_last_moment_is_not_expelled() {
    let store = MemoryClient::new();
    let key = ObjectKey::new("default", "numbers-b");
    let lease = serde_json::json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "default", "name": "numbers-b", "labels": {"homeostat.dev/group": "numbers"}},
        "spec": {"holderIdentity": "numbers-b", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    store.create(&LEASE, lease).unwrap();
    let client = HookedClient::new(store.clone());
    let tries = Arc::new(AtomicUsize::new(0));
    let (counted, renewing, renewed) = (Arc::clone(&tries), store.clone(), key.clone());
    client.before(move |verb, object| {
        if verb == "get" && object.key().name() == renewed.name() {
            let time = format!("2026-01-01T00:00:{:02}.000000Z", counted.fetch_add(1, SeqCst) + 1);
            let renewal = Patch::Merge(serde_json::json!({"spec": {"renewTime": time}}));
            renewing.patch(&LEASE, &renewed, &renewal, PatchTarget::Object).unwrap();
        }
        None
    });
    let members = Members::builder(client.clone(), "default", "numbers").identity("a");
    let timing = LeaseTiming::new(Duration::from_secs(3600)).retry_period(Duration::from_millis(25));
    let members = members.timing(timing).build().unwrap();
    let running = members.start().unwrap();
    let is_gone = || store.get(&LEASE, &key).unwrap().pointer("/spec/holderIdentity").unwrap().to_value() == "";
    until!(tries.load(SeqCst) >= 3);
    assert!(!is_gone());
    // It no longer renews its lease.
    client.heal();
    until!(is_gone());
    running.shutdown(Duration::from_secs(30)).unwrap();
}
