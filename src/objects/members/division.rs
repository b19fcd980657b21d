//! The members of a group, and the division of keys among them.

/// A division of keys among members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Division {
    /// The number. Each division has a greater one than those before.
    pub(super) number: u64,
    /// The names of the members, in order.
    pub(super) members: Vec<String>,
    /// The names of the members of the division before, in order.
    pub(super) earlier: Vec<String>,
}
