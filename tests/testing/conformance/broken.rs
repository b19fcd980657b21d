//! Clients that break one rule each: the suite names the cases that see it, and says what they saw.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use homeostat::CancellationToken;
use homeostat::objects::{
    Client, ClientError, Kind, MemoryClient, ObjectKey, ObjectList, ObjectStream, Query, WatchEvent,
};
use homeostat::testing::conformance::{self, Backend};
use serde_json::Value;

use crate::clients::{Answer, hand_on};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// Watches tell no deletions.
    Deletions,
    /// A list lacks its last object.
    Lists,
    /// Panics where it should say that an object is not found.
    NotFound,
    /// Reads the newest version instead of refusing an old one.
    Conflicts,
}

struct Broken(MemoryClient, Rule);

impl Backend for Rule {
    fn client(&self) -> Arc<dyn Client> {
        Arc::new(Broken(MemoryClient::new(), *self))
    }
}

impl Client for Broken {
    hand_on!(self.0: create, update_status, patch, apply, delete);

    fn get(&self, kind: &Kind, key: &ObjectKey) -> Answer {
        let found = self.0.get(kind, key);
        assert!(self.1 != Rule::NotFound || found.is_ok(), "there is no {key}");
        found
    }

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        let mut list = self.0.list(kind, query)?;
        if self.1 == Rule::Lists {
            list.items.pop();
        }
        Ok(list)
    }

    fn update(&self, kind: &Kind, mut object: Value) -> Answer {
        if self.1 == Rule::Conflicts && object["metadata"]["resourceVersion"].is_string() {
            let key =
                ["namespace", "name"].map(|field| object["metadata"][field].as_str().unwrap_or_default().to_owned());
            let current = self.0.get(kind, &ObjectKey::new(&key[0], &key[1]))?;
            object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
        }
        self.0.update(kind, object)
    }

    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        let events = self.0.watch(kind, query, from, stop)?;
        let silent = self.1 == Rule::Deletions;
        Ok(ObjectStream::new(events.filter(move |event| !silent || !matches!(event, Ok(WatchEvent::Deleted(_))))))
    }
}

#[test]
fn a_broken_rule_fails_the_cases_that_see_it() {
    for (rule, case, message) in [
        (Rule::Deletions, "watch_is_of_one_kind", None),
        (Rule::Deletions, "watch_selects_by_labels", Some("Deleted default/a")),
        (Rule::Lists, "list_is_in_the_order_of_the_keys", Some("the keys")),
        (Rule::NotFound, "get_of_nothing_is_not_found", Some("panicked: there is no default/a")),
        (Rule::Conflicts, "update_of_a_stale_version_is_a_conflict", Some("is done, not Conflict")),
        (Rule::Conflicts, "racing_updates_of_one_version_succeed_once", Some("how many have written")),
        (Rule::Conflicts, "update_of_another_uid_is_a_conflict", None),
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

/// One failure hides no other.
#[test]
fn all_failures_are_listed() {
    let panic = catch_unwind(AssertUnwindSafe(|| conformance::check(&Rule::Lists))).unwrap_err();
    let text = panic.downcast::<String>().unwrap();
    for case in ["list_is_of_a_namespace", "list_selects_by_labels", "list_is_in_the_order_of_the_keys"] {
        assert!(text.contains(&format!("\n  failed {case}: ")), "{text}");
    }
    assert!(!text.contains("failed update_ignores_a_status"), "{text}");
}
