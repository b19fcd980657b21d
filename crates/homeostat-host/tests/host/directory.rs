//! A watch of a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat::{CancellationToken, Clock, Context, ManualClock, Poller, Reasons, Subscriber, WorkQueue};
use homeostat_host::{Directory, FileState};
use tempfile::TempDir;

use crate::SECOND;

fn held() -> (ManualClock, WorkQueue<PathBuf>) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    (clock, queue)
}

fn list(directory: &Directory) -> Vec<(PathBuf, FileState)> {
    let mut entries = directory.list(&Context::detached()).unwrap();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    entries
}

fn names(directory: &Directory) -> Vec<String> {
    list(directory).into_iter().map(|(path, _)| path.to_str().unwrap().replace('\\', "/")).collect()
}

/// Makes a directory with `a`, `sub/b` and `sub/deep/c`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("sub/deep")).unwrap();
    for (path, text) in [("a", "1"), ("sub/b", "12"), ("sub/deep/c", "123")] {
        fs::write(folder.path().join(path), text).unwrap();
    }
    folder
}

#[test]
fn entries_are_listed_relative_to_the_directory_at_any_depth() {
    let folder = folder();
    let flat = Directory::new(folder.path());
    assert_eq!(names(&flat), ["a", "sub"]);
    assert_eq!(names(&flat.recursive()), ["a", "sub", "sub/b", "sub/deep", "sub/deep/c"]);
}

#[test]
fn an_entry_has_its_kind_and_length() {
    let folder = folder();
    let entries = list(&Directory::new(folder.path()).recursive());
    let kinds: Vec<_> =
        entries.iter().map(|(_, state)| (state.len, state.is_file(), state.is_dir(), state.is_symlink())).collect();
    let (file, dir) = (|len| (len, true, false, false), (0, false, true, false));
    assert_eq!(kinds, [file(1), dir, file(2), dir, file(3)]);
    assert!(entries.iter().all(|(_, state)| state.modified.is_some() && state.inode > 0));
}

#[cfg(unix)]
#[test]
fn links_are_entries_of_their_own_and_are_not_followed() {
    let (folder, other) = (folder(), folder());
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
    link(other.path(), "to-a-folder");
    link(Path::new("a"), "to-a-file");
    link(Path::new("nowhere"), "to-nothing");
    link(folder.path(), "sub/to-itself");
    let entries = list(&Directory::new(folder.path()).recursive());
    let links: Vec<_> = entries.iter().filter(|(_, state)| state.is_symlink()).collect();
    assert_eq!((links.len(), entries.len()), (4, 9));
    // The directory itself may be a link.
    let through = folder.path().join("to-a-folder");
    assert_eq!(names(&Directory::new(through)), ["a", "sub"]);
}

#[cfg(unix)]
#[test]
fn a_socket_is_no_file_directory_or_link() {
    let folder = folder();
    let _listener = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    let entries = list(&Directory::new(folder.path()));
    let (_, socket) = entries.iter().find(|(path, _)| path == Path::new("socket")).unwrap();
    assert!(!socket.is_file() && !socket.is_dir() && !socket.is_symlink());
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let error = Directory::new(&missing).list(&Context::detached()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: No such file", missing.display())), "{error}");
    fs::write(&missing, "a file").unwrap();
    assert!(Directory::new(&missing).list(&Context::detached()).is_err());
}

/// An entry that vanishes during the listing counts as deleted, and is no error.
#[test]
fn entries_that_vanish_during_a_listing_are_no_error() {
    let folder = folder();
    let directory = Directory::new(folder.path()).recursive();
    std::thread::scope(|scope| {
        let root = folder.path();
        let restless = scope.spawn(move || {
            for round in 0..300 {
                let below = root.join(format!("restless-{}", round % 3)).join("deep");
                fs::create_dir_all(&below).unwrap();
                for file in 0..5 {
                    fs::write(below.join(file.to_string()), "x").unwrap();
                }
                fs::remove_dir_all(below.parent().unwrap()).unwrap();
            }
        });
        while !restless.is_finished() {
            let entries = names(&directory);
            assert!(["a", "sub/deep/c"].iter().all(|name| entries.iter().any(|entry| entry == name)));
        }
    });
}

#[test]
fn edits_renames_and_deletions_are_delivered() {
    let folder = folder();
    let (clock, queue) = held();
    let watch =
        Directory::new(folder.path()).recursive().poll(SECOND).name("conf").clock(clock.clock()).watch().unwrap();
    let files = homeostat::Predicate::matching(FileState::is_file);
    let _subscription = watch.watch().subscribe(Subscriber::to_itself(&queue).when(files)).unwrap();
    // Returns the keys and reasons after the next listing. Files change only while all threads sleep, so each listing
    // sees a whole change.
    let notice = |pause| {
        clock.advance(pause);
        clock.wait_for_sleepers(2);
        let mut notice: Vec<_> = std::iter::from_fn(|| {
            let claim = queue.try_dequeue().ok()?;
            let notice = (claim.to_str().unwrap().replace('\\', "/"), claim.reasons());
            claim.done();
            Some(notice)
        })
        .collect();
        notice.sort_by(|(one, _), (other, _)| one.cmp(other));
        notice
    };
    let is = |path: &str, reasons| (path.to_owned(), reasons);
    let (created, updated, deleted) = (Reasons::CREATED, Reasons::UPDATED, Reasons::DELETED);
    assert_eq!(notice(Duration::ZERO), [is("a", created), is("sub/b", created), is("sub/deep/c", created)]);
    assert_eq!(notice(SECOND), []);
    fs::write(folder.path().join("a"), "longer").unwrap();
    fs::rename(folder.path().join("sub/b"), folder.path().join("b")).unwrap();
    assert_eq!(notice(SECOND), [is("a", updated), is("b", created), is("sub/b", deleted)]);
    fs::remove_dir_all(folder.path().join("sub")).unwrap();
    // The predicate refuses directories, but their deletions pass.
    assert_eq!(notice(SECOND), [is("sub", deleted), is("sub/deep", deleted), is("sub/deep/c", deleted)]);
}

/// If the directory itself vanishes, as with an unmounted volume, its files do not count as deleted.
#[test]
fn a_missing_root_deletes_nothing() {
    let folder = folder();
    let root = folder.path().join("sub");
    let clock = ManualClock::new();
    let watch = Directory::new(&root).poll(SECOND).clock(clock.clock()).watch().unwrap();
    let store = watch.watch().store();
    assert!(store.wait_synced(Duration::MAX));
    fs::rename(&root, folder.path().join("elsewhere")).unwrap();
    clock.wait_for_sleepers(2);
    clock.advance(SECOND);
    clock.wait_for_sleepers(2);
    assert_eq!((store.len(), watch.source().status().failures), (2, 1));
    fs::rename(folder.path().join("elsewhere"), &root).unwrap();
    fs::remove_file(root.join("b")).unwrap();
    clock.advance(SECOND);
    clock.wait_for_sleepers(2);
    assert_eq!((store.keys(), watch.source().status().failures), (vec![PathBuf::from("deep")], 1));
}

/// Otherwise a directory would never be listed if its listing took longer than the period.
#[test]
fn a_deadline_does_not_end_a_listing_and_an_abort_does() {
    let folder = folder();
    let directory = Directory::new(folder.path()).recursive();
    let (clock, slow) = (ManualClock::new(), directory.clone());
    let (report, listed) = crossbeam_channel::unbounded();
    let time = clock.clone();
    let list = move |cx: &Context| {
        time.advance(SECOND);
        let entries = slow.list(cx);
        report.send((cx.is_cancelled(), entries.as_ref().map_or(0, Vec::len)))?;
        entries
    };
    let _watch = Poller::new(SECOND, list).clock(clock.clock()).watch().unwrap();
    assert_eq!(listed.recv().unwrap(), (true, 5));

    let abort = CancellationToken::new();
    abort.cancel();
    let error = directory.list(&Context::detached_with(Clock::system(), abort)).unwrap_err();
    assert_eq!(error.to_string(), "the run was aborted");
}

/// Writes a mounted config map, as Kubernetes does: links to `..data`, which leads to a directory with a time as its
/// name.
#[cfg(unix)]
struct ConfigMap {
    folder: TempDir,
    updates: usize,
}

#[cfg(unix)]
impl ConfigMap {
    fn new(files: &[(&str, &str)]) -> Self {
        let mut map = Self { folder: tempfile::tempdir().unwrap(), updates: 0 };
        map.update(files);
        map
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("..data")
    }

    /// Makes a new directory, replaces `..data` in one step, adjusts the links, and removes the old directory.
    fn update(&mut self, files: &[(&str, &str)]) {
        use std::os::unix::fs::symlink;
        let root = self.folder.path();
        let (old, new) = (format!("..2026_{}", self.updates), format!("..2026_{}", self.updates + 1));
        self.updates += 1;
        fs::create_dir(root.join(&new)).unwrap();
        for (name, text) in files {
            fs::write(root.join(&new).join(name), text).unwrap();
        }
        symlink(&new, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        for (name, _) in files {
            let _ = symlink(Path::new("..data").join(name), root.join(name));
        }
        let _ = fs::remove_dir_all(root.join(old));
    }
}

#[cfg(unix)]
#[test]
fn an_updated_config_map_updates_its_files_behind_the_link() {
    let mut map = ConfigMap::new(&[("app.toml", "1"), ("log.toml", "1")]);
    let (clock, queue) = held();
    let watch = Directory::new(map.data()).poll(SECOND).name("conf").clock(clock.clock()).watch().unwrap();
    let outer = Directory::new(map.folder.path()).poll(SECOND).name("links").clock(clock.clock()).watch().unwrap();
    let _subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    let next = || {
        clock.advance(SECOND);
        clock.wait_for_sleepers(4);
        let claims = std::iter::from_fn(|| queue.try_dequeue().ok());
        let mut events: Vec<_> = claims
            .map(|claim| {
                let event = (claim.to_str().unwrap().to_owned(), claim.reasons());
                claim.done();
                event
            })
            .collect();
        events.sort_by(|(one, _), (other, _)| one.cmp(other));
        events
    };
    let is = |name: &str, reasons| (name.to_owned(), reasons);
    let first = next();
    assert_eq!(first, [is("app.toml", Reasons::CREATED), is("log.toml", Reasons::CREATED)]);
    map.update(&[("app.toml", "2"), ("log.toml", "1"), ("new.toml", "1")]);
    assert_eq!(
        next(),
        [is("app.toml", Reasons::UPDATED), is("log.toml", Reasons::UPDATED), is("new.toml", Reasons::CREATED)]
    );
    map.update(&[("app.toml", "2")]);
    assert_eq!(
        next(),
        [is("app.toml", Reasons::UPDATED), is("log.toml", Reasons::DELETED), is("new.toml", Reasons::DELETED)]
    );
    assert_eq!(watch.source().status().failures + outer.source().status().failures, 0);
    // The directory of the links shows no file that has changed.
    let keys = outer.watch().store().keys();
    assert!(keys.contains(&PathBuf::from("..data")) && keys.contains(&PathBuf::from("..2026_3")), "{keys:?}");
}

#[cfg(unix)]
#[test]
fn a_listing_sees_one_state_of_a_config_map_that_is_updated() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let files = names.map(|name| (name, "text"));
    let mut map = ConfigMap::new(&files);
    let directories = [Directory::new(map.data()), Directory::new(map.data()).recursive()];
    std::thread::scope(|scope| {
        let updates = scope.spawn(|| {
            for _ in 0..1_000 {
                map.update(&files);
            }
        });
        while !updates.is_finished() {
            for directory in &directories {
                match directory.list(&Context::detached()) {
                    Ok(mut entries) => {
                        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
                        let listed: Vec<_> = entries.iter().map(|(path, _)| path.to_str().unwrap()).collect();
                        assert_eq!(listed, names);
                    }
                    Err(error) => assert!(error.to_string().contains("was exchanged during each of"), "{error}"),
                }
            }
        }
    });
}

/// Two directories, of which each has all files, exchange their names all the time.
#[cfg(target_os = "linux")]
#[test]
fn a_listing_sees_one_state_of_exchanged_directories() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (place, files) in [("one", ["a", "b", "c"]), ("other", ["d", "e", "f"])] {
        fs::create_dir(path(place)).unwrap();
        for file in files {
            fs::write(path(place).join(file), "").unwrap();
        }
    }
    let (flat, deep) = (Directory::new(path("one")), Directory::new(folder.path()).recursive());
    let list = |directory: &Directory| match directory.list(&Context::detached()) {
        Ok(entries) => Some(entries.into_iter().map(|(path, _)| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()),
        Err(error) => {
            assert!(error.to_string().contains("was exchanged during each of"), "{error}");
            None
        }
    };
    std::thread::scope(|scope| {
        let exchanges = scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            for _ in 0..20_000 {
                renameat_with(CWD, path("one"), CWD, path("other"), RenameFlags::EXCHANGE).unwrap();
            }
        });
        while !exchanges.is_finished() {
            if let Some(mut names) = list(&flat) {
                names.sort();
                assert!(names == ["a", "b", "c"] || names == ["d", "e", "f"], "{names:?}");
            }
            if let Some(mut names) = list(&deep) {
                names.sort();
                let states =
                    [["one/a", "one/b", "one/c", "other", "other/d"], ["one/d", "one/e", "one/f", "other", "other/a"]];
                assert!(names.len() == 8 && states.iter().any(|state| names[1..6] == state[..]), "{names:?}");
            }
        }
    });
}
