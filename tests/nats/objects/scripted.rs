//! Another client removes markers between two requests of a watch. A scripted server plays both.

use std::sync::mpsc::channel;

use data_encoding::BASE64;
use homeostat::CancellationToken;
use homeostat::nats::{NatsClient, NatsHeaders};
use homeostat::objects::{Client, Query};

use super::{WIDGET, connect_to};
use crate::support::scripted::{Peer, STREAM, serve};
use crate::support::{LONG, spawn};

/// Plays a bucket for objects at revision 9. The note about removed markers appears with the consumer of a watch: it tells of the removal
/// of the marker with revision 5.
fn play(peer: &mut Peer) -> Option<()> {
    let stream = STREAM
        .replace(
            "\"name\":\"KV_TEST\",",
            "\"name\":\"KV_TEST\",\"description\":\"objects of homeostat, layout 1\",\"max_bytes\":-1,",
        )
        .replace("\"max_msgs_per_subject\":1", "\"max_msgs_per_subject\":16,\"storage\":\"file\",\"num_replicas\":1")
        .replace("\"state\":{}", "\"state\":{\"messages\":3,\"first_seq\":1,\"last_seq\":9}");
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
            let data = BASE64.encode(b"5");
            format!(
                "{{\"message\":{{\"subject\":\"$KV.TEST._markers\",\"seq\":9,\"data\":\"{data}\",\"time\":\"2026-01-01T00:00:00Z\"}}}}"
            )
        } else if method.starts_with("STREAM.MSG.GET.") {
            "{\"error\":{\"code\":404,\"err_code\":10037,\"description\":\"no message found\"}}".to_owned()
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
    // Not so a watch that begins after the marker. No answer follows, so this ends with the test.
    assert!(first(5).try_recv().is_err());
}
