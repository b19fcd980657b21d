//! The controller of volumes: each volume has a folder with a file of its size.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat::{Action, BoxError, Manager};
use homeostat_objects::{
    Api, EventRecorder, EventType, Object, ObjectKey, PrimaryContext, PrimaryController, PrimaryReconciler,
    with_finalizer,
};

use crate::objects::{FINALIZER, Volume};
use crate::paths::at;

/// How often the files are checked. No event reports that a file is gone.
pub(crate) const RESYNC: Duration = Duration::from_secs(10);

/// Adds the controller of volumes to a manager.
pub(crate) fn add_to(
    manager: &Manager,
    volumes: Api<Volume>,
    folder: PathBuf,
    recorder: &EventRecorder,
) -> Result<(), BoxError> {
    let reconciler = VolumeReconciler { volumes: volumes.clone(), folder, recorder: recorder.action("Make") };
    PrimaryController::new("volumes", volumes, reconciler).resync(RESYNC).add_to(manager)?;
    Ok(())
}

struct VolumeReconciler {
    volumes: Api<Volume>,
    folder: PathBuf,
    recorder: EventRecorder,
}

impl PrimaryReconciler<Volume> for VolumeReconciler {
    fn sync(&self, cx: &PrimaryContext<'_>, volume: &Volume) -> Result<Action, BoxError> {
        let make = |volume: &mut Volume| self.make(cx, volume);
        with_finalizer(&self.volumes, volume.clone(), FINALIZER, make, |volume| self.remove(volume))
    }
}

impl VolumeReconciler {
    fn make(&self, cx: &PrimaryContext<'_>, volume: &mut Volume) -> Result<Action, BoxError> {
        let folder = place(&self.folder, &volume.key());
        at(&folder, fs::create_dir_all(&folder))?;
        let path = folder.join("data");
        let file = at(&path, File::options().write(true).create(true).truncate(false).open(&path))?;
        let size = u64::from(volume.spec.size_mib) << 20;
        let before = at(&path, file.metadata())?.len();
        if before < size {
            at(&path, file.set_len(size))?;
            let reason = if before == 0 { "Made" } else { "Grown" };
            let message = format!("the file has {} MiB", volume.spec.size_mib);
            self.recorder.event(volume, EventType::Normal, reason, &message);
        }
        if volume.status.set(cx, volume.metadata.generation, Ok(&path))? {
            self.volumes.update_status(volume)?;
        }
        Ok(Action::await_change())
    }

    fn remove(&self, volume: &Volume) -> Result<Action, BoxError> {
        let folder = place(&self.folder, &volume.key());
        removed(&folder, fs::remove_dir_all(&folder))
    }
}

/// Accepts that a file to remove does not exist.
pub(crate) fn removed(path: &Path, result: io::Result<()>) -> Result<Action, BoxError> {
    let is_missing = result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    at(path, if is_missing { Ok(()) } else { result }).map(|()| Action::await_change())
}

/// Returns the path of an object's files. A namespace has no dots.
pub(crate) fn place(folder: &Path, key: &ObjectKey) -> PathBuf {
    folder.join(format!("{}.{}", key.namespace(), key.name()))
}
