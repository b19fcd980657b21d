//! The use of open connections, as a page shows it.

use std::net::SocketAddr;
use std::time::SystemTime;

use super::counts::without_object;

/// The use of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionActivity {
    /// Its begin. `None` until its thread runs.
    pub(crate) since: Option<SystemTime>,
    /// The number of admitted requests.
    pub(crate) requests: u64,
    /// The user of the last one.
    pub(crate) user: String,
    /// The verb and the path of the last one. An object is shown as `…`, because its name may be secret.
    pub(crate) last: String,
}

/// An open connection, as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenConnection {
    pub(crate) peer: SocketAddr,
    /// Whether it waits for the next request.
    pub(crate) is_idle: bool,
    pub(crate) activity: ConnectionActivity,
}

impl ConnectionActivity {
    /// Records an admitted request.
    pub(super) fn admit(&mut self, user: &str, verb: &str, path: &str) {
        self.requests += 1;
        self.last = format!("{verb} {}", without_object(path));
        if self.user != user {
            user.clone_into(&mut self.user);
        }
    }
}
