//! The conditions under which a controller takes keys.

/// The conditions that must all hold for a controller to take keys.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub(super) struct RunConditions {
    /// The initial listings are in.
    pub(super) synced: bool,
    /// This process leads.
    pub(super) leading: bool,
    /// The whole controller is suspended.
    pub(super) suspended: bool,
    /// The controller has been stopped.
    pub(super) stopped: bool,
}

impl RunConditions {
    pub(super) fn hold(self) -> bool {
        self.synced && self.leading && !self.suspended && !self.stopped
    }
}
