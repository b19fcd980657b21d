//! Several stores in one controller: sources that join and leave while it runs, with keys that name their store.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat::{Action, Context, Controller, ControllerHandle, Event, Manager, Running, Sources, Subscriber};
use homeostat_objects::{Api, MemoryClient, ObjectKey, ObjectMeta, ObjectWatch};
use homeostat_testing::Simulation;
use parking_lot::Mutex;

use super::{MINUTE, Outcome, SECOND};
use crate::hooked_client::HookedClient;

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Note {
    metadata: ObjectMeta,
    text: String,
    #[serde(default)]
    copy: String,
}

homeostat_objects::object!(Note, namespaced, "example.com", "v1");

/// A store, and a note in it.
type Key = (&'static str, ObjectKey);

type NoteEvent = Event<ObjectKey, Note>;

/// The clients of the stores by name.
type Stores = Arc<Mutex<BTreeMap<&'static str, Api<Note>>>>;

struct Program<'a> {
    sim: &'a Simulation,
    stores: Stores,
    manager: Manager,
    controller: ControllerHandle<Key>,
    runs: Arc<Mutex<Vec<Key>>>,
    running: Running<Manager>,
}

impl<'a> Program<'a> {
    fn start(sim: &'a Simulation) -> Self {
        let (stores, runs) = (Stores::default(), Arc::<Mutex<Vec<Key>>>::default());
        let (of_runs, record) = (Arc::clone(&stores), Arc::clone(&runs));
        let reconcile = move |_: &Context, key: &Key| -> Outcome {
            record.lock().push(key.clone());
            let Some(notes) = of_runs.lock().get(key.0).cloned() else { return Ok(Action::await_change()) };
            let mut note = notes.get(&key.1)?;
            if note.copy != note.text {
                note.copy.clone_from(&note.text);
                notes.update(&note)?;
            }
            Ok(Action::await_change())
        };
        let controller = Controller::builder("notes", reconcile).clock(sim.clock()).build().unwrap();
        let handle = controller.handle();
        let manager = Manager::builder().clock(sim.clock()).threads(1).build().unwrap();
        manager.add(controller).unwrap();
        let running = manager.start().unwrap();
        sim.run_for(SECOND);
        Self { sim, stores, manager, controller: handle, runs, running }
    }

    /// Adds a store while the controller runs. Returns its client, with one note.
    fn join(&self, name: &'static str, is_cut_off: bool) -> Arc<HookedClient> {
        let store = MemoryClient::builder().clock(self.sim.clock()).build();
        let client = HookedClient::new(store);
        let notes = Api::<Note>::new(client.clone());
        let metadata = ObjectMeta::new("default", "a");
        notes.create(&Note { metadata, text: "one".to_owned(), copy: String::new() }).unwrap();
        if is_cut_off {
            client.cut_off(true);
        }
        self.stores.lock().insert(name, notes.clone());
        let watch = ObjectWatch::new(notes).name(name).clock(self.sim.clock()).start().unwrap();
        let mut sources = Sources::new();
        sources.subscribe(&watch, move |queue| {
            Subscriber::to(queue, move |event: &NoteEvent| event.key().map(|key| (name, key.clone()))).name(name)
        });
        self.controller.add_sources(sources).unwrap();
        self.manager.add(watch).unwrap();
        client
    }

    fn write(&self, store: &str, text: &str) {
        let notes = self.stores.lock()[store].clone();
        let mut note = notes.get(&ObjectKey::new("default", "a")).unwrap();
        text.clone_into(&mut note.text);
        notes.update(&note).unwrap();
    }

    fn copy(&self, store: &str) -> String {
        let notes = self.stores.lock()[store].clone();
        notes.get(&ObjectKey::new("default", "a")).unwrap().copy
    }

    fn taken(&self) -> Vec<&'static str> {
        self.runs.lock().drain(..).map(|(store, _)| store).collect()
    }

    fn stop(self) {
        self.manager.stop();
        self.running.join().unwrap();
    }
}

#[test]
fn a_store_that_joins_later_delays_nothing_even_if_it_cannot_be_reached() {
    Simulation::seeds(0..20, |sim| {
        let program = Program::start(sim);
        program.join("near", false);
        let far = program.join("far", true);
        sim.run_for(SECOND);
        assert_eq!(program.copy("near"), "one");
        program.write("near", "two");
        sim.run_for(SECOND);
        assert_eq!(program.copy("near"), "two");
        assert!(program.taken().iter().all(|store| *store == "near"));
        let ready = program.manager.ready();
        assert!(ready.reasons().iter().any(|reason| reason.starts_with("far: ")), "{ready}");
        far.heal();
        sim.run_for(MINUTE);
        assert_eq!(program.copy("far"), "one");
        assert!(program.manager.ready().is_ok(), "{}", program.manager.ready());
        program.stop();
    });
}

#[test]
fn a_store_that_is_cut_off_delays_only_its_own_keys() {
    Simulation::seeds(0..20, |sim| {
        let program = Program::start(sim);
        let near = program.join("near", false);
        let far = program.join("far", false);
        sim.run_for(SECOND);
        assert_eq!((program.copy("near"), program.copy("far")), ("one".to_owned(), "one".to_owned()));
        program.write("far", "two");
        far.cut_off(true);
        sim.run_for(SECOND);
        program.taken();
        program.write("near", "two");
        sim.run_for(SECOND);
        assert_eq!(program.copy("near"), "two");
        // One thread serves both stores. While a failed key waits for its retry, the thread is free.
        program.write("near", "three");
        sim.run_for(SECOND);
        assert_eq!(program.copy("near"), "three");
        far.heal();
        sim.run_for(MINUTE);
        assert_eq!(program.copy("far"), "two");
        drop(near);
        program.stop();
    });
}

#[test]
fn a_removed_store_enqueues_no_key() {
    Simulation::seeds(0..20, |sim| {
        let program = Program::start(sim);
        program.join("near", false);
        program.join("far", false);
        sim.run_for(SECOND);
        assert!(program.controller.remove_source("far", SECOND).unwrap());
        program.manager.remove("far", SECOND).unwrap();
        program.taken();
        program.write("far", "two");
        program.write("near", "two");
        sim.run_for(MINUTE);
        assert_eq!(program.taken().iter().filter(|store| **store == "far").count(), 0);
        assert_eq!((program.copy("near"), program.copy("far")), ("two".to_owned(), "one".to_owned()));
        // A store of the same name can join again.
        program.join("far", false);
        sim.run_for(SECOND);
        assert_eq!(program.copy("far"), "one");
        program.stop();
    });
}
