//! The state of a manager.
//!
//! # Invariants
//!
//! - A component that is added goes to the driver while the driver takes components. Later, the caller of `add` stops it before
//!   the manager ends.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::component::{Component, ManagedController};
use super::election::Elector;
use super::member::{Member, Removal};
use crate::base::cancel::{CancellationToken, OnCancel};
use crate::base::clock::Clock;
use crate::base::end::End;
use crate::base::error::EndError;
use crate::base::running::Running;
use crate::base::sync::Mutex;
use crate::base::wait::{AutoResetEvent, Latch};
use crate::run::error::BoxError;
use crate::run::fence::Fence;
use crate::run::pool::{PoolBuilder, WorkerPool};
use crate::watch::source::SourceHandle;

pub(super) struct ManagerInner {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) grace: Duration,
    pub(super) abort_grace: Duration,
    /// The time that a source may fail before the manager is not ready.
    pub(super) unready_after: Duration,
    /// The settings of the shared pool.
    pub(super) pool: PoolBuilder,
    pub(super) elector: Option<Arc<dyn Elector>>,
    /// Wakes the driver.
    pub(super) signal: Arc<AutoResetEvent>,
    pub(super) stop: CancellationToken,
    pub(super) abort: CancellationToken,
    /// Callbacks on the tokens of [`ManagerBuilder::abort_on`](crate::manager::ManagerBuilder::abort_on). They cancel `abort`.
    pub(super) _abort_on: Vec<OnCancel>,
    /// Ends the campaign or the term.
    pub(super) resign: CancellationToken,
    pub(super) state: Mutex<ManagerState>,
    /// The outcome of the driver thread, until it is taken.
    pub(super) outcome: Mutex<Option<Result<(), EndError>>>,
    /// Its part is the driver thread.
    pub(super) end: Arc<End>,
}

#[derive(Default)]
pub(super) struct ManagerState {
    pub(super) phase: ManagerPhase,
    /// The components to be started with the manager, in order.
    pub(super) pending: VecDeque<Component>,
    /// The names of components that are being started while the manager runs.
    pub(super) adding: Vec<String>,
    /// Started components that the driver has not taken over yet.
    pub(super) started: Vec<Member>,
    /// Removals that the driver has not begun yet.
    pub(super) removals: Vec<Removal>,
    /// All components, by name.
    pub(super) components: BTreeMap<String, ComponentEntry>,
    /// Watches that callers are starting, by name. A latch is set when the start has succeeded or failed.
    pub(super) starting_watches: HashMap<String, Arc<Latch>>,
    /// The number of components that were ever started.
    pub(super) numbers: u64,
    /// The numbers of components that may have ended or failed. The driver asks them.
    pub(super) heard: BTreeSet<u64>,
    pub(super) pool: Option<Arc<Running<WorkerPool>>>,
    pub(super) at_end: Vec<Box<dyn FnOnce() + Send>>,
    pub(super) failure: Option<ComponentFailure>,
    pub(super) leading: bool,
    /// Called for each controller.
    pub(super) observers: Vec<AddObserver>,
    /// The term, once this process has been elected.
    pub(super) term: Option<Fence>,
    /// Whether the leadership was lost.
    pub(super) lost: bool,
}

/// Adds an observer of runs to the controller with this name.
pub(super) type AddObserver = Arc<dyn Fn(&str, &dyn ManagedController) + Send + Sync>;

#[derive(Clone)]
pub(super) struct ComponentFailure {
    pub(super) component: String,
    pub(super) error: Arc<BoxError>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ManagerPhase {
    #[default]
    Idle,
    /// Pending components are started in order. Components that are added now come after them.
    Starting,
    Running,
    Stopping,
    Ended,
}

/// The facts about a component, until it has ended or is removed.
pub(super) struct ComponentEntry {
    /// Its kind, for errors.
    pub(super) kind: &'static str,
    /// Its number in the driver, once the driver has taken it over.
    pub(super) number: Option<u64>,
    /// Present for a controller.
    pub(super) controller: Option<Arc<dyn ManagedController>>,
    /// The number of the manager's observers that the controller has.
    pub(super) observers: usize,
    /// The source of a poller or watch that lists.
    pub(super) source: Option<SourceHandle>,
    /// The [`Watch`](crate::Watch) that was requested by this name, with any type of keys and values.
    pub(super) watch: Option<Box<dyn Any + Send>>,
}

/// The name of the hooks of [`Manager::at_end`](crate::Manager::at_end) in log lines.
pub(super) const HOOK: &str = "a hook at the end of a manager";
