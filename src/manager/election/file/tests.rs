//! What cannot be seen, or brought about, from outside.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::fs;

use tempfile::TempDir;

use super::*;

fn in_a_folder() -> (TempDir, FileElector) {
    let folder = tempfile::tempdir().unwrap();
    let elector = FileElector::new(folder.path().join("leader.lock"));
    (folder, elector)
}

/// Between being opened and being looked at.
#[cfg(unix)]
#[test]
fn a_file_that_is_deleted_or_replaced_before_it_is_looked_at_does_not_count() {
    let (folder, elector) = in_a_folder();
    let replace = || {
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        fs::rename(other, &elector.path).unwrap();
    };
    assert!(elector.lock(|| fs::remove_file(&elector.path).unwrap()).unwrap().is_none());
    assert!(elector.lock(replace).unwrap().is_none());
    let mut lock = elector.lock(|| {}).unwrap().unwrap();
    assert!(lock.check().is_ok());
    // It is the file at the path that is locked.
    assert!(elector.lock(|| {}).unwrap().is_none());
}

/// As a process has it that was forked off and has not called `exec`.
#[test]
fn a_lock_is_given_back_also_while_a_duplicate_of_the_file_is_open() {
    let (_folder, elector) = in_a_folder();
    let lock = elector.lock(|| {}).unwrap().unwrap();
    let duplicate = lock.file.try_clone().unwrap();
    assert!(elector.lock(|| {}).unwrap().is_none());
    drop(lock);
    assert!(elector.lock(|| {}).unwrap().is_some());
    drop(duplicate);
}

#[test]
fn settings_are_brought_into_range() {
    let elector = FileElector::new("leader.lock").interval(Duration::ZERO).name("a\nb");
    assert_eq!((elector.interval, elector.name.as_str()), (Duration::from_millis(1), "a b"));
    // What the process does to its current directory later does not matter.
    assert!(elector.path.is_absolute() && elector.path.ends_with("leader.lock"));
}
