//! Streamed lists.

use homeostat::CancellationToken;
use homeostat_objects::{Client, Kind, Query, WatchEvent};
use serde_json::json;

use super::Place;
use crate::cases::{Follower, fresh};

/// Servers stream lists since Kubernetes 1.27 (1.32 without a setting).
#[test]
fn a_list_is_streamed_up_to_its_mark_or_refused_in_words_that_the_client_knows() {
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let place = Place::with(Kind::namespaced("stream.custom.example.com", "v1", "Item"), &spec);
    for name in ["a", "b", "c"] {
        place.create(name, &json!({})).unwrap();
    }
    let (query, stop) = (Query::all().namespace("default"), CancellationToken::new());
    let streamed = place.client.stream_list(&place.kind, &query, &stop);
    if place.minor < 27 {
        let error = streamed.and_then(|mut events| events.next().unwrap()).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("resourceVersionMatch"), "{error:?}");
    } else {
        let mut events = streamed.unwrap();
        let mut added: Vec<_> = events.by_ref().map(Result::unwrap).take(4).collect();
        assert!(matches!(added.pop(), Some(WatchEvent::Bookmark(version)) if !version.is_empty()));
        let all: Vec<_> = added.iter().map(|event| event.object().unwrap().name().to_owned()).collect();
        assert_eq!(all, ["a", "b", "c"]);
        // The same stream continues with changes.
        place.create("d", &json!({})).unwrap();
        let next = events.map(Result::unwrap).find(|event| event.object().is_some()).unwrap();
        assert!(matches!(&next, WatchEvent::Added(object) if object.name() == "d"), "{next:?}");
        stop.cancel();
    }
    // With both servers, a watch fills its store and receives changes.
    let before = place.client.metrics().requests;
    let follower = Follower::start(&place.client, &place.kind, query.clone()).synced();
    let requests = place.client.metrics().requests - before;
    // The client remembers the refusal: one list and one watch.
    assert!(requests <= if place.minor < 27 { 2 } else { 1 }, "{requests} requests");
    place.create("e", &json!({})).unwrap();
    follower.waits_until_equal(|| Some(fresh(&place.client, &place.kind, &query)));
}
