//! The system refuses to start the thread of a recorder.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::thread;

use super::{EventRecorder, EventType};
use crate::tests::refusals::Refusals;
use crate::until::until;
use crate::{Client, DynamicObject, Kind, MemoryClient, Query};

const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");

/// Returns a recorder, its client, and its system, which refuses to start the recorder's thread this many times.
fn refused(times: usize) -> (EventRecorder, Arc<MemoryClient>, Arc<Refusals>) {
    let (client, system) = (Arc::new(MemoryClient::new()), Refusals::new(times));
    let builder = EventRecorder::builder("refused").client(client.clone()).clock(system.clock().clock());
    (builder.log(false).build(), client, system)
}

fn stored(client: &MemoryClient) -> usize {
    client.list(&EventRecorder::KIND, &Query::all()).unwrap().items.len()
}

fn record(recorder: &EventRecorder, name: &str) {
    recorder.event(&DynamicObject::new(&VM, "default", name), EventType::Normal, "Started", "It has started");
}

#[test]
fn each_event_asks_again_for_a_refused_thread_and_no_event_waits_for_the_client() {
    let (recorder, client, system) = refused(2);
    for (name, left) in [("vm-1", 1), ("vm-2", 0)] {
        record(&recorder, name);
        assert_eq!(system.left(), left);
        assert_eq!(stored(&client), 0, "the caller does not store it");
    }
    record(&recorder, "vm-3");
    recorder.flush();
    assert_eq!(stored(&client), 3);
    // Only the thread can store this one.
    record(&recorder, "vm-4");
    until("four events are stored", || stored(&client) >= 4);
}

#[test]
fn a_recorder_without_a_thread_stores_its_events_at_a_flush_and_at_its_end() {
    let (recorder, client, _) = refused(usize::MAX);
    record(&recorder, "vm-1");
    recorder.flush();
    assert_eq!(stored(&client), 1);
    record(&recorder, "vm-2");
    drop(recorder);
    assert_eq!(stored(&client), 2);
}

#[test]
fn threads_that_record_at_once_start_one_thread() {
    for _ in 0..100 {
        let (recorder, client, system) = refused(1);
        thread::scope(|threads| {
            for name in ["vm-1", "vm-2", "vm-3"] {
                let recorder = &recorder;
                threads.spawn(move || record(recorder, name));
            }
        });
        drop(recorder);
        assert_eq!((stored(&client), system.started()), (3, 1));
    }
}
