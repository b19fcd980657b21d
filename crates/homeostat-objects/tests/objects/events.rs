//! Event recorders: they count, store and log events, and never block a reconciler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::ManualClock;
use homeostat_objects::{
    ClientError, DynamicObject, EventRecorder, EventRecorderBuilder, EventType, Kind, MemoryClient, Object, Query,
    SharedObject, reasons,
};
use log::Level;
use serde_json::{Value, json};

use crate::hooked_client::{HookedClient, unreachable};
use crate::logs::Logs;

const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
const NODE: Kind = Kind::cluster("", "v1", "Node");
const SECOND: Duration = Duration::from_secs(1);

struct World {
    clock: ManualClock,
    client: Arc<HookedClient>,
    recorder: EventRecorder,
}

fn world(settings: impl FnOnce(EventRecorderBuilder) -> EventRecorderBuilder) -> World {
    let clock = ManualClock::new();
    let client = HookedClient::new(MemoryClient::builder().clock(clock.clock()).build());
    let builder = EventRecorder::builder("vms").instance("vms-0").client(client.clone());
    let builder = builder.clock(clock.clock()).log(false);
    World { clock, client, recorder: settings(builder).build() }
}

fn vm(name: &str) -> DynamicObject {
    vm_in("a", name)
}

fn vm_in(namespace: &str, name: &str) -> DynamicObject {
    let mut vm = DynamicObject::new(&VM, namespace, name);
    vm.meta_mut().uid = format!("uid-{name}");
    vm
}

impl World {
    fn event(&self, name: &str, message: &str) {
        self.recorder.event(&vm(name), EventType::Normal, "Started", message);
        self.recorder.flush();
    }

    /// Returns the stored events, ordered by name.
    fn stored(&self) -> Vec<Value> {
        self.recorder.flush();
        let client = self.client.inner(&EventRecorder::KIND);
        let listed = client.client().list(&EventRecorder::KIND, &Query::all()).unwrap();
        listed.items.iter().map(SharedObject::to_value).collect()
    }

    /// Returns the stored events in order, as `message count`.
    fn counts(&self) -> Vec<String> {
        let stored = self.stored();
        let mut counts: Vec<_> =
            stored.iter().map(|event| format!("{} {}", event["note"].as_str().unwrap(), count(event))).collect();
        counts.sort_unstable();
        counts
    }
}

/// Returns how often an event has happened. Only repeated events have a series.
fn count(event: &Value) -> i64 {
    event.get("series").map_or(1, |series| series["count"].as_i64().unwrap())
}

/// An API server checks this form.
#[test]
fn an_event_is_written_as_kubernetes_does() {
    let world = world(|builder| builder);
    world.clock.advance(90 * SECOND + SECOND / 2);
    world.recorder.event(&vm("vm-1"), EventType::Warning, "NoDisk", "disk-1 is not there");
    let [event] = &world.stored()[..] else { panic!("one event") };
    let mut event = event.clone();
    let metadata = event.as_object_mut().unwrap().remove("metadata").unwrap();
    assert_eq!(
        event,
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "type": "Warning", "action": "Reconcile", "reason": "NoDisk",
            "note": "disk-1 is not there",
            "regarding": {
                "apiVersion": "example.com/v1", "kind": "Vm", "namespace": "a", "name": "vm-1", "uid": "uid-vm-1",
            },
            "eventTime": "1970-01-01T00:01:30.500000Z", "reportingController": "vms", "reportingInstance": "vms-0",
        })
    );
    let (prefix, hex) = metadata["name"].as_str().unwrap().rsplit_once('.').unwrap();
    assert_eq!((&metadata["namespace"], prefix, hex.len()), (&json!("a"), "vm-1", 16));
    assert!(hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
}

#[test]
fn a_repeated_event_raises_the_count() {
    let world = world(|builder| builder);
    for _ in 0..3 {
        world.event("vm-1", "on node-1");
        world.clock.advance(SECOND);
    }
    let [event] = &world.stored()[..] else { panic!("one event") };
    assert_eq!(
        (&event["eventTime"], &event["series"]),
        (
            &json!("1970-01-01T00:00:00.000000Z"),
            &json!({"count": 3, "lastObservedTime": "1970-01-01T00:00:02.000000Z"})
        )
    );
    assert_eq!(world.client.writes().len(), 3);
    assert_eq!(world.recorder.len(), 1);
}

#[test]
fn another_action_is_another_event() {
    let world = world(|builder| builder);
    let binding = world.recorder.action("Bind");
    for recorder in [&world.recorder, &binding, &binding] {
        recorder.event(&vm("vm-1"), EventType::Normal, "Started", "x");
    }
    let mut actions: Vec<_> = world.stored().iter().map(|event| (event["action"].clone(), count(event))).collect();
    actions.sort_by_key(|(_, count)| *count);
    assert_eq!(actions, [(json!("Reconcile"), 1), (json!("Bind"), 2)]);
    assert_eq!(world.recorder.len(), 2);
}

#[test]
fn another_object_type_reason_or_message_is_another_event() {
    let world = world(|builder| builder);
    let mut anew = vm("vm-1");
    anew.meta_mut().uid = "another".into();
    let mut unnamed = vm("vm-1");
    unnamed.meta_mut().uid.clear();
    let mut elsewhere = unnamed.clone();
    elsewhere.meta_mut().namespace = "b".into();
    for _ in 0..2 {
        world.recorder.event(&vm("vm-1"), EventType::Normal, "Started", "x");
        world.recorder.event(&vm("vm-1"), EventType::Warning, "Started", "x");
        world.recorder.event(&vm("vm-1"), EventType::Normal, "Stopped", "x");
        world.recorder.event(&vm("vm-1"), EventType::Normal, "Started", "y");
        for other in [&vm("vm-2"), &anew, &unnamed, &elsewhere] {
            world.recorder.event(other, EventType::Normal, "Started", "x");
        }
    }
    assert_eq!((world.recorder.len(), world.stored().len()), (8, 8));
    assert!(world.stored().iter().all(|event| count(event) == 2));
}

#[test]
fn two_recorders_count_separately() {
    let world = world(|builder| builder);
    let other = EventRecorder::builder("disks").client(world.client.clone()).clock(world.clock.clock());
    let other = other.log(false).build();
    world.event("vm-1", "x");
    other.event(&vm("vm-1"), EventType::Normal, "Started", "x");
    other.flush();
    let stored = world.stored();
    let mut components: Vec<_> = stored.iter().map(|event| event["reportingController"].as_str().unwrap()).collect();
    components.sort_unstable();
    assert_eq!((components, world.counts()), (vec!["disks", "vms"], vec!["x 1".to_owned(); 2]));
}

#[test]
fn event_names_are_valid_for_clients() {
    let world = world(|builder| builder);
    let long = "b".repeat(253);
    let dashes = format!("{}{}x", "c".repeat(200), "-".repeat(52));
    for name in [&*long, &dashes, "system:node", "Node_1"] {
        let mut node = DynamicObject::new(&NODE, "", name);
        node.meta_mut().uid = name.to_owned();
        world.recorder.event(&node, EventType::Normal, "Started", name);
    }
    let stored = world.stored();
    assert_eq!(stored.len(), 4);
    for event in stored {
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!((&event["regarding"]["name"], &event["regarding"]["namespace"]), (&event["note"], &Value::Null));
    }
}

#[test]
fn long_reasons_and_actions_are_cut() {
    let world = world(|builder| builder.instance("i".repeat(200)));
    world.recorder.action("a".repeat(200)).event(&vm("vm-1"), EventType::Normal, &"r".repeat(200), "x");
    let event = &world.stored()[0];
    for field in ["action", "reason", "reportingInstance"] {
        assert_eq!(event[field].as_str().unwrap().len(), 128, "{field}");
    }
}

#[test]
fn a_long_message_is_cut_between_letters() {
    let world = world(|builder| builder);
    world.event("vm-1", &format!("{}é", "a".repeat(1023)));
    world.event("vm-1", &format!("{}é", "a".repeat(1022)));
    let lengths: Vec<_> = world.counts().iter().map(|count| count.len() - " 1".len()).collect();
    assert_eq!(lengths, [1023, 1024]);
}

#[test]
fn events_that_could_not_be_stored_are_stored_later_in_order() {
    let world = world(|builder| builder);
    world.event("vm-1", "a");
    world.client.cut_off(true);
    world.client.writes();
    world.event("vm-2", "b");
    world.event("vm-1", "a");
    world.event("vm-3", "c");
    world.event("vm-2", "b");
    assert_eq!(world.client.writes().len(), 4, "one call for each flush, as all are in one namespace");
    assert_eq!(world.counts(), ["a 1"]);
    world.client.writes();

    world.client.cut_off(false);
    world.event("vm-4", "d");
    assert_eq!(world.counts(), ["a 2", "b 2", "c 1", "d 1"]);
    let order: Vec<_> = world.client.writes().iter().map(|write| write[..write.len() - 17].to_owned()).collect();
    assert_eq!(order, ["patch Event a/vm-1", "create Event a/vm-2", "create Event a/vm-3", "create Event a/vm-4"]);

    world.client.cut_off(true);
    world.event("vm-2", "b");
    world.client.cut_off(false);
    world.recorder.flush();
    assert_eq!(world.counts(), ["a 2", "b 3", "c 1", "d 1"]);
    world.client.writes();
    world.recorder.flush();
    assert_eq!(world.client.writes(), [""; 0], "nothing is left");
}

#[test]
fn a_refused_event_does_not_delay_others() {
    let world = world(|builder| builder);
    world.client.before(|_, object| {
        let refused = object.key().name().starts_with("vm-1.");
        refused.then(|| ClientError::invalid(object.clone(), "metadata.namespace", "a", "must exist"))
    });
    world.event("vm-1", "a");
    world.event("vm-2", "b");
    assert_eq!((world.counts(), world.client.writes().len()), (vec!["b 1".to_owned()], 2));
    world.recorder.flush();
    assert_eq!(world.client.writes().len(), 0);
    world.client.cut_off(false);
    world.event("vm-1", "a");
    assert_eq!((world.counts(), world.client.writes().len()), (vec!["a 2".to_owned(), "b 1".to_owned()], 1));
}

/// A webhook, for example, may fail for one namespace only.
#[test]
fn many_failing_events_of_a_namespace_do_not_delay_others() {
    let world = world(|builder| builder);
    world.client.before(|_, object| (object.key().namespace() == "x").then(|| unreachable(object)));
    for number in 0..100 {
        world.recorder.event(&vm_in("x", "vm-1"), EventType::Normal, "Started", &number.to_string());
    }
    world.recorder.event(&vm_in("y", "vm-1"), EventType::Normal, "Started", "y");
    assert_eq!(world.counts(), ["y 1"]);
    assert_eq!(world.client.writes().len(), 2, "one try for each namespace");
}

/// Even within a namespace, no event is delayed forever.
#[test]
fn an_event_that_is_not_answered_is_tried_after_the_others() {
    let world = world(|builder| builder);
    world.client.before(|_, object| object.key().name().starts_with("vm-1.").then(|| unreachable(object)));
    for name in ["vm-1", "vm-2", "vm-3"] {
        world.recorder.event(&vm(name), EventType::Normal, "Started", name);
    }
    world.recorder.flush();
    assert_eq!(world.counts(), ["vm-2 1", "vm-3 1"]);
    world.client.cut_off(false);
    assert_eq!(world.counts(), ["vm-1 1", "vm-2 1", "vm-3 1"]);
}

#[test]
fn a_client_that_fails_for_three_namespaces_in_a_row_is_not_asked_for_others() {
    let world = world(|builder| builder);
    world.client.before(|_, object| (object.key().namespace() != "good").then(|| unreachable(object)));
    for namespace in ["a", "b", "good", "c", "d", "e", "good"] {
        world.recorder.event(&vm_in(namespace, "vm-1"), EventType::Normal, "Started", namespace);
    }
    world.recorder.event(&vm_in("good", "vm-2"), EventType::Normal, "Started", "last");
    assert_eq!(world.counts(), ["good 2"], "the last one comes after c, d and e");
    assert_eq!(world.client.writes().len(), 6);
    assert_eq!(world.counts(), ["good 2", "last 1"]);
}

#[test]
fn an_event_is_dropped_after_many_failures() {
    let logs = Logs::of("unlucky");
    let client = HookedClient::new(MemoryClient::new());
    let builder = EventRecorder::builder("unlucky").client(client.clone()).clock(ManualClock::new().clock());
    let recorder = builder.log(false).build();
    let world = World { clock: ManualClock::new(), client, recorder };
    world.client.cut_off(true);
    world.recorder.event(&vm("vm-1"), EventType::Normal, "Started", "a");
    for tries in 1..=12 {
        assert_eq!(world.recorder.dropped(), 0);
        world.recorder.flush();
        assert_eq!(world.client.writes().len(), 1, "try {tries}");
    }
    assert_eq!(world.recorder.dropped(), 1);
    assert!(logs.at(Level::Warn).iter().any(|line| line.message.contains("because it could not be stored")));
    world.recorder.flush();
    assert_eq!(world.client.writes(), [""; 0], "it is no longer pending");
    world.client.cut_off(false);
    world.event("vm-1", "a");
    assert_eq!(world.counts(), ["a 2"], "but its count is known");
}

/// For each try of the failing event, a new event is stored.
#[test]
fn a_flush_ends_while_new_events_arrive() {
    let world = world(|builder| builder);
    let (new, recorder) = (AtomicU32::new(0), world.recorder.clone());
    world.client.before(move |_, object| {
        let number = new.fetch_add(1, SeqCst);
        if number < 100 {
            recorder.event(&vm_in("y", "vm-2"), EventType::Normal, "Started", &number.to_string());
        }
        object.key().name().starts_with("vm-1.").then(|| unreachable(object))
    });
    world.recorder.event(&vm("vm-1"), EventType::Normal, "Started", "a");
    world.recorder.event(&vm_in("y", "vm-1"), EventType::Normal, "Started", "b");
    world.recorder.flush();
    assert_eq!(world.client.writes().len(), 2);
    // The client holds the recorder, which holds the client.
    world.client.before(|_, _| None);
}

#[test]
fn a_removed_event_is_created_again() {
    let world = world(|builder| builder);
    world.event("vm-1", "a");
    let events = world.client.inner(&EventRecorder::KIND);
    events.purge(&events.list(&Query::all()).unwrap().items[0].key()).unwrap();
    world.event("vm-1", "a");
    assert_eq!(world.counts(), ["a 2"]);
}

/// An embedded client deletes an event an hour after it last happened.
#[test]
fn an_expired_event_is_created_again_and_a_repeated_one_stays() {
    let world = world(|builder| builder);
    for _ in 0..3 {
        world.event("vm-1", "a");
        world.clock.advance(50 * 60 * SECOND);
    }
    let uid = |world: &World| world.stored()[0]["metadata"]["uid"].clone();
    let (first, counts) = (uid(&world), world.counts());
    assert_eq!(counts, ["a 3"]);
    world.event("vm-1", "a");
    assert_eq!((uid(&world), world.counts()), (first.clone(), vec!["a 4".to_owned()]), "it continues");
    world.clock.advance(3_600 * SECOND);
    assert!(world.stored().is_empty());
    world.event("vm-1", "a");
    assert_eq!(world.counts(), ["a 5"]);
    assert_ne!(uid(&world), first);
}

/// When a namespace is deleted, its events are deleted too, so nobody needs a warning.
#[test]
fn an_event_in_a_deleted_namespace_is_dropped_quietly() {
    let logs = Logs::of("deleted-namespace");
    let client = HookedClient::new(MemoryClient::new());
    let recorder = EventRecorder::builder("deleted-namespace").client(client.clone()).clock(ManualClock::new().clock());
    let recorder = recorder.log(false).build();
    let terminating = "unable to create new content in namespace a because it is being terminated";
    for name in ["gone", "terminating"] {
        client.before(move |_, object| match name {
            "gone" => Some(ClientError::not_found(object.clone())),
            _ => Some(ClientError::forbidden(object.clone(), terminating)),
        });
        recorder.event(&vm(name), EventType::Normal, "Started", "a");
        recorder.flush();
        recorder.flush();
    }
    assert_eq!(client.writes().len(), 2);
    assert_eq!((logs.at(Level::Warn).len(), logs.at(Level::Debug).len()), (0, 2));
    assert!(logs.at(Level::Debug)[0].message.contains("its namespace is gone"));
}

/// The client has stored the event, but its answer was lost. A second recorder at the same moment simulates the retry.
#[test]
fn the_count_of_an_existing_event_is_raised() {
    let world = world(|builder| builder);
    world.event("vm-1", "a");
    let again = EventRecorder::builder("vms").client(world.client.clone()).clock(world.clock.clock());
    let again = again.log(false).build();
    for _ in 0..2 {
        again.event(&vm("vm-1"), EventType::Normal, "Started", "a");
    }
    again.flush();
    assert_eq!(world.counts(), ["a 2"]);
}

#[test]
fn the_least_recent_event_is_forgotten() {
    let world = world(|builder| builder.remember(2));
    for message in ["a", "b", "a", "c", "a", "b"] {
        world.event("vm-1", message);
        world.clock.advance(SECOND);
    }
    assert_eq!(world.recorder.len(), 2);
    assert_eq!(world.counts(), ["a 3", "b 1", "b 1", "c 1"]);
}

#[test]
fn the_events_that_wait_for_a_client_are_bounded() {
    let world = world(|builder| builder.remember(2));
    world.client.cut_off(true);
    for message in ["a", "b", "c", "d"] {
        world.event("vm-1", message);
    }
    assert_eq!(world.recorder.dropped(), 2);
    world.client.cut_off(false);
    world.recorder.flush();
    assert_eq!(world.counts(), ["c 1", "d 1"]);
}

/// While one event is being stored, another event replaces it in the recorder's memory.
#[test]
fn an_event_that_is_forgotten_while_it_cannot_be_stored_is_counted() {
    let logs = Logs::of("forgetful");
    let client = HookedClient::new(MemoryClient::new());
    let builder = EventRecorder::builder("forgetful").client(client.clone()).clock(ManualClock::new().clock());
    let recorder = builder.remember(1).log(false).build();
    let (second, is_first) = (recorder.clone(), AtomicU32::new(0));
    client.before(move |_, object| {
        if is_first.fetch_add(1, SeqCst) > 0 {
            return None;
        }
        second.event(&vm("vm-2"), EventType::Normal, "Started", "b");
        Some(unreachable(object))
    });
    recorder.event(&vm("vm-1"), EventType::Normal, "Started", "a");
    recorder.flush();
    assert_eq!(recorder.dropped(), 1);
    let lost = "forgetful: dropped an event about Vm a/vm-1, because it could not be stored";
    assert!(logs.at(Level::Warn).iter().any(|line| line.message == lost));
}

#[test]
fn a_panic_of_the_client_loses_only_one_event() {
    let world = world(|builder| builder);
    world.client.before(|_, _| panic!("out of luck"));
    world.event("vm-1", "a");
    world.event("vm-2", "b");
    assert_eq!(world.counts(), ["b 1"]);
}

/// A recorder on the system clock, with this component. Its client reports the thread of each call, and blocks until
/// the test lets it continue.
fn slow(component: &str) -> (Arc<HookedClient>, EventRecorder, Receiver<thread::ThreadId>, Sender<()>) {
    let client = HookedClient::new(MemoryClient::new());
    let ((at_it, is_at_it), (go, on)) = (unbounded(), unbounded::<()>());
    client.before(move |_, _| {
        at_it.send(thread::current().id()).unwrap();
        on.recv().unwrap();
        None
    });
    let recorder = EventRecorder::builder(component).client(client.clone()).log(false).build();
    (client, recorder, is_at_it, go)
}

fn counts_of(client: &HookedClient) -> Vec<i64> {
    let stored = client.inner(&EventRecorder::KIND).list(&Query::all()).unwrap().items;
    stored.iter().map(|event| count(&event.to_json().unwrap())).collect()
}

#[test]
fn a_thread_of_the_recorder_stores_the_events() {
    // No thread can have the second name.
    for component in ["slow", "a\0b"] {
        let (client, recorder, is_at_it, go) = slow(component);
        go.send(()).unwrap();
        recorder.event(&vm("vm-1"), EventType::Normal, "Started", "a");
        assert_ne!(is_at_it.recv().unwrap(), thread::current().id(), "{component:?}");
        recorder.flush();
        assert_eq!(counts_of(&client), [1]);
    }
}

#[test]
fn recording_does_not_wait_for_a_hanging_client_but_a_flush_does() {
    let (client, recorder, is_at_it, go) = slow("slow");
    recorder.event(&vm("vm-1"), EventType::Normal, "Started", "a");
    is_at_it.recv().unwrap();
    recorder.event(&vm("vm-1"), EventType::Normal, "Started", "a");
    recorder.event(&vm("vm-2"), EventType::Normal, "Started", "b");
    assert_eq!(counts_of(&client), [0; 0], "the client has stored nothing, and all have gone on");
    (0..3).for_each(|_| go.send(()).unwrap());
    recorder.flush();
    assert_eq!(counts_of(&client), [2, 1]);
}

#[test]
fn the_last_handle_stores_the_remaining_events() {
    let (client, recorder, is_at_it, go) = slow("slow");
    let other = recorder.clone();
    recorder.event(&vm("vm-1"), EventType::Normal, "Started", "a");
    is_at_it.recv().unwrap();
    drop(recorder);
    other.event(&vm("vm-2"), EventType::Normal, "Started", "b");
    (0..2).for_each(|_| go.send(()).unwrap());
    drop(other);
    assert_eq!(counts_of(&client), [1, 1]);

    let world = world(|builder| builder);
    world.recorder.event(&vm("vm-1"), EventType::Normal, "Started", "a");
    assert!(counts_of(&world.client).is_empty(), "on a held clock nothing is stored behind the back of a test");
    let client = world.client.clone();
    drop(world);
    assert_eq!(counts_of(&client), [1]);
}

#[test]
fn the_end_of_a_recorder_reports_the_events_that_it_loses() {
    let logs = Logs::of("lost-events");
    for is_lost in [false, true] {
        let client = HookedClient::new(MemoryClient::new());
        client.cut_off(is_lost);
        let recorder = EventRecorder::builder("lost-events").client(client).log(false);
        let recorder = recorder.clock(ManualClock::new().clock()).build();
        for name in ["vm-1", "vm-2"] {
            recorder.event(&vm(name), EventType::Normal, "Started", "a");
        }
        drop(recorder);
        let lines = logs.all().into_iter().filter(|line| line.message.contains("are lost"));
        let lines: Vec<_> = lines.map(|line| (line.level, line.message)).collect();
        let text = "lost-events: 2 events are lost: the recorder ends and could not store them";
        assert_eq!(lines, if is_lost { vec![(Level::Warn, text.to_owned())] } else { Vec::new() });
    }
}

#[test]
fn threads_lose_no_event() {
    let world = world(|builder| builder);
    thread::scope(|scope| {
        for number in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for _ in 0..50 {
                    world.event("vm-1", "all");
                    world.event("vm-1", &format!("thread {number}"));
                }
            });
        }
    });
    let each = (0..4).map(|number| format!("thread {number} 50"));
    assert_eq!(world.counts(), [vec!["all 200".to_owned()], each.collect()].concat());
}

#[test]
fn events_are_logged() {
    let logs = Logs::of("logged");
    let clock = ManualClock::new();
    let client = HookedClient::new(MemoryClient::new());
    let builder = EventRecorder::builder("logged").client(client.clone()).clock(clock.clock());
    let recorder = builder.remember(1).build();
    let event = |message: &str, event: EventType| {
        recorder.event(&vm("vm-1"), event, reasons::SYNCED, message);
        recorder.flush();
    };
    event("a", EventType::Normal);
    event("a", EventType::Normal);
    client.before(|_, object| Some(unreachable(object)));
    event("b", EventType::Warning);
    event("c", EventType::Normal);

    let lines: Vec<_> = logs.all().iter().map(|line| format!("{} {}", line.level, line.message)).collect();
    let errors = [1, 3].map(|warning| logs.at(Level::Warn)[warning].field("error").to_owned());
    assert_eq!(
        lines,
        [
            "INFO logged: Vm a/vm-1: Synced: a (count 1)".to_owned(),
            "INFO logged: Vm a/vm-1: Synced: a (count 2)".to_owned(),
            "WARN logged: Vm a/vm-1: Synced: b (count 1)".to_owned(),
            format!("WARN logged: cannot store an event about Vm a/vm-1: {}", errors[0]),
            "INFO logged: Vm a/vm-1: Synced: c (count 1)".to_owned(),
            "WARN logged: the event Synced about Vm a/vm-1 could not be stored and is forgotten".to_owned(),
            format!("WARN logged: cannot store an event about Vm a/vm-1: {}", errors[1]),
        ]
    );
    let second = &logs.at(Level::Info)[1];
    let fields = ["object", "reason", "message", "count"].map(|field| second.field(field));
    assert_eq!(fields, ["Vm a/vm-1", "Synced", "a", "2"]);
    assert!(logs.at(Level::Warn)[1].field("error").contains("no answer"));
}

#[test]
fn without_a_client_events_are_only_counted_and_logged() {
    let logs = Logs::of("no-client");
    let recorder = EventRecorder::builder("no-client").remember(1).build();
    let quiet = EventRecorder::builder("no-client").remember(1).log(false).build();
    for recorder in [&recorder, &quiet] {
        for message in ["a", "b"] {
            recorder.event(&vm("vm-1"), EventType::Normal, "Started", message);
        }
        recorder.flush();
        assert_eq!(recorder.len(), 1);
    }
    assert_eq!((logs.all().len(), logs.at(Level::Warn)), (2, vec![]), "none of them has been lost");
}

#[test]
fn the_standard_messages_name_the_object() {
    let vm = vm("vm-1").object_ref();
    for message in [reasons::created(&vm), reasons::updated(&vm), reasons::deleted(&vm), reasons::exists(&vm)] {
        assert!(message.starts_with("Vm a/vm-1 "), "{message}");
    }
    assert_eq!((reasons::SYNCED, reasons::ERR_RESOURCE_EXISTS), ("Synced", "ErrResourceExists"));
}
