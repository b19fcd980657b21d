//! Clients that break one rule each: the suite names the failed cases and the reasons.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use homeostat_objects::{Client, MemoryClient, ObjectStream, Patch, PatchTarget, SharedObject, WatchEvent};
use homeostat_testing::conformance::{self, Backend, WIDGET};
use serde_json::{Value, json};

use crate::hooked_client::HookedClient;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// Watches have no deletions.
    Deletions,
    /// Lists omit the last object.
    Lists,
    /// `get` panics instead of returning `NotFound`.
    NotFound,
    /// `update` accepts old versions.
    Conflicts,
    /// The last state of each deleted object has a `deletionTimestamp`.
    DeletionTimes,
    /// `update` ignores a `deletionTimestamp`.
    ForeignDeletionTimes,
    /// An object that leaves a selection is reported without its labels.
    Leaving,
    /// Dependents of owners of unknown kinds are deleted.
    UnknownOwners,
    /// `apply` owns all finalizers together.
    Finalizers,
}

impl Backend for Rule {
    fn client(&self) -> Arc<dyn Client> {
        let client = HookedClient::new(MemoryClient::new());
        let inner = client.inner.clone();
        match self {
            Self::Deletions => client.on_stream(|_, stream| {
                Ok(ObjectStream::new(stream.filter(|event| !matches!(event, Ok(WatchEvent::Deleted(_))))))
            }),
            Self::Lists => client.on_list(|list| drop(list.items.pop())),
            Self::NotFound => client.before(move |verb, object| {
                let is_missing = verb == "get" && inner.get(object.kind(), object.key()).is_err();
                assert!(!is_missing, "there is no {}", object.key());
                None
            }),
            Self::Conflicts => client.on_call(move |call| {
                let sent = call.sent.as_mut().filter(|_| call.verb == "update")?;
                if sent["metadata"]["resourceVersion"].is_string() {
                    match inner.get(call.object.kind(), call.object.key()) {
                        Ok(current) => {
                            sent["metadata"]["resourceVersion"] =
                                current.to_value()["metadata"]["resourceVersion"].clone();
                        }
                        Err(error) => return Some(error),
                    }
                }
                None
            }),
            Self::DeletionTimes => client.on_stream(|_, stream| {
                Ok(changed_deletions(stream, |last| {
                    last["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
                }))
            }),
            Self::ForeignDeletionTimes => client.on_call(|call| {
                let sent = call.sent.as_mut().filter(|_| call.verb == "update")?;
                sent["metadata"]["deletionTimestamp"] = json!(null);
                None
            }),
            Self::Leaving => client
                .on_stream(|_, stream| Ok(changed_deletions(stream, |last| last["metadata"]["labels"] = json!({})))),
            Self::UnknownOwners => client.on_call(|call| {
                let owner = call.sent.as_mut()?.pointer_mut("/metadata/ownerReferences/0")?;
                (owner["apiVersion"], owner["kind"]) = (json!(WIDGET.api_version()), json!(WIDGET.name()));
                None
            }),
            Self::Finalizers => client.on_call(move |call| {
                if call.verb == "apply" {
                    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                    // A missing object has no finalizers.
                    let _ = inner.patch(call.object.kind(), call.object.key(), &none, PatchTarget::Object);
                }
                None
            }),
        }
        client
    }
}

/// Changes the last states in a stream.
fn changed_deletions(stream: ObjectStream, change: impl Fn(&mut Value) + Send + 'static) -> ObjectStream {
    stream.map_events(move |event| match event {
        Ok(WatchEvent::Deleted(last)) => {
            let mut last = last.to_value();
            change(&mut last);
            Ok(WatchEvent::Deleted(SharedObject::from(last)))
        }
        event => event,
    })
}

#[test]
fn a_broken_rule_fails_the_cases_that_see_it() {
    for (rule, case, message) in [
        (Rule::Deletions, "watch_is_of_one_kind", None),
        (Rule::Deletions, "watch_selects_by_labels", Some("Deleted default/a")),
        (Rule::Lists, "list_is_in_the_order_of_the_keys", Some("the keys")),
        (Rule::NotFound, "get_of_nothing_is_not_found", Some("panicked: there is no default/a")),
        (Rule::Conflicts, "writes_of_a_stale_version_are_conflicts", Some("succeeded, expected Conflict")),
        (Rule::Conflicts, "racing_updates_of_one_version_succeed_once", Some("the threads that succeeded")),
        (Rule::Conflicts, "writes_of_another_uid_are_conflicts", None),
        (Rule::DeletionTimes, "delete_removes", Some("deletionTimestamp")),
        (Rule::ForeignDeletionTimes, "update_with_a_deletion_time_is_invalid", Some("succeeded, expected Invalid")),
        (Rule::Leaving, "watch_selects_by_labels", Some("its labels, as they were when it matched")),
        (Rule::UnknownOwners, "owners_of_unknown_kinds_count_as_existing", Some("Widget default/c is not found")),
        (Rule::Finalizers, "apply_owns_finalizers_and_owners_one_by_one", Some("finalizers of both")),
    ] {
        match (conformance::run(&rule, case), message) {
            (conformance::Verdict::Passed, None) => {}
            (conformance::Verdict::Failed(why), Some(message)) => {
                assert!(why.contains(message), "{rule:?} {case}: {why}");
            }
            (verdict, _) => panic!("{rule:?} {case}: {verdict:?}"),
        }
    }
}

/// The report lists all failures.
#[test]
fn all_failures_are_listed() {
    let panic = catch_unwind(AssertUnwindSafe(|| conformance::check(&Rule::Lists))).unwrap_err();
    let text = panic.downcast::<String>().unwrap();
    for case in ["list_is_of_a_namespace", "list_selects_by_labels", "list_is_in_the_order_of_the_keys"] {
        assert!(text.contains(&format!("\n  failed {case}: ")), "{text}");
    }
    assert!(!text.contains("failed status_is_written_by_its_methods_only"), "{text}");
}
