//! The script of a server: its rules and the requests so far.

use std::sync::Arc;

use homeostat::base::Clock;
use homeostat::rt::Monitor;
use homeostat_objects::{Kind, MemoryClient};
use homeostat_serve::{IncomingRequest, NextHandler, ObjectApi, Reply};

use super::answer::ServerAnswer;
use super::definitions;
use super::rule::ServerRule;

/// The headers of requests as another user. The server has no users, so it ignores them.
const IMPERSONATION: [&str; 3] = ["impersonate-user", "impersonate-group", "impersonate-uid"];

/// The objects of a server, and its script.
pub(super) struct ServerShared {
    pub(super) client: MemoryClient,
    pub(super) api: ObjectApi,
    pub(super) script: Arc<Monitor<Script>>,
}

#[derive(Default)]
pub(super) struct Script {
    pub(super) rules: Vec<ServerRule>,
    pub(super) requests: Vec<IncomingRequest>,
    /// The served kinds of the stored definitions.
    pub(super) defined: Vec<Kind>,
}

impl ServerShared {
    pub(super) fn new(client: MemoryClient, api: ObjectApi) -> Self {
        Self { client, api, script: Monitor::of(Clock::system(), Script::default()) }
    }

    /// Records a request, and answers it by the first rule that applies.
    pub(super) fn answer(&self, request: &IncomingRequest, next: &NextHandler<'_>) -> Reply {
        let answer = self.script.change(|script| {
            script.requests.push(request.clone());
            script.rules.iter_mut().find_map(|rule| rule.take(request))
        });
        let answer = answer.unwrap_or_else(ServerAnswer::stored);
        answer.reply(request, |request| self.stored(request, next))
    }

    /// Answers a request without rules.
    fn stored(&self, request: &IncomingRequest, next: &NextHandler<'_>) -> Reply {
        if let "/readyz" | "/livez" | "/healthz" = request.path() {
            return Reply::empty(200).with_body("text/plain", "ok");
        }
        let is_plain = IMPERSONATION.iter().all(|name| request.header(name).is_none());
        let plain = || IMPERSONATION.iter().fold(request.clone(), |request, name| request.without_header(name));
        let reply = if is_plain { next.answer(request) } else { next.answer(&plain()) };
        if definitions::are_written_by(request) {
            let replace = |kinds| self.script.change(|script| std::mem::replace(&mut script.defined, kinds));
            definitions::follow(&self.client, &self.api, replace);
        }
        reply
    }
}
