//! Volumes that are unmounted under a watch of a directory.

use std::fs;
use std::path::{Path, PathBuf};

use homeostat::{ManualClock, Running, Watch};
use homeostat_host::{Directory, FileState};
use homeostat_test_support::mounts::{self, command};

use crate::SECOND;

fn mount_memory(at: &Path) {
    mounts::mount_memory(at, 1 << 20);
}

fn bind(folder: &Path, at: &Path) {
    command("mount", &["--bind"], &[folder, at]);
}

fn unmount(at: &Path) {
    command("umount", &[], &[at]);
}

fn with_mounts(test: &str, body: impl FnOnce(PathBuf)) {
    mounts::with_mounts(&format!("volumes::{test}"), body);
}

/// A watch on a held clock.
struct Watched {
    clock: ManualClock,
    watch: Running<Watch<PathBuf, FileState>>,
}

impl Watched {
    fn start(directory: Directory) -> Self {
        let clock = ManualClock::new();
        let watch = directory.poll(SECOND).clock(clock.clock()).watch().unwrap();
        clock.wait_for_sleepers(2);
        Self { clock, watch }
    }

    /// Returns the known paths after one more listing, or the error of this listing.
    fn next(&self) -> Result<Vec<String>, String> {
        let before = self.watch.source().status().failures;
        self.clock.advance(SECOND);
        self.clock.wait_for_sleepers(2);
        if self.watch.source().status().failures > before {
            return Err(self.watch.watch().source().status().last_error.unwrap());
        }
        let mut keys: Vec<_> = self.watch.watch().store().keys();
        keys.sort();
        Ok(keys.into_iter().map(|path| path.to_str().unwrap().to_owned()).collect())
    }

    /// Checks that the next listing fails because this directory has lost its volume, and that nothing was deleted.
    fn is_unmounted(&self, folder: &Path, known: usize) {
        for _ in 0..2 {
            let error = self.next().unwrap_err();
            assert!(error.starts_with(&format!("{}: the volume is not mounted", folder.display())), "{error}");
            assert_eq!(self.watch.watch().store().len(), known);
        }
    }
}

fn folder_with(folder: &Path, files: &[&str]) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    for file in files {
        fs::write(folder.join(file), "").unwrap();
    }
    folder.to_owned()
}

#[test]
fn an_unmounted_volume_is_a_failure_until_it_is_mounted_again() {
    with_mounts("an_unmounted_volume_is_a_failure_until_it_is_mounted_again", |folder| {
        let volume = folder_with(&folder.join("volume"), &[]);
        mount_memory(&volume);
        folder_with(&volume, &["a", "b"]);
        let watched = Watched::start(Directory::new(&volume));
        assert_eq!(watched.next().unwrap(), ["a", "b"]);
        unmount(&volume);
        watched.is_unmounted(&volume, 2);
        mount_memory(&volume);
        folder_with(&volume, &["b", "c"]);
        assert_eq!(watched.next().unwrap(), ["b", "c"]);
        unmount(&volume);
        watched.is_unmounted(&volume, 2);
    });
}

/// The two mounts have one device.
#[test]
fn an_unmounted_bind_mount_is_a_failure() {
    with_mounts("an_unmounted_bind_mount_is_a_failure", |folder| {
        let (disk, volume) = (folder_with(&folder.join("disk"), &["a"]), folder_with(&folder.join("volume"), &[]));
        bind(&disk, &volume);
        let watched = Watched::start(Directory::new(&volume).recursive());
        assert_eq!(watched.next().unwrap(), ["a"]);
        unmount(&volume);
        watched.is_unmounted(&volume, 1);
        bind(&disk, &volume);
        fs::write(disk.join("b"), "").unwrap();
        assert_eq!(watched.next().unwrap(), ["a", "b"]);
    });
}

#[test]
fn a_subdirectory_that_exists_without_its_volume_too_is_a_failure() {
    with_mounts("a_subdirectory_that_exists_without_its_volume_too_is_a_failure", |folder| {
        let volume = folder_with(&folder.join("volume"), &[]);
        let conf = folder_with(&volume.join("conf"), &[]);
        mount_memory(&volume);
        folder_with(&conf, &["a"]);
        let watched = Watched::start(Directory::new(&conf));
        assert_eq!(watched.next().unwrap(), ["a"]);
        unmount(&volume);
        watched.is_unmounted(&conf, 1);
    });
}

#[test]
fn an_unmounted_volume_below_the_directory_is_a_failure() {
    with_mounts("an_unmounted_volume_below_the_directory_is_a_failure", |folder| {
        let root = folder_with(&folder.join("root"), &["top"]);
        let (one, other) = (folder_with(&root.join("one"), &[]), folder_with(&root.join("other"), &[]));
        mount_memory(&one);
        bind(&folder_with(&folder.join("disk"), &["b"]), &other);
        folder_with(&one.join("deep"), &["a"]);
        let watched = Watched::start(Directory::new(&root).recursive());
        let all = ["one", "one/deep", "one/deep/a", "other", "other/b", "top"];
        assert_eq!(watched.next().unwrap(), all);
        unmount(&other);
        watched.is_unmounted(&other, 6);
        bind(&folder.join("disk"), &other);
        assert_eq!(watched.next().unwrap(), all);
        unmount(&one);
        watched.is_unmounted(&one, 6);
        // A mount point that was removed is a deletion.
        fs::remove_dir(&one).unwrap();
        assert_eq!(watched.next().unwrap(), ["other", "other/b", "top"]);
    });
}

#[test]
fn a_volume_may_be_mounted_or_covered_later() {
    with_mounts("a_volume_may_be_mounted_or_covered_later", |folder| {
        let root = folder_with(&folder.join("root"), &["skeleton"]);
        let watched = Watched::start(Directory::new(&root).recursive());
        assert_eq!(watched.next().unwrap(), ["skeleton"]);
        mount_memory(&root);
        folder_with(&root, &["a"]);
        assert_eq!(watched.next().unwrap(), ["a"]);
        mount_memory(&root);
        folder_with(&root, &["b"]);
        assert_eq!(watched.next().unwrap(), ["b"]);
        unmount(&root);
        // A directory under a mounted volume does not unmount the volume below it.
        assert_eq!(watched.next().unwrap(), ["a"]);
        unmount(&root);
        watched.is_unmounted(&root, 1);
    });
}

/// The link leads to another directory on purpose, although that one is outside of the volume.
#[test]
fn a_link_may_lead_from_a_volume_to_another_directory() {
    with_mounts("a_link_may_lead_from_a_volume_to_another_directory", |folder| {
        let (volume, outside) =
            (folder_with(&folder.join("volume"), &[]), folder_with(&folder.join("outside"), &["b"]));
        mount_memory(&volume);
        folder_with(&volume, &["a"]);
        let link = folder.join("current");
        std::os::unix::fs::symlink(&volume, &link).unwrap();
        let watched = Watched::start(Directory::new(&link));
        assert_eq!(watched.next().unwrap(), ["a"]);
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        assert_eq!(watched.next().unwrap(), ["b"]);
    });
}
