//! Stores recorded events through the client, one at a time.

use std::sync::Arc;

use super::super::client::{Client, PatchTarget};
use super::super::error::{ClientError, ClientErrorKind, ObjectRef};
use super::record::{EVENT, EventPass, EventRecords, EventType, PassFailures, Recorded, Reporter, StoreOutcome};
use homeostat::base::{Clock, ThreadOptions};
use homeostat::rt::{Chain, Monitor, Nanos, shielded};

/// Called with each event: its object, type, reason and message.
pub(super) type Observer = Box<dyn Fn(&ObjectRef, EventType, &str, &str) + Send + Sync>;

/// The state that the handles and the thread of a recorder share.
pub(super) struct RecorderCore {
    pub(super) component: String,
    pub(super) reporter: Reporter,
    pub(super) client: Option<Arc<dyn Client>>,
    pub(super) log: bool,
    pub(super) clock: Clock,
    pub(super) observer: Option<Observer>,
    pub(super) threads: ThreadOptions,
    /// Not held while a client is called.
    pub(super) records: Arc<Monitor<EventRecords>>,
}

impl RecorderCore {
    /// Tries once to store each event that is pending now. Returns whether no event waits for another try.
    ///
    /// Skips the events of namespaces that have failed, and counts further failures, because a webhook may fail for one
    /// namespace only. After failures in several namespaces in a row, the client counts as unreachable, and the pass
    /// ends.
    pub(super) fn store_all(&self, failures: &mut PassFailures) -> bool {
        let Some(client) = &self.client else { return true };
        let mut pass = self.records.with(|records| records.begin_pass());
        while !failures.is_unreachable() {
            let Some(mut next) = Storing::next(self, &mut pass, failures) else { break };
            shielded("the client of an event recorder", || next.store(&**client));
            failures.count(next.recorded.namespace(), next.outcome);
        }
        failures.is_empty() && !self.records.with(|records| records.has_failed())
    }
}

impl Drop for RecorderCore {
    /// Reports the events that are lost because nobody will store them.
    fn drop(&mut self) {
        let count = self.records.with(|records| records.pending());
        if count > 0 {
            let component = self.component.as_str();
            log::warn!(
                controller = component, count;
                "{component}: {count} events are lost: the recorder ends and could not store them"
            );
        }
    }
}

/// Stores an event: creates its object, or raises the count of the stored one. If the stored one has been deleted (most
/// clients delete events after an hour), creates it again.
fn store(client: &dyn Client, reporter: &Reporter, recorded: &Recorded) -> Result<(), ClientError> {
    let key = recorded.key(reporter);
    let patch = || {
        let patch = recorded.patch().map(|patch| client.patch(&EVENT, &key, &patch, PatchTarget::Object));
        patch.map_or(Ok(()), |patched| patched.map(drop))
    };
    let create = || client.create(&EVENT, recorded.to_json(reporter)).map(drop);
    if recorded.is_stored() {
        match patch() {
            Err(error) if error.is_not_found() => create(),
            other => other,
        }
    } else {
        match create() {
            // An earlier call has created it, but the answer was lost.
            Err(error) if error.is_already_exists() => patch(),
            other => other,
        }
    }
}

/// Returns whether the namespace of an event does not exist or is being deleted.
fn is_without_namespace(error: &ClientError) -> bool {
    match error.kind() {
        ClientErrorKind::NotFound => true,
        ClientErrorKind::Forbidden => error.reason().contains("because it is being terminated"),
        _ => false,
    }
}

/// An event that a thread is storing. Dropping it lets other threads store the next one, even if the client panics.
struct Storing<'a> {
    core: &'a RecorderCore,
    recorded: Recorded,
    outcome: StoreOutcome,
}

impl<'a> Storing<'a> {
    /// Takes the next event of a pass; `None` if none remains. Waits while another thread stores one.
    fn next(core: &'a RecorderCore, pass: &mut EventPass, failures: &PassFailures) -> Option<Self> {
        let idle =
            |records: &mut EventRecords| (!records.is_busy(pass, failures)).then(|| records.take(pass, failures));
        let recorded = core.records.wait_for_some(Nanos::NEVER, idle).flatten()?;
        Some(Self { core, recorded, outcome: StoreOutcome::Refused })
    }

    fn store(&mut self, client: &dyn Client) {
        let component = self.core.component.as_str();
        let Err(error) = store(client, &self.core.reporter, &self.recorded) else {
            self.outcome = StoreOutcome::Stored;
            return;
        };
        if matches!(error.kind(), ClientErrorKind::Transport | ClientErrorKind::TooManyRequests { .. }) {
            self.outcome = StoreOutcome::Unreachable;
        }
        let (object, shown) = (self.recorded.object(), Chain(&error));
        if is_without_namespace(&error) {
            log::debug!(
                controller = component, object:%, error:% = shown;
                "{component}: dropped an event about {object}, because its namespace is gone: {shown}"
            );
            return;
        }
        log::warn!(
            controller = component, object:%, error:% = shown;
            "{component}: cannot store an event about {object}: {shown}"
        );
    }
}

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        let is_dropped = self.core.records.change(|records| records.finish(&self.recorded, self.outcome));
        if is_dropped {
            let (component, object) = (self.core.component.as_str(), self.recorded.object());
            log::warn!(
                controller = component, object:%;
                "{component}: dropped an event about {object}, because it could not be stored"
            );
        }
    }
}
