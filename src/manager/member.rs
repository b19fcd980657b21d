//! A component of a running manager, and its removal.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::component::{ComponentStart, ManagedController};
use crate::base::clock::Clock;
use crate::base::end::EndHook;
use crate::base::error::StillRunning;
use crate::base::running::Runnable;
use crate::base::thread::shielded;
use crate::base::time::Nanos;
use crate::base::wait::Monitor;
use crate::run::error::BoxError;
use crate::run::fence::Fence;

/// A component that a manager has started.
pub(super) struct Member {
    /// Numbers rise in the order of the starts.
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) body: MemberBody,
    /// Tells the driver that the component may have ended or failed.
    hook: EndHook,
    /// Whether the driver knows the failure of the component.
    pub(super) has_failed: bool,
    /// Present for a controller.
    controller: Option<Arc<dyn ManagedController>>,
    pub(super) removing: Removing,
}

pub(super) enum MemberBody {
    Running(Box<dyn Runnable>),
    /// A function that starts once this process leads.
    WaitsToLead(Option<ComponentStart>),
}

/// Whether a component is being removed.
pub(super) enum Removing {
    No,
    /// The component has been stopped. It is aborted if it has not ended at this time. Each removal has a caller that waits.
    Until(Nanos, Vec<Removal>),
    /// It has been aborted and its name is free, but it has not ended.
    GivenUp,
}

impl Member {
    pub(super) fn new(
        (number, hook): (u64, EndHook),
        name: String,
        body: MemberBody,
        controller: Option<Arc<dyn ManagedController>>,
    ) -> Self {
        let member = Self { number, name, body, hook, has_failed: false, controller, removing: Removing::No };
        member.listen();
        member
    }

    pub(super) fn is_controller(&self) -> bool {
        self.controller.is_some()
    }

    fn running(&self) -> Option<&dyn Runnable> {
        match &self.body {
            MemberBody::Running(running) => Some(&**running),
            MemberBody::WaitsToLead(_) => None,
        }
    }

    /// Calls code of the component. A panic is logged.
    fn call(&self, code: impl FnOnce(&dyn Runnable)) {
        if let Some(running) = self.running() {
            shielded(&self.name, || code(running));
        }
    }

    /// Begins to hear the component.
    pub(super) fn listen(&self) {
        self.call(|running| running.on_end(Arc::clone(&self.hook)));
    }

    /// Returns the failure of the component, once.
    pub(super) fn take_failure(&mut self) -> Option<Arc<BoxError>> {
        let mut failure = None;
        if !self.has_failed {
            self.call(|running| failure = running.failure());
            self.has_failed = failure.is_some();
        }
        failure
    }

    /// Lets a controller run keys. Returns the start function if the component waited to lead.
    pub(super) fn lead(&mut self, fence: &Fence) -> Option<ComponentStart> {
        if let Some(controller) = &self.controller {
            controller.lead(fence);
        }
        match &mut self.body {
            MemberBody::Running(_) => None,
            MemberBody::WaitsToLead(start) => start.take(),
        }
    }

    pub(super) fn close(&self) {
        self.call(|running| running.close());
    }

    pub(super) fn stop(&self) {
        self.call(|running| running.stop());
    }

    pub(super) fn abort(&self) {
        self.call(|running| running.abort());
    }

    /// Returns the names of the threads that have not ended. Empty if the component has ended or waits to lead.
    pub(super) fn threads(&mut self) -> Vec<String> {
        let MemberBody::Running(running) = &mut self.body else { return Vec::new() };
        let mut threads = vec![self.name.clone()];
        shielded(&self.name, || match running.join_timeout(Duration::ZERO) {
            Ok(()) => threads.clear(),
            // A component may not name its threads.
            Err(error) if error.still_running().is_empty() && !error.has_ended() => {}
            Err(error) => threads = error.still_running().to_vec(),
        });
        threads
    }

    pub(super) fn waits_to_lead(&self) -> bool {
        matches!(self.body, MemberBody::WaitsToLead(Some(_)))
    }

    pub(super) fn may_end(&self) -> bool {
        let mut may_end = true;
        self.call(|running| may_end = running.may_end());
        may_end
    }

    /// Answers the pending removals with the threads that have not ended.
    pub(super) fn give_up_removals(&mut self, threads: &[String]) {
        if let Removing::Until(_, removals) = std::mem::replace(&mut self.removing, Removing::GivenUp) {
            for removal in removals {
                removal.give_up(threads.to_vec());
            }
        }
    }

    /// Detaches the component. The pending removals are answered.
    pub(super) fn detach(mut self) {
        let threads = self.threads();
        if let MemberBody::Running(running) = &mut self.body {
            shielded(&self.name, || running.detach());
        }
        self.give_up_removals(&threads);
    }
}

/// The error of [`Manager::remove`](crate::Manager::remove).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoveError {
    /// The manager has no component of this name.
    NotFound(String),
    /// The component was aborted, and these threads have not ended. Its name is free. The manager waits for the threads at its
    /// end.
    StillRunning(StillRunning),
    /// The manager is stopping or has ended, with all its components.
    Stopping,
}

impl fmt::Display for RemoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(name) => write!(f, "the manager has no component {name:?}"),
            Self::StillRunning(still) => write!(f, "the component was aborted and does not end: {still}"),
            Self::Stopping => f.write_str("the manager is stopping"),
        }
    }
}

impl Error for RemoveError {}

/// A request to remove a component. Dropping it reports that the component has ended.
pub(super) struct Removal {
    pub(super) name: String,
    pub(super) grace: Duration,
    answer: RemovalAnswer,
}

/// The answer to a removal, once it is given: the threads that have not ended.
type RemovalAnswer = Arc<Monitor<Option<Vec<String>>>>;

impl Removal {
    pub(super) fn new(name: &str, grace: Duration, clock: &Clock) -> (Self, RemovalAnswer) {
        let answer = Monitor::of(clock.clone(), None);
        (Self { name: name.to_owned(), grace, answer: Arc::clone(&answer) }, answer)
    }

    /// Reports that these threads have not ended.
    pub(super) fn give_up(self, threads: Vec<String>) {
        self.answer.change(|answer| *answer = Some(threads));
    }

    /// Blocks until the answer is given.
    pub(super) fn wait(answer: &RemovalAnswer) -> Result<(), RemoveError> {
        let threads = answer.wait_for_some(Nanos::NEVER, Option::take).unwrap_or_default();
        StillRunning::unless_empty(threads).map_err(RemoveError::StillRunning)
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.answer.change(|answer| {
            answer.get_or_insert_default();
        });
    }
}
