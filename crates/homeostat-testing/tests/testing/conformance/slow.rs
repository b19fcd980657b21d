//! A slow client follows the rules too: no case of the suite depends on how long calls take.

use std::sync::Arc;
use std::time::Duration;

use homeostat::ManualClock;
use homeostat_objects::{Client, MemoryClient};
use homeostat_testing::conformance::{self, Backend};

use crate::hooked_client::HookedClient;

/// A client with a clock that advances by a second before each write.
struct Seconds;

impl Backend for Seconds {
    fn client(&self) -> Arc<dyn Client> {
        let clock = ManualClock::new();
        let client = HookedClient::new(MemoryClient::builder().clock(clock.clock()).history(170).build());
        client.before(move |verb, _| {
            if !matches!(verb, "get" | "list" | "watch") {
                clock.advance(Duration::from_secs(1));
            }
            None
        });
        client
    }

    fn history(&self) -> Option<usize> {
        Some(170)
    }
}

#[test]
fn a_slow_client_passes_the_suite() {
    assert!(conformance::check(&Seconds).skipped().next().is_none());
}
