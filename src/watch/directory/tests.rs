//! Symbolic links that replace directories during a listing.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;

/// Makes a tree `a/b` to list, and a tree of the same shape outside, which holds a secret.
fn two_trees() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [inside, outside] = ["inside", "outside"].map(|name| folder.path().join(name));
    fs::create_dir_all(inside.join("a/b")).unwrap();
    fs::create_dir_all(outside.join("a/b")).unwrap();
    for secret in ["secret", "a/secret", "a/b/secret"] {
        fs::write(outside.join(secret), "").unwrap();
    }
    (folder, inside, outside)
}

#[test]
fn a_link_that_replaces_a_directory_before_it_is_opened_is_not_followed() {
    // The directory about to be opened, the directory that a link replaces, and the expected entries.
    for (opened, swapped, expected) in
        [("a", "a", &["a"][..]), ("a/b", "a/b", &["a", "a/b"]), ("a/b", "a", &["a", "a/b"])]
    {
        let (_folder, inside, outside) = two_trees();
        let directory = Directory::new(&inside).recursive();
        let entries = directory.walk(&Context::detached(), |folder| {
            if folder == Path::new(opened) {
                fs::rename(inside.join(swapped), outside.join("moved")).unwrap();
                symlink(outside.join(swapped), inside.join(swapped)).unwrap();
            }
        });
        let mut entries: Vec<_> = entries.unwrap().into_iter().map(|(path, _)| path).collect();
        entries.sort();
        assert_eq!(entries, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{swapped} before {opened}");
    }
}

#[test]
fn listings_never_leave_the_root_while_links_replace_directories() {
    let (_folder, inside, outside) = two_trees();
    let directory = Directory::new(&inside).recursive();
    let ended = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let lister = threads.spawn(|| {
            while !ended.load(SeqCst) {
                let entries = directory.list(&Context::detached()).unwrap();
                let secret = entries.iter().find(|(path, _)| path.ends_with("secret"));
                assert!(secret.is_none(), "{secret:?}");
            }
        });
        let (real, aside) = (inside.join("a"), outside.join("aside"));
        for _ in 0..2_000 {
            fs::rename(&real, &aside).unwrap();
            symlink(outside.join("a"), &real).unwrap();
            fs::remove_file(&real).unwrap();
            fs::rename(&aside, &real).unwrap();
        }
        ended.store(true, SeqCst);
        lister.join().unwrap();
    });
}
