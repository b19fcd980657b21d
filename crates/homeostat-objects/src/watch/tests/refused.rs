//! The system refuses to start the watchdog of a watch, which is its first thread.

use std::sync::Arc;

use serde_json::Value;

use crate::tests::refusals::no_threads;
use crate::{
    Api, Capabilities, Client, ClientError, DeleteOptions, Deletion, DynamicObject, FieldOwner, Kind, ObjectKey,
    ObjectList, ObjectStream, ObjectWatch, Patch, PatchTarget, Query, SharedObject,
};
use homeostat::base::CancellationToken;

const LAMP: Kind = Kind::namespaced("example.com", "v1", "Lamp");

/// A remote client, so that its watches need a watchdog. The test makes no call.
struct Remote;

type ClientResult = Result<SharedObject, ClientError>;

impl Client for Remote {
    fn get(&self, _: &Kind, _: &ObjectKey) -> ClientResult {
        unreachable!()
    }

    fn list(&self, _: &Kind, _: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        unreachable!()
    }

    fn create(&self, _: &Kind, _: Value) -> ClientResult {
        unreachable!()
    }

    fn update(&self, _: &Kind, _: Value) -> ClientResult {
        unreachable!()
    }

    fn update_status(&self, _: &Kind, _: Value) -> ClientResult {
        unreachable!()
    }

    fn patch(&self, _: &Kind, _: &ObjectKey, _: &Patch, _: PatchTarget) -> ClientResult {
        unreachable!()
    }

    fn apply(&self, _: &Kind, _: Value, _: &FieldOwner) -> ClientResult {
        unreachable!()
    }

    fn delete(&self, _: &Kind, _: &ObjectKey, _: &DeleteOptions) -> Result<Deletion<SharedObject>, ClientError> {
        unreachable!()
    }

    fn watch(&self, _: &Kind, _: &Query, _: Option<&str>, _: &CancellationToken) -> Result<ObjectStream, ClientError> {
        unreachable!()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::all().local(false)
    }
}

#[test]
fn a_watch_whose_watchdog_is_refused_runs_no_thread() {
    let (options, started) = no_threads();
    let lamps = Api::<DynamicObject>::of_kind(Arc::new(Remote), LAMP);
    let error = ObjectWatch::new(lamps).thread_options(options).start().unwrap_err();
    assert_eq!(error.to_string(), "the system cannot start thread lamps-watchdog");
    assert_eq!(started.iter().collect::<Vec<_>>(), [""; 0]);
}
