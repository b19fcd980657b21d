//! Keys divided among processes: which keys this process runs now.
//!
//! # Invariants
//!
//! - The decision whether a key runs here, and the count of its run, are made under one lock. Once a change of the
//!   assignment has returned, no run of a lost key begins, and [`Shards::lost_runs`] counts the active ones.

mod gate;
mod hash;
mod moves;
mod table;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) use self::gate::ShardGate;
pub use self::hash::ShardHash;
use self::moves::SeenAssignment;
pub(crate) use self::table::EarlierMember;
pub(crate) use self::table::{ShardPlace, ShardTable};

use crate::sync::Mutex;
use homeostat::run::{Fence, Permit};

/// This process's share of the keys that are divided among processes.
///
/// [`Members`](crate::Members) keeps it up to date. Give it to controllers with
/// [`ControllerExt::shards`](crate::ControllerExt::shards).
#[derive(Clone)]
pub struct Shards(Arc<ShardsShared>);

struct ShardsShared {
    state: Mutex<ShardsState>,
    listeners: Mutex<Vec<Weak<dyn ShardListener>>>,
    /// Called when a run of a lost key has ended.
    on_left: Mutex<Option<LeftHook>>,
    /// How long a controller remembers the events of keys of other processes.
    memory: Duration,
}

type LeftHook = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct ShardsState {
    table: ShardTable,
    status: ShardStatus,
    /// The limit of runs. `None` while this process is not a member.
    fence: Option<Fence>,
    running: HashMap<ShardHash, ShardRuns>,
}

/// The active runs of a key.
struct ShardRuns {
    count: usize,
    /// The number of the last assignment in which the key ran here.
    number: u64,
}

impl ShardsState {
    fn place(&self, key: ShardHash) -> ShardPlace {
        if self.fence.as_ref().is_some_and(Fence::lasts) { self.table.place(key) } else { ShardPlace::Elsewhere }
    }
}

/// The members among which keys are divided, as this process knows them.
///
/// # Examples
///
/// ```
/// use homeostat_objects::ShardStatus;
///
/// assert_eq!(ShardStatus::default().to_string(), "no member yet");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStatus {
    /// The name of this process. Empty while it is not a member.
    pub name: String,
    /// The names of all members, in order.
    pub members: Vec<String>,
    /// The number of this assignment of keys. It rises with each change of the members.
    pub number: u64,
    /// The members that have not handed over their former keys yet.
    pub waits_for: Vec<String>,
}

/// Is notified of changes of the assignment.
pub(crate) trait ShardListener: Send + Sync {
    /// Called after each change. `is_new` is false if only keys were handed over.
    fn divided(&self, is_new: bool);
}

/// The active runs of keys that this process has lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostRuns {
    pub(crate) count: usize,
    /// The number of the last assignment in which all of these keys ran here. `None` if there are no such runs.
    pub(crate) number: Option<u64>,
}

impl LostRuns {
    /// Returns the number of the assignment that a member may announce: `divided` is the current one, and `announced`
    /// is the last one that was announced.
    pub(crate) fn to_announce(self, divided: u64, announced: u64) -> u64 {
        // A run of an earlier membership may have a later number, if its assignment has been deleted since.
        self.number.map_or(divided, |number| number.min(divided)).max(announced)
    }
}

/// The answer to a key that wants to run.
pub(crate) enum ShardEntry {
    Run(Permit),
    HereSoon,
    Elsewhere,
}

impl Shards {
    /// Creates the share of a process that is not a member yet: it runs no key.
    pub(crate) fn new(memory: Duration) -> Self {
        Self(Arc::new(ShardsShared {
            state: Mutex::new(ShardsState::default()),
            listeners: Mutex::new(Vec::new()),
            on_left: Mutex::new(None),
            memory,
        }))
    }

    /// Returns whether this process may run the keys with this hash now.
    #[must_use]
    pub fn owns(&self, key: ShardHash) -> bool {
        self.place(key) == ShardPlace::Here
    }

    /// Returns the members.
    #[must_use]
    pub fn status(&self) -> ShardStatus {
        self.0.state.lock().status.clone()
    }

    /// Returns the current assignment, without the earlier ones.
    fn assignment(&self) -> SeenAssignment {
        let state = self.0.state.lock();
        SeenAssignment { me: state.table.me, members: state.table.members.clone() }
    }

    /// Adds a listener. A dropped listener is forgotten.
    pub(super) fn listen(&self, listener: Weak<dyn ShardListener>) {
        let mut listeners = self.0.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    /// Begins a run of a key, if the key may run here.
    pub(crate) fn enter(&self, key: ShardHash) -> ShardEntry {
        let mut state = self.0.state.lock();
        let place = state.place(key);
        let ShardsState { table, fence, running, .. } = &mut *state;
        match (place, fence) {
            (ShardPlace::Elsewhere, _) | (_, None) => ShardEntry::Elsewhere,
            (ShardPlace::HereSoon, _) => ShardEntry::HereSoon,
            (ShardPlace::Here, Some(fence)) => {
                let number = table.number;
                running.entry(key).or_insert(ShardRuns { count: 0, number }).count += 1;
                let shards = self.clone();
                ShardEntry::Run(Permit::new(Some(fence.clone()), move || shards.leave(key)))
            }
        }
    }

    /// Ends a run of a key.
    fn leave(&self, key: ShardHash) {
        let mut state = self.0.state.lock();
        if let Entry::Occupied(mut runs) = state.running.entry(key) {
            runs.get_mut().count -= 1;
            if runs.get().count == 0 {
                runs.remove();
            }
        }
        let is_lost = state.table.place(key) != ShardPlace::Here;
        drop(state);
        if is_lost {
            let on_left = self.0.on_left.lock().clone();
            if let Some(on_left) = on_left {
                on_left();
            }
        }
    }

    /// Returns where this key runs. If the term of this process has ended, returns elsewhere.
    pub(super) fn place(&self, key: ShardHash) -> ShardPlace {
        self.0.state.lock().place(key)
    }

    fn tell(&self, is_new: bool) {
        let listeners: Vec<_> = {
            let mut listeners = self.0.listeners.lock();
            listeners.retain(|listener| listener.strong_count() > 0);
            listeners.iter().filter_map(Weak::upgrade).collect()
        };
        for listener in listeners {
            listener.divided(is_new);
        }
    }
}

/// For the code that sets the assignment.
impl Shards {
    /// Sets the callback for the end of each run of a lost key.
    pub(crate) fn on_left(&self, on_left: impl Fn() + Send + Sync + 'static) {
        *self.0.on_left.lock() = Some(Arc::new(on_left));
    }

    /// Sets the assignment and the limit of runs.
    pub(crate) fn divide(&self, table: ShardTable, status: ShardStatus, fence: Option<Fence>) {
        let mut state = self.0.state.lock();
        let is_new = (state.table.number, state.table.me) != (table.number, table.me);
        let is_changed = is_new || state.table != table;
        (state.table, state.status, state.fence) = (table, status, fence);
        let ShardsState { table, running, .. } = &mut *state;
        for (_, runs) in running.iter_mut().filter(|(key, _)| table.place(**key) == ShardPlace::Here) {
            runs.number = table.number;
        }
        drop(state);
        if is_changed {
            self.tell(is_new);
        }
    }

    /// Returns the active runs of keys that this process has lost.
    pub(crate) fn lost_runs(&self) -> LostRuns {
        let state = self.0.state.lock();
        let lost = state.running.iter().filter(|(key, _)| state.table.place(**key) != ShardPlace::Here);
        lost.fold(LostRuns::default(), |lost, (_, runs)| LostRuns {
            count: lost.count + runs.count,
            number: Some(lost.number.map_or(runs.number, |number| number.min(runs.number))),
        })
    }
}

impl fmt::Display for ShardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            return f.write_str("no member yet");
        }
        write!(f, "{} of {} (assignment {})", self.name, self.members.join(", "), self.number)?;
        if self.waits_for.is_empty() { Ok(()) } else { write!(f, ", waits for {}", self.waits_for.join(", ")) }
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("status", &self.status()).finish_non_exhaustive()
    }
}
