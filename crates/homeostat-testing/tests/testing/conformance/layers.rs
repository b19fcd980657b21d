//! Clients around other clients follow the rules of the inner client.

use std::sync::Arc;

use homeostat_objects::{Client, ClientAnswer, ClientCall, ClientError, ClientLayer, Kind, MemoryClient};
use homeostat_testing::conformance::{self, Backend};

use crate::hooked_client::HookedClient;

/// A layer that changes nothing.
struct Through(Arc<dyn Client>);

impl ClientLayer for Through {
    fn inner(&self) -> &dyn Client {
        &*self.0
    }

    fn around(&self, inner: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        Some(Arc::new(Self(inner)))
    }

    fn call(&self, kind: &Kind, call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        call.send(self.inner(), kind)
    }
}

fn memory() -> MemoryClient {
    MemoryClient::builder().history(170).build()
}

/// Makes a client for each case.
struct Layered(fn() -> Arc<dyn Client>);

impl Backend for Layered {
    fn client(&self) -> Arc<dyn Client> {
        (self.0)()
    }

    fn history(&self) -> Option<usize> {
        Some(170)
    }
}

#[test]
fn a_layer_passes_the_suite_if_its_inner_client_does() {
    let clients: [fn() -> Arc<dyn Client>; 3] = [
        || Arc::new(Through(Arc::new(memory()))),
        || Arc::new(Through(Arc::new(Through(Arc::new(memory()))))),
        || HookedClient::new(memory()),
    ];
    for client in clients {
        let report = conformance::check(&Layered(client));
        assert_eq!(report.skipped().count(), 0, "{report}");
    }
}
