//! The conformance suite against a real server.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::{Capabilities, Client, DeleteOptions, Ignore, Kind, Patch, PatchTarget, Query};
use homeostat_testing::conformance::{Backend, WIDGET, ZONE};
use serde_json::json;

use crate::cluster::process::lock_file;
use crate::cluster::{self, Programs};
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

    fn capabilities(&self, client: &dyn Client) -> Capabilities {
        client.capabilities().cascading(Programs::find().are_complete())
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

/// Returns the cases that the server's client skips.
fn skipped() -> Vec<&'static str> {
    let mut cases = vec![
        "list_goes_on_from_before_the_history_is_gone",
        "purge_removes_at_once",
        "watch_from_before_the_history_is_gone",
        "what_belongs_to_a_purged_object_is_deleted",
    ];
    if !Programs::find().are_complete() {
        cases.extend(OF_THE_GARBAGE_COLLECTOR);
    }
    cases
}

const OF_THE_GARBAGE_COLLECTOR: [&str; 24] = [
    "owners_in_another_namespace_own_nothing",
    "owners_of_unknown_kinds_count_as_existing",
    "what_belongs_to_a_deleted_object_is_deleted",
    "what_belongs_to_a_zone_is_deleted",
    "what_belongs_to_several_goes_with_the_last",
    "what_belongs_to_no_object_is_deleted",
    "what_comes_to_belong_to_no_object_is_deleted",
    "what_no_longer_belongs_to_it_stays",
    "a_chain_of_owners_is_deleted",
    "a_circle_of_owners_is_deleted",
    "finalizers_hold_what_belongs_to_a_deleted_object",
    "in_the_foreground_the_owner_goes_last",
    "in_the_foreground_the_owner_waits_for_what_blocks",
    "in_the_foreground_the_owner_waits_for_nothing_else",
    "in_the_foreground_an_owner_without_any_goes_at_once",
    "in_the_foreground_finalizers_hold_the_owner_too",
    "in_the_foreground_what_has_another_owner_stays",
    "in_the_foreground_after_a_deletion_in_the_background",
    "in_the_background_after_a_deletion_in_the_foreground",
    "a_deletion_replaces_the_finalizers_for_dependents",
    "in_the_foreground_the_finalizers_of_dependents_are_replaced",
    "orphans_stay",
    "orphans_of_an_owner_with_finalizers_stay",
    "racing_children_of_a_deleted_object_are_deleted",
];

homeostat_testing::conformance_tests!(Kubernetes, skipped: skipped());
