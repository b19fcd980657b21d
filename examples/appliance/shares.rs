//! The controller of shares: each exports a volume, which owns it.

use std::fs;
use std::path::{Path, PathBuf};

use homeostat::{Action, BoxError, Context, Manager};
use homeostat_objects::{
    Api, EventRecorder, EventType, Ignore, Object, ObjectKey, PrimaryContext, PrimaryController, PrimaryReconciler,
    Query, with_finalizer,
};
use serde_json::json;

use crate::objects::{FINALIZER, Share, ShareSpec, Volume};
use crate::paths::at;
use crate::volumes::{RESYNC, place, removed};

/// Adds the controller of shares to a manager.
pub(crate) fn add_to(
    manager: &Manager,
    shares: Api<Share>,
    volumes: Api<Volume>,
    folder: PathBuf,
    recorder: &EventRecorder,
) -> Result<(), BoxError> {
    let (all, volumes_of) = (shares.clone(), volumes.clone());
    let reconciler = ShareReconciler { shares: shares.clone(), volumes, folder, recorder: recorder.action("Export") };
    PrimaryController::new("shares", shares, reconciler)
        .tertiary(volumes_of, move |volume: &Volume| shares_of(&all, volume))
        .resync(RESYNC)
        .add_to(manager)?;
    Ok(())
}

/// Returns the shares of a volume. If they cannot be listed, a retry or a resync notices the change of the volume.
fn shares_of(all: &Api<Share>, volume: &Volume) -> Vec<ObjectKey> {
    let listed = all.list(&Query::all().namespace(&volume.metadata.namespace));
    let shares = listed.map(|list| list.items).unwrap_or_default();
    shares.iter().filter(|share| share.spec.volume == volume.metadata.name).map(Object::key).collect()
}

struct ShareReconciler {
    shares: Api<Share>,
    volumes: Api<Volume>,
    folder: PathBuf,
    recorder: EventRecorder,
}

impl PrimaryReconciler<Share> for ShareReconciler {
    fn sync(&self, cx: &PrimaryContext<'_>, share: &Share) -> Result<Action, BoxError> {
        let export = |share: &mut Share| self.export(cx, share);
        with_finalizer(&self.shares, share.clone(), FINALIZER, export, |share| self.remove(share))
    }
}

impl ShareReconciler {
    fn export(&self, cx: &PrimaryContext<'_>, share: &mut Share) -> Result<Action, BoxError> {
        let key = ObjectKey::new(&share.metadata.namespace, &share.spec.volume);
        let Some(volume) = self.volumes.get(&key).ignore_not_found()? else {
            let message = format!("there is no volume {}", key.name());
            self.recorder.event(share, EventType::Warning, "NoVolume", &message);
            // The run fails. The key runs again with backoff, and when a volume with this name appears.
            return self.report(cx, share, Err(["NoVolume", &message])).and(Err(message.into()));
        };
        if volume.metadata.is_deleting() {
            // Add no reference now: it would delete the share together with the volume, although
            // `kubectl delete --cascade=orphan` has just removed it to keep the share.
            return self.report(cx, share, Err(["VolumeDeleting", "the volume is being deleted"]));
        }
        if share.metadata.owner_references.iter().all(|owner| owner.uid != volume.metadata.uid) {
            share.metadata.owner_references.push(volume.owner_reference());
            *share = self.shares.update(share)?;
        }
        if volume.status.path.is_empty() {
            // The change of the volume runs the share again.
            return self.report(cx, share, Err(["VolumeNotReady", "the volume has no file yet"]));
        }
        let path = place(&self.folder, &share.key());
        let ShareSpec { protocol, read_only, .. } = share.spec;
        let text = json!({"path": volume.status.path, "protocol": protocol, "readOnly": read_only}).to_string();
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            at(&self.folder, fs::create_dir_all(&self.folder))?;
            at(&path, fs::write(&path, text))?;
            let message = format!("clients can {} volume {}", if read_only { "read" } else { "change" }, key.name());
            self.recorder.event(share, EventType::Normal, "Exported", &message);
        }
        self.report(cx, share, Ok(&path))
    }

    /// Writes the status, if it has changed.
    fn report(&self, cx: &Context, share: &mut Share, state: Result<&Path, [&str; 2]>) -> Result<Action, BoxError> {
        if share.status.set(cx, share.metadata.generation, state)? {
            self.shares.update_status(share)?;
        }
        Ok(Action::await_change())
    }

    fn remove(&self, share: &Share) -> Result<Action, BoxError> {
        let path = place(&self.folder, &share.key());
        removed(&path, fs::remove_file(&path))
    }
}
