//! When starts and lists end: which entries the server must have sent before.

use std::sync::Arc;
use std::time::Duration;

use homeostat_nats::{KvBucket, KvConfig, KvWatchOptions, NatsErrorKind, NatsHeaders, NatsMessage, NatsOptions};
use parking_lot::Mutex;

use super::lies::{NO_MESSAGE, asked_consumer, entry, heartbeat, stored};
use super::{bucket, next, take};
use crate::support::scripted::{Peer, STREAM, serve};
use crate::support::server::TestServer;
use crate::support::{LONG, options, removes_markers, spawn};

/// Plays a bucket with one copy and three keys. `sends` plays the messages of the consumer. Its confirmation counts
/// `pending` messages.
fn play_start(peer: &mut Peer, last: (&str, u64), pending: u64, sends: &dyn Fn(&mut Peer, &str, &str)) -> Option<()> {
    let state = format!("\"state\":{{\"messages\":3,\"first_seq\":1,\"last_seq\":{}}}", last.1);
    let stream =
        STREAM.replace("\"state\":{}", &state).replace("\"max_msg_size\"", "\"num_replicas\":1,\"max_msg_size\"");
    peer.accept()?;
    let mut consumer = None;
    loop {
        let request = peer.next_request()?;
        if request.subject.starts_with("$JS.API.CONSUMER.CREATE.") {
            consumer = Some(asked_consumer(&request));
            peer.answer(&request, NatsHeaders::new(), format!("{{\"num_pending\":{pending}}}"));
        } else if request.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
            peer.answer(&request, NatsHeaders::new(), stored(last.0, last.1));
        } else if request.subject.starts_with("$JS.API.STREAM.INFO.") {
            peer.answer(&request, NatsHeaders::new(), &*stream);
            if let Some((deliver, name)) = consumer.take() {
                sends(peer, &deliver, &name);
            }
        }
    }
}

/// Sends a key's message with this sequence, number and count of following messages.
fn send(peer: &mut Peer, deliver: &str, consumer: &str, key: &str, place: [u64; 3]) {
    let [sequence, number, pending] = place;
    let message = entry(&format!("$JS.ACK.KV_TEST.{consumer}.1.{sequence}.{number}.1700.{pending}"), "1");
    peer.tell_on(deliver, NatsMessage { subject: format!("$KV.TEST.{key}"), ..message });
}

/// Returns the keys and the revision of a listing, for a bucket that [`play_start`] plays.
fn listed(
    last: (&'static str, u64),
    pending: u64,
    sends: impl Fn(&mut Peer, &str, &str) + Send + Sync + 'static,
) -> (Vec<String>, u64) {
    let url = serve(move |_, mut peer| {
        let _ = play_start(&mut peer, last, pending, &sends);
    });
    let kv = KvBucket::bind(&options(&url).connect().unwrap(), "TEST").unwrap();
    let listing = kv.list(">").unwrap();
    (listing.entries.into_iter().map(|entry| entry.key).collect(), listing.position.revision())
}

/// Since version 2.9.15, servers subtract a removed message at once from the count of following messages, and add its
/// replacement later (nats.py, pull request 995).
#[test]
fn a_count_of_zero_that_comes_too_early_ends_no_listing() {
    let found = listed(("c", 3), 3, |peer, deliver, consumer| {
        send(peer, deliver, consumer, "a", [1, 1, 0]);
        send(peer, deliver, consumer, "b", [2, 2, 1]);
        send(peer, deliver, consumer, "c", [3, 3, 0]);
    });
    assert_eq!(found, (["a", "b", "c"].map(str::to_owned).to_vec(), 3));
}

/// `b` and `c` are written again while they are listed. When the count was zero, only `b` had been sent again.
#[test]
fn a_key_that_is_written_again_while_it_is_listed_is_in_the_list() {
    let url = serve(|_, mut peer| {
        let (mut consumer, mut questions) = (None, 0);
        peer.accept();
        while let Some(request) = peer.next_request() {
            if request.subject.starts_with("$JS.API.CONSUMER.CREATE.") {
                consumer = Some(asked_consumer(&request));
                peer.answer(&request, NatsHeaders::new(), "{\"num_pending\":3}");
            } else if request.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
                questions += 1;
                peer.answer(&request, NatsHeaders::new(), stored("c", 5));
                if let Some((deliver, name)) = consumer.take_if(|_| questions == 1) {
                    send(&mut peer, &deliver, &name, "c", [5, 3, 0]);
                }
            } else if request.subject.starts_with("$JS.API.STREAM.INFO.") {
                peer.answer(&request, NatsHeaders::new(), STREAM.replace("{}", "{\"messages\":3,\"last_seq\":3}"));
                if let Some((deliver, name)) = &consumer {
                    send(&mut peer, deliver, name, "a", [1, 1, 1]);
                    send(&mut peer, deliver, name, "b", [4, 2, 0]);
                }
            }
        }
    });
    let kv = KvBucket::bind(&options(&url).connect().unwrap(), "TEST").unwrap();
    let listing = kv.list(">").unwrap();
    let found: Vec<_> = listing.entries.iter().map(|entry| (entry.key.as_str(), entry.revision)).collect();
    assert_eq!((found, listing.position.revision()), (vec![("a", 1), ("b", 4), ("c", 5)], 5));
}

/// A leaf node has no `JetStream`. Its link to the servers that have it is cut for a while.
#[test]
fn a_watch_survives_a_time_of_unheard_requests() {
    let url = serve(|_, mut peer| {
        let mut consumers = 0;
        peer.accept();
        while let Some(request) = peer.next_request() {
            if request.subject.starts_with("$JS.API.CONSUMER.CREATE.") {
                consumers += 1;
                let (deliver, name) = asked_consumer(&request);
                if consumers == 2 {
                    peer.answer(&request, NatsHeaders::with_status(503, ""), "");
                    continue;
                }
                peer.answer(&request, NatsHeaders::new(), "{}");
                let Some(facts) = peer.next_request() else { return };
                peer.answer(&facts, NatsHeaders::new(), STREAM);
                if consumers == 1 {
                    let headers = NatsHeaders::with_status(409, "Consumer Deleted");
                    peer.tell(NatsMessage { subject: deliver, headers, ..NatsMessage::default() });
                } else {
                    send(&mut peer, &deliver, &name, "a", [1, 1, 0]);
                }
            } else if request.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
                peer.answer(&request, NatsHeaders::new(), NO_MESSAGE);
            } else if request.subject.starts_with("$JS.API.STREAM.INFO.") {
                peer.answer(&request, NatsHeaders::new(), STREAM);
            }
        }
    });
    let kv = KvBucket::bind(&options(&url).connect().unwrap(), "TEST").unwrap();
    let mut watch = kv.watch(&KvWatchOptions::new()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    assert_eq!(next(&mut watch), "a=1@1");
}

/// In a cluster, no server answers a question about a consumer that is being removed.
#[test]
fn a_read_that_no_server_answers_is_repeated() {
    let url = serve(|_, mut peer| {
        peer.accept();
        let unanswered = peer.next_request();
        while let Some(request) = peer.next_request() {
            assert_eq!(Some(&request.subject), unanswered.as_ref().map(|first| &first.subject));
            peer.answer(&request, NatsHeaders::new(), STREAM);
        }
    });
    KvBucket::bind(&options(&url).connect().unwrap(), "TEST").unwrap();
}

/// The last entries of a start are purged before they are sent. Only a heartbeat shows that nothing follows.
#[test]
fn a_listing_ends_although_its_last_entries_are_removed_before_they_are_sent() {
    let found = listed(("b", 2), 2, |peer, deliver, consumer| {
        send(peer, deliver, consumer, "a", [1, 1, 1]);
        peer.tell(heartbeat(deliver, "1", "2"));
    });
    assert_eq!(found, (vec!["a".to_owned()], 2));
}

/// Since version 2.10, the server stops at each entry of the start that was removed before it was sent, until a
/// heartbeat.
#[test]
fn a_consumer_that_waits_at_removed_entries_is_replaced() {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&starts);
    let url = serve(move |_, mut peer| {
        let mut consumer = None;
        peer.accept();
        while let Some(request) = peer.next_request() {
            if request.subject.starts_with("$JS.API.CONSUMER.CREATE.") {
                consumer = Some(asked_consumer(&request));
                let body: serde_json::Value = serde_json::from_slice(&request.payload).unwrap();
                let mut starts = asked.lock();
                starts.push(body["config"]["opt_start_seq"].as_u64());
                peer.answer(&request, NatsHeaders::new(), format!("{{\"num_pending\":{}}}", 4 - starts.len()));
            } else if request.subject.starts_with("$JS.API.STREAM.INFO.") {
                peer.answer(&request, NatsHeaders::new(), STREAM.replace("{}", "{\"messages\":3,\"last_seq\":9}"));
                let Some((deliver, name)) = consumer.take() else { continue };
                if asked.lock().len() == 1 {
                    send(&mut peer, &deliver, &name, "a", [1, 1, 2]);
                    peer.tell(heartbeat(&deliver, "1", "4"));
                } else {
                    send(&mut peer, &deliver, &name, "b", [7, 1, 1]);
                    send(&mut peer, &deliver, &name, "c", [9, 2, 0]);
                }
            }
        }
    });
    let kv = KvBucket::bind(&options(&url).connect().unwrap(), "TEST").unwrap();
    // No heartbeat is missed meanwhile.
    let mut watch = kv.watch(&KvWatchOptions::new().heartbeat(LONG)).unwrap();
    assert_eq!(take(&mut watch, 4), ["a=1@1", "b=1@7", "c=1@9", "synced"]);
    assert_eq!(*starts.lock(), [None, Some(5)]);
}

#[test]
fn a_bucket_is_listed_while_its_markers_are_removed() {
    let (server, connection, kv) = bucket(2);
    if !removes_markers(&connection) {
        return;
    }
    kv.put("value", b"1").unwrap();
    for number in 0..500 {
        kv.delete(&format!("key-{number}")).unwrap();
    }
    let removal = spawn(move || kv.remove_markers(Duration::ZERO).unwrap());
    // Its heartbeats arrive each second.
    let reader = options(&server.url()).request_timeout(Duration::from_secs(4)).connect().unwrap();
    let kv = KvBucket::bind(&reader, "TEST").unwrap();
    while !removal.is_finished() {
        assert_eq!(kv.keys(">").unwrap(), ["value"]);
    }
    removal.join().unwrap();
}

/// If the refusal were ignored, the watch would ask again and again.
#[test]
fn a_watch_whose_user_may_not_create_consumers_fails_with_the_subject() {
    let server = TestServer::with_config(
        "jetstream: {}\nauthorization: { users: [ { user: u, password: p, permissions: { publish: { deny: \"$JS.API.CONSUMER.CREATE.>\" } } } ] }\n",
    );
    let connection = options(&server.url()).user("u", "p").connect().unwrap();
    let kv = KvBucket::create(&connection, &KvConfig::new("TEST")).unwrap();
    let of_list = kv.list(">").unwrap_err();
    let of_watch = kv.watch(&KvWatchOptions::new()).unwrap().recv_timeout(LONG).unwrap_err();
    for error in [of_list, of_watch] {
        assert_eq!(error.kind(), NatsErrorKind::PermissionsViolation, "{error}");
        assert!(error.to_string().contains("Publish to \"$JS.API.CONSUMER.CREATE.KV_TEST."), "{error}");
    }
}

#[test]
fn answers_and_watches_arrive_below_the_prefix_that_the_user_may_subscribe_to() {
    let server = TestServer::with_config(
        "jetstream: {}\nauthorization: { users: [ { user: u, password: p, permissions: { publish: \">\", subscribe: \"mine.u.>\" } } ] }\n",
    );
    let connect = |options: NatsOptions| options.user("u", "p").connect().unwrap();
    let connection = connect(options(&server.url()).inbox_prefix("mine.u"));
    let kv = KvBucket::create(&connection, &KvConfig::new("TEST")).unwrap();
    let mut watch = kv.watch(&KvWatchOptions::new()).unwrap();
    kv.put("a", b"1").unwrap();
    assert_eq!(kv.keys(">").unwrap(), ["a"]);
    let found = [next(&mut watch), next(&mut watch)];
    assert!(found.contains(&"a=1@1".to_owned()) && found.contains(&"synced".to_owned()), "{found:?}");
    let error = KvBucket::bind(&connect(options(&server.url())), "TEST").unwrap_err();
    assert!(error.kind() == NatsErrorKind::PermissionsViolation && error.to_string().contains("_INBOX."), "{error}");
}
