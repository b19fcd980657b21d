//! A client that takes its time: no rule may depend on how long a case takes.

use std::sync::Arc;
use std::time::Duration;

use homeostat::ManualClock;
use homeostat::objects::{
    Client, ClientError, DeleteOptions, FieldOwner, Kind, MemoryClient, ObjectKey, ObjectList, Patch, PatchTarget,
    Query,
};
use homeostat::testing::conformance::{self, Backend};
use serde_json::Value;

use crate::clients::{Answer, hand_on};

/// Its clock goes on by a second before each write.
struct Slow {
    inner: MemoryClient,
    clock: ManualClock,
}

impl Slow {
    fn later(&self) -> &MemoryClient {
        self.clock.advance(Duration::from_secs(1));
        &self.inner
    }
}

impl Client for Slow {
    hand_on!(self.inner: get, watch);

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        self.inner.list(kind, query)
    }

    fn create(&self, kind: &Kind, object: Value) -> Answer {
        self.later().create(kind, object)
    }

    fn update(&self, kind: &Kind, object: Value) -> Answer {
        self.later().update(kind, object)
    }

    fn update_status(&self, kind: &Kind, object: Value) -> Answer {
        self.later().update_status(kind, object)
    }

    fn patch(&self, kind: &Kind, key: &ObjectKey, patch: &Patch, target: PatchTarget) -> Answer {
        self.later().patch(kind, key, patch, target)
    }

    fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Answer {
        self.later().apply(kind, object, owner)
    }

    fn delete(&self, kind: &Kind, key: &ObjectKey, options: &DeleteOptions) -> Answer {
        self.later().delete(kind, key, options)
    }
}

struct Seconds;

impl Backend for Seconds {
    fn client(&self) -> Arc<dyn Client> {
        let clock = ManualClock::new();
        Arc::new(Slow { inner: MemoryClient::builder().clock(clock.clock()).history(170).build(), clock })
    }

    fn history(&self) -> Option<usize> {
        Some(170)
    }
}

#[test]
fn a_client_keeps_the_rules_however_much_time_passes_between_calls() {
    assert!(conformance::check(&Seconds).skipped().next().is_none());
}
