//! Pages about this crate in the [guide](homeostat::guide), which spans all crates of the family.

#[doc = include_str!("operators.md")]
pub mod operators {}
#[doc = include_str!("sharding.md")]
pub mod sharding {}
#[doc = include_str!("from_controller_runtime.md")]
pub mod from_controller_runtime {}
#[doc = include_str!("from_kube_rs.md")]
pub mod from_kube_rs {}
#[doc = include_str!("from_easykube.md")]
pub mod from_easykube {}
#[doc = include_str!("from_kumori.md")]
pub mod from_kumori {}
