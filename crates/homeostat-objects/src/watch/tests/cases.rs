//! Lists, pauses and errors of the machine.

use super::super::machine::{Change, Report, WatchReaction};
use super::harness::{LOCAL, Machine, has_failed, machine};
use super::server::{SECOND, gone, object, things, transport};
use crate::{ClientError, ObjectList, Query};

#[test]
fn the_first_list_may_be_old_and_later_ones_have_the_last_version() {
    let mut watch = machine(LOCAL, Query::all());
    assert_eq!(watch.next(), "list 0");
    watch.follow("5");
    assert_eq!(watch.next(), "read");
    watch.changed(7);
    watch.bookmark("9");
    watch.breaks(gone());
    assert_eq!(watch.next(), "list 9");
    // The server may never reach that version.
    watch.list_fails(transport());
    watch.pauses(1);
    assert_eq!(watch.next(), "list newest");
    watch.list_fails(transport());
    watch.pauses(2);
    assert_eq!(watch.next(), "list newest");
    watch.follow("3");
    watch.changed(4);
    watch.breaks(gone());
    assert_eq!(watch.next(), "list 4");
    watch.list_fails(gone());
    assert_eq!(watch.next(), "list newest", "at once");
}

#[test]
fn a_list_before_the_last_version_is_not_used() {
    let mut watch = machine(LOCAL, Query::all());
    watch.follow("9");
    watch.changed(100);
    watch.breaks(gone());
    let reaction = watch.listed("99");
    assert!(reaction.change.is_none() && matches!(reaction.report, Some(Report::Note(_))));
    assert_eq!(watch.next(), "list newest");
    // The newest list is accepted, even after a restore.
    assert!(matches!(watch.listed("99").change, Some(Change::ReplaceAll { .. })));
    assert_eq!(watch.next(), "open 99");
}

#[test]
fn a_version_that_is_gone_directly_after_its_list_is_listed_anew_without_pages() {
    let mut watch = machine(LOCAL, Query::all().limit(1));
    assert_eq!(watch.next(), "list 0 paged");
    watch.listed("5");
    assert!(has_failed(&watch.open_fails(gone())));
    watch.pauses(1);
    assert_eq!(watch.next(), "list newest");
    watch.follow("6");
    // Pages are tried again after a change.
    watch.changed(7);
    watch.breaks(gone());
    assert_eq!(watch.next(), "list 7 paged");
}

/// The same as client-go's pager (`tools/pager/pager.go`).
#[test]
fn a_page_that_is_gone_is_followed_by_one_list_without_pages() {
    let mut watch = machine(LOCAL, Query::all().limit(1));
    let page = ObjectList::new("5", vec![object(1, 1, 1)]).continue_token(Some("next".to_owned()));
    watch.listed_page(page);
    assert_eq!(watch.next(), "list 0 paged");
    assert!(matches!(watch.list_fails(gone()).report, Some(Report::Note(_))));
    assert_eq!(watch.next(), "list 0", "at once");
    let list = ObjectList::new("6", vec![object(2, 6, 1)]);
    let Some(Change::ReplaceAll { objects, .. }) = watch.listed_page(list).change else { panic!("no list") };
    assert_eq!(objects, [object(2, 6, 1)]);
}

#[test]
fn a_list_that_repeats_its_token_fails() {
    let mut watch = machine(LOCAL, Query::all().limit(1));
    let page = || ObjectList::new("5", vec![object(1, 1, 1)]).continue_token(Some("again".to_owned()));
    assert!(!has_failed(&watch.listed_page(page())));
    assert_eq!(watch.next(), "list 0 paged");
    assert!(has_failed(&watch.listed_page(page())));
    watch.pauses(1);
}

#[test]
fn the_delay_that_a_server_asks_for_is_waited() {
    let asks = |delay| ClientError::too_many_requests(things(), Some(delay), "busy");
    let mut watch = machine(LOCAL, Query::all());
    // No server can make the watch loop without a pause, or stop it forever.
    for (asked, pause) in [(7, 7), (7, 7), (0, 4), (100_000, 600)] {
        watch.list_fails(asks(SECOND * asked));
        watch.pauses(pause);
        assert_eq!(watch.next(), "list 0");
    }
    watch.listed("5");
    watch.open_fails(asks(9 * SECOND));
    watch.pauses(9);
    assert_eq!(watch.next(), "open 5");
    watch.opened();
    watch.breaks(asks(11 * SECOND));
    watch.pauses(11);
    assert_eq!(watch.next(), "open 5");
}

#[test]
fn a_kind_that_is_served_no_longer_is_listed_when_it_comes_back() {
    for is_open in [false, true] {
        let mut watch = machine(LOCAL, Query::all());
        watch.listed("5");
        let error = ClientError::kind_not_served(things(), "no such kind");
        let reaction = if is_open {
            watch.opened();
            watch.breaks(error.clone())
        } else {
            watch.open_fails(error.clone())
        };
        assert!(reaction.change.is_none() && has_failed(&reaction), "the store keeps its objects");
        for pause in [1, 2, 4] {
            watch.pauses(pause);
            assert!(watch.next().starts_with("list"));
            watch.list_fails(error.clone());
        }
        watch.pauses(4);
        watch.follow("8");
    }
}

#[test]
fn a_server_that_goes_back_is_asked_for_the_newest_list() {
    let backwards: [fn(&mut Machine) -> WatchReaction; 2] = [|watch| watch.bookmark("99"), |watch| watch.changed(99)];
    for go_back in backwards {
        let mut watch = machine(LOCAL, Query::all());
        watch.follow("98");
        watch.changed(100);
        let reaction = go_back(&mut watch);
        assert!(reaction.change.is_none() && has_failed(&reaction));
        watch.pauses(1);
        assert_eq!(watch.next(), "list newest");
    }
}

#[test]
fn only_changes_reset_the_pauses() {
    let mut watch = machine(LOCAL, Query::all());
    watch.follow("5");
    let mut version = 5;
    for pause in [1, 2, 4, 4] {
        version += 1;
        watch.bookmark(&version.to_string());
        watch.ends();
        watch.pauses(pause);
        watch.opened();
    }
    watch.changed(version);
    watch.breaks(transport());
    watch.pauses(4);
    watch.opened();
    watch.changed(version + 1);
    watch.breaks(transport());
    assert_eq!(watch.next(), format!("open {}", version + 1), "at once");
    watch.open_fails(transport());
    watch.pauses(1);
    // A stream that lasted longer than its pause resets them too.
    watch.opened();
    watch.pass(2 * SECOND);
    watch.breaks(transport());
    watch.pauses(1);
    watch.opened();
    watch.pass(300 * SECOND);
    watch.ends();
    assert_eq!(watch.next(), format!("open {}", version + 1), "at once");
}

#[test]
fn many_short_streams_with_changes_are_reopened_after_pauses() {
    let mut watch = machine(LOCAL, Query::all());
    watch.follow("5");
    for version in 6..14 {
        watch.changed(version);
        watch.ends();
        assert_eq!(watch.next(), format!("open {version}"), "at once");
        watch.opened();
    }
    for version in 14..20 {
        watch.changed(version);
        watch.ends();
        watch.pauses(1);
        watch.opened();
    }
    watch.pass(SECOND);
    watch.changed(20);
    watch.ends();
    assert_eq!(watch.next(), "open 20", "at once");
}

#[test]
fn after_a_panic_the_objects_are_listed_again() {
    let mut watch = machine(LOCAL, Query::all());
    watch.follow("5");
    watch.changed(6);
    watch.machine.panicked(watch.now);
    assert_eq!(watch.next(), "list 6");
    watch.machine.panicked(watch.now);
    watch.pauses(1);
    assert_eq!(watch.next(), "list 6");
}

#[test]
fn a_stream_without_a_version_is_not_resumed() {
    let mut watch = machine(LOCAL, Query::all());
    watch.listed("");
    assert_eq!(watch.next(), "open ");
    watch.opened();
    watch.pass(10 * SECOND);
    watch.ends();
    assert_eq!(watch.next(), "list 0");
}

/// The server was unreachable, and has compacted its history since.
#[test]
fn a_version_that_is_gone_after_an_outage_is_no_further_failure() {
    let at_once: [fn(&mut Machine) -> WatchReaction; 2] = [
        |watch| watch.open_fails(gone()),
        |watch| {
            watch.opened();
            watch.breaks(gone())
        },
    ];
    for forgets in at_once {
        let mut watch = machine(LOCAL, Query::all());
        watch.follow("5");
        watch.breaks(transport());
        for pause in [1, 2, 4] {
            watch.pauses(pause);
            watch.open_fails(transport());
        }
        watch.pauses(4);
        assert_eq!(watch.next(), "open 5");
        assert!(!has_failed(&forgets(&mut watch)));
        assert_eq!(watch.next(), "list 5", "at once");
        // If a server forgets each version at once, the watch pauses between its calls.
        watch.follow("9");
        watch.breaks(gone());
        watch.pauses(4);
        assert_eq!(watch.next(), "list 9");
    }
}
