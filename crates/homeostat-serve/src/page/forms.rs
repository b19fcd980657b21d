//! Answers forms: a user acts on a key or a controller.

use std::time::{Instant, SystemTime};

use http::{HeaderValue, Method, StatusCode, header};
use percent_encoding::percent_decode_str;

use super::actions::shown_user;
use super::handler::refusal;
use super::key_page::KeyStatus;
use super::pages::StatusPages;
use super::past_actions::{ActionTarget, PastAction};
use crate::access::{Access, AccessRequest, AccessTarget, UserInfo};
use crate::http::{IncomingRequest, Reply, canonical_path};
use crate::status::{Control, UserAction};
use homeostat::manager::Manager;
use homeostat::rt::one_line;

/// The content type of forms.
const FORM: &str = "application/x-www-form-urlencoded";

impl StatusPages {
    /// Returns target and action of a form. `None` if the request is no form, or users may not act on the controller.
    pub(super) fn form_of(&self, request: &IncomingRequest) -> Option<(ActionTarget, UserAction)> {
        let parts: Vec<_> = request.segments.iter().map(String::as_str).collect();
        let (target, action) = match parts.as_slice() {
            ["controllers", controller, action] => (ActionTarget::controller(controller), action),
            ["keys", controller, key, action] => (ActionTarget::key(controller, key), action),
            _ => return None,
        };
        let action = UserAction::ALL.into_iter().find(|known| known.name() == *action)?;
        let is_allowed = self.history.runs.controls(&target.controller).is_some();
        (request.method == Method::POST && is_allowed).then_some((target, action))
    }

    /// Returns whether the server would let a user send this form.
    pub(super) fn may_act(&self, user: &UserInfo, target: &ActionTarget, action: UserAction) -> bool {
        let path = canonical_path(&target.segments(action));
        let request = AccessRequest::new(user.clone(), "create", AccessTarget::Path(path));
        self.server.as_ref().is_none_or(|server| (server.authorizer)(&request) == Access::Allow)
    }

    /// Performs the action of a form. The server has asked the authorizer.
    pub(super) fn act(
        &self,
        request: &IncomingRequest,
        manager: &Manager,
        target: &ActionTarget,
        action: UserAction,
    ) -> Reply {
        let media = request.header(header::CONTENT_TYPE).unwrap_or_default();
        if media.split(';').next().unwrap_or_default().trim() != FORM {
            return refusal(request, StatusCode::UNSUPPORTED_MEDIA_TYPE, &format!("the body must be {FORM}"));
        }
        let token = field(&request.body, "token").unwrap_or_default();
        if !self.tokens.accepts(&request.user.name, &token) {
            let reason = "the form is not from a current page of yours: reload the page, and try again";
            return refusal(request, StatusCode::FORBIDDEN, reason);
        }
        let control = self.control(manager, target);
        // A run that follows the action must not begin before it: the page looks for the action by its time.
        let (at, time) = (manager.clock().now(), manager.clock().time_of_day());
        if !control.is_some_and(|control| control(manager, action)) {
            return refusal(request, StatusCode::NOT_FOUND, "this key is no longer known here");
        }
        self.record(request, target, action, (at, time));
        let mut reply = Reply::text(StatusCode::SEE_OTHER, format!("{action}: done\n"));
        if let Ok(page) = HeaderValue::try_from(target.page()) {
            reply.headers.insert(header::LOCATION, page);
        }
        reply
    }

    fn control(&self, manager: &Manager, ActionTarget { controller, key }: &ActionTarget) -> Option<Control> {
        match key {
            Some(key) => {
                let status = KeyStatus::find(manager, &self.history.runs, controller, key, &self.past_actions);
                status.ok()?.0.control().cloned()
            }
            None => Some(self.history.runs.controls(controller)?.all.clone()),
        }
    }

    /// Writes the audit line, and keeps the action for the pages.
    fn record(
        &self,
        request: &IncomingRequest,
        target: &ActionTarget,
        action: UserAction,
        (at, time): (Instant, SystemTime),
    ) {
        let user = one_line(shown_user(&request.user.name));
        let (component, client, verb) = (self.name.as_str(), request.peer.ip().to_canonical(), action.name());
        let name = user.as_str();
        let (controller, key) = (target.controller.as_str(), target.key.as_deref().map(one_line));
        let subject = key.as_deref().unwrap_or("all keys");
        log::info!(
            component, user = name, client:%, action = verb, controller, key = subject;
            "{component}: {name} at {client}: {verb} {subject} of {controller}"
        );
        let target = target.clone();
        self.past_actions.add(PastAction { action, target, user, client, at, time });
    }
}

/// Returns a form field.
fn field(body: &[u8], name: &str) -> Option<String> {
    let body = std::str::from_utf8(body).ok()?;
    let value = body.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    percent_decode_str(&value.replace('+', " ")).decode_utf8().ok().map(Into::into)
}
