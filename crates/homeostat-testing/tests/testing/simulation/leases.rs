//! Managers of several processes use one lease, in one simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use homeostat::base::StartErrorKind;
use homeostat::{Action, CancellationToken, Context, Controller, Elector, Manager, Running};
use homeostat_objects::{Client, DeleteOptions, Kind, LeaseElector, LeaseTiming, MemoryClient, ObjectKey};
use homeostat_testing::Simulation;
use serde_json::json;

use super::{MINUTE, Notes, Outcome, SECOND};
use crate::hooked_client::HookedClient;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");

/// A manager with a controller that runs one key each second and records it, with the fencing
/// number.
struct Process {
    client: Arc<HookedClient>,
    manager: Manager,
    running: Running<Manager>,
}

impl Process {
    fn start(sim: &Simulation, store: &MemoryClient, name: &'static str, notes: &Notes) -> Self {
        let client = HookedClient::new(store.clone());
        let elector = LeaseElector::builder(client.clone(), "default", "test").identity(name).build().unwrap();
        let manager = Manager::builder().name(name).clock(sim.clock()).elector(elector).build().unwrap();
        let own = notes.clone();
        let reconcile = move |cx: &Context, _key: &&str| -> Outcome {
            own.add(format!("{name} {}", cx.fence()?.number().unwrap()));
            Ok(Action::requeue_after(SECOND))
        };
        let controller = Controller::builder("vm", reconcile).clock(sim.clock()).build().unwrap();
        controller.handle().enqueue("vm-1");
        manager.add(controller).unwrap();
        let running = manager.start().unwrap();
        Self { client, manager, running }
    }

    fn pair(sim: &Simulation, store: &MemoryClient, notes: &Notes) -> (Self, Self) {
        let one = Self::start(sim, store, "one", notes);
        sim.run_until(MINUTE, || one.manager.is_leading());
        let other = Self::start(sim, store, "other", notes);
        sim.run_for(MINUTE);
        assert!(one.manager.is_leading() && !other.manager.is_leading());
        (one, other)
    }
}

fn store(sim: &Simulation) -> MemoryClient {
    MemoryClient::builder().clock(sim.clock()).build()
}

/// Returns the noted leaders in order, each once.
fn leaders(notes: &Notes) -> Vec<String> {
    let mut all = notes.whats();
    all.dedup();
    all
}

#[test]
fn a_stop_in_order_lets_another_process_lead_within_a_second() {
    Simulation::seeds(0..10, |sim| {
        let (store, notes) = (store(sim), Notes::new(sim));
        let (one, other) = Process::pair(sim, &store, &notes);
        one.manager.stop();
        let stopped = sim.now();
        sim.run_until(SECOND, || other.manager.is_leading());
        one.running.join().unwrap();
        assert!(sim.now() - stopped <= SECOND);
        sim.run_for(MINUTE);
        assert_eq!(leaders(&notes), ["one 0", "other 1"]);
        other.manager.stop();
        other.running.join().unwrap();
    });
}

#[test]
fn a_leader_that_is_cut_off_stops_before_another_process_leads() {
    Simulation::seeds(0..10, |sim| {
        let (store, notes) = (store(sim), Notes::new(sim));
        let (one, other) = Process::pair(sim, &store, &notes);
        one.client.cut_off(true);
        let cut_off = sim.now();
        sim.run_until(10 * SECOND, || !one.manager.is_leading());
        assert!(!other.manager.is_leading());
        sim.run_until(MINUTE, || other.manager.is_leading());
        assert!(sim.now() - cut_off <= 16 * SECOND, "{:?}", sim.now() - cut_off);
        let error = one.running.join().unwrap_err();
        assert_eq!(error.to_string(), "elector: the leadership of default/test is lost");
        sim.run_for(MINUTE);
        assert_eq!(leaders(&notes), ["one 0", "other 1"]);
        other.manager.stop();
        other.running.join().unwrap();
    });
}

#[test]
fn a_short_partition_does_not_end_the_term() {
    Simulation::seeds(0..10, |sim| {
        let (store, notes) = (store(sim), Notes::new(sim));
        let (one, other) = Process::pair(sim, &store, &notes);
        one.client.cut_off(true);
        sim.run_for(5 * SECOND);
        one.client.heal();
        sim.run_for(5 * MINUTE);
        assert_eq!(leaders(&notes), ["one 0"]);
        for process in [other, one] {
            process.manager.stop();
            process.running.join().unwrap();
        }
    });
}

/// Most renewals take longer than the period between two renewals.
#[test]
fn slow_renewals_that_succeed_keep_the_term_and_do_not_delay_a_stop() {
    Simulation::seeds(0..10, |sim| {
        let (store, notes) = (store(sim), Notes::new(sim));
        let (one, other) = Process::pair(sim, &store, &notes);
        let clock = sim.clock();
        let updates = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&updates);
        one.client.before(move |verb, _| {
            if verb == "update" && count.fetch_add(1, SeqCst) % 6 != 5 {
                let cx = Context::detached_with(clock.clone(), CancellationToken::new());
                let _ = cx.sleep(Duration::from_millis(2300));
            }
            None
        });
        sim.run_for(5 * MINUTE);
        assert_eq!(leaders(&notes), ["one 0"]);
        assert!(one.manager.is_leading());
        // A stop on top of a renewal would wait for it forever, so it follows a quick renewal.
        sim.run_until(MINUTE, || updates.load(SeqCst).is_multiple_of(6));
        one.manager.stop();
        sim.run_until(10 * SECOND, || other.manager.is_leading());
        one.running.join().unwrap();
        other.manager.stop();
        other.running.join().unwrap();
    });
}

#[test]
fn a_leader_whose_lease_is_deleted_stops() {
    let sim = Simulation::new(1);
    let (store, notes) = (store(&sim), Notes::new(&sim));
    let (one, other) = Process::pair(&sim, &store, &notes);
    store.delete(&LEASE, &ObjectKey::new("default", "test"), &DeleteOptions::default()).unwrap();
    sim.run_for(MINUTE);
    let error = one.running.join().unwrap_err();
    assert_eq!(error.component(), Some("elector"));
    // The other process has seen the number of the deleted lease.
    assert_eq!(leaders(&notes), ["one 0", "other 1"]);
    other.manager.stop();
    other.running.join().unwrap();
}

#[test]
fn the_status_names_the_leader_and_the_time_for_which_it_has_led() {
    let sim = Simulation::new(1);
    let (store, notes) = (store(&sim), Notes::new(&sim));
    let (one, other) = Process::pair(&sim, &store, &notes);
    for process in [&one, &other] {
        let status = process.manager.status();
        assert!(status.leader.as_ref().unwrap().name.as_ref().unwrap().starts_with("one_"));
        assert_eq!(status.leader_for, Some(MINUTE));
    }
    let text = other.manager.status().to_string();
    let line = text.lines().next().unwrap();
    assert!(line.starts_with("other: running, another process leads; the leader is one_"), "{line}");
    assert!(line.ends_with(", for 60s"), "{line}");
    for process in [other, one] {
        process.manager.stop();
        process.running.join().unwrap();
    }
}

#[test]
fn a_manager_refuses_an_abort_grace_beyond_the_margin() {
    let elector = LeaseElector::builder(Arc::new(MemoryClient::new()), "default", "test");
    let elector = elector.timing(LeaseTiming::default().stop_margin(Duration::from_millis(900))).build().unwrap();
    assert_eq!(elector.stop_margin(), Some(Duration::from_millis(900)));
    let error = Manager::builder().elector(elector.clone()).build().unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::InvalidSetting);
    assert!(error.to_string().starts_with("abort_grace is 1s, but must be at most the stop margin"), "{error}");
    assert!(Manager::builder().elector(elector).abort_grace(Duration::from_millis(900)).build().is_ok());
}

/// Another program, for example one with client-go, holds the lease.
#[test]
fn the_lease_of_another_program_is_respected_and_taken_over_once_it_runs_out() {
    let sim = Simulation::new(1);
    let (store, notes) = (store(&sim), Notes::new(&sim));
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "default", "name": "test"},
        "spec": {
            "holderIdentity": "controller_7f", "leaseDurationSeconds": 30, "leaseTransitions": 41,
            "acquireTime": "2099-01-01T00:00:00.000000Z", "renewTime": "2099-01-01T00:00:00.000000Z",
        },
    });
    store.create(&LEASE, lease).unwrap();
    let process = Process::start(&sim, &store, "one", &notes);
    sim.run_until(31 * SECOND, || process.manager.is_leading());
    assert!(sim.elapsed() >= 30 * SECOND);
    sim.run_for(SECOND);
    assert_eq!(leaders(&notes), ["one 42"]);
    process.manager.stop();
    process.running.join().unwrap();
}
