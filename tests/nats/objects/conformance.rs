//! The conformance suite against a real server.

use std::cell::RefCell;
use std::sync::Arc;

use homeostat::nats::NatsClient;
use homeostat::objects::Client;
use homeostat::testing::conformance::{self, Backend, Verdict};

use super::connect;
use crate::support::server::TestServer;

thread_local! {
    /// The server of this thread's test.
    static SERVER: RefCell<Option<TestServer>> = const { RefCell::new(None) };
}

/// A new server with a bucket of this history.
struct Nats {
    history: u8,
    is_known: bool,
}

impl Backend for Nats {
    fn client(&self) -> Arc<dyn Client> {
        let server = TestServer::start();
        let bucket = NatsClient::bucket("conformance").history(self.history);
        let client = NatsClient::create(&connect(&server), &bucket).unwrap();
        SERVER.set(Some(server));
        Arc::new(client)
    }

    fn history(&self) -> Option<usize> {
        self.is_known.then_some(usize::from(self.history))
    }
}

// The watches of the cases read along, so they are complete although one object changes more often than the bucket keeps. The history
// is counted for each object: changes of one do not make a list of others impossible.
homeostat::conformance_tests!(Nats { history: 64, is_known: false }, skipped: [
    "list_goes_on_from_before_the_history_is_gone",
    "watch_from_before_the_history_is_gone",
]);

#[test]
fn a_watch_from_before_the_history_is_gone() {
    let name = "watch_from_before_the_history_is_gone";
    for history in [2, 5, 64] {
        assert_eq!(conformance::run(&Nats { history, is_known: true }, name), Verdict::Passed, "{history}");
    }
}
