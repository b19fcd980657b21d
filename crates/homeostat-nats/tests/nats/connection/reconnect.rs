//! Lost connections: killed servers, cut, stalled and throttled connections, and other servers of a cluster.

use std::time::Duration;

use homeostat::Exponential;
use homeostat_nats::{NatsConnection, NatsErrorKind, NatsHeaders};

use crate::forwarder::{Flow, Forwarder};
use crate::support::scripted::{INFO, serve};
use crate::support::server::TestServer;
use crate::support::{LONG, options, pause, spawn};
use crate::until::until;
use homeostat_test_support::system::free_port;

fn wait_for_connects(connection: &NatsConnection, connects: u64) {
    until("new connection", || {
        let status = connection.status();
        (status.connects >= connects && status.connected).then_some(())
    });
}

#[test]
fn subscriptions_are_restored_and_calls_wait_for_the_new_connection() {
    let mut server = TestServer::with_arguments(&[]);
    let connection = options(&server.url()).connect().unwrap();
    let kept = connection.subscribe("kept.*").unwrap();
    let ended = connection.subscribe("ended").unwrap();
    connection.flush().unwrap();
    for round in 0..5_u8 {
        server.kill();
        until("disconnect", || (!connection.status().connected).then_some(()));
        let late = connection.subscribe("late").unwrap();
        let publisher = connection.clone();
        // Both calls block until the server is back.
        let publish = spawn(move || {
            publisher.publish("kept.a", &[round]).unwrap();
            publisher.publish("late", &[round]).unwrap();
        });
        server.restart();
        assert_eq!(kept.recv().unwrap().payload, [round]);
        assert_eq!(late.recv().unwrap().payload, [round]);
        publish.join().unwrap();
        assert!(ended.try_recv().unwrap().is_none());
    }
    assert_eq!(connection.status().connects, 6);
    assert_eq!(connection.status().subscriptions, 2);
}

#[test]
fn a_request_that_was_sent_fails_at_the_disconnect_with_the_server_and_the_reason() {
    let server = TestServer::with_arguments(&[]);
    let proxy = Forwarder::to(&server.address());
    let connection = options(&proxy.address).connect().unwrap();
    let silent = connection.subscribe("silent").unwrap();
    let caller = connection.clone();
    let request = spawn(move || caller.request("silent", b"").unwrap_err());
    silent.recv().unwrap();
    let flush = loop {
        let caller = connection.clone();
        proxy.set_flow(Flow::Held);
        let flush = spawn(move || caller.flush());
        pause(Duration::from_millis(20));
        proxy.cut();
        proxy.set_flow(Flow::Passing);
        // A flush that starts after the cut uses the next connection.
        if let Err(error) = flush.join().unwrap() {
            break error;
        }
    };
    for error in [request.join().unwrap(), flush] {
        assert_eq!(error.kind(), NatsErrorKind::Disconnected, "{error}");
        let text = error.to_string();
        let server = &proxy.address;
        assert!(text.starts_with(&format!("the connection to {server} was lost before the answer arrived")), "{text}");
    }
    wait_for_connects(&connection, 2);
    connection.flush().unwrap();
}

#[test]
fn a_call_without_a_connection_fails_after_its_time_with_the_reason() {
    let mut server = TestServer::with_arguments(&[]);
    let connection = options(&server.url()).request_timeout(Duration::from_millis(50)).connect().unwrap();
    server.kill();
    until("failed attempt", || connection.status().last_error.filter(|error| error.to_string().contains("refused")));
    let error = connection.publish("a", b"").unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let text = error.to_string();
    assert!(text.contains("the publication to \"a\" (not connected: Connection refused"), "{text}");
}

#[test]
fn a_retry_limit_ends_the_connection_with_the_last_error() {
    let mut server = TestServer::with_arguments(&[]);
    let backoff = Exponential::new(Duration::from_millis(1), Duration::from_millis(1)).max_retries(3);
    let connection = options(&server.url()).backoff(backoff).connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    server.kill();
    let error = subscription.recv_timeout(LONG).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(connection.status().closed);
}

#[test]
fn unreachable_servers_are_all_named() {
    let ports = [free_port(), free_port()];
    let error = options(&format!("nats://127.0.0.1:{}", ports[0]))
        .server(format!("127.0.0.1:{}", ports[1]))
        .shuffle_servers(false)
        .connect()
        .unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::Unreachable);
    let text = error.to_string();
    let [one, other] = ports.map(|port| format!("127.0.0.1:{port}: Connection refused"));
    assert!(text.starts_with("cannot connect to any server: "), "{text}");
    assert!(text.contains(&one) && text.contains(&other), "{text}");
    let error = options("nats://no-such-host.invalid").connect().unwrap_err();
    assert!(error.to_string().contains("no-such-host.invalid:4222: the name cannot be resolved"), "{error}");
}

#[test]
fn the_first_connect_can_be_retried() {
    let mut server = TestServer::with_arguments(&[]);
    server.kill();
    let connection = options(&server.url()).retry_first_connect(true).connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    server.restart();
    connection.publish("a", b"1").unwrap();
    assert_eq!(subscription.recv().unwrap().payload, b"1");
}

/// Until it resumes, the proxy forwards nothing, not even for new connections.
#[test]
fn a_stalled_connection_is_found_by_its_pings() {
    let server = TestServer::with_arguments(&[]);
    let proxy = Forwarder::to(&server.address());
    let connection = options(&proxy.address).ping_interval(Duration::from_millis(500)).connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    connection.flush().unwrap();
    proxy.set_flow(Flow::Held);
    until("stale connection", || (!connection.status().connected).then_some(()));
    proxy.set_flow(Flow::Passing);
    wait_for_connects(&connection, 2);
    connection.publish("a", b"1").unwrap();
    assert_eq!(subscription.recv_timeout(LONG).unwrap().payload, b"1");
}

#[test]
fn a_throttled_connection_delivers_everything_in_order() {
    let server = TestServer::with_arguments(&[]);
    let proxy = Forwarder::to(&server.address());
    let connection = options(&proxy.address).connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    proxy.set_flow(Flow::Slow(997));
    for number in 0..100_u8 {
        connection.publish("a", &vec![number; 1 + usize::from(number) * 20]).unwrap();
    }
    for number in 0..100_u8 {
        let payload = subscription.recv().unwrap().payload;
        assert_eq!(payload, vec![number; 1 + usize::from(number) * 20]);
    }
    assert_eq!(connection.status().connects, 1);
}

#[test]
fn connections_that_are_cut_repeatedly_reconnect() {
    let server = TestServer::with_arguments(&[]);
    let proxy = Forwarder::to(&server.address());
    let connection = options(&proxy.address).connect().unwrap();
    let service = connection.subscribe("echo").unwrap();
    let other = connection.clone();
    let answering = spawn(move || {
        while let Ok(request) = service.recv() {
            let _ = other.reply(&request, &request.payload);
        }
    });
    let mut failures = 0;
    for round in 0..200_u32 {
        if round % 10 == 9 {
            proxy.cut();
        }
        let text = round.to_string();
        loop {
            match connection.request_with_headers("echo", &NatsHeaders::new(), text.as_bytes(), LONG) {
                Ok(answer) => break assert_eq!(answer.payload, text.as_bytes()),
                Err(error) => assert!(
                    error.kind() == NatsErrorKind::Disconnected || error.kind() == NatsErrorKind::NoResponders,
                    "{error}"
                ),
            }
            failures += 1;
            assert!(failures < 10_000);
        }
    }
    assert!(connection.status().connects > 10);
    assert_eq!(connection.status().requests, 0);
    connection.close();
    answering.join().unwrap();
}

/// Starts two servers of a cluster with these additional arguments.
fn pair(arguments: &[&str]) -> [TestServer; 2] {
    let routes = [free_port(), free_port()];
    [0, 1].map(|own| {
        let [cluster, other] = [routes[own], routes[1 - own]].map(|port| format!("nats://127.0.0.1:{port}"));
        let name = format!("server-{own}");
        let own = ["-n", &name, "--cluster_name", "c", "--cluster", &cluster, "--routes", &other];
        TestServer::with_arguments(&[&own[..], arguments].concat())
    })
}

#[test]
fn a_server_of_the_cluster_takes_over() {
    let mut servers = pair(&[]);
    // A server announces the others once they have joined.
    let named = |connection: &NatsConnection| connection.status().servers.len() == 2;
    let connection = options(&servers[0].url()).connect().unwrap();
    until("second server", || named(&connection).then_some(()));
    assert_eq!(connection.status().server_name, "server-0");
    let subscription = connection.subscribe("a").unwrap();
    servers[0].kill();
    wait_for_connects(&connection, 2);
    assert_eq!(connection.status().server_name, "server-1");
    connection.publish("a", b"1").unwrap();
    assert_eq!(subscription.recv().unwrap().payload, b"1");

    let alone = options(&servers[1].url()).discover_servers(false).connect().unwrap();
    assert_eq!(alone.status().servers.len(), 1);
}

/// Only the first server announces the other one.
#[test]
fn the_credentials_of_an_address_are_used_with_the_servers_that_its_server_names() {
    for (arguments, login) in [(&["--user", "me", "--pass", "p:w"][..], "me:p%3Aw@"), (&["--auth", "t0ken"], "t0ken@")]
    {
        let mut servers = pair(arguments);
        let connection = options(&servers[0].url().replace("nats://", &format!("nats://{login}"))).connect().unwrap();
        until("second server", || (connection.status().servers.len() == 2).then_some(()));
        servers[0].kill();
        wait_for_connects(&connection, 2);
        assert_eq!(connection.status().server_name, "server-1");
        connection.flush().unwrap();
    }
}

#[test]
fn a_server_in_lame_duck_mode_is_left_for_another() {
    let other = TestServer::with_arguments(&["-n", "other"]);
    let url = serve(|_, mut peer| {
        peer.accept();
        // This is the first subscription of the test, so the connection is ready only now.
        while !matches!(peer.next(), Some(homeostat_nats::protocol::Frame::Subscribe { sid: 2, .. })) {}
        peer.send(INFO.replace('}', ",\"ldm\":true}"));
        peer.send("MSG a 2 4\r\nlast\r\n");
    });
    let connection = options(&url).server(other.url()).shuffle_servers(false).connect().unwrap();
    assert_eq!(connection.status().server_name, "scripted");
    let subscription = connection.subscribe("a").unwrap();
    assert_eq!(subscription.recv().unwrap().payload, b"last");
    wait_for_connects(&connection, 2);
    assert_eq!(connection.status().server_name, "other");
}
