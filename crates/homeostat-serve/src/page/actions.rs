//! Actions of users on the pages: forms, their tokens, and a record of past actions.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::data::{cell, controller_link, heading, key_link, row_name, table};
use super::escape::{Escaped, name, path};
use super::units::{ago, time};
use crate::status::UserAction;
use crate::sync::Mutex;

/// The number of users with a token. A further user takes the place of the first one.
const MOST_USERS: usize = 1_024;

/// The number of past actions that are kept.
const MOST_ACTIONS: usize = 200;

/// The number of past actions that a page shows.
const MOST_ROWS: usize = 10;

/// The controller or the key of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActionTarget {
    pub(super) controller: String,
    /// The key, formatted by `Debug`. `None` for all keys of the controller.
    pub(super) key: Option<String>,
}

impl ActionTarget {
    pub(super) fn controller(name: &str) -> Self {
        Self { controller: name.to_owned(), key: None }
    }

    pub(super) fn key(controller: &str, shown: &str) -> Self {
        Self { controller: controller.to_owned(), key: Some(shown.to_owned()) }
    }

    fn page_segments(&self) -> Vec<&str> {
        match &self.key {
            Some(key) => vec!["keys", &self.controller, key],
            None => vec!["controllers", &self.controller],
        }
    }

    /// Returns the path of the target's page.
    pub(super) fn page(&self) -> String {
        path(&self.page_segments())
    }

    /// Returns the path of an action, in segments.
    pub(super) fn segments(&self, action: UserAction) -> Vec<String> {
        self.page_segments().into_iter().chain([action.name()]).map(str::to_owned).collect()
    }
}

/// The tokens in the forms of each user. A page of another site cannot read them, so it cannot send a form.
#[derive(Default)]
pub(super) struct FormTokens(Mutex<VecDeque<(String, String)>>);

impl FormTokens {
    /// Returns the token of a user.
    pub(super) fn of(&self, user: &str) -> String {
        let mut tokens = self.0.lock();
        if let Some((_, token)) = tokens.iter().find(|(known, _)| known == user) {
            return token.clone();
        }
        if tokens.len() >= MOST_USERS {
            tokens.pop_front();
        }
        let token = Uuid::new_v4().simple().to_string();
        tokens.push_back((user.to_owned(), token.clone()));
        token
    }

    /// Returns whether a form of this user has this token.
    pub(super) fn accepts(&self, user: &str, sent: &str) -> bool {
        let tokens = self.0.lock();
        let token = tokens.iter().find(|(known, _)| known == user);
        token.is_some_and(|(_, token)| token.as_bytes().ct_eq(sent.as_bytes()).into())
    }
}

/// An action that was done.
#[derive(Clone, Debug)]
pub(super) struct PastAction {
    pub(super) action: UserAction,
    pub(super) target: ActionTarget,
    pub(super) user: String,
    pub(super) client: IpAddr,
    pub(super) at: Instant,
    pub(super) time: SystemTime,
}

/// The last actions, oldest first.
#[derive(Default)]
pub(super) struct PastActions(Mutex<VecDeque<PastAction>>);

impl PastActions {
    pub(super) fn add(&self, action: PastAction) {
        let mut actions = self.0.lock();
        if actions.len() >= MOST_ACTIONS {
            actions.pop_front();
        }
        actions.push_back(action);
    }

    /// Returns the action that suspended a target, unless a person has resumed it since.
    pub(super) fn suspension(&self, target: &ActionTarget) -> Option<PastAction> {
        let actions = self.0.lock();
        let mut of_target = actions.iter().rev().filter(|past| past.target == *target);
        let last = of_target.find(|past| past.action != UserAction::Retry).cloned();
        last.filter(|past| past.action == UserAction::Suspend)
    }

    /// Returns whether a person has asked for a run of a key since then. A failed key may also have been asked for with
    /// all failed keys of its controller.
    pub(super) fn is_requested(&self, key: &ActionTarget, has_failed: bool, since: Option<Instant>) -> bool {
        let all = ActionTarget::controller(&key.controller);
        let actions = self.0.lock();
        actions.iter().any(|PastAction { action, target, at, .. }| {
            let is_about = target == key || (has_failed && *target == all);
            *action == UserAction::Retry && is_about && since.is_none_or(|since| *at >= since)
        })
    }

    /// Adds the section of the last actions on these targets. No section if there were none.
    pub(super) fn section(
        &self,
        out: &mut String,
        (now, today): (Instant, SystemTime),
        is_shown: impl Fn(&ActionTarget) -> bool,
    ) {
        let actions: Vec<_> = {
            let actions = self.0.lock();
            actions.iter().rev().filter(|past| is_shown(&past.target)).take(MOST_ROWS).cloned().collect()
        };
        if actions.is_empty() {
            return;
        }
        out.push_str("<section aria-labelledby=\"actions\">");
        out.push_str(&heading("actions", "Last actions of people", ""));
        table(
            out,
            "",
            "Last actions, the newest first",
            &[("", "time"), ("", "action"), ("", "key"), ("", "user"), ("", "from")],
        );
        for PastAction { action, target, user, client, at, time: stamp } in &actions {
            let ago = ago(today, now.saturating_duration_since(*at));
            row_name(out, format_args!("{} <small>{ago} ago</small>", time(*stamp)));
            cell(out, "", "action", action);
            let subject = match &target.key {
                Some(key) => format!(
                    "{} <small>of {}</small>",
                    key_link(&target.controller, key),
                    controller_link(&target.controller)
                ),
                None => format!("all of {}", controller_link(&target.controller)),
            };
            cell(out, "wide", "key", subject);
            cell(out, "", "user", name(user));
            cell(out, "", "from", client);
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></section>");
    }
}

/// Adds the buttons of these actions, each with its text.
pub(super) fn buttons(out: &mut String, target: &ActionTarget, token: &str, actions: &[(UserAction, &str)]) {
    if actions.is_empty() {
        return;
    }
    out.push_str("<div class=\"buttons\">");
    for (action, text) in actions {
        // Writing to a `String` cannot fail.
        let _ = write!(
            out,
            "<form method=\"post\" action=\"{}\"><input type=\"hidden\" name=\"token\" value=\"{}\"><button>{text}</button></form>",
            path(&[&target.page_segments()[..], &[action.name()]].concat()),
            Escaped(token)
        );
    }
    out.push_str("</div>");
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_one_token_and_only_the_last_users_have_one() {
        let tokens = FormTokens::default();
        let ada = tokens.of("ada");
        assert_eq!((tokens.of("ada"), tokens.accepts("ada", &ada)), (ada.clone(), true));
        assert_ne!(tokens.of("bob"), ada);
        assert!(!tokens.accepts("bob", &ada) && !tokens.accepts("eve", &ada) && !tokens.accepts("ada", ""));
        for number in 0..MOST_USERS {
            tokens.of(&number.to_string());
        }
        assert_eq!(tokens.0.lock().len(), MOST_USERS);
        assert!(!tokens.accepts("ada", &ada));
    }
}
