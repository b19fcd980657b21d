//! Streaming lists and silent streams.

use super::super::machine::{Change, Report};
use super::harness::{REMOTE, has_failed, machine};
use super::server::{SECOND, gone, object, things, transport};
use crate::{ClientError, ObjectKey, ObjectList, ObjectRef, Query, WatchEvent};

#[test]
fn a_remote_watch_begins_with_a_streaming_list() {
    let mut watch = machine(REMOTE, Query::all());
    assert_eq!(watch.next(), "open streaming list");
    assert!(watch.opened().report.is_none());
    let added = |name| Some(Ok(WatchEvent::Added(object(name, 3, 1))));
    assert!(watch.machine.received(watch.now, added(1)).change.is_none());
    watch.machine.received(watch.now, added(2));
    watch.machine.received(watch.now, Some(Ok(WatchEvent::Deleted(object(1, 4, 1)))));
    let Some(Change::ReplaceAll { objects, .. }) = watch.bookmark("5").change else { panic!("no list") };
    assert_eq!(objects, [object(2, 3, 1)]);
    watch.ends();
    assert_eq!(watch.next(), "pause 1s");
    watch.pass(SECOND);
    assert_eq!(watch.next(), "open 5");
    // A query with a limit asks for pages.
    assert_eq!(machine(REMOTE, Query::all().limit(500)).next(), "list 0 paged");
}

fn unreadable() -> ClientError {
    let odd = ObjectRef::new(things().kind(), &ObjectKey::cluster("odd"));
    ClientError::invalid(odd, "", "", "the object cannot be read")
}

/// Returns the names of the objects of these errors.
fn names(unreadable: &[ClientError]) -> Vec<&str> {
    unreadable.iter().map(|error| error.object().key().name()).collect()
}

#[test]
fn an_object_that_the_client_cannot_read_does_not_end_a_stream() {
    let mut watch = machine(REMOTE, Query::all());
    watch.opened();
    watch.machine.received(watch.now, Some(Ok(WatchEvent::Added(object(1, 3, 1)))));
    assert!(matches!(watch.breaks(unreadable()).change, Some(Change::Unreadable(_))));
    let Some(Change::ReplaceAll { objects, unreadable: odd }) = watch.bookmark("5").change else { panic!("no list") };
    assert_eq!((objects, names(&odd)), (vec![object(1, 3, 1)], vec!["odd"]));
    watch.pass(60 * SECOND);
    assert!(matches!(watch.breaks(unreadable()).change, Some(Change::Unreadable(_))));
    assert_eq!(watch.next(), "read 300s");
    // Other invalid requests end the stream.
    assert!(has_failed(&watch.breaks(ClientError::invalid(things(), "fields", "x", "is unknown"))));
}

#[test]
fn an_object_that_the_client_cannot_read_fails_neither_a_list_nor_a_probe() {
    let mut watch = machine(REMOTE, Query::all().limit(2));
    let page = |name, token: Option<&str>| {
        ObjectList::new("5", vec![object(name, 3, 1)]).continue_token(token.map(str::to_owned))
    };
    watch.machine.listed(watch.now, Ok((page(1, Some("more")), vec![unreadable()])));
    let Some(Change::ReplaceAll { objects, unreadable: odd }) = watch.listed_page(page(2, None)).change else {
        panic!("no list")
    };
    assert_eq!((objects.len(), names(&odd)), (2, vec!["odd"]));
    watch.opened();
    watch.breaks(transport());
    watch.pauses(1);
    assert_eq!(watch.next(), "list 5 paged");
    let probed = watch.machine.listed(watch.now, Ok((ObjectList::new("6", Vec::new()), vec![unreadable()])));
    assert!(probed.change.is_none() && probed.report.is_none());
    assert_eq!(watch.next(), "open 5");
}

#[test]
fn a_streaming_list_without_an_end_marker_is_given_up_for_good() {
    let mut watch = machine(REMOTE, Query::all());
    watch.opened();
    assert_eq!(watch.next(), "read 30s");
    watch.pass(20 * SECOND);
    watch.machine.received(watch.now, Some(Ok(WatchEvent::Added(object(1, 3, 1)))));
    assert_eq!(watch.next(), "read 30s", "a new object is progress");
    watch.pass(10 * SECOND);
    watch.changed(4);
    assert_eq!(watch.next(), "read 20s", "a change is not");
    watch.pass(20 * SECOND);
    let reaction = watch.times_out();
    assert!(reaction.change.is_none() && has_failed(&reaction));
    assert_eq!(watch.next(), "list 0", "at once");
    watch.follow("5");
    watch.changed(6);
    watch.breaks(gone());
    assert_eq!(watch.next(), "list 6");
}

#[test]
fn a_streaming_list_that_grows_for_ever_ends_after_five_minutes() {
    let mut watch = machine(REMOTE, Query::all());
    watch.opened();
    for name in 0..15 {
        watch.pass(20 * SECOND);
        watch.machine.received(watch.now, Some(Ok(WatchEvent::Added(object(name, 3, 1)))));
    }
    assert_eq!(watch.next(), "read 0ns");
    watch.times_out();
    assert_eq!(watch.next(), "list 0");
}

#[test]
fn a_server_without_streaming_lists_is_asked_for_lists_at_once() {
    let mut watch = machine(REMOTE, Query::all());
    watch.open_fails(ClientError::invalid(things(), "sendInitialEvents", "true", "must not be set"));
    // A cache that answers this list ignores the limit.
    assert_eq!(watch.next(), "list 0 paged");
    watch.follow("5");
    watch.changed(6);
    watch.breaks(gone());
    // If the list had a limit, no cache would answer.
    assert_eq!(watch.next(), "list 6");
    watch.list_fails(gone());
    assert_eq!(watch.next(), "list newest paged", "at once");
    let page = |version, token: Option<&str>| {
        ObjectList::new(version, vec![object(1, 1, 1)]).continue_token(token.map(str::to_owned))
    };
    assert!(watch.listed_page(page("8", Some("more"))).change.is_none());
    assert_eq!(watch.next(), "list newest paged");
    // The token has expired.
    assert!(matches!(watch.list_fails(gone()).report, Some(Report::Note(_))));
    assert_eq!(watch.next(), "list newest", "at once");
    watch.follow("9");
    watch.changed(10);
    watch.breaks(gone());
    assert_eq!(watch.next(), "list 10");
    // A cache answers with an old list.
    watch.listed("9");
    assert_eq!(watch.next(), "list newest paged", "pages are tried again after a change");
}

#[test]
fn a_failed_streaming_list_is_followed_by_a_list_and_three_by_lists_only() {
    let mut watch = machine(REMOTE, Query::all());
    let mut version = 5;
    for attempt in 1..=3 {
        assert_eq!(watch.next(), "open streaming list", "attempt {attempt}");
        watch.opened();
        if attempt == 2 {
            watch.ends();
        } else {
            watch.breaks(transport());
        }
        watch.pauses(1);
        assert!(watch.next().starts_with("list"));
        watch.follow(&version.to_string());
        version += 1;
        watch.changed(version);
        watch.breaks(gone());
    }
    assert_eq!(watch.next(), "list 8");
    // A complete streaming list resets the count.
    let mut watch = machine(REMOTE, Query::all());
    for version in [10, 20, 30, 40] {
        watch.opened();
        watch.breaks(transport());
        watch.pauses(1);
        watch.follow(&version.to_string());
        watch.changed(version + 1);
        watch.breaks(gone());
        watch.stream(&(version + 2).to_string());
        watch.changed(version + 3);
        watch.breaks(gone());
        assert_eq!(watch.next(), "open streaming list");
    }
}

#[test]
fn errors_that_concern_lists_too_do_not_count_against_streaming_lists() {
    let errors = [
        ClientError::forbidden(things(), "no role"),
        ClientError::unauthorized(things(), "no token"),
        ClientError::kind_not_served(things(), "no such kind"),
        ClientError::too_many_requests(things(), None, "busy"),
    ];
    for error in errors {
        let mut watch = machine(REMOTE, Query::all());
        for pause in [1, 2, 4, 4, 4] {
            assert!(has_failed(&watch.open_fails(error.clone())));
            watch.pauses(pause);
            assert_eq!(watch.next(), "open streaming list", "{error}");
        }
    }
}

#[test]
fn a_silent_stream_is_reopened_once_and_then_replaced_by_a_list() {
    let mut watch = machine(REMOTE, Query::all());
    watch.stream("5");
    assert_eq!(watch.next(), "read 300s", "the end marker does not show that bookmarks come");
    watch.pass(60 * SECOND);
    watch.bookmark("6");
    assert_eq!(watch.next(), "read 120s");
    watch.pass(119 * SECOND);
    watch.changed(7);
    assert_eq!(watch.next(), "read 120s");
    watch.pass(120 * SECOND);
    let reaction = watch.times_out();
    assert!(has_failed(&reaction), "{reaction:?}");
    assert_eq!(watch.next(), "list 7 paged", "it had changes");
    watch.probed("7");
    assert_eq!(watch.next(), "open 7");
    watch.opened();
    watch.pass(120 * SECOND);
    assert!(has_failed(&watch.times_out()));
    watch.pauses(1);
    watch.stream("8");
    // A bookmark or a change between them ends the series.
    for _ in 0..3 {
        watch.pass(60 * SECOND);
        watch.bookmark("9");
        watch.pass(120 * SECOND);
        watch.times_out();
        watch.pauses(1);
        watch.probed("9");
        assert_eq!(watch.next(), "open 9");
        watch.opened();
    }
}

#[test]
fn a_silent_stream_without_bookmarks_is_no_failure() {
    let mut watch = machine(REMOTE, Query::all().limit(9));
    watch.follow("5");
    for _ in 0..3 {
        assert_eq!(watch.next(), "read 300s");
        watch.pass(300 * SECOND);
        assert_eq!(watch.times_out().report, Some(Report::EndedWithoutEvent));
        assert_eq!(watch.next(), "open 5", "at once");
        watch.opened();
        watch.pass(300 * SECOND);
        assert_eq!(watch.times_out().report, Some(Report::EndedWithoutEvent));
        assert_eq!(watch.next(), "list 5 paged", "it may wait for a version that was lost");
        watch.follow("5");
    }
}

#[test]
fn a_remote_watch_asks_for_the_version_of_the_server_before_it_resumes() {
    for outcome in ["reached", "older", "gone", "fails"] {
        let mut watch = machine(REMOTE, Query::all());
        watch.stream("5");
        watch.changed(100);
        watch.breaks(transport());
        assert_eq!(watch.next(), "list 100 paged", "one object");
        match outcome {
            "reached" => {
                watch.probed("100");
                assert_eq!(watch.next(), "open 100");
            }
            "older" => {
                watch.probed("60");
                assert_eq!(watch.next(), "open streaming list", "at once");
            }
            "gone" => {
                watch.list_fails(gone());
                assert_eq!(watch.next(), "open streaming list", "at once");
            }
            _ => {
                assert!(has_failed(&watch.list_fails(transport())));
                watch.pauses(1);
                assert_eq!(watch.next(), "list 100 paged", "again");
            }
        }
    }
    // A stream that ends without an error was sent by a live server.
    let mut watch = machine(REMOTE, Query::all());
    watch.stream("5");
    watch.changed(6);
    watch.ends();
    assert_eq!(watch.next(), "open 6");
}
