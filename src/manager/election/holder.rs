//! The leader, for people.

use std::fmt;
use std::time::SystemTime;

/// The leader according to an election, from [`Elector::leader`](crate::Elector::leader). For status pages, not for
/// decisions. Displays as name and process id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The name of the leader's elector, or the identity in a lease.
    pub name: Option<String>,
    /// The leader's process id, as the leader sees it. Outside its container, the id may be different. `None` for a
    /// lease.
    pub pid: Option<u32>,
    /// The time of the election, by the leader's wall clock.
    pub since: Option<SystemTime>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("somebody unknown"))?;
        self.pid.map_or(Ok(()), |pid| write!(f, " (pid {pid})"))
    }
}
