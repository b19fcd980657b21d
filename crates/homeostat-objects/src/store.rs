//! The kit for authors of back ends: clients that keep objects in a store of their own.
//!
//! The rules of an API server are the same for all stores. A [`Transaction`] applies them: it reads a store through
//! [`StoredObjects`], computes what a call changes, and returns the changes. The back end stores the changes and
//! delivers their events. The embedded clients and the client of NATS work this way. Other programs do not need this
//! module.
//!
//! | purpose | names |
//! |---|---|
//! | the rules for writes and their consequences | [`Transaction`], [`StoredObjects`], [`Names`] |
//! | the changes of a transaction | [`ObjectChange`], [`Location`], [`is_waiting`], [`DistinctQueue`] |
//! | checks of a call before it reads the store | [`admit`], [`check_selector`], [`is_dns_label`], [`DNS_LABEL`], [`is_subdomain`] |
//! | answers | [`event_of`], [`delete_each`], [`ReadableList`] |
//! | objects from texts | [`ReadBuffers`], the module [`json`](super::json) |
//! | a slow or failing server | [`report_repetition`], [`LONGEST_SILENCE`] |
//!
//! A client around another client is no back end: implement [`ClientLayer`](super::ClientLayer).
//!
//! Prove a back end with the conformance suite of [`homeostat-testing`](https://docs.rs/homeostat-testing).
//!
//! # A store of one object
//!
//! ```
//! use homeostat_objects::store::{Location, Names, StoredObjects, Transaction};
//! use homeostat_objects::{Kind, PatchTarget, SharedObject, ValueRef};
//! use serde_json::json;
//! use std::sync::Arc;
//!
//! #[derive(Default)]
//! struct OneObject {
//!     version: u64,
//!     object: Option<(Location, SharedObject)>,
//! }
//!
//! impl StoredObjects for OneObject {
//!     const IS_EXCLUSIVE: bool = true;
//!
//!     fn head(&self) -> u64 {
//!         self.version
//!     }
//!     fn kind(&self, kind: &Kind) -> Arc<Kind> {
//!         Arc::new(kind.clone())
//!     }
//!     fn has_kind(&self, api_version: &str, name: &str) -> bool {
//!         self.object.as_ref().is_some_and(|(location, _)| location.kind.is_named(api_version, name))
//!     }
//!     fn object(&self, location: &Location) -> Option<SharedObject> {
//!         self.object.as_ref().filter(|(at, _)| at == location).map(|(_, object)| object.clone())
//!     }
//!     fn owner(&self, _dependent: &Location, _owner: ValueRef<'_>) -> Option<Location> {
//!         None
//!     }
//!     fn dependents(&self, _uid: &str) -> impl Iterator<Item = Location> {
//!         std::iter::empty()
//!     }
//!     fn blocking(&self, _uid: &str) -> isize {
//!         0
//!     }
//! }
//!
//! const COLOUR: Kind = Kind::namespaced("example.com", "v1", "Colour");
//! let mut store = OneObject::default();
//! let sky = json!({"apiVersion": "example.com/v1", "kind": "Colour", "metadata": {"namespace": "a", "name": "sky"}});
//!
//! let mut transaction = Transaction::new(&store, 1_000_000, jiff::Timestamp::now());
//! transaction.create(&COLOUR, sky.clone(), Names::random())?;
//! transaction.settle();
//! for change in transaction.into_changes() {
//!     store.version = change.version;
//!     store.object = (!change.removed).then(|| (change.location.clone(), change.object.clone()));
//! }
//!
//! // The rules of an API server: an update names the version that it has read.
//! let mut transaction = Transaction::new(&store, 1_000_000, jiff::Timestamp::now());
//! let error = transaction.update(&COLOUR, sky, PatchTarget::Object).unwrap_err();
//! assert!(error.to_string().contains("metadata.resourceVersion"), "{error}");
//! # Ok::<_, homeostat_objects::ClientError>(())
//! ```

pub use super::client::{ReadableList, delete_each};
pub use super::packed::ReadBuffers;
pub use super::repetition::report_repetition;
pub use super::rules::change::{Location, ObjectChange, is_waiting};
pub use super::rules::check::check_selector;
pub use super::rules::distinct_queue::DistinctQueue;
pub use super::rules::event::event_of;
pub use super::rules::limits::admit;
pub use super::rules::names::Names;
pub use super::rules::stored::StoredObjects;
pub use super::rules::txn::Transaction;
pub use super::validate::{DNS_LABEL, is_dns_label, is_subdomain};
pub use super::watch::LONGEST_SILENCE;
