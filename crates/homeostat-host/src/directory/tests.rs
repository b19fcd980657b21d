//! Directories that are replaced by links or exchanged during a listing, and volumes that are unmounted.

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

/// Lists a directory, and calls `before` as the listing does. Returns the sorted paths.
fn list_with(directory: &Directory, before: impl FnMut(&Path)) -> Result<Vec<String>, String> {
    let entries = directory.list_again(&Context::detached(), &mut Volumes::default(), before);
    let mut paths: Vec<_> = entries
        .map_err(|error| error.to_string())?
        .into_iter()
        .map(|(path, _)| path.to_str().unwrap().to_owned())
        .collect();
    paths.sort();
    Ok(paths)
}

#[test]
fn a_link_that_replaces_a_directory_before_it_is_opened_is_not_followed() {
    // The directory about to be opened, the directory that a link replaces, and the expected entries.
    for (opened, swapped, expected) in [("a", "a", &["a"][..]), ("a/b", "a/b", &["a", "a/b"]), ("a/b", "a", &["a"])] {
        let (_folder, inside, outside) = two_trees();
        let directory = Directory::new(&inside).recursive();
        let entries = list_with(&directory, |folder| {
            if folder == Path::new(opened) {
                fs::rename(inside.join(swapped), outside.join("moved")).unwrap();
                symlink(outside.join(swapped), inside.join(swapped)).unwrap();
            }
        });
        assert_eq!(entries.unwrap(), expected, "{swapped} before {opened}");
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

/// Makes the directories `old` and `new`. `old` has one more file.
fn old_and_new() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (place, names) in [("old", &["x", "y", "sub", "only-old"][..]), ("new", &["x", "y", "sub"])] {
        fs::create_dir_all(folder.path().join(place).join("sub")).unwrap();
        for name in names.iter().filter(|name| **name != "sub") {
            fs::write(folder.path().join(place).join(name), "").unwrap();
        }
        fs::write(folder.path().join(place).join("sub/z"), "").unwrap();
    }
    folder
}

/// Points a link to another directory in one step, and removes the directory that it pointed to.
fn swap_link(folder: &Path, link: &str, to: &str, removed: &str) {
    symlink(to, folder.join("next")).unwrap();
    fs::rename(folder.join("next"), folder.join(link)).unwrap();
    fs::remove_dir_all(folder.join(removed)).unwrap();
}

#[test]
fn a_root_that_is_exchanged_during_a_listing_is_listed_again() {
    for recursive in [false, true] {
        for moment in ["", "sub"].into_iter().take(1 + usize::from(recursive)) {
            let folder = old_and_new();
            symlink("old", folder.path().join("..data")).unwrap();
            let mut directory = Directory::new(folder.path().join("..data"));
            directory.recursive = recursive;
            let mut moments = 0;
            let entries = list_with(&directory, |path| {
                if path == Path::new(moment) {
                    moments += 1;
                    if moments == 1 {
                        swap_link(folder.path(), "..data", "new", "old");
                    }
                }
            });
            let whole = if recursive { &["sub", "sub/z", "x", "y"][..] } else { &["sub", "x", "y"] };
            assert_eq!((entries.unwrap(), moments), (whole.iter().map(ToString::to_string).collect(), 2));
        }
    }
}

/// Exchanges two directories in one step.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, other: &Path) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn directories_that_are_exchanged_during_a_listing_are_listed_again() {
    // The directory about to be opened, and the directory that another one replaces then.
    for (opened, exchanged) in [("old", "old"), ("old/sub", "old"), ("old/sub", "old/sub"), ("", "")] {
        let (folder, aside) = (old_and_new(), old_and_new());
        fs::write(aside.path().join("new/sub/later"), "").unwrap();
        let (root, other) = (folder.path().join("old"), aside.path().join("new"));
        let parent = if exchanged.is_empty() { root.as_path() } else { folder.path() };
        let directory = Directory::new(parent).recursive();
        let (mut done, in_other) = (false, exchanged.ends_with("sub"));
        let entries = list_with(&directory, |path| {
            if path == Path::new(opened) && !done {
                done = true;
                let below = if in_other { "sub" } else { "" };
                exchange(&root.join(below), &other.join(below));
            }
        })
        .unwrap();
        // The listing agrees with one after the exchange.
        assert_eq!(entries, list_with(&directory, |_| {}).unwrap(), "{exchanged} before {opened}");
        assert!(done && entries.iter().any(|path| path.ends_with("sub/later")), "{entries:?}");
    }
}

#[test]
fn a_directory_that_is_exchanged_in_each_try_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("0")).unwrap();
    symlink("0", folder.path().join("..data")).unwrap();
    let directory = Directory::new(folder.path().join("..data"));
    let mut tries = 0;
    let error = list_with(&directory, |_| {
        fs::create_dir(folder.path().join((tries + 1).to_string())).unwrap();
        swap_link(folder.path(), "..data", &(tries + 1).to_string(), &tries.to_string());
        tries += 1;
    })
    .unwrap_err();
    assert_eq!(tries, TRIES);
    let root = directory.root.display();
    assert!(error.starts_with(&format!("{root}: a directory was exchanged during each of 5 listings")), "{error}");
}

#[test]
fn a_directory_deleted_during_a_listing_leaves_no_entries() {
    let folder = old_and_new();
    let directory = Directory::new(folder.path()).recursive();
    let entries = list_with(&directory, |path| {
        if path == Path::new("old/sub") {
            fs::rename(folder.path().join("old"), folder.path().join("new/moved")).unwrap();
        }
    })
    .unwrap();
    assert!(!entries.iter().any(|path| path.starts_with("old/")), "{entries:?}");
}

#[test]
fn a_relative_path_becomes_absolute() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(Directory::new("src").root, here.join("src"));
    assert_eq!(Directory::new(".").root, here);
}
