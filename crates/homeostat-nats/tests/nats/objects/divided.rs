//! Keys divided among processes by leases in a bucket.

use std::sync::Arc;
use std::time::Duration;

use homeostat_nats::NatsClient;
use homeostat_objects::Client;

use super::client;
use crate::fleet::{Ground, drive, works};
use crate::support::options;
use crate::support::server::TestServer;
use crate::until::until;

fn connect(address: &str) -> Arc<dyn Client> {
    // Give up silent connections soon.
    let (second, ping) = (Duration::from_secs(1), Duration::from_millis(500));
    let options = options(address).connect_timeout(second).request_timeout(second * 2).ping_interval(ping);
    let connection = options.retry_first_connect(true).connect().unwrap();
    let client = until("bucket", || NatsClient::create(&connection, &NatsClient::bucket("TEST").history(64)).ok());
    Arc::new(client)
}

/// Starts a server with an empty bucket.
fn ground() -> Ground {
    let server = TestServer::start();
    let (client, at, namespace) = (Arc::new(client(&server)), server.address(), "default".to_owned());
    Ground { client, server: at, address: Box::new(str::to_owned), namespace, servers: Box::new(server) }
}

#[test]
fn processes_that_are_killed_paused_and_cut_off_run_each_key_in_one_place() {
    if !works(connect) {
        let test = "objects::divided::processes_that_are_killed_paused_and_cut_off_run_each_key_in_one_place";
        drive(test, |_seed| ground());
    }
}
