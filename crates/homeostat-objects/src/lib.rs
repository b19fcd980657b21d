//! Kubernetes-style objects without a cluster: kinds, owners, finalizers, conflicts and watches.
//!
//! - [`Object`] is the trait of object types, and [`object!`](crate::object!) implements it. A [`DynamicObject`] has
//!   any kind.
//! - A [`Client`] stores objects as JSON; [`Api`] is the typed interface to it. [`MemoryClient`] keeps the objects in
//!   memory, and `FileClient` also in a file.
//! - An [`ObjectWatch`] follows the objects of a client, and enqueues the keys of changed objects into controllers.
//! - A [`PrimaryController`] creates, updates and deletes the dependents of an object.
//! - Reconcilers use helpers: [finalizers](with_finalizer), [conditions](ConditionSet), [events](EventRecorder),
//!   [trackers](Tracker), [ownership](Ownership) across clients, [garbage collection](garbage_collect).
//! - The module [`sub`] has reconcilers made of small steps.
//! - A [`LeaseElector`] elects a leader among processes on several machines. [`Members`] divide keys among processes.
//! - The modules [`store`] and [`json`] have the rules of an API server, for authors of further clients.
//!
//! The [guide] compares [three ways to write an operator](guide::operators), shows how to [divide
//! keys](guide::sharding), and names the counterparts of the APIs of other frameworks.
//!
//! # Examples
//!
//! A controller that gives each virtual machine an address:
//!
//! ```
//! use homeostat_objects::{Api, DeleteOptions, Ignore, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectWatch};
//! use homeostat::{Action, BoxError, Context, Controller, Manager, Subscriber};
//! use serde::{Deserialize, Serialize};
//! use std::{sync::Arc, time::Duration};
//!
//! #[derive(Clone, Debug, Serialize, Deserialize)]
//! struct Vm {
//!     metadata: ObjectMeta,
//!     cores: u32,
//!     #[serde(default)]
//!     status: VmStatus,
//! }
//!
//! #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
//! struct VmStatus {
//!     #[serde(default)]
//!     address: String,
//! }
//!
//! homeostat_objects::object!(Vm, namespaced, "example.com", "v1", status: VmStatus);
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
//! running.join()?;
//! # Ok::<_, BoxError>(())
//! ```
//!
//! # Add it to a program
//!
//! No version is on crates.io yet. These commands use a checkout of the repository, next to the program:
//!
//! ```console
//! cargo add --path ../homeostat
//! cargo add --path ../homeostat/crates/homeostat-objects
//! cargo add serde --features derive
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `file-client` | `FileClient`: objects in a file that survives a crash |
//! | `k8s-openapi` | the types of the crate `k8s-openapi`, and of `#[derive(CustomResource)]`, as objects |
//! | `schema` | `KindDefinition::described_by`: definitions of kinds from Rust types. Adds `JsonSchema` for [`ObjectMeta`] and [`Condition`] |
//! | `metrics` | `FileClient::export_metrics`, and the feature `metrics` of `homeostat` |
//!
//! # Other crates
//!
//! [`homeostat`] has the controllers. More clients: [`homeostat-kubernetes`](https://docs.rs/homeostat-kubernetes) for
//! API servers, [`homeostat-nats`](https://docs.rs/homeostat-nats) for buckets of NATS.
//! [`homeostat-serve`](https://docs.rs/homeostat-serve) serves objects to `kubectl`.
//! [`homeostat-testing`](https://docs.rs/homeostat-testing) has tables of test cases for reconcilers, and a test suite
//! for clients.
//!
//! # Differences from Kubernetes
//!
//! The embedded clients ([`MemoryClient`], `FileClient`) follow the rules of a Kubernetes API server. Both pass the
//! conformance suite in [`homeostat-testing`](https://docs.rs/homeostat-testing). They differ in three
//! [capabilities](Client::capabilities): [`DeleteOptions::purge`], [field selectors](Capabilities::field_selectors) for
//! any path, and [`local`](Capabilities::local), which means that lists are cheap and streams never stall. The other
//! differences:
//!
//! | topic | embedded clients | Kubernetes |
//! |---|---|---|
//! | cascading deletion | complete when the call returns | happens later; the server adds finalizers |
//! | [grace period](DeleteOptions::grace_period) | always 0 seconds | depends on the kind: only pods end gracefully |
//! | versions of a kind | each version has its own objects | all versions show the same objects |
//! | owner in another namespace | invalid | accepted; the dependent is deleted later |
//! | known kinds of owners | the kinds of all objects that the client has had since it was opened | the kinds that the server serves |
//! | an object deleted by the removal of its last finalizer | the answer and the event have one version | the event has a later version, and shows the finalizer |
//! | schemas, defaults, admission | none; namespaces need not exist | checked on each write |
//! | status and generation | every kind has both | some kinds have no status or no generation |
//! | malformed parts: a `null` label, an unreadable version, a JSON patch that replaces a missing member | invalid or a conflict | corrected, ignored, or an internal error |
//! | numbers | kept as written | 1.0 becomes 1; integers beyond 64 bits become floats |
//! | [apply](Client::apply) after a write other than `apply` | no conflict | a conflict, unless forced |
//! | apply with the version of a missing object | not found | creates the object |
//! | apply that omits an object with fields of other owners | the object stays | the whole object is removed |
//! | a malformed or unexpected namespace | invalid | not found, or ignored for a cluster-wide kind |
//! | lists in applied objects | owned as a whole; only finalizers and owner references are owned one by one | merged by the schema |
//! | expiry of events | an [hour](EmbeddedBuilder::event_ttl) after the latest time in the event; finalizers delay it | an hour after the last write, regardless of finalizers |
//! | label selectors | without `>` and `<` | with `>` and `<` |
//! | watch from a future version | [gone](crate::ClientErrorKind::Gone) | waits for the version |
//! | oldest version for a watch or list | limited by the [history](EmbeddedBuilder::history) | some minutes old |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;
pub mod sub;
mod sync;

mod api;
mod capabilities;
mod changes;
mod client;
mod condition;
mod condition_set;
mod controller_ext;
mod definition;
mod deletion;
pub(crate) mod dependents;
mod dynamic;
mod error;
mod events;
mod field_query;
mod finalizer;
pub mod json;
mod json_text;
mod key;
mod kind;
mod layer;
mod lease;
mod members;
pub(crate) mod memory;
pub(crate) mod meta;
mod meta_check;
mod meta_mut;
mod object;
#[cfg(feature = "k8s-openapi")]
mod openapi;
mod own_writes;
mod owner;
mod ownership;
mod packed;
mod persistent;
mod primary;
mod query;
pub mod reasons;
mod reference;
mod repetition;
pub(crate) mod rules;
#[cfg(feature = "schema")]
mod schema;
mod scheme;
pub(crate) mod selection;
mod selector;
mod shared;
mod stable_hash;
pub mod store;
mod stream;
mod tracker;
pub(crate) mod validate;
mod value_ref;
mod version;
mod watch;

#[cfg(all(test, not(loom)))]
mod tests {
    pub(crate) mod refusals;
}
#[cfg(all(test, not(loom)))]
use homeostat_test_support::until;

pub use self::api::Api;
pub use self::capabilities::Capabilities;
pub use self::changes::changes_beside_status;
pub use self::client::{
    Client, DeleteOptions, FieldOwner, ObjectStream, Patch, PatchTarget, PollEvents, Propagation, WatchEvent,
};
pub use self::condition::{Condition, ConditionStatus, find_condition, set_condition};
pub use self::condition_set::ConditionSet;
pub use self::controller_ext::{ControllerExt, ControllerHandleExt};
pub use self::definition::{DefinitionError, KindDefinition, PrintColumn, SchemaError, normal_schema};
pub use self::deletion::Deletion;
pub use self::dependents::{Collected, External, OperationResult, OwnedBy, Owner, garbage_collect, owner_exists};
pub use self::dynamic::DynamicObject;
pub use self::error::{Cause, ClientError, ClientErrorKind, FieldConflict, Ignore, ObjectRef};
pub(crate) use self::error::{LASTING_CONFLICT, is_conflict};
pub use self::events::{EventRecorder, EventRecorderBuilder, EventType};
pub(crate) use self::finalizer::remove_finalizer_of_any;
pub use self::finalizer::{add_finalizer, remove_finalizer, with_finalizer};
pub use self::key::{ObjectKey, ParseKeyError};
pub use self::kind::Kind;
pub use self::layer::{ClientAnswer, ClientCall, ClientLayer, Verb};
pub use self::lease::{FENCE_ANNOTATION, LeaseElector, LeaseElectorBuilder, LeaseTiming};
pub use self::members::{Members, MembersBuilder, ShardHash, ShardStatus, Shards};
pub use self::meta::{ObjectMeta, OwnerReference};
pub use self::meta_mut::{MetaField, MetaMut};
pub use self::object::{Object, StatusField};
#[cfg(feature = "k8s-openapi")]
pub use self::openapi::OpenApiScope;
pub use self::owner::{controller_key, owner_keys, remove_owner, set_controller};
pub use self::ownership::{MarkedOwner, Ownership};
pub use self::primary::{Operation, PrimaryContext, PrimaryController, PrimaryReconciler, Secondary};
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
/// A point in time, of the crate `jiff` 0.2.
#[doc(no_inline)]
pub use jiff::Timestamp;

#[cfg(feature = "file-client")]
pub use self::memory::{CompactError, FileClient, OpenError};
pub use self::memory::{EmbeddedBuilder, MemoryClient};

/// The README's code is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
