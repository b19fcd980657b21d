//! Pages about this crate in the [guide](homeostat::guide), which spans all crates of the family.

#[doc = include_str!("clients.md")]
pub mod clients {}
