//! Kubernetes-style objects without a cluster: kinds, owners, finalizers, conflicts and watches. Feature `objects`.
//!
//! - [`Object`] is the trait of object types, and [`object!`](crate::object) implements it. A [`DynamicObject`] has any kind.
//! - A [`Client`] stores objects as JSON; [`Api`] is the typed interface to it. [`MemoryClient`] keeps the objects in memory,
//!   `FileClient` also in a file.
//! - An [`ObjectWatch`] follows the objects of a client and enqueues the keys of changed ones into controllers.
//! - A [`PrimaryController`] creates, updates and deletes the dependents of an object.
//! - Reconcilers use helpers: [finalizers](with_finalizer), [conditions](ConditionSet), [events](EventRecorder),
//!   [trackers](Tracker), [ownership](Ownership) across clients, [garbage collection](garbage_collect).
//!
//! # Examples
//!
//! A controller that gives each virtual machine an address:
//!
//! ```
//! use homeostat::objects::{Api, DeleteOptions, Ignore, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectWatch};
//! use homeostat::{Action, BoxError, Context, Controller, Manager, Subscriber};
//! use serde::{Deserialize, Serialize};
//! use std::{sync::Arc, time::Duration};
//!
//! #[derive(Clone, Serialize, Deserialize)]
//! struct Vm {
//!     metadata: ObjectMeta,
//!     cores: u32,
//!     #[serde(default)]
//!     status: VmStatus,
//! }
//!
//! #[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
//! struct VmStatus {
//!     #[serde(default)]
//!     address: String,
//! }
//!
//! homeostat::object!(Vm, namespaced, "example.com", "v1", status: VmStatus);
//!
//! let vms = Api::<Vm>::new(Arc::new(MemoryClient::new()));
//! let manager = Manager::builder().build()?;
//! let watch = manager.watch("vms", || ObjectWatch::new(vms.clone()).start())?;
//!
//! let api = vms.clone();
//! let reconcile = move |_cx: &Context, key: &ObjectKey| -> Result<Action, BoxError> {
//!     let Some(mut vm) = api.get(key).ignore_not_found()? else { return Ok(Action::await_change()) };
//!     if vm.status.address.is_empty() {
//!         vm.status.address = format!("{}.example.com", key.name());
//!         api.update_status(&vm)?; // a conflict is an error, and tried again
//!     }
//!     Ok(Action::await_change())
//! };
//! let controller = Controller::builder("vm", reconcile).subscribe(&watch, Subscriber::to_itself).build()?;
//! manager.add(controller)?;
//! let running = manager.start()?;
//!
//! let vm = vms.create(&Vm { metadata: ObjectMeta::new("default", "vm-1"), cores: 4, status: VmStatus::default() })?;
//! while vms.get(&vm.key())?.status.address.is_empty() {
//!     std::thread::sleep(Duration::from_millis(1));
//! }
//! vms.delete(&vm.key(), &DeleteOptions::default())?;
//! manager.stop();
//! running.wait()?;
//! # Ok::<_, BoxError>(())
//! ```
//!
//! # Differences from Kubernetes
//!
//! The embedded clients ([`MemoryClient`], `FileClient`) follow the rules of a Kubernetes API server, with these differences:
//!
//! | topic | embedded clients | Kubernetes |
//! |---|---|---|
//! | **Deletion** | | |
//! | last state of a deleted object | has a `deletionTimestamp`, unless the object was purged | has one only if the object had finalizers |
//! | purge | [`DeleteOptions::purge`] removes an object at once | not available |
//! | grace period | always 0 seconds | depends on the kind |
//! | cascading deletion | complete when the call returns | happens later |
//! | **Validation** | | |
//! | schemas, defaults, admission | none; namespaces need not exist | checked on each write |
//! | status and generation | every kind has both | some kinds have no status or no generation |
//! | unknown fields of the metadata | kept | dropped |
//! | a label that is `null` | invalid | an empty label |
//! | numbers | kept as written | 1.0 becomes 1; integers beyond 64 bits become floats |
//! | **Writes** | | |
//! | update of fields that the server sets | ignored | invalid for `deletionTimestamp` |
//! | update with an unreadable version | conflict | internal error |
//! | JSON patch that replaces or moves a missing last member | invalid | no change |
//! | patch that removes the namespace, or is `null` | invalid | no change |
//! | **Owners** | | |
//! | owner in another namespace | invalid | accepted; the dependent is deleted later |
//! | owner of a kind that the client does not store | counts as missing: the dependent is deleted | the dependent stays |
//! | **[Apply](Client::apply)** | | |
//! | a write other than `apply` | ends the ownership of the fields that it changes; later applies do not conflict | owns the fields; later applies conflict unless forced |
//! | lists | owned as a whole | merged by the schema |
//! | apply with the version of a missing object | not found | creates the object |
//! | `managedFields` in the applied object | ignored | invalid |
//! | **Reads and watches** | | |
//! | expiry of events | an [hour](EmbeddedBuilder::event_ttl) after the latest time in the event; finalizers delay it | an hour after the last write, regardless of finalizers |
//! | label selectors | without `>` and `<` | with `>` and `<` |
//! | field selectors | any path | name, namespace and declared fields |
//! | object that leaves the selection of a watch | deletion event with the new content | deletion event with the old content |
//! | watch from a future version | [gone](ClientError::Gone) | waits for the version |
//! | oldest version for a watch or list | limited by the [history](EmbeddedBuilder::history) | some minutes old |

mod api;
mod changes;
mod client;
mod condition;
mod condition_set;
pub(crate) mod dependents;
mod dynamic;
mod error;
mod events;
mod finalizer;
pub(crate) mod json;
pub(crate) mod json_text;
mod key;
mod kind;
pub(crate) mod memory;
pub(crate) mod meta;
mod object;
mod owner;
mod ownership;
mod packed;
mod pager;
mod primary;
mod query;
pub mod reasons;
mod reference;
mod scheme;
pub(crate) mod selection;
mod selector;
mod shared;
mod stable_hash;
mod tracker;
pub(crate) mod validate;
mod value_ref;
mod watch;

pub use self::api::Api;
pub use self::changes::changes_beside_status;
pub use self::client::{
    Client, DeleteOptions, FieldOwner, ObjectStream, Patch, PatchTarget, PollEvents, Propagation, WatchEvent,
};
pub use self::condition::{Condition, ConditionStatus, find_condition, set_condition};
pub use self::condition_set::ConditionSet;
pub use self::dependents::{Collected, External, OperationResult, OwnedBy, Owner, garbage_collect, owner_exists};
pub use self::dynamic::DynamicObject;
pub use self::error::{ClientError, Ignore, ObjectRef};
pub(crate) use self::error::{LASTING_CONFLICT, is_conflict};
pub use self::events::{EventRecorder, EventRecorderBuilder, EventType};
pub(crate) use self::finalizer::remove_finalizer_of_any;
pub use self::finalizer::{add_finalizer, remove_finalizer, with_finalizer};
pub use self::key::{ObjectKey, ParseKeyError};
pub use self::kind::Kind;
pub use self::meta::{ObjectMeta, OwnerReference};
pub use self::object::{Object, StatusField};
pub use self::owner::{controller_key, owner_keys, remove_owner, set_controller};
pub use self::ownership::{MarkedOwner, Ownership};
pub use self::primary::{
    Operation, PrimaryContext, PrimaryController, PrimaryPolicy, PrimaryReconciler, PrimaryRun, PrimarySettings,
    Secondary,
};
pub use self::query::{ObjectList, Query};
pub use self::reference::{TypedReference, merge_maps};
pub use self::scheme::Scheme;
pub use self::selector::{FieldSelector, LabelOperator, LabelRequirement, LabelSelector, ParseSelectorError};
pub use self::shared::SharedObject;
pub(crate) use self::tracker::Scope;
pub use self::tracker::{TrackRef, TrackedRun, Tracker};
pub use self::value_ref::ValueRef;
pub use self::watch::ObjectWatch;
pub(crate) use self::watch::{shared_watch, watch_name};

#[cfg(feature = "file-client")]
pub use self::memory::{CompactError, FileClient, OpenError};
pub use self::memory::{EmbeddedBuilder, MemoryClient};
