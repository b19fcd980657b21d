//! Pages about this crate in the [guide](homeostat::guide), which spans all crates of the family.

#[doc = include_str!("operator.md")]
pub mod operator {}
