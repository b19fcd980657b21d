//! Cases that the public interface does not show or cannot cause.

use std::fs;

use tempfile::TempDir;

use super::*;

fn elector_in_temp_dir() -> (TempDir, FileElector) {
    let folder = tempfile::tempdir().unwrap();
    let elector = FileElector::new(folder.path().join("leader.lock"));
    (folder, elector)
}

/// The file disappears after the open and before the check.
#[cfg(unix)]
#[test]
fn a_file_deleted_or_replaced_before_the_check_is_not_locked() {
    let (folder, elector) = elector_in_temp_dir();
    let replace = || {
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        fs::rename(other, &elector.path).unwrap();
    };
    assert!(elector.lock(|| fs::remove_file(&elector.path).unwrap()).unwrap().is_none());
    assert!(elector.lock(replace).unwrap().is_none());
    let mut lock = elector.lock(|| {}).unwrap().unwrap();
    assert!(lock.check().is_ok());
    // The locked file is the file at the path.
    assert!(elector.lock(|| {}).unwrap().is_none());
}

/// A process that was forked without `exec` has such a duplicate.
#[test]
fn a_drop_releases_the_lock_despite_an_open_duplicate() {
    let (_folder, elector) = elector_in_temp_dir();
    let lock = elector.lock(|| {}).unwrap().unwrap();
    let duplicate = lock.file.try_clone().unwrap();
    assert!(elector.lock(|| {}).unwrap().is_none());
    drop(lock);
    assert!(elector.lock(|| {}).unwrap().is_some());
    drop(duplicate);
}

#[test]
fn settings_are_clamped() {
    let elector = FileElector::new("leader.lock").interval(Duration::ZERO).name("a\nb");
    assert_eq!((elector.interval, elector.name.as_str()), (Duration::from_millis(1), "a b"));
    // A later change of the current directory does not matter.
    assert!(elector.path.is_absolute() && elector.path.ends_with("leader.lock"));
}
