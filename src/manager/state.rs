//! The state of a manager, and its components from their addition to their end.
//!
//! # Invariants
//!
//! - A component that has started before the manager stops is stopped by the driver. If it starts later, the caller of
//!   `add` stops it before the manager ends.
//! - A thread that has locked the body of a component may call the component and lock the state. It never takes them in
//!   the reverse order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::component::{Component, ComponentFacts, ComponentStart, StartEnv};
use super::election::Elector;
use crate::base::cancel::{CancellationToken, OnCancel};
use crate::base::clock::Clock;
use crate::base::end::{End, EndHook};
use crate::base::error::{EndError, StartError};
use crate::base::running::{Runnable, Running};
use crate::base::sync::Mutex;
use crate::base::thread::{panic_message, shielded};
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, Monitor};
use crate::controller::ManagedController;
use crate::run::error::BoxError;
use crate::run::fence::Fence;
use crate::run::pool::{WorkerPool, WorkerPoolBuilder};

/// The settings of a [`ManagerBuilder`](crate::manager::ManagerBuilder).
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) grace: Duration,
    pub(super) abort_grace: Duration,
    pub(super) abort: CancellationToken,
    /// Callbacks on the tokens of [`ManagerBuilder::abort_on`](crate::manager::ManagerBuilder::abort_on). They cancel
    /// `abort`.
    pub(super) abort_on: Vec<OnCancel>,
    /// The time that a source may fail before the manager is not ready.
    pub(super) unready_after: Duration,
    /// The shared pool.
    pub(super) pool: WorkerPoolBuilder,
    pub(super) elector: Option<Arc<dyn Elector>>,
}

pub(super) struct ManagerInner {
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    /// Wakes the driver.
    pub(super) signal: Arc<AutoResetEvent>,
    pub(super) stop: CancellationToken,
    pub(super) state: Mutex<ManagerState>,
    /// The names of the watches that callers are starting.
    pub(super) starting_watches: Arc<Monitor<Vec<String>>>,
    /// Its part is the driver.
    pub(super) end: Arc<End>,
}

#[derive(Default)]
pub(super) struct ManagerState {
    pub(super) phase: ManagerPhase,
    /// The components, sorted by name. Those that end with the manager stay, for its status.
    pub(super) components: Vec<Arc<Member>>,
    /// The components that have not ended, by number. A removal may free the name of a component before its end.
    pub(super) alive: Vec<Arc<Member>>,
    /// The number of components that were ever added.
    numbers: u64,
    /// The numbers of components that may have ended or failed, some more than once. The driver asks them.
    pub(super) heard: Vec<u64>,
    pub(super) pool: Option<Arc<Running<WorkerPool>>>,
    pub(super) at_end: Vec<Box<dyn FnOnce() + Send>>,
    /// The first component that failed, and its error.
    pub(super) failure: Option<ComponentFailure>,
    /// Called for each controller.
    pub(super) observers: Vec<AddObserver>,
    /// The term, once this process has been elected. Also a term that has ended.
    pub(super) term: Option<Fence>,
    /// The outcome, once the driver has ended everything.
    pub(super) outcome: Option<Result<(), EndError>>,
}

/// Adds an observer of runs to the controller with this name.
pub(super) type AddObserver = Arc<dyn Fn(&str, &dyn ManagedController) + Send + Sync>;

/// The name of a component that failed, and its error.
pub(super) type ComponentFailure = (String, Arc<BoxError>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ManagerPhase {
    #[default]
    Idle,
    /// The components are started in order. Components that are added now come after them.
    Starting,
    Running,
    Stopping,
    Ended,
}

/// The name of the hooks of [`Manager::at_end`](crate::Manager::at_end) in log lines.
pub(super) const HOOK: &str = "a hook at the end of a manager";

/// A component of a manager.
pub(super) struct Member {
    /// Numbers rise in the order of the additions.
    pub(super) number: u64,
    pub(super) facts: ComponentFacts,
    /// Held while the component is called.
    body: Mutex<MemberBody>,
    progress: Arc<Monitor<MemberProgress>>,
}

struct MemberBody {
    stage: Stage,
    /// Whether the component knows that this process leads.
    led: bool,
    /// Whether the driver knows the failure of the component.
    has_failed: bool,
}

enum Stage {
    /// The component starts with the manager, or once this process leads.
    Waiting(ComponentStart),
    Starting,
    Running(Box<dyn Runnable>),
    Ended,
}

/// The progress of a component, for callers that remove it.
enum MemberProgress {
    /// It has not been started.
    Starting,
    Running,
    /// It has been stopped. Callers wait for its end.
    Removing,
    /// It has ended, or was given up with these threads.
    Ended(Vec<String>),
}

impl ManagerState {
    /// Returns whether the manager accepts no more components.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, ManagerPhase::Stopping | ManagerPhase::Ended)
    }

    /// Returns the component with this name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<Member>> {
        let place = self.components.binary_search_by(|member| member.facts.name.as_str().cmp(name)).ok()?;
        Some(&self.components[place])
    }
}

impl MemberBody {
    /// Takes the start function, if the component waits to be started.
    fn take_start(&mut self) -> Option<ComponentStart> {
        match std::mem::replace(&mut self.stage, Stage::Starting) {
            Stage::Waiting(start) => Some(start),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// Returns the names of the threads that have not ended. Empty if the component has ended or waits to be started.
    fn threads(&mut self, name: &str) -> Vec<String> {
        let mut threads = vec![name.to_owned()];
        match &mut self.stage {
            Stage::Waiting(_) | Stage::Ended => threads.clear(),
            Stage::Starting => {}
            Stage::Running(running) => shielded(name, || match running.join_timeout(Duration::ZERO) {
                Ok(()) => threads.clear(),
                // A component may not name its threads.
                Err(error) if error.still_running().is_empty() && !error.has_ended() => {}
                Err(error) => threads = error.still_running().to_vec(),
            }),
        }
        threads
    }

    /// Returns the failure of the component, once.
    fn take_failure(&mut self, name: &str) -> Option<Arc<BoxError>> {
        let Self { stage: Stage::Running(running), has_failed: false, .. } = &*self else { return None };
        let mut failure = None;
        shielded(name, || failure = running.failure());
        self.has_failed = failure.is_some();
        failure
    }
}

impl Member {
    pub(super) fn take_start(&self) -> Option<ComponentStart> {
        self.body.lock().take_start()
    }

    /// Lets an observer see the runs, if the component is a controller.
    fn observe(&self, add: &AddObserver) {
        self.facts.controller.iter().for_each(|controller| add(&self.facts.name, &**controller));
    }

    /// Calls the component, if it runs. A panic is logged.
    pub(super) fn call(&self, code: impl FnOnce(&(dyn Runnable + 'static))) {
        if let Stage::Running(running) = &self.body.lock().stage {
            shielded(&self.facts.name, || code(&**running));
        }
    }

    /// Tells the component that this process leads. Returns the start function if it has waited for that. Does nothing
    /// while another thread calls the component; see [`ask`](Self::ask).
    pub(super) fn lead(&self, fence: &Fence) -> Option<ComponentStart> {
        let mut body = self.body.try_lock()?;
        if body.led || matches!(body.stage, Stage::Starting | Stage::Ended) {
            return None;
        }
        body.led = true;
        self.facts.controller.iter().for_each(|controller| controller.lead(fence));
        body.take_start()
    }

    /// Returns the names of the threads that have not ended. Empty if the component has ended or waits to be started.
    pub(super) fn threads(&self) -> Vec<String> {
        self.body.lock().threads(&self.facts.name)
    }

    /// Returns whether the component has ended, and its failure, once. `None` while another thread calls the component:
    /// that thread lets the driver hear the component afterwards.
    pub(super) fn ask(&self, is_running: bool) -> Option<(bool, Option<Arc<BoxError>>)> {
        let (name, mut body) = (self.facts.name.as_str(), self.body.try_lock()?);
        // A component that waits to be started ends with the manager.
        let is_waiting = is_running && matches!(body.stage, Stage::Waiting(_));
        let has_ended = !is_waiting && body.threads(name).is_empty();
        // Asked after the end: a component may fail at its very end.
        Some((has_ended, body.take_failure(name)))
    }

    /// Returns whether its end is a failure although the component has told none.
    pub(super) fn ends_unexpectedly(&self) -> bool {
        let is_removed =
            self.progress.with(|progress| matches!(progress, MemberProgress::Removing | MemberProgress::Ended(_)));
        let mut may_end = is_removed || self.body.lock().has_failed;
        if !may_end {
            self.call(|running| may_end = running.may_end());
        }
        !may_end
    }

    /// Drops the component, and answers callers that remove it.
    fn drop_body(&self) {
        let stage = std::mem::replace(&mut self.body.lock().stage, Stage::Ended);
        // Without the lock: the drop may be user code.
        drop(stage);
        self.answer(Vec::new());
    }

    /// Detaches the component, which has not ended.
    pub(super) fn detach(&self) {
        let threads = self.threads();
        if let Stage::Running(running) = &mut self.body.lock().stage {
            shielded(&self.facts.name, || running.detach());
        }
        self.answer(threads);
        self.drop_body();
    }

    /// Answers callers that remove the component. Returns the first answer.
    fn answer(&self, threads: Vec<String>) -> Vec<String> {
        self.progress.change(|progress| match progress {
            MemberProgress::Ended(threads) => threads.clone(),
            other => {
                *other = MemberProgress::Ended(threads.clone());
                threads
            }
        })
    }
}

impl ManagerInner {
    fn is_stopping(&self) -> StartError {
        StartError::named("manager", &self.settings.name, "is stopping")
    }

    /// Returns whether the leadership was lost. Also true once it was given back.
    pub(super) fn has_lost_term(&self) -> bool {
        let term = self.state.lock().term.clone();
        term.is_some_and(|term| !term.lasts())
    }

    /// Returns whether a component starts only once this process is elected.
    pub(super) fn waits_to_lead(&self, facts: &ComponentFacts) -> bool {
        facts.waits_to_lead && self.settings.elector.is_some()
    }

    pub(super) fn add(self: &Arc<Self>, component: Component) -> Result<(), StartError> {
        let Component { mut facts, start } = component;
        StartError::check_required_name(&facts.name)?;
        let progress = Monitor::of(self.clock.clone(), MemberProgress::Starting);
        let (member, start, pool, observers) = {
            let mut state = self.state.lock();
            if state.is_closed() {
                return Err(self.is_stopping());
            }
            if let Some(other) = state.named(&facts.name).map(|other| other.facts.kind) {
                let advice =
                    (other != facts.kind).then(|| format!(", a {other}: give the {} another name", facts.kind));
                let fault = format!("is the name of another component of the manager{}", advice.unwrap_or_default());
                return Err(StartError::named("name", &facts.name, fault));
            }
            facts.source = facts.source.map(|source| source.named(&facts.name));
            let starts = state.phase == ManagerPhase::Running && !self.waits_to_lead(&facts);
            let (begun, start) = if starts { (Stage::Starting, Some(start)) } else { (Stage::Waiting(start), None) };
            state.numbers += 1;
            let body = Mutex::new(MemberBody { stage: begun, led: false, has_failed: false });
            let member = Arc::new(Member { number: state.numbers, facts, body, progress });
            let place = state.components.partition_point(|other| other.facts.name < member.facts.name);
            state.components.insert(place, Arc::clone(&member));
            state.alive.push(Arc::clone(&member));
            (member, start, state.pool.clone().filter(|_| starts), state.observers.clone())
        };
        for add in &observers {
            member.observe(add);
        }
        let (Some(start), Some(pool)) = (start, pool) else {
            // This process may lead already.
            self.hear(member.number);
            return Ok(());
        };
        self.start_member(&member, start, pool).inspect_err(|_| {
            self.free_name(&member);
            self.retire(&member);
        })
    }

    /// Starts a component, unless the manager is stopping.
    pub(super) fn start_member(
        self: &Arc<Self>,
        member: &Arc<Member>,
        start: ComponentStart,
        pool: Arc<Running<WorkerPool>>,
    ) -> Result<(), StartError> {
        // With an elector, only the driver lets components lead. No component can then begin to lead after the driver
        // has seen a loss.
        let leading = self.settings.elector.is_none();
        let fence = self.state.lock().term.clone();
        let env = StartEnv { pool: &pool, clock: &self.clock, options: &self.settings.pool.options, leading, fence };
        let name = member.facts.name.as_str();
        let started = catch_unwind(AssertUnwindSafe(|| start(&env)))
            .unwrap_or_else(|panic| Err(StartError::panicked(name, panic_message(&*panic))));
        // The manager ends the pool once it knows that the component has started.
        drop(pool);
        let running = started?;
        let (inner, number) = (Arc::downgrade(self), member.number);
        let hook: EndHook = Arc::new(move || {
            if let Some(inner) = inner.upgrade() {
                inner.hear(number);
            }
        });
        let mut body = member.body.lock();
        if self.state.lock().is_closed() {
            drop(body);
            shielded(name, || running.abort());
            return Err(self.is_stopping());
        }
        shielded(name, || running.on_end(hook));
        body.stage = Stage::Running(running);
        drop(body);
        member.progress.change(|progress| {
            if matches!(progress, MemberProgress::Starting) {
                *progress = MemberProgress::Running;
            }
        });
        self.hear(number);
        Ok(())
    }

    /// Adds an observer of runs to all controllers, now and later.
    pub(super) fn observe(&self, add: &AddObserver) {
        let members: Vec<_> = {
            let mut state = self.state.lock();
            state.observers.push(Arc::clone(add));
            state.components.clone()
        };
        for member in members {
            member.observe(add);
        }
    }

    /// Lets the driver ask a component.
    fn hear(&self, number: u64) {
        self.state.lock().heard.push(number);
        self.signal.set();
    }

    pub(super) fn remove(&self, name: &str, grace: Duration) -> Result<bool, EndError> {
        let Some(member) = self.state.lock().named(name).cloned() else { return Ok(false) };
        if let Some(start) = member.take_start() {
            // The drop may be user code. A controller closes its queue.
            drop(start);
            self.free_name(&member);
            self.retire(&member);
            return Ok(true);
        }
        // The driver may have found the lock taken.
        self.hear(member.number);
        let is_first = member.progress.wait_for_some(Nanos::NEVER, |progress| match progress {
            MemberProgress::Starting => None,
            MemberProgress::Running => {
                *progress = MemberProgress::Removing;
                Some(true)
            }
            MemberProgress::Removing | MemberProgress::Ended(_) => Some(false),
        });
        let until = self.clock.nanos().after(grace);
        if is_first == Some(true) {
            let manager = self.settings.name.as_str();
            log::info!(manager, component = name; "{manager}: removing component {name}");
            member.call(Runnable::close);
            member.call(Runnable::stop);
            self.hear(member.number);
        }
        let answered = member.progress.wait_for_some(until, |progress| match progress {
            MemberProgress::Ended(threads) => Some(threads.clone()),
            _ => None,
        });
        let threads = answered.unwrap_or_else(|| {
            member.call(Runnable::abort);
            let threads = member.threads();
            self.hear(member.number);
            member.answer(threads)
        });
        self.free_name(&member);
        EndError::unless_well(None, threads).map(|()| true)
    }

    /// Frees the name of a component, unless another component has it by now.
    pub(super) fn free_name(&self, member: &Member) {
        self.state.lock().components.retain(|named| named.number != member.number);
    }

    /// Drops a component that has ended, was not started or cannot be started.
    pub(super) fn retire(&self, member: &Member) {
        member.drop_body();
        self.state.lock().alive.retain(|alive| alive.number != member.number);
        self.signal.set();
    }
}
