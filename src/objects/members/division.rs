//! The members of a group, and the division of keys among them.

/// A division of keys among members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Division {
    /// The number. Each division has a greater one than those before.
    pub(super) number: u64,
    /// The names of the members, in order.
    pub(super) members: Vec<String>,
    /// The earlier divisions, whose members may still run lost keys. The oldest comes first.
    pub(super) earlier: Vec<EarlierDivision>,
}

/// A division that another one has followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EarlierDivision {
    pub(super) number: u64,
    /// The names of the members, in order.
    pub(super) members: Vec<String>,
}

impl Division {
    /// Returns the names of all members of this division and of the earlier ones, some of them more than once.
    pub(super) fn all_members(&self) -> impl Iterator<Item = &String> {
        self.members.iter().chain(self.earlier.iter().flat_map(|earlier| &earlier.members))
    }
}
