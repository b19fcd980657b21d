//! The threads of a server. Their number changes, and all are joined at the end.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use homeostat::base::{Clock, EndError, EndHook, ThreadOptions};
use homeostat::rt::{Joiner, Monitor, shielded};

/// The threads of one server.
pub(crate) struct ThreadRoster {
    name: String,
    options: ThreadOptions,
    clock: Clock,
    state: Arc<Monitor<RosterState>>,
}

#[derive(Default)]
struct RosterState {
    next: u64,
    /// The names of the threads that have not ended.
    present: BTreeMap<u64, String>,
    /// The ids of the threads that have started and not ended.
    ids: HashMap<u64, ThreadId>,
    /// The threads that have ended but are not joined yet.
    ended: Vec<u64>,
    joiners: HashMap<u64, Joiner>,
    /// The thread that ends after all others.
    last: Option<u64>,
    hooks: Vec<EndHook>,
}

impl ThreadRoster {
    pub(crate) fn new(name: String, options: ThreadOptions, clock: Clock) -> Arc<Self> {
        let state = Monitor::of(clock.clone(), RosterState::default());
        Arc::new(Self { name, options, clock, state })
    }

    /// Starts a thread `<name>-<role>`.
    pub(crate) fn spawn(self: &Arc<Self>, role: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let name = format!("{}-{role}", self.name);
        let number = self.state.with(|state| {
            state.next += 1;
            state.present.insert(state.next, name.clone());
            state.next
        });
        let present = Present { roster: Arc::clone(self), number };
        let spawned = self.options.spawn(name, move || {
            let present = present;
            present.roster.state.with(|state| state.ids.insert(present.number, thread::current().id()));
            body();
        });
        let joiner = spawned.inspect_err(|_| self.state.with(|state| state.ended.retain(|ended| *ended != number)))?;
        self.state.with(|state| state.joiners.insert(number, joiner));
        Ok(())
    }

    /// Starts a thread that ends after all others.
    pub(crate) fn spawn_last(self: &Arc<Self>, role: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        // The first thread has the first number.
        self.state.with(|state| state.last = Some(state.next + 1));
        self.spawn(role, body)
    }

    /// Joins the threads that have ended.
    pub(super) fn reap(&self) {
        let joiners: Vec<_> = self.state.with(|state| {
            let RosterState { ended, joiners, .. } = state;
            let (known, unknown) = ended.drain(..).partition(|number| joiners.contains_key(number));
            // These threads are still starting.
            *ended = unknown;
            let known: Vec<u64> = known;
            known.iter().filter_map(|number| joiners.remove(number)).collect()
        });
        joiners.into_iter().for_each(Joiner::join);
    }

    /// Returns the names of the threads that have not ended.
    pub(crate) fn names(&self) -> Vec<String> {
        self.state.with(|state| state.present.values().cloned().collect())
    }

    /// Calls `hook` when the last thread has ended, or at once if no thread runs.
    pub(crate) fn on_end(&self, hook: &EndHook) {
        let ended = self.state.with(|state| {
            let ended = state.present.is_empty();
            if !ended {
                state.hooks.push(Arc::clone(hook));
            }
            ended
        });
        if ended {
            hook();
        }
    }

    /// Blocks until all threads have ended, for at most `timeout`. The last thread wakes this call. A thread of the
    /// roster waits neither for itself nor for the thread that ends last.
    pub(crate) fn join_timeout(&self, timeout: Duration) -> Result<(), EndError> {
        let deadline = self.clock.nanos().after(timeout);
        let current = thread::current().id();
        let own = self.state.with(|state| {
            let mut ids = state.ids.iter();
            ids.find(|(_, id)| **id == current).map(|(number, _)| *number)
        });
        let ended = self.state.wait_for_some(deadline, |state| {
            let may_run = |number: u64| own.is_some() && (own == Some(number) || state.last == Some(number));
            state.present.keys().all(|number| may_run(*number)).then_some(())
        });
        if ended.is_none() {
            return Err(EndError::of_threads(self.names()));
        }
        self.reap();
        Ok(())
    }

    fn end(&self, number: u64) {
        let hooks = self.state.change(|state| {
            state.present.remove(&number);
            state.ids.remove(&number);
            state.ended.push(number);
            state.present.is_empty().then(|| std::mem::take(&mut state.hooks))
        });
        let Some(hooks) = hooks else { return };
        let component = self.name.as_str();
        log::info!(component; "{component}: the server has ended");
        for hook in hooks {
            shielded("the end hook of a server", || hook());
        }
    }
}

/// Counts a thread as running. Dropping this records its end.
struct Present {
    roster: Arc<ThreadRoster>,
    number: u64,
}

impl Drop for Present {
    fn drop(&mut self) {
        self.roster.end(self.number);
    }
}

impl fmt::Debug for ThreadRoster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadRoster").field("name", &self.name).finish_non_exhaustive()
    }
}
