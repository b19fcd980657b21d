//! The conformance suite against a real server.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::{Client, DeleteOptions, Ignore, Kind, Patch, PatchTarget, Query};
use homeostat_testing::conformance::{Backend, WIDGET, ZONE};
use serde_json::json;

use crate::cluster;
use crate::cluster::process::lock_file;
use crate::kinds;
use crate::until::within;

thread_local! {
    /// The lock for the widgets and zones. This thread holds it until it ends.
    static TURN: RefCell<Option<File>> = const { RefCell::new(None) };
}

struct Kubernetes;

impl Backend for Kubernetes {
    fn client(&self) -> Arc<dyn Client> {
        let turn = lock_file(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance"));
        turn.lock().unwrap();
        TURN.set(Some(turn));
        let client = cluster::client(&cluster::shared());
        kinds::install(&client);
        clear(&client, &WIDGET);
        clear(&client, &ZONE);
        Arc::new(client)
    }
}

/// Deletes all objects of a kind, and waits until they are gone.
fn clear(client: &KubernetesClient, kind: &Kind) {
    within(Duration::from_secs(60), "all objects are gone", || {
        let objects = client.list(kind, &Query::all()).unwrap().items;
        for object in &objects {
            let key = object.key();
            if object.finalizers().next().is_some() {
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                client.patch(kind, &key, &patch, PatchTarget::Object).ignore_not_found().unwrap();
            }
            client.delete(kind, &key, &DeleteOptions::default()).ignore_not_found().unwrap();
        }
        objects.is_empty().then_some(())
    });
}

homeostat_testing::conformance_tests!(Kubernetes, skipped: [
    "list_goes_on_from_before_the_history_is_gone",
    "purge_removes_at_once",
    "watch_from_before_the_history_is_gone",
    "what_belongs_to_a_purged_object_is_deleted",
]);
