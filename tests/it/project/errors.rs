//! `Debug` of errors. A `main` that returns an error prints it, so it is a text for people, with the causes.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::time::Duration;

use homeostat::controller::{ControllerError, WaitError};
use homeostat::manager::{ElectorError, Term};
use homeostat::queue::DequeueError;
use homeostat::rt::{Chain, Echo};
use homeostat::run::{Cancelled, RetryAfter, muted};
use homeostat::{BoxError, Component, Context, Manager, RequeueAfter, StartError, terminal};

use super::tidy::{Source, assert_tidy, read_crates, room};
use crate::support::SECOND;

#[test]
fn errors_print_their_text_and_their_causes() {
    let denied = || io::Error::other("permission denied");
    let texts = |errors: &[&(dyn Error + 'static)]| errors.iter().map(|error| format!("{error:?}")).collect::<Vec<_>>();
    let mut term = Term::new("row", ());
    term.lost().cancel();
    let lost = term.check().unwrap_err();
    let found = texts(&[
        &DequeueError::Closed,
        &DequeueError::Empty,
        &StartError::setting("period", &Duration::ZERO, "longer than zero"),
        &StartError::unavailable("cannot listen on 127.0.0.1:80", denied()),
        &ElectorError::from(Cancelled::Aborted),
        &lost,
        &RequeueAfter::new(SECOND, "it boots"),
        &RetryAfter::new(SECOND),
        &terminal(StartError::unavailable("no device", denied())),
        &muted("the line is cut"),
        &Cancelled::DeadlineExceeded,
        &Echo::of("it", "requeue requested"),
        &ControllerError::SourceEnded { controller: "vm".to_owned(), source_name: "disks".to_owned() },
        &WaitError::Stopped,
    ]);
    assert_eq!(
        found,
        [
            "the queue is shut down, and no key is left",
            "no key is ready",
            "period is 0ns, but must be longer than zero",
            "cannot listen on 127.0.0.1:80\nCaused by: permission denied",
            "the campaign was cancelled\nCaused by: the run was aborted",
            "the leadership of row is lost\nCaused by: its token is cancelled",
            "requeue after 1s: it boots",
            "retry after 1s",
            "no device\nCaused by: permission denied",
            "the line is cut",
            "the deadline of the run has passed",
            "requeue requested",
            "controller vm: disks ended before its first listing completed",
            "the controller has been stopped (or its `Running` was dropped)",
        ]
    );
}

#[test]
fn the_end_of_a_manager_prints_the_failed_component_and_its_cause() {
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let broken = |_cx: &Context| Err(StartError::unavailable("no pulse", io::Error::other("the line is cut")));
    manager.add(Component::function("beat", broken)).unwrap();
    let error: BoxError = running.join().unwrap_err().into();
    assert_eq!(format!("{error:?}"), "beat: no pulse\nCaused by: the line is cut");
    assert_eq!(Chain(&*error).to_string(), "beat: no pulse: the line is cut");
}

/// Returns the types of a file that implement `Error`.
fn errors<'a>(code: &[&'a str]) -> Vec<&'a str> {
    let name = |line: &&'a str| {
        let (_, rest) = line.strip_prefix("impl")?.split_once("Error for ")?;
        Some(&rest[..rest.find(|letter: char| !letter.is_alphanumeric())?])
    };
    code.iter().filter_map(name).collect()
}

/// Returns whether a type of a file derives `Debug`.
fn derives_debug(code: &[&str], name: &str) -> bool {
    let defines = |line: &&str| {
        let (_, rest) = line.split_once("struct ").or_else(|| line.split_once("enum ")).unwrap_or_default();
        rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let at = code.iter().position(defines).unwrap_or_else(|| panic!("no definition of {name}"));
    code[..at].iter().rev().take_while(|line| line.starts_with("#[")).any(|line| {
        let is_debug = |part: &str| part == "Debug";
        line.contains("derive(") && line.split(|letter: char| !letter.is_alphanumeric()).any(is_debug)
    })
}

#[test]
fn no_error_derives_its_debug_output() {
    let mut found = Vec::new();
    let (mut checked, mut rooms) = (0, BTreeSet::new());
    for (path, text) in read_crates() {
        let source = Source::new(&path, &text);
        if source.is_test() {
            continue;
        }
        let code = source.code();
        for name in errors(&code) {
            checked += 1;
            rooms.insert(room(&path).to_owned());
            if derives_debug(&code, name) {
                found.push(format!("{path}: {name} derives Debug, but must show itself as `rt::Chain` does"));
            }
        }
    }
    assert!(checked > 40, "found {checked} errors only");
    for room in ["host", "objects", "net", "kubernetes", "nats"] {
        assert!(rooms.contains(room), "no error of `{room}` is checked, only those of {rooms:?}");
    }
    assert_tidy(&found);
}

#[test]
fn a_derived_debug_output_is_found() {
    let text = "#[derive(Clone, Debug)]\n#[non_exhaustive]\npub enum Fault {}\nimpl Error for Fault {}\n";
    let good = text.replace(", Debug", "");
    for (text, expected) in [(text, true), (&*good, false)] {
        let source = Source::new("a", text);
        assert_eq!(errors(&source.code()), ["Fault"]);
        assert_eq!(derives_debug(&source.code(), "Fault"), expected);
    }
}
