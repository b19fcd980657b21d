//! The run conditions of a controller.

/// The conditions under which a controller takes keys. All must hold.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub(super) struct RunConditions {
    /// Whether the initial listings are complete.
    pub(super) synced: bool,
    /// Whether this process leads.
    pub(super) leading: bool,
    /// Whether the whole controller is suspended.
    pub(super) suspended: bool,
    /// Whether the controller has been stopped.
    pub(super) stopped: bool,
}

impl RunConditions {
    pub(super) fn hold(self) -> bool {
        self.synced && self.leading && !self.suspended && !self.stopped
    }
}
