//! Keys divided among processes by leases in a bucket.

use std::sync::Arc;

use homeostat::objects::Client;

use super::{client, client_of, connect_to};
use crate::fleet::{Ground, drive, works};
use crate::support::server::TestServer;

fn connect(address: &str) -> Arc<dyn Client> {
    Arc::new(client_of(&connect_to(address)))
}

/// Starts a server with an empty bucket.
fn ground() -> Ground {
    let server = TestServer::start();
    let (client, address) = (Arc::new(client(&server)), server.url());
    Ground { client, address, namespace: "default".to_owned(), _servers: Box::new(server) }
}

#[test]
fn processes_that_are_killed_and_paused_run_each_key_in_one_place() {
    if !works(connect) {
        drive("objects::divided::processes_that_are_killed_and_paused_run_each_key_in_one_place", |_seed| ground());
    }
}
