//! Finalizers: adding, removing, and `with_finalizer`.

use std::cell::RefCell;
use std::sync::Arc;

use homeostat::{Action, BoxError};
use homeostat_objects::{
    Api, ClientError, DynamicObject, Kind, MemoryClient, Object, add_finalizer, remove_finalizer, with_finalizer,
};
use serde_json::json;
use std::time::Duration;

use crate::hooked_client::{HookedClient, unreachable};
use homeostat::rt::Chain;

const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
const DISK: &str = "example.com/disk";
const NET: &str = "example.com/net";

fn vms() -> (Arc<HookedClient>, Api<DynamicObject>) {
    let client = HookedClient::new(MemoryClient::new());
    let api = client.api(&VM);
    (client, api)
}

/// Creates a VM with these finalizers.
fn vm(api: &Api<DynamicObject>, finalizers: &[&str]) -> DynamicObject {
    let mut vm = DynamicObject::new(&VM, "a", "vm").with("spec", json!({"cores": 1}));
    vm.meta_mut().finalizers = finalizers.iter().map(ToString::to_string).collect();
    api.create(&vm).unwrap()
}

/// Begins the deletion of an object with finalizers.
fn delete(api: &Api<DynamicObject>, vm: &DynamicObject) -> DynamicObject {
    api.delete(&vm.key(), &homeostat_objects::DeleteOptions::default()).unwrap().into_object().unwrap()
}

/// Changes the VM like another writer.
fn touch(api: &Api<DynamicObject>, cores: u32) -> DynamicObject {
    let mut vm = api.get(&"a/vm".parse().unwrap()).unwrap();
    vm.fields_mut()["spec"]["cores"] = cores.into();
    api.update(&vm).unwrap()
}

#[track_caller]
fn assert_invalid(error: &ClientError, named: &str, held: &str) {
    let [cause] = error.causes() else { panic!("{error}") };
    assert_eq!((&*cause.field, &*cause.value), (named, held), "{error}");
}

#[test]
fn a_finalizer_is_added_once() {
    let (client, api) = vms();
    let before = vm(&api, &[NET]);
    client.writes();
    let held = add_finalizer(&api, &before, DISK).unwrap();
    assert_eq!(held, api.get(&before.key()).unwrap());
    assert_eq!(held.meta().finalizers, [NET, DISK]);
    assert_eq!((held.fields()["spec"].clone(), held.meta().generation), (json!({"cores": 1}), 1));
    assert_eq!(add_finalizer(&api, &held, DISK).unwrap(), held);
    assert_eq!(client.writes(), ["patch Vm a/vm"]);
    assert!(add_finalizer(&api, &held, "no finalizer").unwrap_err().is_invalid());
}

#[test]
fn no_finalizer_is_added_to_a_changed_object() {
    let (client, api) = vms();
    let old = vm(&api, &[]);
    let now = touch(&api, 2);
    assert!(add_finalizer(&api, &old, DISK).unwrap_err().is_conflict());
    assert_eq!(api.get(&old.key()).unwrap(), now);

    client.writes();
    let mut unread = now.clone();
    unread.meta_mut().resource_version.clear();
    assert_invalid(&add_finalizer(&api, &unread, DISK).unwrap_err(), "metadata.resourceVersion", "");
    unread.meta_mut().finalizers = vec![DISK.into()];
    assert_invalid(&remove_finalizer(&api, &unread, DISK).unwrap_err(), "metadata.resourceVersion", "");
    assert_eq!(client.writes(), [""; 0]);
}

#[test]
fn no_finalizer_is_added_to_an_object_being_deleted() {
    let (client, api) = vms();
    let deleting = delete(&api, &vm(&api, &[NET]));
    client.writes();
    assert_invalid(&add_finalizer(&api, &deleting, DISK).unwrap_err(), "metadata.finalizers", DISK);
    assert_eq!(add_finalizer(&api, &deleting, NET).unwrap(), deleting);
    assert_eq!(client.writes(), [""; 0]);
}

#[test]
fn removing_the_last_finalizer_removes_the_object() {
    let (client, api) = vms();
    let held = vm(&api, &[DISK, NET]);
    let deleting = delete(&api, &held);
    let by_one = remove_finalizer(&api, &deleting, DISK).unwrap();
    assert_eq!(by_one.meta().finalizers, [NET]);
    assert_eq!(api.get(&held.key()).unwrap(), by_one);

    client.writes();
    assert_invalid(&remove_finalizer(&api, &by_one, DISK).unwrap_err(), "metadata.finalizers", DISK);
    assert_eq!(client.writes(), [""; 0]);

    let last = remove_finalizer(&api, &by_one, NET).unwrap();
    assert_eq!(last.meta().finalizers, [""; 0]);
    assert!(api.get(&held.key()).unwrap_err().is_not_found());
}

#[test]
fn a_removal_reads_a_changed_object_again() {
    let (client, api) = vms();
    let old = vm(&api, &[DISK]);
    let now = touch(&api, 2);
    let held = add_finalizer(&api, &now, NET).unwrap();
    assert_ne!(held.meta().resource_version, old.meta().resource_version);
    let free = remove_finalizer(&api, &old, DISK).unwrap();
    assert_eq!((free.meta().finalizers.clone(), &free.fields()["spec"]), (vec![NET.to_owned()], &json!({"cores": 2})));

    // Another writer removes it before it is read again.
    assert_eq!(remove_finalizer(&api, &old, DISK).unwrap(), free);
    assert_eq!(client.writes().len(), 5 + 1);
    api.purge(&old.key()).unwrap();
    assert!(remove_finalizer(&api, &old, DISK).unwrap_err().is_not_found());

    // Another object with the same name is not touched.
    let another = vm(&api, &[DISK]);
    assert!(remove_finalizer(&api, &old, DISK).unwrap_err().is_conflict());
    assert_eq!(api.get(&old.key()).unwrap(), another);
}

#[test]
fn a_removal_gives_up_if_the_object_keeps_changing() {
    let (client, api) = vms();
    let held = vm(&api, &[DISK]);
    client.writes();
    let (restless, mut cores) = (client.inner(&VM), 1);
    client.before(move |verb, _| {
        if verb == "patch" {
            cores += 1;
            touch(&restless, cores);
        }
        None
    });
    assert!(remove_finalizer(&api, &held, DISK).unwrap_err().is_conflict());
    assert_eq!(client.writes().len(), 6);
    assert_eq!(api.get(&held.key()).unwrap().meta().finalizers, [DISK]);
}

#[test]
fn an_object_that_is_gone_before_it_gets_its_finalizer_needs_nothing() {
    let (_, api) = vms();
    let old = vm(&api, &[]);
    api.purge(&old.key()).unwrap();
    let never = |_: &mut DynamicObject| -> Result<Action, ClientError> { panic!("it is gone") };
    assert_eq!(with_finalizer(&api, old, DISK, never, never).unwrap(), Action::await_change());
}

/// The calls of the closures, with the finalizers at that time, and their answers.
struct Steps<'a> {
    api: &'a Api<DynamicObject>,
    called: RefCell<Vec<String>>,
    answer: Result<Action, &'static str>,
}

impl<'a> Steps<'a> {
    fn new(api: &'a Api<DynamicObject>, answer: Result<Action, &'static str>) -> Self {
        Self { api, called: RefCell::default(), answer }
    }

    fn step(&self, name: &str, vm: &DynamicObject) -> Result<Action, BoxError> {
        self.called.borrow_mut().push(format!("{name} {}", vm.meta().finalizers.join(",")));
        Ok(self.answer?)
    }

    /// Runs `with_finalizer` once on the stored object. Returns the calls and the result.
    fn run(&self) -> (Vec<String>, Result<Action, BoxError>) {
        let vm = self.api.get(&"a/vm".parse().unwrap()).unwrap();
        let result =
            with_finalizer(self.api, vm, DISK, |vm| self.step("reconcile", vm), |vm| self.step("finalize", vm));
        (self.called.take(), result)
    }
}

const DONE: Action = Action::await_change();
const LATER: Action = Action::requeue_after(Duration::from_secs(5));

/// Includes the cases of reconcilerio/runtime's `reconcilers/finalizer_test.go` (`TestWithFinalizer`).
#[test]
fn an_object_is_reconciled_then_finalized_and_removed() {
    let (client, api) = vms();
    let first = vm(&api, &[]);
    client.writes();
    let steps = Steps::new(&api, Ok(LATER));
    for _ in 0..2 {
        let (called, result) = steps.run();
        assert_eq!((called, result.unwrap()), (vec![format!("reconcile {DISK}")], LATER));
    }
    assert_eq!(client.writes(), ["patch Vm a/vm"], "added before the first run");

    delete(&api, &first);
    client.writes();
    let (called, result) = steps.run();
    assert_eq!((called, result.unwrap()), (vec![format!("finalize {DISK}")], LATER), "not done yet");
    let (called, result) = Steps::new(&api, Err("the disk is busy")).run();
    assert_eq!((called.len(), result.unwrap_err().to_string()), (1, "the disk is busy".to_owned()));
    assert_eq!(client.writes(), [""; 0]);

    let (called, result) = Steps::new(&api, Ok(DONE)).run();
    assert_eq!((called, result.unwrap()), (vec![format!("finalize {DISK}")], DONE));
    assert_eq!(client.writes(), ["patch Vm a/vm"]);
    assert!(api.get(&first.key()).unwrap_err().is_not_found());
}

#[test]
fn an_object_with_other_finalizers_is_left_alone() {
    let (client, api) = vms();
    delete(&api, &vm(&api, &[NET]));
    client.writes();
    let (called, result) = Steps::new(&api, Ok(LATER)).run();
    assert_eq!((called, result.unwrap(), client.writes()), (vec![], DONE, vec![]));
}

#[test]
fn an_object_that_cannot_get_the_finalizer_is_not_reconciled() {
    let (client, api) = vms();
    vm(&api, &[]);
    client.before(|verb, object| (verb == "patch").then(|| unreachable(object)));
    let (called, result) = Steps::new(&api, Ok(DONE)).run();
    assert_eq!(
        (called, Chain(&*result.unwrap_err()).to_string()),
        (vec![], "Vm a/vm: the call failed: no answer".to_owned())
    );
}

#[test]
fn an_object_that_is_gone_after_its_finalization_is_not_an_error() {
    let (client, api) = vms();
    delete(&api, &vm(&api, &[DISK]));
    let behind = client.inner(&VM);
    client.before(move |verb, object| {
        if verb == "patch" {
            behind.purge(object.key()).unwrap();
        }
        None
    });
    let (called, result) = Steps::new(&api, Ok(DONE)).run();
    assert_eq!((called.len(), result.unwrap()), (1, DONE));
}

/// If a finalization writes the object, it can still end.
#[test]
fn a_finalization_may_write_the_object() {
    let (_, api) = vms();
    let deleting = delete(&api, &vm(&api, &[DISK]));
    let finalize = |vm: &mut DynamicObject| {
        vm.fields_mut().insert("status".into(), json!({"phase": "Finalized"}));
        api.update_status(vm)?;
        Ok::<_, ClientError>(DONE)
    };
    let result = with_finalizer(&api, deleting.clone(), DISK, |_| unreachable!(), finalize);
    assert_eq!(result.unwrap(), DONE);
    assert!(api.get(&deleting.key()).unwrap_err().is_not_found());
}
