//! A client of NATS on blocking sockets, without an async runtime: key-value buckets of `JetStream`, and objects in
//! them.
//!
//! - [`NatsOptions`] opens a [`NatsConnection`], which publishes, subscribes and sends requests.
//! - [`KvBucket`] keeps plain values, and watches them.
//! - [`NatsClient`] is a [`Client`](homeostat_objects::Client) that keeps objects in a bucket. Watches, controllers,
//!   finalizers and owners work with it as with the other clients.
//!
//! The [guide] has a page about [objects in NATS](guide::nats): settings, permissions, full buckets and failures.
//!
//! # Example
//!
//! Creates an object in a bucket, and reads its cores:
//!
//! ```no_run
//! use homeostat_nats::{NatsClient, NatsOptions};
//! use homeostat_objects::{Api, DynamicObject, Kind, Object};
//! use serde_json::json;
//! use std::sync::Arc;
//!
//! const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
//!
//! let connection = NatsOptions::new("nats://localhost").connect()?;
//! let client = NatsClient::create(&connection, &NatsClient::bucket("machines"))?;
//! let vms = Api::<DynamicObject>::of_kind(Arc::new(client), VM);
//!
//! let vm = vms.create(&DynamicObject::new(&VM, "default", "vm-1").with("cores", json!(4)))?;
//! assert_eq!(vms.get(&vm.key())?.get("cores").unwrap(), json!(4));
//! # Ok::<_, homeostat::BoxError>(())
//! ```
//!
//! # Add it to a program
//!
//! No version is on crates.io yet. These commands use a checkout of the repository, next to the program:
//!
//! ```console
//! cargo add --path ../homeostat
//! cargo add --path ../homeostat/crates/homeostat-objects
//! cargo add --path ../homeostat/crates/homeostat-nats
//! cargo add serde_json
//! ```
//!
//! The crate has no features.
//!
//! # Other crates
//!
//! [`homeostat`] has the controllers, and [`homeostat_objects`] the objects and two embedded clients.
//! [`homeostat-kubernetes`](https://docs.rs/homeostat-kubernetes) is the same kind of client for Kubernetes.
//! [`homeostat-serve`](https://docs.rs/homeostat-serve) lets `kubectl` work with the objects of a bucket.
//! [`homeostat-testing`](https://docs.rs/homeostat-testing) has a test suite for clients, which this client passes.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;
mod sync;

mod address;
mod connection;
mod error;
mod kv;
mod nkey;
mod objects;
mod options;
pub mod protocol;

pub use self::connection::{NatsConnection, NatsStatus, NatsSubscription};
pub use self::error::{NatsError, NatsErrorKind};
pub use self::kv::{
    KvBucket, KvConfig, KvEntry, KvListing, KvOperation, KvPosition, KvStatus, KvUpdate, KvWatch, KvWatchOptions,
    KvWatchStopper,
};
pub use self::objects::NatsClient;
pub use self::options::NatsOptions;
pub use self::protocol::{NatsHeaders, NatsMessage};

/// The README's code is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
