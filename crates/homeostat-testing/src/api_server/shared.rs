//! The state that all connections of a server share.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use super::answer::ServerAnswer;
use super::request::ServerRequest;
use super::rule::ServerRule;
use homeostat::base::Clock;
use homeostat::rt::Monitor;
use homeostat_objects::{Kind, MemoryClient};

/// The objects of a server, and its rules.
pub(super) struct ServerShared {
    pub(super) client: MemoryClient,
    pub(super) state: Arc<Monitor<ScriptState>>,
}

#[derive(Default)]
pub(super) struct ScriptState {
    pub(super) kinds: Vec<Kind>,
    pub(super) rules: Vec<ServerRule>,
    pub(super) requests: Vec<ServerRequest>,
    /// The open connections, by number.
    pub(super) connections: HashMap<usize, TcpStream>,
    /// The number of connections so far.
    pub(super) accepted: usize,
    pub(super) stops: bool,
}

impl ScriptState {
    /// Ends all connections. Their threads end soon after.
    pub(super) fn disconnect(&self) {
        for stream in self.connections.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl ServerShared {
    pub(super) fn new(client: MemoryClient, kinds: Vec<Kind>) -> Self {
        let state = ScriptState { kinds, ..ScriptState::default() };
        Self { client, state: Monitor::of(Clock::system(), state) }
    }

    /// Records a request, and takes its answer from the first rule that applies.
    pub(super) fn answer_for(&self, request: &ServerRequest) -> ServerAnswer {
        self.state.change(|state| {
            state.requests.push(request.clone());
            let answer = state.rules.iter_mut().find_map(|rule| rule.take(request));
            answer.unwrap_or_else(ServerAnswer::stored)
        })
    }

    /// Returns the served kind with this group, version and plural.
    pub(super) fn kind(&self, group: &str, version: &str, plural: &str) -> Option<Kind> {
        let is_meant = |kind: &&Kind| kind.group() == group && kind.version() == version && kind.plural() == plural;
        self.state.with(|state| state.kinds.iter().find(is_meant).cloned())
    }

    /// Serves a kind, and replaces an equal kind.
    pub(super) fn serve(&self, kind: Kind) {
        self.state.change(|state| {
            state.kinds.retain(|known| *known != kind);
            state.kinds.push(kind);
        });
    }

    /// Stops serving kinds.
    pub(super) fn withdraw(&self, is_withdrawn: impl Fn(&Kind) -> bool) {
        self.state.change(|state| state.kinds.retain(|known| !is_withdrawn(known)));
    }
}
