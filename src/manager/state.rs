//! The state of a manager.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::component::{Component, ControllerEntry};
use super::election::Elector;
use super::error::ManagerError;
use super::member::Member;
use super::removal::Removal;
use crate::base::cancel::{CancellationToken, OnCancel};
use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::thread::ThreadOptions;
use crate::base::wait::{AutoResetEvent, Latch};
use crate::run::error::BoxError;
use crate::run::pool::{PoolBuilder, WorkerPool};
use crate::watch::source::SourceHandle;

pub(super) struct ManagerInner {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) grace: Duration,
    pub(super) abort_grace: Duration,
    pub(super) options: ThreadOptions,
    /// How long a source may fail before it is not ready.
    pub(super) unready_after: Duration,
    /// The settings of the shared pool.
    pub(super) pool: PoolBuilder,
    pub(super) elector: Option<Arc<dyn Elector>>,
    /// Wakes the thread that drives it.
    pub(super) signal: Arc<AutoResetEvent>,
    pub(super) stop: CancellationToken,
    pub(super) abort: CancellationToken,
    /// Those of others that cancel it.
    pub(super) _abort_on: Vec<OnCancel>,
    /// Ends the campaign, or the term.
    pub(super) resign: CancellationToken,
    pub(super) state: Mutex<ManagerState>,
    /// The result of a run on a thread of its own, until it is taken.
    pub(super) outcome: Mutex<Option<Result<(), ManagerError>>>,
    /// Settled when that thread has done its work.
    pub(super) ended: Arc<Latch>,
}

pub(super) struct ManagerState {
    pub(super) phase: ManagerPhase,
    /// What is started when it starts, in this order.
    pub(super) pending: VecDeque<Component>,
    /// The names of those that are being started while it runs.
    pub(super) adding: Vec<String>,
    /// The components that were started and that the driver has not taken over.
    pub(super) started: Vec<Member>,
    /// The components to be removed by the driver.
    pub(super) removals: Vec<Removal>,
    pub(super) names: HashSet<String>,
    pub(super) controllers: HashMap<String, Arc<ControllerEntry>>,
    /// Watches that have been asked for by name.
    pub(super) watches: HashMap<String, KnownWatch>,
    pub(super) pool: Option<Arc<WorkerPool>>,
    pub(super) at_end: Vec<Box<dyn FnOnce() + Send>>,
    /// How components that list are doing: pollers and watches, by component.
    pub(super) sources: HashMap<String, SourceHandle>,
    pub(super) failure: Option<ComponentFailure>,
    pub(super) leading: bool,
    /// The leadership is lost.
    pub(super) lost: bool,
}

#[derive(Clone)]
pub(super) struct ComponentFailure {
    pub(super) component: String,
    pub(super) error: Arc<BoxError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagerPhase {
    Idle,
    /// What has been added is started, in its order; what is added meanwhile comes after it.
    Starting,
    Running,
    Stopping,
    Ended,
}

/// A watch that was asked for by name.
pub(super) enum KnownWatch {
    /// A caller starts it. The latch is settled when that has ended.
    Starting(Arc<Latch>),
    /// A [`Watch`](crate::Watch) with any type of keys and values.
    Started(Box<dyn Any + Send>),
}

/// How the log names what is called at the end.
pub(super) const HOOK: &str = "a hook at the end of a manager";
