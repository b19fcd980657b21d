//! Servers that send malformed `JetStream` answers and impossible consumer messages.

use std::time::Duration;

use homeostat_nats::{KvBucket, KvUpdate, KvWatchOptions, NatsError, NatsHeaders, NatsMessage};

use super::next;
use crate::support::scripted::{Peer, STREAM, serve};
use crate::support::{LONG, options};

/// A server's answer: headers and payload.
type Answer = (Vec<(&'static str, &'static str)>, &'static str);

fn headers(fields: &[(&str, &str)]) -> NatsHeaders {
    let mut headers = NatsHeaders::new();
    for (name, value) in fields {
        headers.insert(*name, *value);
    }
    headers
}

/// Binds a bucket, and calls it. The server gives this answer to every request after the first. Returns the error.
fn called<R: std::fmt::Debug>(answer: &Answer, call: impl Fn(&KvBucket) -> Result<R, NatsError>) -> String {
    let (fields, payload) = answer.clone();
    let url = serve(move |_, mut peer| {
        peer.accept();
        let Some(first) = peer.next_request() else { return };
        peer.answer(&first, NatsHeaders::new(), STREAM);
        while let Some(request) = peer.next_request() {
            peer.answer(&request, headers(&fields), payload);
        }
    });
    let connection = options(&url).connect().unwrap();
    let kv = KvBucket::bind(&connection, "TEST").unwrap();
    let error = call(&kv).unwrap_err();
    assert_eq!(connection.status().connects, 1, "the connection survives {answer:?}");
    error.to_string()
}

#[test]
fn malformed_answers_to_reads_name_the_key_and_the_fault() {
    const SUBJECT: (&str, &str) = ("Nats-Subject", "$KV.TEST.a");
    const SEQUENCE: (&str, &str) = ("Nats-Sequence", "1");
    let of = "key \"a\" of bucket \"TEST\": the server's answer is malformed:";
    let cases: [(Vec<_>, &str); 6] = [
        (vec![], "it has no header Nats-Subject"),
        (vec![("Nats-Subject", "$KV.OTHER.a")], "it has the subject \"$KV.OTHER.a\""),
        (vec![SUBJECT], "it has no header Nats-Sequence"),
        (vec![SUBJECT, ("Nats-Sequence", "-1")], "it has the sequence \"-1\""),
        (vec![SUBJECT, SEQUENCE], "it has no header Nats-Time-Stamp"),
        (vec![SUBJECT, SEQUENCE, ("Nats-Time-Stamp", "today")], "it has the time \"today\""),
    ];
    for (fields, fault) in cases {
        let text = called(&(fields, ""), |kv| kv.get("a"));
        assert!(text.starts_with(&format!("{of} {fault}")), "{text}");
    }
    let cases = [
        ("[]", "JetStream request STREAM.MSG.GET.KV_TEST: the server's answer is malformed:"),
        ("{\"message\":{}}", "JetStream request STREAM.MSG.GET.KV_TEST: the server's answer is malformed:"),
        ("{\"message\":{\"subject\":\"b\",\"seq\":1,\"time\":\"\"}}", "it has the subject \"b\""),
        ("{\"message\":{\"subject\":\"$KV.TEST.a\",\"seq\":1,\"time\":\"\",\"hdrs\":\"%\"}}", of),
        ("{\"message\":{\"subject\":\"$KV.TEST.a\",\"seq\":1,\"time\":\"now\"}}", "it has the time \"now\""),
        ("{\"message\":{\"subject\":\"$KV.TEST.a\",\"seq\":1,\"time\":\"2026-01-01T00:00:00Z\",\"data\":\"%\"}}", of),
    ];
    for (payload, fault) in cases {
        let text = called(&(vec![], payload), |kv| kv.get_latest("a"));
        assert!(text.contains(fault), "{text}");
    }
}

#[test]
fn malformed_answers_to_writes_name_the_key() {
    let of = "key \"a\" of bucket \"TEST\": the server's answer is malformed:";
    for payload in ["", "nonsense", "{}", "{\"seq\":-1}", "{\"seq\":\"1\"}", "{\"error\":7}", "[[[[[[[["] {
        let text = called(&(vec![], payload), |kv| kv.put("a", b"1"));
        assert!(text.starts_with(of), "{payload}: {text}");
    }
    let text = called(&(vec![], "{\"error\":{}}"), |kv| kv.put("a", b"1"));
    assert_eq!(text, "key \"a\" of bucket \"TEST\":  (JetStream error 0, status 0)");
    let text = called(&(vec![], "{\"config\":{}}"), KvBucket::status);
    assert!(text.starts_with("JetStream request STREAM.INFO.KV_TEST: the server's answer is malformed:"), "{text}");
}

/// Returns an entry with this place.
pub(super) fn entry(ack: &str, value: &str) -> NatsMessage {
    let subject = "$KV.TEST.a".to_owned();
    NatsMessage { subject, reply: Some(ack.to_owned()), headers: NatsHeaders::new(), payload: value.into() }
}

pub(super) fn heartbeat(deliver: &str, consumer: &str, stream: &str) -> NatsMessage {
    let mut headers = NatsHeaders::with_status(100, "Idle Heartbeat");
    headers.insert("Nats-Last-Consumer", consumer);
    headers.insert("Nats-Last-Stream", stream);
    NatsMessage { subject: deliver.to_owned(), reply: None, headers, payload: Vec::new() }
}

/// Plays a bucket. Its first consumer sends `lie` after its confirmation, and the second one sends one true entry.
fn play(peer: &mut Peer, lie: &dyn Fn(&mut Peer, &str, &str)) -> Option<()> {
    peer.accept()?;
    let (mut deliver, mut consumer, mut consumers) = (String::new(), String::new(), 0);
    loop {
        let request = peer.next_request()?;
        if request.subject.starts_with("$JS.API.CONSUMER.CREATE.") {
            let body: serde_json::Value = serde_json::from_slice(&request.payload).unwrap();
            body["config"]["deliver_subject"].as_str().unwrap().clone_into(&mut deliver);
            body["config"]["name"].as_str().unwrap().clone_into(&mut consumer);
            consumers += 1;
            peer.answer(&request, NatsHeaders::new(), "{}");
        } else if request.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
            peer.answer(&request, NatsHeaders::new(), NO_MESSAGE);
        } else if request.subject.starts_with("$JS.API.STREAM.INFO.") {
            peer.answer(&request, NatsHeaders::new(), STREAM);
            if consumers == 1 {
                lie(peer, &deliver, &consumer);
            } else if consumers == 2 {
                let ack = format!("$JS.ACK.KV_TEST.{consumer}.1.1.1.1700.0");
                peer.tell_on(&deliver, entry(&ack, "true"));
            }
        }
    }
}

/// The answer to a read of a key without an entry.
pub(crate) const NO_MESSAGE: &str =
    "{\"error\":{\"code\":404,\"err_code\":10037,\"description\":\"no message found\"}}";

/// Returns the answer to a read of this entry.
pub(super) fn stored(key: &str, sequence: u64) -> String {
    let fields = format!("\"subject\":\"$KV.TEST.{key}\",\"seq\":{sequence},\"data\":\"\"");
    format!("{{\"message\":{{{fields},\"time\":\"2026-01-01T00:00:00Z\"}}}}")
}

/// Returns the delivery subject and the name of the consumer that a request creates.
pub(super) fn asked_consumer(request: &NatsMessage) -> (String, String) {
    let body: serde_json::Value = serde_json::from_slice(&request.payload).unwrap();
    let [deliver, name] = ["deliver_subject", "name"].map(|field| body["config"][field].as_str().unwrap().to_owned());
    (deliver, name)
}

/// Plays a bucket that changes while it is listed: `b` was written again, so the third message is the deletion of `a`.
fn play_deletion(peer: &mut Peer) -> Option<()> {
    let stream = STREAM.replace("\"state\":{}", "\"state\":{\"messages\":3,\"first_seq\":1,\"last_seq\":3}");
    peer.accept()?;
    let mut consumer = None;
    loop {
        let request = peer.next_request()?;
        if request.subject.starts_with("$JS.API.CONSUMER.CREATE.") {
            consumer = Some(asked_consumer(&request));
            peer.answer(&request, NatsHeaders::new(), "{\"num_pending\":3}");
        } else if request.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
            peer.answer(&request, NatsHeaders::new(), stored("c", 3));
        } else if request.subject.starts_with("$JS.API.STREAM.INFO.") {
            peer.answer(&request, NatsHeaders::new(), &*stream);
            let Some((deliver, name)) = consumer.take() else { continue };
            let messages = [("a", 1, None), ("c", 3, None), ("a", 10, Some("DEL"))];
            for (number, (key, sequence, operation)) in (1..).zip(messages) {
                let reply = Some(format!("$JS.ACK.KV_TEST.{name}.1.{sequence}.{number}.1700.{}", 3 - number));
                let headers =
                    headers(&operation.map(|operation| ("KV-Operation", operation)).into_iter().collect::<Vec<_>>());
                let subject = format!("$KV.TEST.{key}");
                peer.tell_on(&deliver, NatsMessage { subject, reply, headers, payload: b"1".into() });
            }
        }
    }
}

#[test]
fn an_entry_that_is_deleted_while_it_is_listed_is_not_in_the_list() {
    let url = serve(|_, mut peer| {
        let _ = play_deletion(&mut peer);
    });
    let kv = KvBucket::bind(&options(&url).connect().unwrap(), "TEST").unwrap();
    let listing = kv.list(">").unwrap();
    let keys: Vec<_> = listing.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!((keys, listing.position.revision()), (vec!["c"], 10));
    assert_eq!(kv.keys(">").unwrap(), ["c"]);
}

/// Plays a replicated bucket with one entry, `a`, at revision 5. The consumer is on a copy that lags behind and does
/// not have the entry. It reports that nothing follows, and then `catches_up` plays the rest.
fn play_lagging(peer: &mut Peer, catches_up: &dyn Fn(&mut Peer, &str, &str)) -> Option<()> {
    let stream = STREAM
        .replace("\"state\":{}", "\"state\":{\"messages\":1,\"first_seq\":5,\"last_seq\":5}")
        .replace("\"max_msg_size\"", "\"num_replicas\":3,\"max_msg_size\"");
    peer.accept()?;
    let mut consumer = None;
    loop {
        let request = peer.next_request()?;
        if request.subject.starts_with("$JS.API.CONSUMER.CREATE.") {
            consumer = Some(asked_consumer(&request));
            peer.answer(&request, NatsHeaders::new(), "{\"num_pending\":0}");
        } else if request.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
            peer.answer(&request, NatsHeaders::new(), stored("a", 5));
        } else if request.subject.starts_with("$JS.API.STREAM.INFO.") {
            peer.answer(&request, NatsHeaders::new(), &*stream);
            if let Some((deliver, name)) = consumer.take() {
                catches_up(peer, &deliver, &name);
            }
        }
    }
}

#[test]
fn a_listing_waits_for_a_copy_that_lags_behind() {
    let catches_up: [(Lie, &[&str]); 2] = [
        // The copy receives the entry.
        (
            Box::new(|peer, deliver, consumer| {
                peer.tell_on(deliver, entry(&format!("$JS.ACK.KV_TEST.{consumer}.1.5.1.1700.0"), "1"));
            }),
            &["a"],
        ),
        // The entry was removed meanwhile. The copy has noticed this later than the others.
        (
            Box::new(|peer, deliver, consumer| {
                let last = if consumer.ends_with("-1") { "3" } else { "5" };
                peer.tell(heartbeat(deliver, "0", last));
            }),
            &[],
        ),
    ];
    for (catches_up, expected) in catches_up {
        let url = serve(move |_, mut peer| {
            let _ = play_lagging(&mut peer, &catches_up);
        });
        let kv = KvBucket::bind(&options(&url).connect().unwrap(), "TEST").unwrap();
        let listing = kv.list(">").unwrap();
        let keys: Vec<_> = listing.entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!((&*keys, listing.position.revision()), (expected, 5));
    }
}

/// A replicated stream refuses a write while it stores another write of the key.
#[test]
fn both_refusals_of_an_expected_revision_are_conflicts() {
    for code in [10_071, 10_164] {
        let payload =
            format!("{{\"error\":{{\"code\":400,\"err_code\":{code},\"description\":\"wrong last sequence\"}}}}");
        let url = serve(move |_, mut peer| {
            peer.accept();
            let Some(first) = peer.next_request() else { return };
            peer.answer(&first, NatsHeaders::new(), STREAM);
            while let Some(request) = peer.next_request() {
                peer.answer(&request, NatsHeaders::new(), &*payload);
            }
        });
        let kv = KvBucket::bind(&options(&url).connect().unwrap(), "TEST").unwrap();
        let error = kv.update("a", b"2", 1).unwrap_err();
        assert!(error.is_conflict(), "{code}: {error}");
    }
}

/// Sends messages of a consumer. The arguments are its subject and its name.
type Lie = Box<dyn Fn(&mut Peer, &str, &str) + Send + Sync>;

/// Watches a bucket with a lying first consumer. Returns the first change after the start.
fn watched(lie: impl Fn(&mut Peer, &str, &str) + Send + Sync + 'static) -> Result<KvUpdate, NatsError> {
    let url = serve(move |_, mut peer| {
        let _ = play(&mut peer, &lie);
    });
    let connection = options(&url).connect().unwrap();
    let kv = KvBucket::bind(&connection, "TEST").unwrap();
    let mut watch = kv.watch(&KvWatchOptions::new()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    watch.recv_timeout(LONG)
}

#[test]
fn impossible_messages_of_a_consumer_lead_to_another_one_and_are_no_changes() {
    let most = u64::MAX.to_string();
    let lies: Vec<Lie> = vec![
        // Skipped messages of a consumer.
        Box::new(|peer, deliver, consumer| {
            let ack = format!("$JS.ACK.KV_TEST.{consumer}.1.7.7.1700.0");
            peer.tell_on(deliver, entry(&ack, "lie"));
        }),
        Box::new(move |peer, deliver, _| peer.tell(heartbeat(deliver, &most, &most))),
        // The end of a consumer.
        Box::new(|peer, deliver, _| {
            let headers = NatsHeaders::with_status(409, "Consumer Deleted");
            peer.tell(NatsMessage { subject: deliver.to_owned(), headers, ..NatsMessage::default() });
        }),
        // Nonsense to be ignored, then a gap.
        Box::new(|peer, deliver, consumer| {
            for ack in ["nonsense", "$JS.ACK", "$JS.ACK.KV_TEST.other.1.1.1.1700.0"] {
                peer.tell_on(deliver, entry(ack, "lie"));
            }
            peer.tell_on(deliver, entry(&format!("$JS.ACK.KV_TEST.{consumer}.1.-1.1.1700.0"), "lie"));
            peer.tell(heartbeat(deliver, "many", "0"));
            peer.tell(heartbeat(deliver, "5", "5"));
        }),
    ];
    for (at, lie) in lies.into_iter().enumerate() {
        match watched(lie) {
            Ok(KvUpdate::Entry(found)) => assert_eq!((found.revision, found.value), (1, b"true".to_vec()), "lie {at}"),
            other => panic!("lie {at}: {other:?}"),
        }
    }
}

/// All times that are computed from the interval must fit.
#[test]
fn a_watch_can_have_the_longest_interval_of_heartbeats() {
    let url = serve(|_, mut peer| {
        let _ = play(&mut peer, &|_, _, _| {});
    });
    let connection = options(&url).connect().unwrap();
    let kv = KvBucket::bind(&connection, "TEST").unwrap();
    let mut watch = kv.watch(&KvWatchOptions::new().heartbeat(Duration::MAX)).unwrap();
    assert_eq!(next(&mut watch), "synced");
}

#[test]
fn a_watch_whose_server_answers_nonsense_fails_with_its_name() {
    let url = serve(|_, mut peer| {
        peer.accept();
        while let Some(request) = peer.next_request() {
            let of = |method: &str| request.subject.starts_with(&format!("$JS.API.{method}."));
            let answer = match () {
                () if of("CONSUMER.CREATE") => "[]",
                () if of("STREAM.MSG.GET") => NO_MESSAGE,
                () => STREAM,
            };
            peer.answer(&request, NatsHeaders::new(), answer);
        }
    });
    let connection = options(&url).connect().unwrap();
    let kv = KvBucket::bind(&connection, "TEST").unwrap();
    let error = kv.watch(&KvWatchOptions::new()).unwrap().recv_timeout(LONG).unwrap_err();
    assert!(error.to_string().starts_with("a consumer: the server's answer is malformed:"), "{error}");
    let error = kv.list(">").unwrap_err();
    assert!(error.to_string().starts_with("a consumer: the server's answer is malformed:"), "{error}");
    assert_eq!(connection.status().connects, 1);
}
