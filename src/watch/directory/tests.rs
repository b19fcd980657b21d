//! Symbolic links that are swapped in while a listing is under way.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;

/// A tree `a/b` to list, and another one of the same shape outside of it, which holds a secret.
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
fn a_link_that_is_swapped_in_before_its_directory_is_opened_is_not_followed() {
    // The directory that is about to be opened, which one is swapped, and what is listed.
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
fn no_listing_leaves_the_directory_while_links_come_and_go() {
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
