//! The mirror example as a process: the tests change its directories, and send it signals.
//!
//! The tests wait for events. Time decides nothing.

mod run;
mod stopping;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use rustix::process::Signal;

use self::run::{Pair, run_to_end};
use crate::until::until;

#[test]
fn the_first_copy_is_complete_and_ends_by_itself() {
    let pair = Pair::new();
    // A key that needs another key first is enqueued by an event, not by a backoff.
    assert_eq!(pair.mirror(&["--once", "--backoff-cap", "1h"]).ended().code(), Some(0));
    assert_eq!(pair.tree("target"), pair.tree("source"));
    assert_eq!(pair.tree("target").len(), 10);
}

#[test]
fn it_prints_copies_deletions_and_when_it_is_in_sync() {
    let pair = Pair::new();
    let mut run = pair.mirror(&[]);
    run.expect("top.txt: copied");
    run.expect("hollow/inner: made");
    run.expect("in sync");
    pair.remove("source/top.txt");
    run.expect("top.txt: deleted");
    run.expect("in sync");
    pair.remove("source/hollow/inner");
    run.expect("hollow/inner: removed");
    run.expect("in sync");
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code(), Some(0));
}

#[test]
fn equal_files_are_not_written_again() {
    let pair = Pair::new();
    pair.mirror(&["--once"]).ended();
    let made = |path: &str| fs::metadata(pair.path(path)).unwrap().created().unwrap_or(SystemTime::UNIX_EPOCH);
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(pair.path(path)).unwrap());
    let files = ["target/top.txt", "target/a/large.bin", "target/a/b/c/deep.txt"];
    let before = files.map(|file| (made(file), inode(file)));
    // The length is the same, only the time differs.
    pair.write("source/a/run.sh", "#!/bin/SH\n");
    pair.mirror(&["--once"]).ended();
    assert_eq!(files.map(|file| (made(file), inode(file))), before);
    assert_eq!(pair.tree("target"), pair.tree("source"));
}

#[test]
fn changes_and_deletions_are_followed() {
    let pair = Pair::new();
    let mut run = pair.mirror(&[]);
    pair.until_equal();
    pair.write("source/top.txt", "spot");
    pair.write("source/new/folders/in/a/row.txt", "new");
    pair.until_equal();
    pair.remove("source/empty.txt");
    pair.remove("source/a/b");
    pair.remove("source/hollow/inner");
    pair.until_equal();
    // A file becomes a directory, and a directory becomes a file.
    pair.remove("source/top.txt");
    pair.write("source/top.txt/is/a/directory.txt", "now");
    pair.remove("source/new");
    pair.write("source/new", "a file");
    pair.until_equal();
    pair.rename("source/a", "source/z");
    pair.until_equal();
    assert!(pair.exists("target/z/large.bin") && pair.exists("target/top.txt/is/a/directory.txt"));
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code(), Some(0));
    assert!(!run.unasked().iter().any(|line| line.contains("failed")), "{:?}", run.unasked());
}

#[test]
fn changes_made_by_hand_in_the_target_are_undone() {
    let pair = Pair::new();
    let mut run = pair.mirror(&["--resync", "1h"]);
    pair.until_equal();
    pair.write("target/top.txt", "by hand");
    pair.until_equal();
    pair.write("stage/more/and/more.txt", "by hand");
    pair.rename("stage/more", "target/more");
    pair.write("target/a/b/more.txt", "by hand");
    pair.until_equal();
    pair.rename("target/a", "taken");
    pair.until_equal();
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code(), Some(0));
}

/// A watch reports no change if another program removes a copy before the watch has seen it.
#[test]
fn a_resync_finds_changes_that_no_watch_reports() {
    let pair = Pair::new();
    pair.mirror(&["--once"]).ended();
    let mut run = pair.mirror(&["--poll", "1h", "--resync", "20ms"]);
    run.expect("is kept equal to");
    for controller in ["dirs", "files"] {
        // Then it has listed both.
        while {
            run.signal(Signal::USR1);
            run.expect_row(controller).cells()[1] != "running"
        } {}
    }
    pair.rename("target/a/b", "taken");
    pair.until_equal();
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code(), Some(0));

    let mut run = pair.mirror(&["--resync", "100ms"]);
    pair.write("stage/folder/not.txt", "by hand");
    pair.replace("stage/folder", "target/empty.txt");
    pair.write("stage/file", "by hand");
    pair.replace("stage/file", "target/hollow");
    pair.until_equal();
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code(), Some(0));
}

#[test]
fn links_are_named_and_left() {
    let pair = Pair::new();
    pair.write("elsewhere/precious.txt", "precious");
    let elsewhere = pair.path("elsewhere").display().to_string();
    pair.link("source/link", "top.txt");
    pair.mirror(&["--once"]).expect("link: neither file nor directory, left");
    let mut run = pair.mirror(&[]);
    until("all but the link is there", || pair.tree("target").len() + 1 == pair.tree("source").len());

    // At a path that is not in the source.
    pair.link("target/own", "nowhere");
    run.expect("own: neither file nor directory, left in the target");
    // In place of a desired directory: nothing is read, written or deleted through the link.
    pair.link("target/folder", &elsewhere);
    run.expect("folder: neither file nor directory, left in the target");
    pair.write("source/folder/late.txt", "late");
    let failed = run.expect("the target has something else here, which is not touched").text;
    assert!(failed.contains("key=\"folder\""), "{failed}");
    pair.write("source/late.txt", "late");
    until("the late file is there", || pair.exists("target/late.txt"));
    assert_eq!(pair.tree("elsewhere").len(), 1);
    assert!(pair.exists("target/folder"));

    pair.remove("target/folder");
    pair.remove("target/own");
    pair.remove("source/link");
    pair.until_equal();
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code(), Some(0));
}

#[test]
fn an_unreadable_file_is_retried_and_delays_no_other() {
    let pair = Pair::new();
    pair.write("source/closed.txt", "closed");
    pair.allow("source/closed.txt", 0o000);
    let mut run = pair.mirror_unprivileged(&[]);
    for failures in 1..=3 {
        let failed = run.expect("cannot be read: Permission denied").text;
        assert!(failed.contains(&format!("failures={failures} ")), "{failed}");
    }
    until("the others are there", || pair.tree("target").len() + 1 == pair.tree("source").len());
    assert!(!pair.exists("target/closed.txt"));
    run.signal(Signal::USR1);
    let row = run.expect_row("files");
    assert_eq!(row.cells()[1], "running");
    let trouble = run.expect("files: \"closed.txt\" is failing, failed ");
    assert!(trouble.number > row.number && trouble.text.contains("cannot be read: Permission denied"));
    pair.allow("source/closed.txt", 0o644);
    pair.until_equal();
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code(), Some(0));
}

#[test]
fn a_source_that_disappears_for_a_while_is_not_taken_as_empty() {
    let pair = Pair::new();
    let mut run = pair.mirror(&[]);
    pair.until_equal();
    let before = pair.tree("target");
    pair.rename("source", "away");
    for _ in 0..3 {
        assert!(run.expect("source: failed").text.contains("No such file or directory"));
    }
    assert_eq!(pair.tree("target"), before);
    // Failed reads are tried again until the source is back.
    pair.remove("target/top.txt");
    assert!(run.expect("is no longer a file in the source").text.contains("key=\"top.txt\""));
    pair.write("away/a/later.txt", "later");
    pair.rename("away", "source");
    pair.until_equal();
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code(), Some(0));
}

#[test]
fn the_remains_of_a_killed_mirror_are_removed() {
    let pair = Pair::new();
    let mut run = pair.mirror(&["--rate", "1"]);
    until("it is written", || pair.exists("target/a/.mirror-unfinished.large.bin"));
    run.kill();
    pair.write("target/.mirror-unfinished.unknown", "left");
    assert_eq!(pair.mirror(&["--once"]).ended().code(), Some(0));
    assert_eq!(pair.tree("target"), pair.tree("source"));
}

#[test]
fn directories_that_make_no_sense_are_one_line_and_exit_code_2() {
    let pair = Pair::new();
    let (source, target) = (pair.path("source"), pair.path("target"));
    let inside = source.join("new/target");
    let (missing, file) = (pair.path("missing"), source.join("top.txt"));
    let cases: [(&Path, &Path, &str); 5] = [
        (&missing, &target, "the source"),
        (&file, &target, "Not a directory"),
        (&source, &inside, "is in the source, or the source itself"),
        (&source, &source, "is in the source, or the source itself"),
        (&inside, &source, "No such file or directory"),
    ];
    let before = pair.tree("source");
    for (source, target, says) in cases {
        let (code, error) = run_to_end(&[source, target]);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.starts_with("error: ") && error.contains(says) && error.lines().count() == 1, "{error}");
    }
    let (code, error) = run_to_end(&[&source.join("a"), &source]);
    assert_eq!(code, Some(2));
    assert!(error.contains("is in the target, where it would be deleted"), "{error}");
    assert_eq!(pair.tree("source"), before);
    assert!(!target.exists());
}
