//! What cannot be seen, or brought about, from outside.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::time::Nanos;
use crate::wait::{Next, Task};

fn lock_file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leader.lock");
    (folder, path)
}

fn take(path: &Path) -> Option<Lock> {
    Lock::take(path, || {}).unwrap()
}

#[cfg(unix)]
#[test]
fn a_file_that_is_deleted_or_replaced_after_it_was_opened_does_not_count() {
    let (folder, path) = lock_file();
    let mut locked = 0;
    let lock = Lock::take(&path, || {
        locked += 1;
        let other = folder.path().join("other");
        match locked {
            1 => fs::remove_file(&path).unwrap(),
            2 => {
                fs::write(&other, "").unwrap();
                fs::rename(&other, &path).unwrap();
            }
            _ => {}
        }
    });
    let mut lock = lock.unwrap().unwrap();
    assert_eq!(locked, 3);
    assert!(lock.check().is_ok());
    // It is the file at the path that is locked.
    assert!(take(&path).is_none());
}

#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_again_and_again_is_tried_again_later() {
    let (_folder, path) = lock_file();
    let mut locked = 0;
    let lock = Lock::take(&path, || {
        locked += 1;
        fs::remove_file(&path).unwrap();
    });
    assert!(lock.unwrap().is_none());
    assert_eq!(locked, Lock::TRIES);
    assert!(take(&path).is_some());
}

/// As a process has it that was forked off and has not called `exec`.
#[test]
fn a_lock_is_given_back_also_while_a_duplicate_of_the_file_is_open() {
    let (_folder, path) = lock_file();
    let lock = take(&path).unwrap();
    let duplicate = lock.file.try_clone().unwrap();
    assert!(take(&path).is_none());
    drop(lock);
    assert!(take(&path).is_some());
    drop(duplicate);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_keeps_nobody_from_leading() {
    let (_folder, path) = lock_file();
    let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
    let lock = Lock { file: full, path: path.clone(), check_interval: Duration::MAX, signed: false };
    let lock = lock.sign(&FileElector::new(&path), &Clock::system());
    assert!(!lock.signed);
}

#[cfg(unix)]
#[test]
fn a_step_is_a_check_and_the_next_one_follows_an_interval_later() {
    let (_folder, path) = lock_file();
    let elector = FileElector::builder(&path).check_interval(Duration::from_millis(7)).build().unwrap();
    let mut term = elector.campaign(&Context::detached()).unwrap();
    assert_eq!(term.step(Nanos(5)), Next::At(Nanos(7_000_005)));
    fs::remove_file(&path).unwrap();
    assert!(!term.lost().is_cancelled());
    assert_eq!(term.step(Nanos(5)), Next::Finished);
    assert!(term.lost().is_cancelled());
    assert_eq!(term.step(Nanos(5)), Next::Finished);
}

#[test]
fn a_pause_is_the_interval_and_up_to_its_share_more() {
    let interval = Duration::from_secs(10);
    let elector = FileElector::builder("lock").retry_interval(interval).jitter(0.5).build().unwrap();
    let mut draws = Draws::new(3);
    let pauses: Vec<_> = (0..1000).map(|_| elector.pause(&mut draws)).collect();
    let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
    assert!(*least >= interval && *least < interval + Duration::from_millis(50), "{least:?}");
    assert!(*most < Duration::from_secs(15) && *most > Duration::from_millis(14_950), "{most:?}");
    let endless = FileElector::builder("lock").retry_interval(Duration::MAX).jitter(1.0).build().unwrap();
    assert_eq!(endless.pause(&mut draws), Duration::MAX);
}
