//! The members of a group, and the assignment of keys to them.

/// An assignment of keys to members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assignment {
    /// The number. Each assignment has a greater number than the ones before.
    pub(super) number: u64,
    /// The names of the members, in order.
    pub(super) members: Vec<String>,
    /// The earlier assignments, whose members may still run lost keys. The oldest comes first.
    pub(super) earlier: Vec<EarlierAssignment>,
}

/// An earlier assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EarlierAssignment {
    pub(super) number: u64,
    /// The names of the members, in order.
    pub(super) members: Vec<String>,
}

impl Assignment {
    /// Returns the names of all members of this assignment and of the earlier ones. A name may appear several times.
    pub(super) fn all_members(&self) -> impl Iterator<Item = &String> {
        self.members.iter().chain(self.earlier.iter().flat_map(|earlier| &earlier.members))
    }
}
