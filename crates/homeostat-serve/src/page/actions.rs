//! Actions of users on the pages: forms, their tokens, and the section of past actions.

use std::collections::VecDeque;
use std::fmt::{Display, Write};
use std::time::{Duration, Instant, SystemTime};

use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::data::{cell, controller_link, heading, key_link, row_name, table};
use super::effects::KnownControllers;
use super::escape::{Escaped, name, path};
use super::past_actions::{ActionTarget, PastAction, PastActions};
use super::units::{ago, time};
use crate::status::UserAction;
use crate::sync::Mutex;

/// The number of users with a token. A further user takes the place of the first one.
const MOST_USERS: usize = 1_024;

/// The number of past actions that a page shows.
const MOST_ROWS: usize = 10;

/// How long a page tells the last action on its key or controller.
const NOTICE_TIME: Duration = Duration::from_secs(20);

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

/// Returns the name of a user for people.
pub(super) fn shown_user(user: &str) -> &str {
    if user.is_empty() { "anonymous" } else { user }
}

/// The rights of a user on a page.
pub(super) struct UserRights {
    /// The name of the user. Empty for an anonymous one.
    pub(super) user: String,
    /// The token for the forms.
    pub(super) token: String,
    /// Whether the program offers actions here.
    pub(super) is_offered: bool,
    /// Whether the user may do one of them.
    pub(super) may_act: bool,
}

/// Adds the section of the last actions on these targets, if there were any.
pub(super) fn section(
    out: &mut String,
    past: &PastActions,
    mut known: KnownControllers<'_>,
    (now, today): (Instant, SystemTime),
    is_shown: impl Fn(&ActionTarget) -> bool,
) {
    let actions = past.last(MOST_ROWS, is_shown);
    if actions.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"actions\">");
    out.push_str(&heading("actions", "Last actions of people", ""));
    table(
        out,
        "",
        "Last actions, the newest first",
        &[("", "time"), ("", "action"), ("", "key"), ("", "user"), ("", "from"), ("", "what followed")],
    );
    for done in &actions {
        let PastAction { action, target, user, client, at, time: stamp } = done;
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
        cell(out, "wide", "what followed", known.followed(done, past, (now, today)));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}

/// Adds a message about the last action on this target, for a short time after it. `effect` returns a word and a
/// sentence about its result. The user is the subject of the sentence.
pub(super) fn notice(
    past: &PastActions,
    out: &mut String,
    now: Instant,
    target: &ActionTarget,
    effect: impl FnOnce(&PastAction) -> (&'static str, String),
) {
    let is_new = |past: &PastAction| now.saturating_duration_since(past.at) < NOTICE_TIME;
    let Some(last) = past.last(1, |other| other == target).pop().filter(is_new) else { return };
    let (word, sentence) = effect(&last);
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<p class=\"notice\" role=\"status\"><b>{word}</b> {} {sentence} <small>requested at {}</small></p>",
        name(&last.user),
        time(last.time)
    );
}

/// Adds the buttons of these actions, each with its text, or says why there are none.
pub(super) fn buttons(
    out: &mut String,
    target: &ActionTarget,
    rights: &UserRights,
    actions: &[(UserAction, impl Display)],
) {
    let controller = name(&target.controller);
    let refusal = match rights {
        UserRights { is_offered: false, .. } => format!("the program does not offer them for {controller}"),
        UserRights { may_act: false, user, .. } => format!("{} may not act on {controller}", name(shown_user(user))),
        _ => String::new(),
    };
    if !refusal.is_empty() {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "<p class=\"calm\">No actions: {refusal}.</p>");
    }
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
            Escaped(&rights.token)
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
