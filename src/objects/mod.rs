//! Objects as Kubernetes has them, without a cluster: kinds, owners, finalizers, conflicts, watches. Feature `objects`.
//!
//! An [`Object`] is a typed value, a [`DynamicObject`] one of any kind; both are JSON, as Kubernetes writes it. A [`Client`] keeps
//! them; [`Api`] is its typed face.
//!
//! What controllers do with them, over any client: [`set_controller`] and [`Ownership`] say what belongs to what, here or in
//! another client, and [`garbage_collect`] deletes what belongs to nothing any more; [`with_finalizer`] keeps an object until
//! it has been cleaned up after; a [`Tracker`] knows who refers to what; an [`EventRecorder`] tells people what happens.

mod api;
mod client;
mod condition;
mod digest;
mod dynamic;
mod error;
mod events;
mod finalizer;
mod garbage;
pub(crate) mod json;
mod key;
mod kind;
pub(crate) mod meta;
mod object;
mod owner;
mod ownership;
pub mod reasons;
mod scheme;
mod selector;
mod tracker;
pub(crate) mod validate;
mod watch;

pub use self::api::Api;
pub use self::client::{
    Client, DeleteOptions, FieldOwner, ObjectList, ObjectStream, Part, Patch, Propagation, Query, WatchEvent,
};
pub use self::condition::{Condition, ConditionStatus, find_condition, set_condition};
pub use self::dynamic::DynamicObject;
pub use self::error::{ClientError, Ignore, ObjectRef};
pub use self::events::{EventRecorder, EventRecorderBuilder, EventType};
pub use self::finalizer::{add_finalizer, remove_finalizer, with_finalizer};
pub use self::garbage::{Collected, OwnedBy, Owner, garbage_collect, owner_exists};
pub use self::key::{ObjectKey, ParseKeyError};
pub use self::kind::Kind;
pub use self::meta::{ObjectMeta, OwnerReference};
pub use self::object::{Object, StatusField};
pub use self::owner::{controller_key, owner_keys, remove_owner, set_controller};
pub use self::ownership::{MarkedOwner, Ownership};
pub use self::scheme::Scheme;
pub use self::selector::{FieldSelector, LabelOperator, LabelRequirement, LabelSelector, ParseSelectorError};
pub use self::tracker::{TrackRef, Tracker};
pub use self::watch::{ObjectWatch, ObjectWatchHandle};

pub use crate::embedded::{EmbeddedBuilder, MemoryClient};
#[cfg(feature = "file-client")]
pub use crate::embedded::{FileClient, OpenError};
