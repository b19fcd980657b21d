//! Installs a definition, and waits until its kind is served.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::CustomResourceDefinition;
use super::error::InstallError;
use crate::base::backoff::Exponential;
use crate::objects::{Client, ClientError, FieldOwner, Kind, ObjectKey, Query, SharedObject};
use crate::run::context::Context;
use crate::run::error::Chain;

/// The delays between two looks at the definition.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The longest time of a call that looks, so that a cancellation is seen soon. A client repeats a call that the server puts off.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// The progress of an installation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InstallProgress {
    Established,
    /// Not yet, for this reason.
    Waiting(String),
    /// The server refuses the names, for this reason.
    Refused(String),
    /// The client needs no definitions.
    NotNeeded,
}

impl CustomResourceDefinition {
    /// Applies the definition with `owner` as field manager, and blocks until the server serves all its versions.
    ///
    /// Another owner's fields are taken over. A definition that is being deleted is applied again once it is gone. The embedded
    /// clients store any kind, so there the call returns at once.
    ///
    /// A cancellation of `cx` ends the wait, at the latest when a call that is under way has ended. A client that
    /// [can limit the time of its calls](Client::with_timeout) ends the first call within `timeout`, and each later call within five
    /// seconds.
    ///
    /// # Errors
    ///
    /// - If the client cannot apply the definition, or not list the kind: for example, because it is forbidden.
    /// - If the server refuses the names, with its reason.
    /// - If the kind is not served within `timeout`, with the last state ([`is_timeout`](InstallError::is_timeout)).
    /// - If `cx` is cancelled.
    pub fn install(
        &self,
        cx: &Context,
        client: &dyn Client,
        owner: &str,
        timeout: Duration,
    ) -> Result<(), InstallError> {
        let end = cx.clock().now().checked_add(timeout);
        let wait = InstallWait { definition: self, cx, end };
        wait.check()?;
        let apply = |client: &dyn Client| {
            let owner = FieldOwner::new(owner).force();
            client.apply(&Self::KIND, self.to_json().clone(), &owner)
        };
        let failed = |error: ClientError| {
            let fault = "cannot be applied";
            let is_late = wait.left().is_zero();
            let failed =
                if is_late { InstallError::timeout(self.name(), fault) } else { InstallError::new(self.name(), fault) };
            failed.caused_by(error)
        };
        let whole = client.with_timeout(timeout.max(FIRST_LOOK));
        let mut applied = Some(apply(whole.as_deref().unwrap_or(client)).map_err(failed)?);
        let mut calls = LimitedCalls { client, limited: None };
        let mut is_needed = true;
        wait.until(|left| {
            let client = calls.within(left);
            let definition = match applied.take() {
                Some(definition) => definition,
                None => match client.get(&Self::KIND, &ObjectKey::cluster(self.name())) {
                    Err(ClientError::NotFound { .. }) => match apply(client) {
                        Err(error) if is_passing(&error) => return Ok(Some(Chain(&error).to_string())),
                        applied => applied.map_err(failed)?,
                    },
                    // Look again: the server may be starting.
                    Err(error) => return Ok(Some(Chain(&error).to_string())),
                    Ok(definition) => definition,
                },
            };
            match progress(&definition) {
                InstallProgress::Established => Ok(None),
                InstallProgress::Waiting(reason) => Ok(Some(reason)),
                InstallProgress::Refused(reason) => {
                    Err(InstallError::new(self.name(), format!("the server refuses its names: {reason}")))
                }
                InstallProgress::NotNeeded => {
                    is_needed = false;
                    Ok(None)
                }
            }
        })?;
        let mut needed = self.served().filter(|_| is_needed);
        needed.try_for_each(|kind| wait.until(|left| served(calls.within(left), kind, self.name())))
    }
}

/// Lists one object of the kind. Returns `None` if that works, or the reason to wait.
fn served(client: &dyn Client, kind: &Kind, definition: &str) -> Result<Option<String>, InstallError> {
    match client.list(kind, &Query::all().limit(1)) {
        Ok(_) => Ok(None),
        Err(error) if is_passing(&error) => Ok(Some(format!("{kind} is not served yet: {}", Chain(&error)))),
        Err(error) => Err(InstallError::new(definition, format!("cannot list {kind}")).caused_by(error)),
    }
}

/// Returns whether an error may pass while a server starts to serve a kind.
fn is_passing(error: &ClientError) -> bool {
    error.is_not_found() || error.is_kind_not_served() || error.is_transport() || error.is_too_many_requests()
}

/// Decides by the conditions that the server has set.
pub(super) fn progress(definition: &SharedObject) -> InstallProgress {
    let Some(status) = definition.get("status") else { return InstallProgress::NotNeeded };
    if definition.is_deleting() {
        return InstallProgress::Waiting("the previous definition is being deleted".to_owned());
    }
    let conditions = status.to_value()["conditions"].clone();
    let condition =
        |kind: &str| conditions.as_array().into_iter().flatten().find(|condition| condition["type"] == kind);
    let reason = |condition: &Value| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", text("reason"), text("message"))
    };
    match (condition("NamesAccepted"), condition("Established")) {
        (Some(names), _) if names["status"] == "False" => InstallProgress::Refused(reason(names)),
        (_, Some(established)) if established["status"] == "True" => InstallProgress::Established,
        (_, Some(established)) => InstallProgress::Waiting(reason(established)),
        (_, None) => InstallProgress::Waiting("the server has not looked at it yet".to_owned()),
    }
}

/// A client that ends its calls in time.
struct LimitedCalls<'a> {
    client: &'a dyn Client,
    /// The last client with a limit, and that limit. The client is `None` if calls cannot be limited.
    limited: Option<(Duration, Option<Arc<dyn Client>>)>,
}

impl LimitedCalls<'_> {
    /// Returns a client for a look. Each of its calls ends within this time, and within the longest time of a look.
    fn within(&mut self, left: Duration) -> &dyn Client {
        // No call could succeed in less.
        let limit = left.clamp(FIRST_LOOK, LONGEST_LOOK);
        if self.limited.as_ref().is_none_or(|(known, _)| *known > limit) {
            self.limited = None;
        }
        let (_, limited) = self.limited.get_or_insert_with(|| (limit, self.client.with_timeout(limit)));
        limited.as_deref().unwrap_or(self.client)
    }
}

struct InstallWait<'a> {
    definition: &'a CustomResourceDefinition,
    cx: &'a Context,
    /// `None` if the timeout is too long to be reached.
    end: Option<std::time::Instant>,
}

impl InstallWait<'_> {
    /// Returns the time that is left.
    fn left(&self) -> Duration {
        self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(self.cx.clock().now()))
    }

    /// Returns an error if the installation is cancelled.
    fn check(&self) -> Result<(), InstallError> {
        let error = || InstallError::new(self.definition.name(), "the installation is cancelled");
        self.cx.check().map_err(|cancelled| error().caused_by(cancelled))
    }

    /// Calls `look` with the time that is left, until it returns no reason to wait.
    fn until(
        &self,
        mut look: impl FnMut(Duration) -> Result<Option<String>, InstallError>,
    ) -> Result<(), InstallError> {
        let backoff = Exponential::new(FIRST_LOOK, LAST_LOOK);
        for looks in 1.. {
            let Some(reason) = look(self.left())? else { return Ok(()) };
            self.check()?;
            let left = self.left();
            if left.is_zero() {
                return Err(InstallError::timeout(self.definition.name(), format!("not served in time: {reason}")));
            }
            // The check tells of a cancellation.
            let _ = self.cx.sleep(backoff.delay(looks).min(left));
            self.check()?;
        }
        unreachable!("the loop has no end")
    }
}
