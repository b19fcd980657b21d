//! Pages of the guide about this crate.

#[doc = include_str!("operator.md")]
pub mod operator {}
