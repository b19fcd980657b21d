//! The end of connections: blocked calls return at once, and threads end.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;

use homeostat::ManualClock;
use homeostat_nats::protocol::Frame;
use socket2::{Domain, Socket, Type};

use crate::forwarder::{Flow, Forwarder};
use crate::support::scripted::serve;
use crate::support::server::TestServer;
use crate::support::{LONG, options, spawn};
use crate::until::until;

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn a_close_ends_every_blocked_call() {
    let server = TestServer::with_arguments(&[]);
    let proxy = Forwarder::to(&server.address());
    let connection = options(&proxy.address).outbound_buffer(1 << 16).request_timeout(HOUR).connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    connection.flush().unwrap();
    proxy.set_flow(Flow::Held);
    let (report, ended) = mpsc::channel();
    let call = |name: &'static str, body: Box<dyn Fn() -> homeostat_nats::NatsError + Send>| {
        let report = report.clone();
        spawn(move || report.send((name, body())).unwrap())
    };
    let (requests, flushes, publishes) = (connection.clone(), connection.clone(), connection.clone());
    // The publications fill the buffer, so the request must come first.
    let request = call("request", Box::new(move || requests.request("a", b"").unwrap_err()));
    until("pending request", || (connection.status().requests == 1).then_some(()));
    let threads = [
        request,
        call("recv", Box::new(move || subscription.recv().unwrap_err())),
        call("flush", Box::new(move || flushes.flush().unwrap_err())),
        call(
            "publish",
            Box::new(move || {
                loop {
                    if let Err(error) = publishes.publish("a", &vec![0; 1 << 16]) {
                        return error;
                    }
                }
            }),
        ),
    ];
    connection.close();
    let mut names: Vec<_> = (0..4)
        .map(|_| {
            let (name, error) = ended.recv_timeout(LONG).unwrap();
            assert!(error.is_closed(), "{name}: {error}");
            name
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["flush", "publish", "recv", "request"]);
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(connection.publish("a", b"").unwrap_err().is_closed());
    assert!(connection.subscribe("a").unwrap_err().is_closed());
    assert_eq!(connection.publish("a", b"").unwrap_err().to_string(), "the connection is closed");
    // A second close does nothing.
    connection.close();
}

#[test]
fn the_last_clone_closes_the_connection_and_its_threads_end() {
    let server = TestServer::with_arguments(&[]);
    let connection = options(&server.url()).name("lasting").connect().unwrap();
    let clone = connection.clone();
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().map_while(Result::ok);
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.contains("lasting")).count()
    };
    until("two threads", || (threads() == 2).then_some(()));
    drop(connection);
    clone.flush().unwrap();
    drop(clone);
    until("end of both threads", || (threads() == 0).then_some(()));
}

/// The dial blocks, because the accept queue of the listening socket is full.
#[test]
fn a_close_ends_a_dial() {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, homeostat_test_support::system::free_port())).into())
        .unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut fillers = Vec::new();
    loop {
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        if filler.connect_timeout(&address.into(), Duration::from_millis(200)).is_err() {
            break;
        }
        fillers.push(filler);
    }
    let connection = options(&format!("nats://{address}")).connect_timeout(HOUR).retry_first_connect(true);
    let connection = connection.connect().unwrap();
    let waiting = connection.clone();
    let publish = spawn(move || waiting.publish("a", b"").unwrap_err());
    connection.close();
    assert!(publish.join().unwrap().is_closed());
}

/// Pings follow the clock's interval, and nothing else is sent.
#[test]
fn an_idle_connection_sends_pings_only_and_a_server_that_does_not_answer_is_left() {
    let (report, seen) = mpsc::channel();
    let url = serve(move |at, mut peer| {
        peer.accept();
        while let Some(frame) = peer.next() {
            let _ = report.send((at, frame.clone()));
            if at == 1 && frame == Frame::Ping {
                peer.send("PONG\r\n");
            }
        }
        let _ = report.send((at, Frame::Ok));
    });
    let clock = ManualClock::new();
    let second = Duration::from_secs(1);
    let connection = options(&url)
        .clock(clock.clock())
        .ping_interval(second)
        .backoff(homeostat::Exponential::new(second, second).jitter(0.0))
        .connect()
        .unwrap();
    let next = |expected: (usize, Frame)| {
        let (at, frame) = seen.recv_timeout(LONG).unwrap();
        assert_eq!((at, frame), expected);
    };
    let is_subscribe = || {
        let (_, frame) = seen.recv_timeout(LONG).unwrap();
        assert!(matches!(frame, Frame::Subscribe { sid: 1, .. }), "{frame:?}");
    };
    is_subscribe();
    for _ in 0..2 {
        clock.wait_for_sleepers(1);
        clock.advance(second);
        next((0, Frame::Ping));
    }
    // The third interval ends the connection. The next one starts after the backoff.
    clock.wait_for_sleepers(1);
    clock.advance(second);
    next((0, Frame::Ok));
    until("second connection", || {
        clock.advance(Duration::from_millis(100));
        connection.status().connects == 2
    });
    is_subscribe();
    for _ in 0..5 {
        clock.wait_for_sleepers(1);
        clock.advance(second);
        next((1, Frame::Ping));
        connection.flush().unwrap();
        next((1, Frame::Ping));
    }
    assert_eq!(connection.status().connects, 2);
}
