//! The wakeups of an idle watch: its threads run only for heartbeats.

use std::fs;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use homeostat_nats::{KvBucket, KvUpdate, KvWatchOptions, NatsHeaders, NatsMessage};
use parking_lot::Mutex;

use crate::support::scripted::{Peer, STREAM, serve};
use crate::support::{LONG, options, pause, spawn};
use crate::until::until;

const HEARTBEATS: u64 = 100;

/// Plays a bucket with one consumer. After `start`, sends heartbeats, each after the answer to the previous one.
fn play(peer: &mut Peer, start: &Receiver<()>) -> Option<()> {
    peer.accept()?;
    let mut deliver = String::new();
    loop {
        let request = peer.next_request()?;
        if request.subject.starts_with("$JS.API.CONSUMER.CREATE.") {
            let body: serde_json::Value = serde_json::from_slice(&request.payload).unwrap();
            body["config"]["deliver_subject"].as_str().unwrap().clone_into(&mut deliver);
            peer.answer(&request, NatsHeaders::new(), "{}");
        } else if request.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
            let error = "{\"error\":{\"code\":404,\"err_code\":10037,\"description\":\"no message found\"}}";
            peer.answer(&request, NatsHeaders::new(), error);
        } else {
            peer.answer(&request, NatsHeaders::new(), STREAM);
            if !deliver.is_empty() {
                break;
            }
        }
    }
    start.recv().ok()?;
    for number in 0..HEARTBEATS {
        let mut headers = NatsHeaders::with_status(100, "Idle Heartbeat");
        headers.insert("Nats-Last-Consumer", "0");
        headers.insert("Nats-Last-Stream", "0");
        let answer = format!("heard.{number}");
        peer.tell(NatsMessage { subject: deliver.clone(), reply: Some(answer.clone()), headers, payload: Vec::new() });
        assert_eq!(peer.next_request()?.subject, answer);
    }
    Some(())
}

/// Returns the state of a thread of this process, such as `S` for sleeping, and how often it has waited.
fn look(thread: i32) -> (String, u64) {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    (field("State:")[..1].to_owned(), field("voluntary_ctxt_switches:").parse().unwrap())
}

/// Blocks until the threads sleep. Returns how often they have waited.
fn settle(threads: &[i32]) -> Vec<u64> {
    until("sleep of all threads", || {
        let seen: Vec<_> = threads.iter().map(|thread| look(*thread)).collect();
        seen.iter().all(|(state, _)| state == "S").then(|| seen.into_iter().map(|(_, waits)| waits).collect())
    })
}

/// Returns the thread of this process with this name. Blocks until it exists: a thread names itself after its start.
fn thread(name: &str) -> i32 {
    until("a thread has the name", || {
        let tasks = fs::read_dir("/proc/self/task").unwrap().map_while(Result::ok);
        let mut named =
            tasks.filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name));
        named.next().map(|task| task.file_name().to_str().unwrap().parse().unwrap())
    })
}

#[test]
fn an_idle_watch_wakes_its_threads_for_heartbeats_only() {
    let ((go, start), (report, played)) = (mpsc::channel(), mpsc::channel());
    let start = Mutex::new(start);
    let url = serve(move |_, mut peer| {
        if play(&mut peer, &start.lock()).is_some() {
            report.send(()).unwrap();
        }
        peer.drain();
    });
    let connection = options(&url).name("idle").ping_interval(Duration::from_secs(3_600)).connect().unwrap();
    let kv = KvBucket::bind(&connection, "TEST").unwrap();
    let mut watch = kv.watch(&KvWatchOptions::new().heartbeat(Duration::from_secs(600))).unwrap();
    let stopper = watch.stopper();
    let (synced, is_synced) = mpsc::channel();
    let watching = spawn(move || {
        assert_eq!(watch.recv().unwrap(), KvUpdate::Synced);
        synced.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        watch.recv().unwrap_err()
    });
    let watcher = is_synced.recv_timeout(LONG).unwrap();
    let threads = [watcher, thread("reader-idle"), thread("writer-idle")];
    let before = settle(&threads);
    go.send(()).unwrap();
    played.recv_timeout(LONG).unwrap();
    let after = settle(&threads);
    let waits: Vec<_> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    println!("{HEARTBEATS} heartbeats: {waits:?} waits of watch, reader and writer");
    // The threads may also wait for each other's locks.
    assert!(waits[0] <= 2 * HEARTBEATS && waits[1] <= 2 * HEARTBEATS, "{waits:?}");
    assert_eq!(waits[2], 0, "the writer thread has nothing to do");
    // Without heartbeats, no thread wakes.
    pause(Duration::from_millis(300));
    assert_eq!(settle(&threads), after);
    stopper.stop();
    assert!(watching.join().unwrap().is_closed());
}
