//! Pages of the guide about this crate.

#[doc = include_str!("from_reconciler_io.md")]
pub mod from_reconciler_io {}

#[doc = include_str!("testing.md")]
pub mod testing {}
