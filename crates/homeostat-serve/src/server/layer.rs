//! A function around the handlers of a server.

use std::fmt;
use std::sync::Arc;

use crate::http::{Handler, IncomingRequest, Reply};

/// Answers requests, itself or by calling the server's handlers.
pub(super) type Layer = Arc<dyn Fn(&IncomingRequest, &NextHandler<'_>) -> Reply + Send + Sync>;

/// The handlers of a server, for its [layer](crate::ServerBuilder::layer).
pub struct NextHandler<'a>(pub(super) &'a dyn Handler);

impl NextHandler<'_> {
    /// Returns the reply of the server's own handlers: objects, admission reviews and status pages.
    ///
    /// Runs as long as the handler. A watch returns at once, because its body is sent later.
    pub fn answer(&self, request: &IncomingRequest) -> Reply {
        self.0.handle(request)
    }
}

impl fmt::Debug for NextHandler<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextHandler").finish_non_exhaustive()
    }
}
