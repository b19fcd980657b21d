//! The process that owns a value. A fork copies the value, and a copy must leave the parent's locks, threads and sockets alone.

use std::process;

/// The process that created a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerProcess(u32);

impl OwnerProcess {
    pub(crate) fn current() -> Self {
        Self(process::id())
    }

    /// Returns whether the calling process is the owner. False in a process that was forked from the owner.
    pub(crate) fn is_current(self) -> bool {
        self.0 == process::id()
    }

    /// Checks that the calling process is the owner.
    pub(crate) fn check(self) -> Result<(), String> {
        let (owner, current) = (self.0, process::id());
        let forked =
            || format!("process {owner} owns it, and process {current}, which was forked from it, has only a copy");
        if owner == current { Ok(()) } else { Err(forked()) }
    }
}
