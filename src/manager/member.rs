//! A component of a running manager.

use std::sync::Arc;

use super::component::{ComponentStart, ControllerEntry};
use super::removal::Removal;
use crate::base::running::{EndHook, Runnable};
use crate::base::time::Nanos;
use crate::run::fence::Fence;

/// A component that a manager has started.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) body: MemberBody,
    /// Present for a controller.
    controller: Option<Arc<ControllerEntry>>,
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
    pub(super) fn new(name: String, body: MemberBody, controller: Option<Arc<ControllerEntry>>) -> Self {
        Self { name, body, controller, removing: Removing::No }
    }

    fn running(&self) -> Option<&dyn Runnable> {
        match &self.body {
            MemberBody::Running(running) => Some(&**running),
            MemberBody::WaitsToLead(_) => None,
        }
    }

    pub(super) fn on_end(&self, hook: &EndHook) {
        if let Some(running) = self.running() {
            running.on_end(Arc::clone(hook));
        }
    }

    /// Lets a controller run keys. Returns the start function if the component waited to lead.
    pub(super) fn lead(&mut self, fence: &Fence) -> Option<ComponentStart> {
        if let Some(controller) = &self.controller {
            (controller.lead)(fence);
        }
        match &mut self.body {
            MemberBody::Running(_) => None,
            MemberBody::WaitsToLead(start) => start.take(),
        }
    }

    pub(super) fn close(&self) {
        if let Some(running) = self.running() {
            running.close();
        }
    }

    pub(super) fn stop(&self) {
        if let Some(running) = self.running() {
            running.stop();
        }
    }

    pub(super) fn abort(&self) {
        if let Some(running) = self.running() {
            running.abort();
        }
    }

    /// Returns the names of the threads that have not ended. Empty if the component has ended or waits to lead.
    pub(super) fn threads(&mut self) -> Vec<String> {
        match &mut self.body {
            MemberBody::Running(running) => running
                .join_timeout(std::time::Duration::ZERO)
                .map_or_else(|still| still.threads().to_vec(), |()| Vec::new()),
            MemberBody::WaitsToLead(_) => Vec::new(),
        }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.threads().is_empty()
    }

    pub(super) fn waits_to_lead(&self) -> bool {
        matches!(self.body, MemberBody::WaitsToLead(Some(_)))
    }

    pub(super) fn may_end(&self) -> bool {
        self.running().is_none_or(Runnable::may_end)
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
            running.detach();
        }
        self.give_up_removals(&threads);
    }
}
