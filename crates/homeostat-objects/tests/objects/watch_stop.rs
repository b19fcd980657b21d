//! The stop of a watch whose client has a callback that blocks.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use homeostat::{Component, Manager, ManualClock};
use homeostat_objects::{
    Api, Client, ClientAnswer, ClientCall, ClientError, ClientLayer, DynamicObject, Kind, MemoryClient, ObjectWatch,
};

use crate::waits::until;

const LAMP: Kind = Kind::namespaced("example.com", "v1", "Lamp");
const SECOND: Duration = Duration::from_secs(1);

/// A client whose watches have a callback of their end that blocks until the test has ended.
struct Blocking(MemoryClient, Receiver<()>);

impl ClientLayer for Blocking {
    fn inner(&self) -> &dyn Client {
        &self.0
    }

    fn around(&self, _: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        None
    }

    fn call(&self, kind: &Kind, call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        if let ClientCall::Watch { stop, .. } = &call {
            let released = self.1.clone();
            // It ends with the sender.
            stop.on_cancel(move || {
                let _ended = released.recv();
            })
            .detach();
        }
        call.send(&self.0, kind)
    }
}

#[test]
fn a_manager_gives_up_a_callback_of_a_stopped_watch() {
    let (release, released) = bounded(0);
    let clock = ManualClock::new();
    let client = Blocking(MemoryClient::builder().clock(clock.clock()).build(), released);
    let lamps = Api::<DynamicObject>::of_kind(Arc::new(client), LAMP);
    let watch = ObjectWatch::new(lamps).name("lamps").clock(clock.clock()).start().unwrap();
    let store = watch.watch().store();
    until!(store.has_synced());
    let manager = Manager::builder().clock(clock.clock()).threads(1).abort_grace(SECOND).build().unwrap();
    manager.add(Component::running("lamps", watch)).unwrap();
    let running = manager.start().unwrap();
    manager.stop();
    until!({
        clock.advance(SECOND);
        running.run_status().threads.iter().any(|name| name == "lamps-callbacks")
    });
    let error = running.join().unwrap_err();
    // The callback that ends the stream comes after the one that blocks.
    assert_eq!(error.still_running(), ["lamps-0", "lamps-callbacks"], "{error}");
    drop(release);
}
