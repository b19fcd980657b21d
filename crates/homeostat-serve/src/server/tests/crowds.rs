use super::slow::wait_for;
use super::*;
use homeostat::base::Clock;
#[cfg(target_os = "linux")]
use homeostat_test_support::system::in_a_process_of_its_own;

#[test]
fn ten_thousand_connections_are_refused_politely() {
    let server = echo(|builder| builder.connections(8).connections_per_client(8));
    let mut guests: Vec<_> = (0..8).map(|_| RawClient::with(&server, get("/first"))).collect();
    for client in &mut guests {
        assert_eq!(client.reply().status, 200);
    }
    // Each batch needs two files per connection.
    let batch = usize::try_from(open_files() / 4).unwrap_or(usize::MAX).clamp(16, 1_000);
    let mut refused = 0;
    while refused < 10_000 {
        let clients: Vec<_> = (0..batch).map(|_| RawClient::connect(&server)).collect();
        for mut client in clients {
            // The server may have answered before the client sends.
            client.try_send(get("/"));
            let reply = client.reply();
            assert!(reply.status == 503 && reply.head.contains("retry-after: 1"), "{reply:?}");
            refused += 1;
        }
        for client in &mut guests {
            client.send(get("/again"));
            assert_eq!(client.reply().status, 200, "others are served");
        }
    }
    assert_eq!(server.counts().refused_connections, refused);
    assert!(server.run_status().threads.len() <= 10, "refusals have no threads");
    drop(guests);
    wait_for(&server, |counts| counts.open_connections == 0);
    assert_eq!(RawClient::with(&server, get("/")).reply().status, 200);
}

#[test]
fn one_client_has_a_bounded_number_of_connections() {
    let server = echo(|builder| builder.connections_per_client(2));
    let clients = [(); 2].map(|()| RawClient::connect(&server));
    wait_for(&server, |counts| counts.open_connections == 2);
    let mut refused = RawClient::connect(&server);
    assert_eq!(refused.reply().status, 429);
    drop(clients);
    wait_for(&server, |counts| counts.open_connections == 0);
    assert_eq!(RawClient::with(&server, get("/")).reply().status, 200);
}

#[test]
fn one_client_has_a_quarter_of_the_connections_by_default() {
    let server = echo(|builder| builder.connections(8));
    let mut clients = [(); 2].map(|()| RawClient::with(&server, get("/")));
    for client in &mut clients {
        assert_eq!(client.reply().status, 200);
    }
    assert_eq!(RawClient::connect(&server).reply().status, 429);
    let (streaming, _ended) = waiting(|builder| builder.connections(16));
    let mut watches = [(); 3].map(|()| RawClient::with(&streaming, get("/watch")));
    assert!(watches.iter_mut().all(|watch| watch.head().status == 200));
    assert_eq!(RawClient::with(&streaming, get("/watch")).reply().status, 429, "three quarters may be streams");
}

/// Limits the address space of its process, so that the system refuses a stack. Therefore it runs in a process of its
/// own.
#[cfg(target_os = "linux")]
#[test]
fn a_connection_without_a_thread_is_refused() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    in_a_process_of_its_own("server::tests::crowds::a_connection_without_a_thread_is_refused", || {
        let stack = 1 << 30;
        let server = echo(|builder| builder.thread_options(homeostat::base::ThreadOptions::new().stack_size(stack)));
        let usual = getrlimit(Resource::As);
        let room_for_no_stack = usage().virtual_kib * 1024 + stack as u64 / 2;
        setrlimit(Resource::As, Rlimit { current: Some(room_for_no_stack), maximum: usual.maximum }).unwrap();
        let reply = RawClient::connect(&server).reply();
        assert_eq!((reply.status, reply.body.as_str()), (503, "the server has no more threads\n"));
        setrlimit(Resource::As, usual).unwrap();
        // The server tries again.
        let mut client = RawClient::with(&server, get("/"));
        assert_eq!(client.reply().status, 200);
        assert_eq!(server.counts().open_connections, 1);
    });
}

/// Measures the threads, memory and CPU time of idle watches. The figures include the client side, which has no
/// threads.
#[test]
fn a_thousand_watches_are_idle() {
    let count = usize::try_from(open_files() / 4).unwrap_or(usize::MAX).min(1_000);
    let (server, ended) =
        waiting(|builder| builder.connections(count + 1).connections_per_client(count + 1).streams_per_client(count));
    let before = usage();
    let mut clients: Vec<_> = (0..count).map(|_| RawClient::with(&server, get("/watch"))).collect();
    for client in &mut clients {
        client.head();
        assert_eq!(client.chunk(), "hello");
    }
    let after = usage();
    assert_eq!(server.counts().open_streams, count);
    let event = homeostat::rt::AutoResetEvent::new(Clock::system());
    event.wait_until(Clock::system().nanos().after(Duration::from_millis(500)));
    let idle = usage();
    println!(
        "{count} idle watches: {} threads and {} KiB more; {} ms of CPU time while idle for 500 ms",
        after.threads - before.threads,
        after.resident_kib.saturating_sub(before.resident_kib),
        (idle.cpu_ticks - after.cpu_ticks) * 10,
    );
    assert_eq!(RawClient::with(&server, get("/watch").replace("GET", "HEAD")).head().status, 200, "others are served");
    let clock = Clock::system();
    let begin = clock.nanos();
    server.shutdown(LONG).unwrap();
    println!("a stop of {count} watches took {:?}", clock.nanos().since(begin));
    assert_eq!(ended.try_iter().count(), count);
    for client in &mut clients {
        assert_eq!(client.chunk(), "");
    }
}

/// On a held clock, no timeout passes. If the stop ends, it has woken each thread.
#[test]
fn a_stop_of_many_connections_waits_for_no_time_out() {
    let count = usize::try_from(open_files() / 4).unwrap_or(usize::MAX).min(1_000);
    let (report, reported) = channel();
    let server = built(
        |builder| builder.connections(count + 4).connections_per_client(count + 4).streams_per_client(count),
        move |request| match request.path.as_str() {
            "/watch" => waiting_stream(&report),
            _ => Reply::text(http::StatusCode::OK, "fine"),
        },
    );
    let clock = homeostat::base::ManualClock::new();
    let mut server = server.start_on(clock.clock()).unwrap();
    let mut watches: Vec<_> = (0..count).map(|_| RawClient::with(&server, get("/watch"))).collect();
    for client in &mut watches {
        client.head();
        assert_eq!(client.chunk(), "hello");
    }
    let mut idle = RawClient::with(&server, get("/"));
    assert_eq!(idle.reply().status, 200);
    let body = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf";
    let others = [RawClient::connect(&server), RawClient::with(&server, "GET / HT"), RawClient::with(&server, body)];
    wait_for(&server, |counts| counts.open_connections == count + 4);
    server.stop();
    server.join_timeout(LONG).unwrap();
    assert_eq!(reported.try_iter().count(), count, "each handler has ended");
    assert_eq!(server.run_status().threads, Vec::<String>::new());
    for client in &mut watches {
        assert_eq!(client.chunk(), "", "each stream ends properly");
    }
    for mut client in others.into_iter().chain([idle]) {
        assert_eq!(client.rest(), "");
    }
}

#[test]
fn the_bodies_of_one_client_have_a_share_of_the_memory() {
    let (begun, begins) = channel();
    let (go, gone) = channel::<()>();
    let gone = crate::sync::Mutex::new(gone);
    let server = start(
        |builder| builder.body_limit(1_500).body_memory(4_000),
        move |request| {
            if request.path == "/slow" {
                begun.send(()).unwrap();
                gone.lock().recv().unwrap();
            }
            Reply::text(http::StatusCode::OK, "done")
        },
    );
    let post = |path: &str, length: usize| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        RawClient::with(&server, head + &"x".repeat(length))
    };
    let mut slow = post("/slow", 1_400);
    begins.recv_timeout(LONG).unwrap();
    let refused = post("/", 700).reply();
    assert_eq!((refused.status, refused.head.contains("retry-after: 1")), (429, true), "{refused:?}");
    assert!(refused.body.contains("this client address"), "{refused:?}");
    assert_eq!(post("/", 500).reply().status, 200);
    go.send(()).unwrap();
    assert_eq!(slow.reply().status, 200);
    assert_eq!(post("/", 700).reply().status, 200);
}

struct Usage {
    threads: u64,
    virtual_kib: u64,
    resident_kib: u64,
    cpu_ticks: u64,
}

/// Reads the figures of this process. They are zero on systems other than Linux.
fn usage() -> Usage {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
    };
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let times = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Usage {
        threads: field("Threads:"),
        virtual_kib: field("VmSize:"),
        resident_kib: field("VmRSS:"),
        cpu_ticks: times.filter_map(|time| time.parse::<u64>().ok()).sum(),
    }
}

/// Returns how many files this process may open.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20)
}
