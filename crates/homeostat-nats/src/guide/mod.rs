//! Pages of the guide about this crate.

#[doc = include_str!("nats.md")]
pub mod nats {}
