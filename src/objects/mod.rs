//! Objects as Kubernetes has them, without a cluster: kinds, owners, finalizers, conflicts, watches. Feature `objects`.
//!
//! An [`Object`] is a typed value, a [`DynamicObject`] one of any kind; both are JSON, as Kubernetes writes it. A [`Client`] keeps
//! them; [`Api`] is its typed face.

mod api;
mod client;
mod condition;
mod dynamic;
mod error;
pub(crate) mod json;
mod key;
mod kind;
mod meta;
mod object;
mod selector;
pub(crate) mod validate;
mod watch;

pub use self::api::Api;
pub use self::client::{
    Client, DeleteOptions, FieldOwner, ObjectList, ObjectStream, Part, Patch, Propagation, Query, WatchEvent,
};
pub use self::condition::{Condition, ConditionStatus, find_condition, set_condition};
pub use self::dynamic::DynamicObject;
pub use self::error::{ClientError, Ignore, ObjectRef};
pub use self::key::{ObjectKey, ParseKeyError};
pub use self::kind::Kind;
pub use self::meta::{ObjectMeta, OwnerReference};
pub use self::object::{Object, StatusField};
pub use self::selector::{FieldSelector, LabelOperator, LabelRequirement, LabelSelector, ParseSelectorError};
pub use self::watch::{ObjectWatch, ObjectWatchHandle};

pub use crate::embedded::{EmbeddedBuilder, MemoryClient};
#[cfg(feature = "file-client")]
pub use crate::embedded::{FileClient, OpenError};
