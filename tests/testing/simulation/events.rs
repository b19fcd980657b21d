//! An event recorder in a simulation, which also simulates its thread.

use std::sync::Arc;

use homeostat::objects::{Client, DynamicObject, EventRecorder, EventType, Kind, MemoryClient, Query};
use homeostat::testing::Simulation;

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
