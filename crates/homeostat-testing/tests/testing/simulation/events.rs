//! An event recorder in a simulation, which also simulates its thread.

use std::sync::Arc;
use std::time::Duration;

use homeostat_objects::{Client, DynamicObject, EventRecorder, EventType, Kind, MemoryClient, Query};
use homeostat_testing::Simulation;

use crate::hooked_client::{HookedClient, unreachable};

const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");

#[test]
fn events_are_stored_in_separate_turns_and_the_rest_at_the_drop() {
    Simulation::seeds(0..5, |sim| {
        let client = MemoryClient::builder().clock(sim.clock()).build();
        let stored = || client.list(&EventRecorder::KIND, &Query::all()).unwrap().items.len();
        let recorder = EventRecorder::builder("vms").client(Arc::new(client.clone())).clock(sim.clock()).build();
        let record = |message: &str| {
            recorder.event(&DynamicObject::new(&VM, "a", "vm-1"), EventType::Normal, "Started", message);
        };
        record("a");
        assert_eq!(stored(), 0, "no thread but this one");
        sim.run_until_idle();
        assert_eq!((stored(), sim.trace().last().unwrap().task.as_str()), (1, "events-vms"));
        record("b");
        recorder.flush();
        assert_eq!(stored(), 2);
        record("c");
        drop(recorder);
        assert_eq!(stored(), 3);
    });
}

/// The thread waits longer after each failure, and stores the event once the client is back.
#[test]
fn an_unreachable_client_is_tried_again_after_growing_delays() {
    Simulation::seeds(0..5, |sim| {
        let inner = MemoryClient::builder().clock(sim.clock()).build();
        let client = HookedClient::new(inner);
        client.cut_off(true);
        let recorder = EventRecorder::builder("vms").client(client.clone()).clock(sim.clock()).log(false).build();
        recorder.event(&DynamicObject::new(&VM, "a", "vm-1"), EventType::Normal, "Started", "a");
        // Immediately, and after 1, 3, 7 and 15 seconds.
        sim.run_for(Duration::from_secs(20));
        assert_eq!(client.writes().len(), 5);
        client.cut_off(false);
        sim.run_for(Duration::from_secs(12));
        assert_eq!(client.writes().len(), 1);
        sim.run_for(Duration::from_secs(600));
        assert_eq!(client.writes().len(), 0);
    });
}

/// Events in other namespaces do not wait for the next try of the failing one.
#[test]
fn events_are_stored_while_those_of_a_failing_namespace_wait() {
    Simulation::seeds(0..5, |sim| {
        let client = HookedClient::new(MemoryClient::builder().clock(sim.clock()).build());
        client.before(|_, object| (object.key().namespace() == "x").then(|| unreachable(object)));
        let recorder = EventRecorder::builder("vms").client(client.clone()).clock(sim.clock()).log(false).build();
        let record = |namespace: &str, message: &str| {
            recorder.event(&DynamicObject::new(&VM, namespace, "vm-1"), EventType::Normal, "Started", message);
        };
        record("x", "a");
        // Tries immediately, and after 1, 3, 7 and 15 seconds.
        sim.run_for(Duration::from_secs(20));
        assert_eq!(client.writes().len(), 5);
        for number in 0..3 {
            record("x", &format!("b{number}"));
            record("y", &format!("b{number}"));
            sim.run_for(Duration::from_secs(1));
            assert_eq!(client.writes().len(), 1, "the event in the namespace y");
        }
        // The four events in the namespace x are tried 12 times each.
        client.writes();
        sim.run_for(Duration::from_secs(3_600));
        assert_eq!((client.writes().len(), recorder.dropped()), (4 * 12 - 5, 4));
    });
}
