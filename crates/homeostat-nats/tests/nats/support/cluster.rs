//! A cluster of real servers.

use std::time::Duration;

use homeostat_nats::{NatsConnection, NatsHeaders, NatsOptions};
use serde_json::Value;

use super::server::TestServer;
use super::{options, pause, wait_for_long};
use homeostat_test_support::system::free_port;

/// The first server version that checks the expected revisions of all writes to a replicated bucket.
pub(crate) const REPLICATED: [u32; 3] = [2, 10, 19];

/// Three servers with `JetStream`.
pub(crate) struct TestCluster {
    servers: Vec<TestServer>,
}

impl TestCluster {
    /// Starts the servers, and waits until they have a leader.
    pub(crate) fn start() -> Self {
        let routes = [free_port(), free_port(), free_port()];
        let servers = (0..routes.len()).map(|own| {
            let [name, cluster] = [format!("server-{own}"), format!("nats://127.0.0.1:{}", routes[own])];
            let others: Vec<_> = routes.iter().filter(|port| **port != routes[own]).collect();
            let others: Vec<_> = others.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
            let others = others.join(",");
            TestServer::with_arguments(&[
                "-js",
                "-n",
                &name,
                "--cluster_name",
                "c",
                "--cluster",
                &cluster,
                "--routes",
                &others,
            ])
        });
        let cluster = Self { servers: servers.collect() };
        let connection = cluster.options().connect().unwrap();
        wait_for_long("leader of the cluster", || {
            let info = ask(&connection, "$JS.API.INFO")?;
            info.get("memory").map(drop)
        });
        cluster
    }

    /// Returns options with all servers.
    pub(crate) fn options(&self) -> NatsOptions {
        let (first, rest) = self.servers.split_first().unwrap();
        rest.iter().fold(options(&first.url()), |all, server| all.server(server.url()))
    }

    /// Returns the server with this name, such as `server-0`.
    pub(crate) fn named(&mut self, name: &str) -> &mut TestServer {
        let at: usize = name.trim_start_matches("server-").parse().unwrap();
        &mut self.servers[at]
    }
}

/// Returns the leader of a bucket. `None` if there is no leader, or if a copy is not up to date.
pub(crate) fn leader_of(connection: &NatsConnection, bucket: &str) -> Option<String> {
    let info = ask(connection, &format!("$JS.API.STREAM.INFO.KV_{bucket}"))?;
    let replicas = info["cluster"]["replicas"].as_array()?;
    let is_current = replicas.iter().all(|replica| replica["current"] == true && replica["offline"] != true);
    let leader = info["cluster"]["leader"].as_str()?;
    (is_current && replicas.len() == 2).then(|| leader.to_owned())
}

/// Makes the leader of a bucket hand over to another server, or kills it. Waits until a new leader exists and all
/// copies are up to date.
pub(crate) fn change_leader(cluster: &mut TestCluster, connection: &NatsConnection, bucket: &str, kill: bool) {
    let leader = wait_for_long("leader with two followers", || leader_of(connection, bucket));
    if kill {
        cluster.named(&leader).kill();
        let what = "other leader";
        let info = || ask(connection, &format!("$JS.API.STREAM.INFO.KV_{bucket}"));
        wait_for_long(what, || {
            let info = info()?;
            info["cluster"]["leader"].as_str().filter(|found| *found != leader && !found.is_empty()).map(drop)
        });
        // Meanwhile, the remaining servers accept writes without it.
        pause(Duration::from_millis(200));
        cluster.named(&leader).restart();
    } else {
        wait_for_long("acceptance", || {
            ask(connection, &format!("$JS.API.STREAM.LEADER.STEPDOWN.KV_{bucket}"))?.get("success").map(drop)
        });
    }
    wait_for_long("leader with two followers", || leader_of(connection, bucket));
}

fn ask(connection: &NatsConnection, subject: &str) -> Option<Value> {
    let answer = connection.request_with_headers(subject, &NatsHeaders::new(), b"", Duration::from_secs(1)).ok()?;
    let answer: Value = serde_json::from_slice(&answer.payload).ok()?;
    answer.get("error").is_none().then_some(answer)
}
