//! Pages about this crate in the [guide](homeostat::guide), which spans all crates of the family.

#[doc = include_str!("testing.md")]
pub mod testing {}
#[doc = include_str!("from_reconciler_io.md")]
pub mod from_reconciler_io {}
