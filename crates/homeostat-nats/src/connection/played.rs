//! A connection without a server and without threads: a test answers its requests.

use std::sync::Arc;

use super::shared::LinkShared;
use super::{ConnectionHandle, NatsConnection};
use crate::error::NatsError;
use crate::options::NatsOptions;
use crate::protocol::{NatsHeaders, NatsMessage};

/// Answers the requests of a connection.
pub(crate) trait Play: Send + Sync {
    fn answer(&self, subject: &str, headers: &NatsHeaders, payload: &[u8]) -> Result<NatsMessage, NatsError>;
}

impl NatsConnection {
    /// Returns a connection. `player` answers its requests, and its pauses take no time.
    pub(crate) fn played(options: NatsOptions, player: Arc<dyn Play>) -> Self {
        let shared = LinkShared::new(options);
        shared.link.with(|link| link.state.connected("played", 1 << 20, &mut Vec::new()));
        let mut handle = ConnectionHandle::new(&shared);
        handle.player = Some(player);
        Self { handle: Arc::new(handle), stop: None }
    }
}
