//! The controller of regular files.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat::controller::ControllerBuilder;
use homeostat::{Action, BoxError, Context, Controller, Event, Predicate, Reconciler, RequeueAfter, Subscriber, Watch};
use homeostat_host::FileState;

use crate::trees::{Entry, Folder, Trees, finished, is_gone, look, unfinished};

/// Copies the desired files, and deletes the others.
#[derive(Debug)]
pub(crate) struct Files {
    trees: Trees,
    /// The limit of each copy, in bytes per second.
    rate: Option<u32>,
}

/// The number of bytes between two checks for cancellation.
const CHUNK: usize = 128 << 10;

pub(crate) fn controller(
    source: &Watch<PathBuf, FileState>,
    target: &Watch<PathBuf, FileState>,
    trees: &Trees,
    rate: Option<u32>,
) -> ControllerBuilder<PathBuf> {
    let within = trees.within.clone();
    Controller::builder("files", Files { trees: trees.clone(), rate })
        .max_concurrent_reconciles(4)
        .subscribe(source, |queue| {
            let files = Predicate::matching(|state: &FileState| !state.is_dir());
            let file = |event: &Event<PathBuf, FileState>| event.key().and_then(|path| finished(path));
            Subscriber::to(queue, file).when(files)
        })
        .watch(target, move |event| {
            let made = match event {
                Event::Created { new, .. } => new.is_dir(),
                Event::Updated { old, new, .. } => new.is_dir() && !old.is_dir(),
                _ => false,
            };
            // Files wait for their directory, which was just created.
            let waiting = event.key().filter(|_| made).map(|path| within.keys(path)).unwrap_or_default();
            waiting.into_iter().chain(event.key().and_then(|path| finished(path)))
        })
}

impl Reconciler<PathBuf> for Files {
    type Error = BoxError;

    fn reconcile(&self, cx: &Context, path: &PathBuf) -> Result<Action, BoxError> {
        let trees = &self.trees;
        let wanted = trees.wanted(path);
        let later = Ok(Action::requeue_after(trees.patience));
        if trees.folder(path)? != Folder::There {
            // `dirs` creates the directory.
            return if matches!(wanted, Some(Entry::File { .. })) { later } else { Ok(Action::await_change()) };
        }
        // No run is writing it now: a mirror that was killed has left it.
        remove(&trees.target.join(unfinished(path)))?;
        let found = trees.found(path)?;
        match (wanted, found) {
            (Some(Entry::File { .. }), _) if wanted == found => {}
            (Some(Entry::File { .. }), None | Some(Entry::File { .. })) => self.copy(cx, path)?,
            // `dirs` removes it.
            (Some(Entry::File { .. }), Some(Entry::Directory)) => return later,
            (Some(Entry::File { .. }), Some(Entry::Other)) => {
                return Err("the target has something else here, which is not touched".into());
            }
            (_, Some(Entry::File { .. })) => {
                remove(&trees.target.join(path))?;
                log::info!("{}: deleted", path.display());
            }
            (Some(Entry::Other), _) => log::warn!("{}: neither file nor directory, left", path.display()),
            (_, Some(Entry::Other)) => {
                log::warn!("{}: neither file nor directory, left in the target", path.display());
            }
            _ => {}
        }
        Ok(Action::await_change())
    }
}

impl Files {
    fn copy(&self, cx: &Context, path: &Path) -> Result<(), BoxError> {
        let (from, to) = (self.trees.source.join(path), self.trees.target.join(path));
        let unfinished = self.trees.target.join(unfinished(path));
        let copied = self
            .write(cx, &from, &unfinished)
            .and_then(|()| fs::rename(&unfinished, &to).map_err(|error| format!("cannot be renamed: {error}").into()));
        match copied {
            Ok(()) => log::info!("{}: copied", path.display()),
            Err(_) => remove(&unfinished)?,
        }
        copied
    }

    /// Copies `from` to `to`, with its time of modification.
    fn write(&self, cx: &Context, from: &Path, to: &Path) -> Result<(), BoxError> {
        let unreadable = |error: io::Error| format!("cannot be read: {error}");
        let unwritable = |error: io::Error| format!("cannot be written: {error}");
        let before = look(from).map_err(unreadable)?;
        if !matches!(before, Some(Entry::File { .. })) {
            return Err("is no longer a file in the source".into());
        }
        let mut reader = File::open(from).map_err(unreadable)?;
        let mut writer = File::create(to).map_err(unwritable)?;
        let mut chunk = vec![0; CHUNK];
        loop {
            cx.check()?;
            let read = reader.read(&mut chunk).map_err(unreadable)?;
            if read == 0 {
                break;
            }
            writer.write_all(&chunk[..read]).map_err(unwritable)?;
            if let Some(rate) = self.rate {
                let size = u32::try_from(read)?;
                cx.sleep(Duration::from_secs_f64(f64::from(size) / f64::from(rate)))?;
            }
        }
        let original = reader.metadata().map_err(unreadable)?;
        writer.set_permissions(original.permissions()).map_err(unwritable)?;
        writer.set_modified(original.modified()?).map_err(unwritable)?;
        if look(from).map_err(unreadable)? != before {
            return Err(RequeueAfter::new(self.trees.patience, "it has changed while it was copied").into());
        }
        if look(to).map_err(unwritable)? != before {
            return Err("the target does not keep modification times".into());
        }
        Ok(())
    }
}

/// Deletes a file, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if !is_gone(&error) => Err(error),
        _ => Ok(()),
    }
}
