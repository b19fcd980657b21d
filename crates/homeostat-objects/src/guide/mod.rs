//! Pages of the guide about this crate.

#[doc = include_str!("clients.md")]
pub mod clients {}

#[doc = include_str!("from_controller_runtime.md")]
pub mod from_controller_runtime {}

#[doc = include_str!("from_kube_rs.md")]
pub mod from_kube_rs {}

#[doc = include_str!("sharding.md")]
pub mod sharding {}
