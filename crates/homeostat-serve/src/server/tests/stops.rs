use super::slow::wait_for;
use super::*;
use homeostat::base::{Clock, RunningPhase, StartErrorKind};
use homeostat::manager::{Component, Manager};

#[test]
fn a_stop_ends_all_blocked_connections() {
    let (report, reported) = channel();
    let mut server = start(
        |builder| {
            let builder = builder.head_timeout(LONG * 10).body_timeout(LONG * 10).idle_timeout(LONG * 10);
            builder.write_timeout(LONG * 10).stream_life(LONG * 10)
        },
        move |request| match request.path.as_str() {
            "/watch" => waiting_stream(&report),
            "/flood" => {
                let report = report.clone();
                stream(move |sink, _| {
                    let _ = report.send("flood");
                    loop {
                        sink.send(&vec![b'x'; 64 << 10])?;
                    }
                })
            }
            _ => Reply::text(http::StatusCode::OK, "fine"),
        },
    );
    let silent = RawClient::connect(&server);
    let head = RawClient::with(&server, "GET / HT");
    let body = RawClient::with(&server, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf");
    let mut idle = RawClient::with(&server, get("/"));
    assert_eq!(idle.reply().status, 200);
    let mut watch = RawClient::with(&server, get("/watch"));
    watch.head();
    assert_eq!(watch.chunk(), "hello");
    let flood = RawClient::with(&server, get("/flood"));
    assert_eq!(reported.recv_timeout(LONG), Ok("flood"));
    wait_for(&server, |counts| counts.open_connections == 6);

    let clock = Clock::system();
    let begin = clock.nanos();
    server.stop();
    server.join_timeout(LONG).unwrap();
    println!("a stop with six blocked connections took {:?}", clock.nanos().since(begin));
    assert_eq!(server.run_status().phase, RunningPhase::Ended);
    assert_eq!(reported.recv_timeout(LONG), Ok("ended"));
    assert_eq!(watch.chunk(), "", "the stream ends properly");
    for mut client in [silent, head, body, idle] {
        assert_eq!(client.rest(), "");
    }
    drop(flood);
    assert!(std::net::TcpStream::connect(server.addresses()[0]).is_err());
}

/// The thread of one stream gets no time until the writes are cut. The other stream shows when that happens.
#[test]
fn a_stream_with_a_late_thread_ends_properly_after_a_stop() {
    let (report, reported) = channel();
    let (go, gone) = channel::<()>();
    let gone = Arc::new(crate::sync::Mutex::new(gone));
    let server = start(
        |builder| builder.write_timeout(LONG * 10).stream_life(LONG * 10),
        move |request| {
            let (report, gone) = (report.clone(), Arc::clone(&gone));
            match request.path.as_str() {
                "/late" => stream(move |sink, token| {
                    sink.send(b"hello")?;
                    let _ = report.send("sent");
                    token.wait();
                    let _ = gone.lock().recv();
                    sink.send(b"too late")
                }),
                _ => stream(move |sink, _| {
                    let part = vec![b'x'; 64 << 10];
                    while sink.send(&part).is_ok() {}
                    // Every failure happens at the cut or after it.
                    let _ = report.send("cut");
                    Ok(())
                }),
            }
        },
    );
    // Dropped before the server if the test fails.
    let go = go;
    let mut late = RawClient::with(&server, get("/late"));
    late.head();
    assert_eq!(late.chunk(), "hello");
    assert_eq!(reported.recv_timeout(LONG), Ok("sent"));
    let flood = RawClient::with(&server, get("/flood"));
    wait_for(&server, |counts| counts.open_streams == 2);
    server.stop();
    assert_eq!(reported.recv_timeout(LONG), Ok("cut"));
    go.send(()).unwrap();
    assert_eq!(late.chunk(), "", "the stream ends properly");
    drop(flood);
}

/// Starts a server that is handling a client's request. The sender lets it answer.
fn with_running_handler() -> (Running<ServerControl>, RawClient, Sender<()>) {
    let (begun, begins) = channel();
    let (go, gone) = channel::<()>();
    let gone = crate::sync::Mutex::new(gone);
    let server = start(
        |builder| builder,
        move |_| {
            begun.send(()).unwrap();
            gone.lock().recv().unwrap();
            Reply::text(http::StatusCode::OK, "done")
        },
    );
    let client = RawClient::with(&server, get("/slow"));
    begins.recv_timeout(LONG).unwrap();
    (server, client, go)
}

#[test]
fn a_stop_lets_a_handler_finish() {
    let (mut server, mut client, go) = with_running_handler();
    server.stop();
    let still = server.join_timeout(Duration::from_millis(100)).unwrap_err();
    assert!(still.still_running().iter().any(|name| name.starts_with("serve-connection-")), "{still}");
    go.send(()).unwrap();
    let reply = client.reply();
    assert!(reply.body == "done" && reply.head.contains("connection: close"), "{reply:?}");
    server.join_timeout(LONG).unwrap();
}

#[test]
fn an_abort_ends_the_connection_of_a_running_handler() {
    let (mut server, mut client, go) = with_running_handler();
    server.abort();
    assert_eq!(client.rest(), "");
    go.send(()).unwrap();
    server.join_timeout(LONG).unwrap();
}

#[test]
fn a_stop_does_not_wait_for_a_callback_of_a_stream() {
    let (release, released) = channel::<()>();
    let released = Arc::new(crate::sync::Mutex::new(released));
    let answer = move |_: &IncomingRequest| {
        let released = Arc::clone(&released);
        stream(move |sink, token| {
            // It ends with the sender.
            token
                .on_cancel(move || {
                    let _ended = released.lock().recv();
                })
                .detach();
            sink.send(b"hello")?;
            token.wait();
            Ok(())
        })
    };
    let mut server = start(|builder| builder, answer);
    let mut client = RawClient::with(&server, get("/watch"));
    client.head();
    assert_eq!(client.chunk(), "hello");
    server.stop();
    let still = server.join_timeout(Duration::from_millis(100)).unwrap_err();
    assert!(still.still_running().contains(&"serve-accept".to_owned()), "{still}");
    drop(release);
    server.join_timeout(LONG).unwrap();
}

#[test]
fn a_manager_stops_its_server() {
    let (server, ended) = waiting(|builder| builder.name("door"));
    let address = server.addresses()[0];
    let mut client = RawClient::with(&server, get("/watch"));
    client.head();
    let manager = Manager::builder().build().unwrap();
    manager.add(Component::running("door", server)).unwrap();
    let running = manager.start().unwrap();
    running.shutdown(LONG).unwrap();
    assert_eq!(ended.recv_timeout(LONG), Ok("ended"));
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_server_can_be_dropped_and_started_again_at_its_address() {
    let server = echo(|builder| builder);
    let address = server.addresses()[0];
    let client = RawClient::connect(&server);
    drop(server);
    drop(client);
    let again = Server::builder(address).build().unwrap().start().unwrap();
    assert_eq!(again.addresses(), [address]);
    let error = Server::builder(address).build().unwrap().start().unwrap_err();
    assert!(
        error.kind() == StartErrorKind::Unavailable && error.to_string() == format!("cannot listen on {address}"),
        "{error}"
    );
}

#[test]
fn a_kept_control_does_not_keep_the_handlers() {
    let kept = Arc::new(());
    let held = Arc::clone(&kept);
    let mut server = start(
        |builder| builder,
        move |_| Reply::text(http::StatusCode::OK, format!("{} holders", Arc::strong_count(&held))),
    );
    assert_eq!(RawClient::with(&server, get("/")).reply().body, "2 holders");
    let control = ServerControl::clone(&server);
    server.stop();
    server.join_timeout(LONG).unwrap();
    drop(server);
    assert_eq!(Arc::strong_count(&kept), 1);
    assert_eq!(control.counts().succeeded, 1);
}

#[test]
fn a_thread_of_the_server_does_not_wait_for_itself() {
    let (give, given) = channel::<Running<ServerControl>>();
    let given = crate::sync::Mutex::new(given);
    let (report, reported) = channel();
    let server = start(
        |builder| builder,
        move |_| {
            let mut server = given.lock().recv().unwrap();
            server.stop();
            report.send(server.join_timeout(LONG)).unwrap();
            Reply::text(http::StatusCode::OK, "done")
        },
    );
    let mut client = RawClient::with(&server, get("/stop"));
    give.send(server).unwrap();
    reported.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(client.reply().body, "done");
}
