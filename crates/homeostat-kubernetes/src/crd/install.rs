//! Installs a definition, and waits until the server serves its kind.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::CustomResourceDefinition;
use super::error::InstallError;
use homeostat::base::Exponential;
use homeostat::rt::Chain;
use homeostat::run::Context;
use homeostat_objects::{Client, ClientError, ClientErrorKind, FieldOwner, Kind, ObjectKey, Query, SharedObject};

/// The shortest and longest delay between two checks of the definition.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const LAST_DELAY: Duration = Duration::from_secs(1);

/// The timeout of each call of a check. It is short, so that a cancellation is noticed soon, even if the client
/// repeats the call.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// How far an installation is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InstallProgress {
    Established,
    /// The kind is not served yet, for this reason.
    Waiting(String),
    /// The server refuses the names, for this reason.
    Refused(String),
    /// The client works without definitions.
    NotNeeded,
}

impl CustomResourceDefinition {
    /// Applies the definition with `owner` as field manager, and blocks until the server serves all its versions.
    ///
    /// Takes over fields of other owners. If the definition is being deleted, applies it again once it is gone.
    /// Embedded clients store any kind, so for them the call returns at once. It also returns at once if the server
    /// accepts no definitions, but serves all versions of this one, such as an `ObjectApi` of the crate
    /// `homeostat-serve`.
    ///
    /// Cancelling `cx` ends the wait, at the latest when the current call has ended. If the client [can limit the time
    /// of its calls](Client::with_timeout), the first call ends within `timeout`, and each later call within five
    /// seconds.
    ///
    /// # Errors
    ///
    /// - If the client cannot apply the definition or list the kind, for example because it is forbidden.
    /// - If the server refuses the names. The error includes the reason.
    /// - If the server does not serve the kind within `timeout`. [`is_timeout`](InstallError::is_timeout) is then
    ///   true, and the error includes the last state.
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
        let whole = client.with_timeout(timeout.max(FIRST_DELAY));
        let first = whole.as_deref().unwrap_or(client);
        let is_served = |kind| matches!(served(first, kind, self.name()), Ok(None));
        let mut applied = match apply(first) {
            Err(error) if *error.kind() == ClientErrorKind::KindNotServed && self.served().all(is_served) => {
                return Ok(());
            }
            applied => Some(applied.map_err(failed)?),
        };
        let mut calls = LimitedCalls { client, limited: None };
        let mut is_needed = true;
        wait.until(|left| {
            let client = calls.within(left);
            let definition = match applied.take() {
                Some(definition) => definition,
                None => match client.get(&Self::KIND, &ObjectKey::cluster(self.name())) {
                    Err(error) if error.is_not_found() => match apply(client) {
                        Err(error) if is_passing(&error) => return Ok(Some(Chain(&error).to_string())),
                        applied => applied.map_err(failed)?,
                    },
                    // Try again, because the server may be starting.
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

/// Lists one object of the kind. Returns `None` if this works, or else the reason to wait.
fn served(client: &dyn Client, kind: &Kind, definition: &str) -> Result<Option<String>, InstallError> {
    match client.list(kind, &Query::all().limit(1)) {
        Ok(_) => Ok(None),
        Err(error) if is_passing(&error) => Ok(Some(format!("{kind} is not served yet: {}", Chain(&error)))),
        Err(error) => Err(InstallError::new(definition, format!("cannot list {kind}")).caused_by(error)),
    }
}

/// Returns whether an error may disappear while a server starts to serve a kind.
fn is_passing(error: &ClientError) -> bool {
    matches!(
        error.kind(),
        ClientErrorKind::NotFound
            | ClientErrorKind::KindNotServed
            | ClientErrorKind::Transport
            | ClientErrorKind::TooManyRequests { .. }
    )
}

/// Determines the progress from the conditions that the server has set.
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

/// A client with limited call times.
struct LimitedCalls<'a> {
    client: &'a dyn Client,
    /// The last client with a limit, and the limit. The client is `None` if it cannot limit its calls.
    limited: Option<(Duration, Option<Arc<dyn Client>>)>,
}

impl LimitedCalls<'_> {
    /// Returns a client for one check. Its calls end within the time `left`, and within the timeout of a check.
    fn within(&mut self, left: Duration) -> &dyn Client {
        // With less time, no call could succeed.
        let limit = left.clamp(FIRST_DELAY, CHECK_TIMEOUT);
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
    /// `None` if the timeout is too far away to represent.
    end: Option<std::time::Instant>,
}

impl InstallWait<'_> {
    /// Returns the remaining time.
    fn left(&self) -> Duration {
        self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(self.cx.clock().now()))
    }

    /// Returns an error if the installation was cancelled.
    fn check(&self) -> Result<(), InstallError> {
        let error = || InstallError::new(self.definition.name(), "the installation is cancelled");
        self.cx.check().map_err(|cancelled| error().caused_by(cancelled))
    }

    /// Calls `look` with the remaining time until it returns no more reason to wait.
    fn until(
        &self,
        mut look: impl FnMut(Duration) -> Result<Option<String>, InstallError>,
    ) -> Result<(), InstallError> {
        let backoff = Exponential::new(FIRST_DELAY, LAST_DELAY);
        for looks in 1.. {
            let Some(reason) = look(self.left())? else { return Ok(()) };
            self.check()?;
            let left = self.left();
            if left.is_zero() {
                return Err(InstallError::timeout(self.definition.name(), format!("not served in time: {reason}")));
            }
            // The next check notices a cancellation.
            let _ = self.cx.sleep(backoff.delay(looks).min(left));
            self.check()?;
        }
        unreachable!("the loop has no end")
    }
}
