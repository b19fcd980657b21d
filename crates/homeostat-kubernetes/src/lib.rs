//! Connections to Kubernetes API servers, without an async runtime. Feature `kubernetes`.
//!
//! - [`ClusterConfig::load`] finds the connection settings the way `kubectl` does.
//! - [`KubernetesClient`] is a [`Client`](homeostat_objects::Client) of a real server. Objects, watches and controllers
//!   work with it as with the embedded clients.
//! - `CustomResourceDefinition` (feature `schema`) makes a server serve a Rust type. [`RbacRules`] lists the
//!   permissions that a program needs.
//! - The source of a transport error is a [`RequestError`], which names the verb, the URL and the request's id in the
//!   audit log.
//!
#![doc = include_str!("cases.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;
mod sync;

mod client;
mod config;
#[cfg(feature = "schema")]
mod crd;
mod http;
mod manifest;
mod rbac;

pub use self::client::{
    FieldValidation, KubernetesClient, KubernetesClientBuilder, ObjectTable, Scale, ServedKind, TableColumn, TableRow,
};
pub use self::config::{ClusterConfig, ConfigError, Impersonation, Kubeconfig};
#[cfg(feature = "schema")]
pub use self::crd::{CrdVersion, CustomResourceDefinition, CustomResourceDefinitionBuilder, InstallError, SchemaError};
pub use self::http::{RequestError, RequestMetrics};
pub use self::manifest::to_yaml;
pub use self::rbac::RbacRules;
