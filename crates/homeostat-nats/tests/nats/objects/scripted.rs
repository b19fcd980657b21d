//! Other clients' actions, and losses, between two requests of a client. A scripted server plays them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use data_encoding::BASE64;
use homeostat::CancellationToken;
use homeostat_nats::{NatsClient, NatsErrorKind, NatsHeaders};
use homeostat_objects::{Client, DeleteOptions, Query};
use serde_json::{Value, json};

use super::{WIDGET, connect_to, entry, key, owned, widget};
use crate::kv::NO_MESSAGE;
use crate::support::scripted::{Peer, STREAM, serve};
use crate::support::{LONG, spawn};

/// Returns the stream information of a bucket for objects at revision 9.
fn facts() -> String {
    STREAM
        .replace(
            "\"name\":\"KV_TEST\",",
            "\"name\":\"KV_TEST\",\"description\":\"objects of homeostat, layout 1\",\"max_bytes\":-1,",
        )
        .replace("\"max_msgs_per_subject\":1", "\"max_msgs_per_subject\":16,\"storage\":\"file\",\"num_replicas\":1")
        .replace("\"state\":{}", "\"state\":{\"messages\":3,\"first_seq\":1,\"last_seq\":9}")
}

/// Returns the answer to a read of this entry.
fn stored(subject: &str, value: &[u8]) -> String {
    let fields = json!({"subject": subject, "seq": 9, "data": BASE64.encode(value), "time": "2026-01-01T00:00:00Z"});
    json!({"message": fields}).to_string()
}

/// Plays a bucket for objects at revision 9. The note about removed markers appears together with a watch's consumer.
/// It reports that the marker with revision 5 was removed.
fn play(peer: &mut Peer) -> Option<()> {
    let stream = facts();
    let mut is_watched = false;
    peer.accept()?;
    loop {
        let request = peer.next_request()?;
        let payload = String::from_utf8_lossy(&request.payload).into_owned();
        let method = request.subject.trim_start_matches("$JS.API.");
        let answer = if method.starts_with("CONSUMER.CREATE.") {
            is_watched |= payload.contains("Widget");
            "{\"num_pending\":0}".to_owned()
        } else if method.starts_with("STREAM.MSG.GET.") && is_watched && payload.contains("_markers") {
            stored("$KV.TEST._markers", b"5")
        } else if method.starts_with("STREAM.MSG.GET.") {
            NO_MESSAGE.to_owned()
        } else if method.starts_with("STREAM.") {
            stream.clone()
        } else {
            continue;
        };
        peer.answer(&request, NatsHeaders::new(), answer);
    }
}

#[test]
fn markers_that_are_removed_while_a_watch_is_opened_make_it_gone() {
    let url = serve(|_, mut peer| {
        let _ = play(&mut peer);
    });
    let client = NatsClient::create(&connect_to(&url), &NatsClient::bucket("TEST")).unwrap();
    let life = 1_767_225_600_000_u64;
    let stop = CancellationToken::new();
    let first = |revision: u64| {
        let stream = client.watch(&WIDGET, &Query::all(), Some(&format!("{life}{revision:012}")), &stop).unwrap();
        let (sender, items) = channel();
        drop(spawn(move || stream.take(1).for_each(|item| drop(sender.send(item)))));
        items
    };
    let error = first(4).recv_timeout(LONG).unwrap().unwrap_err();
    assert!(error.is_gone(), "{error}");
    // A watch that starts after the marker is not gone. It receives no answer, so it ends with the test.
    assert!(first(5).try_recv().is_err());
}

/// How many dependents the owner has that [`play_owner`] plays.
const DEPENDENTS: usize = 50;

/// The state of a bucket with an owner.
#[derive(Default)]
struct Owner {
    /// Whether the stream loses its leader once the dependents were read.
    is_cut: AtomicBool,
    /// The number of unheard requests.
    unheard: AtomicUsize,
    deleted: AtomicUsize,
    /// The number of keys that were removed without a marker.
    forgotten: AtomicUsize,
}

/// Plays a bucket with an owner and its dependents. After the owner's deletion, the second read of a dependent is not
/// heard.
fn play_owner(peer: &mut Peer, state: &Owner) -> Option<()> {
    let with_uid = |mut object: Value, uid: &str| {
        object["metadata"]["uid"] = uid.into();
        object
    };
    let owner = with_uid(widget("owner", 1), "u");
    let subject = |name: &str| format!("$KV.TEST.{}", entry(name));
    let names: Vec<_> = (0..DEPENDENTS).map(|number| format!("d{number}")).collect();
    let subjects: serde_json::Map<_, _> =
        names.iter().map(|name| (format!("$KV.TEST._owners.u.{}", entry(name)), json!(1))).collect();
    let mut with_subjects: Value = serde_json::from_str(&facts()).unwrap();
    with_subjects["state"]["subjects"] = subjects.into();
    with_subjects["total"] = DEPENDENTS.into();
    let (mut gone, mut read) = (BTreeSet::new(), BTreeSet::new());
    peer.accept()?;
    loop {
        let request = peer.next_request()?;
        if request.subject.starts_with("$KV.TEST.") {
            let is_owned = request.headers.get("KV-Operation").is_some() && request.subject != subject("owner");
            state.deleted.fetch_add(usize::from(is_owned), Ordering::SeqCst);
            gone.insert(request.subject.clone());
            peer.answer(&request, NatsHeaders::new(), r#"{"stream":"KV_TEST","seq":10}"#);
            continue;
        }
        let body: Value = serde_json::from_slice(&request.payload).unwrap_or_default();
        let asked = body["last_by_subj"].as_str().unwrap_or_default().to_owned();
        let method = request.subject.trim_start_matches("$JS.API.");
        let answer = if method.starts_with("CONSUMER.CREATE.") {
            r#"{"num_pending":0}"#.to_owned()
        } else if method.starts_with("STREAM.MSG.GET.") {
            let dependent = names.iter().find(|name| asked == subject(name));
            let is_second = gone.contains(&subject("owner")) && dependent.is_some() && !read.insert(asked.clone());
            if is_second && state.is_cut.load(Ordering::SeqCst) {
                state.unheard.fetch_add(1, Ordering::SeqCst);
                peer.answer(&request, NatsHeaders::with_status(503, ""), "");
                continue;
            }
            match dependent {
                _ if gone.contains(&asked) => NO_MESSAGE.to_owned(),
                Some(name) => stored(&asked, with_uid(owned(name, &owner), name).to_string().as_bytes()),
                None if asked == subject("owner") || asked.ends_with(".Widget.>") => {
                    stored(&subject("owner"), owner.to_string().as_bytes())
                }
                None if asked == "$KV.TEST._owners.u" => stored(&asked, b"{}"),
                None => NO_MESSAGE.to_owned(),
            }
        } else if body.get("subjects_filter").is_some() {
            with_subjects.to_string()
        } else if method.starts_with("STREAM.PURGE.") {
            state.forgotten.fetch_add(1, Ordering::SeqCst);
            facts()
        } else if method.starts_with("STREAM.") {
            facts()
        } else {
            continue;
        };
        peer.answer(&request, NatsHeaders::new(), answer);
    }
}

/// An unheard step costs several repetitions. The deletion of an owner with many dependents would otherwise take
/// minutes.
#[test]
fn unheard_requests_of_a_deletion_are_left_to_the_next_write() {
    let state = Arc::new(Owner::default());
    let played = Arc::clone(&state);
    let url = serve(move |_, mut peer| {
        let _ = play_owner(&mut peer, &played);
    });
    let client = NatsClient::create(&connect_to(&url), &NatsClient::bucket("TEST")).unwrap();
    state.is_cut.store(true, Ordering::SeqCst);
    assert!(client.delete(&WIDGET, &key("owner"), &DeleteOptions::default()).unwrap().is_gone());
    let unheard = state.unheard.load(Ordering::SeqCst);
    assert!((1..10).contains(&unheard), "{unheard} unheard requests");
    assert_eq!(state.deleted.load(Ordering::SeqCst), 0);
    state.is_cut.store(false, Ordering::SeqCst);
    client.create(&WIDGET, widget("next", 1)).unwrap();
    assert_eq!(state.deleted.load(Ordering::SeqCst), DEPENDENTS, "the next write has done the rest");
    // An old server can remove keys that no watch selects.
    assert!(state.forgotten.load(Ordering::SeqCst) >= DEPENDENTS);
    let error = client.remove_markers(Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::Unsupported, "{error}");
    assert!(error.to_string().starts_with("remove_markers needs a server of version 2.9.12 or later, but "), "{error}");
}
