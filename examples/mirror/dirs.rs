//! The controller of directories.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use homeostat::controller::ControllerBuilder;
use homeostat::{Action, BoxError, Context, Controller, Predicate, Reconciler, Subscriber, Watch};
use homeostat_host::FileState;

use crate::trees::{Entry, Folder, Trees};

/// Makes the desired directories, and removes the others once they are empty.
#[derive(Debug)]
pub(crate) struct Dirs(Trees);

pub(crate) fn controller(
    source: &Watch<PathBuf, FileState>,
    target: &Watch<PathBuf, FileState>,
    trees: &Trees,
) -> ControllerBuilder<PathBuf> {
    let wanted = trees.clone();
    Controller::builder("dirs", Dirs(trees.clone()))
        .max_concurrent_reconciles(2)
        .subscribe(source, |queue| Subscriber::to_itself(queue).when(Predicate::matching(FileState::is_dir)))
        .subscribe(target, move |queue| {
            // A change in a directory may have emptied it. A file may have blocked a directory with the same name.
            Subscriber::to_owner(queue, move |path: &PathBuf, state: &FileState| {
                let itself = state.is_dir() || wanted.wanted(path) == Some(Entry::Directory);
                let owner = path.parent().filter(|owner| *owner != Path::new("")).map(Path::to_owned);
                owner.into_iter().chain(itself.then(|| path.clone()))
            })
        })
}

impl Reconciler<PathBuf> for Dirs {
    type Error = BoxError;

    fn reconcile(&self, _cx: &Context, path: &PathBuf) -> Result<Action, BoxError> {
        let Self(trees) = self;
        let wanted = trees.wanted(path) == Some(Entry::Directory);
        let directory = trees.target.join(path);
        let later = Ok(Action::requeue_after(trees.patience));
        let found = match trees.folder(path)? {
            Folder::There => trees.found(path)?,
            Folder::Missing => None,
            Folder::Taken => return if wanted { later } else { Ok(Action::await_change()) },
        };
        match (wanted, found) {
            (true, None) => {
                // The directories above it are desired too.
                fs::create_dir_all(&directory)?;
                log::info!("{}: made", path.display());
            }
            // `files` deletes it.
            (true, Some(Entry::File { .. })) => return later,
            (true, Some(Entry::Other)) => return Err("the target has something else here, which is not touched".into()),
            (false, Some(Entry::Directory)) => match fs::remove_dir(&directory) {
                Ok(()) => log::info!("{}: removed", path.display()),
                // Its content is deleted by other keys, and each deletion enqueues this key.
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => return later,
                Err(error) => return Err(error.into()),
            },
            _ => {}
        }
        Ok(Action::await_change())
    }
}
