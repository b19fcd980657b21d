//! A client of Kubernetes API servers on blocking sockets, without an async runtime.
//!
//! - [`ClusterConfig::load`] finds the connection settings the way `kubectl` does.
//! - [`KubernetesClient`] is a [`Client`](homeostat_objects::Client) of a real server. Objects, watches and controllers
//!   work with it as with the embedded clients.
//! - [`CustomResourceDefinition`] makes a server serve a kind. [`RbacRules`] lists the
//!   permissions that a program needs.
//! - The source of a transport error is a [`RequestError`], which names the verb, the URL and the request's id in the
//!   audit log.
//!
//! The [guide] builds an [operator](guide::operator) from an empty directory.
//!
//! # Example
//!
//! Shows each change of a config map until Ctrl-C:
//!
//! ```no_run
//! # #[cfg(unix)]
//! use homeostat::{Action, BoxError, Context, Controller, Manager, Subscriber};
//! use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
//! use homeostat_objects::{Api, DynamicObject, Kind, Object, ObjectKey, ObjectWatch};
//! use std::sync::Arc;
//!
//! const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
//!
//! fn main() -> Result<(), BoxError> {
//!     let client = Arc::new(KubernetesClient::new(ClusterConfig::load()?)?);
//!     let maps = Api::<DynamicObject>::of_kind(client, CONFIG_MAP);
//!
//!     let manager = Manager::builder().build()?;
//!     let watch = manager.watch("config-maps", || ObjectWatch::new(maps).start())?;
//!     let store = watch.store();
//!     let show = move |_cx: &Context, key: &ObjectKey| -> Result<Action, BoxError> {
//!         match store.get(key) {
//!             Some(map) => println!("{key} has version {}", map.meta().resource_version),
//!             None => println!("{key} is gone"),
//!         }
//!         Ok(Action::await_change())
//!     };
//!     manager.add(Controller::builder("show", show).subscribe(&watch, Subscriber::to_itself).build()?)?;
//!     Ok(manager.run_until_signal()?)
//! }
//! # #[cfg(not(unix))]
//! # fn main() {}
//! ```
//!
//! # Add it to a program
//!
//! No version is on crates.io yet. These commands use a checkout of the repository, next to the program:
//!
//! ```console
//! cargo add --path ../homeostat --features signals
//! cargo add --path ../homeostat/crates/homeostat-objects
//! cargo add --path ../homeostat/crates/homeostat-kubernetes
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `metrics` | the metrics of requests under client-go's names, through the `metrics` facade |
//!
//! # Other crates
//!
//! [`homeostat`] has the controllers, and [`homeostat_objects`] the objects. With
//! [`homeostat-testing`](https://docs.rs/homeostat-testing), tests run against a scripted API server in place of a
//! cluster. [`homeostat-serve`](https://docs.rs/homeostat-serve) answers the admission requests of a cluster, and
//! serves the objects of a program like a Kubernetes API server. [`homeostat-nats`](https://docs.rs/homeostat-nats) is
//! the same kind of client for NATS.
//!
#![doc = include_str!("cases.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;
mod sync;

mod client;
mod config;
mod crd;
mod http;
mod manifest;
mod rbac;

pub use self::client::{
    FieldValidation, KubernetesClient, KubernetesClientBuilder, ObjectTable, Scale, ServedKind, TableColumn, TableRow,
};
pub use self::config::{ClusterConfig, ConfigError, Impersonation, Kubeconfig};
pub use self::crd::{CustomResourceDefinition, InstallError};
pub use self::http::{RequestError, RequestMetrics};
pub use self::manifest::to_yaml;
pub use self::rbac::RbacRules;

/// The README's code is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
