//! The system refuses to start the watchdog of a watch, which is its first thread.

use std::sync::Arc;

use crate::tests::refusals::no_threads;
use crate::{
    Api, Capabilities, Client, ClientAnswer, ClientCall, ClientError, ClientLayer, DynamicObject, Kind, MemoryClient,
    ObjectWatch,
};

const LAMP: Kind = Kind::namespaced("example.com", "v1", "Lamp");

/// A remote client, so that its watches need a watchdog. The test makes no call.
struct Remote(MemoryClient);

impl ClientLayer for Remote {
    fn inner(&self) -> &dyn Client {
        &self.0
    }

    fn around(&self, _: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        None
    }

    fn call(&self, _: &Kind, _: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        unreachable!()
    }

    fn declared_capabilities(&self) -> Capabilities {
        Capabilities::all().local(false)
    }
}

#[test]
fn a_watch_whose_watchdog_is_refused_runs_no_thread() {
    let (options, started) = no_threads();
    let lamps = Api::<DynamicObject>::of_kind(Arc::new(Remote(MemoryClient::new())), LAMP);
    let error = ObjectWatch::new(lamps).thread_options(options).start().unwrap_err();
    assert_eq!(error.to_string(), "the system cannot start thread lamps-watchdog");
    assert_eq!(started.iter().collect::<Vec<_>>(), [""; 0]);
}
