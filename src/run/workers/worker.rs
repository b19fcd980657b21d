//! The task of a worker's thread.

use std::fmt;
use std::sync::Arc;

use crate::base::group::{Run, ThreadGroup, WorkerSlot};
use crate::base::task::{Next, Task, TurnContext};
use crate::base::time::Nanos;
use crate::queue::{Key, NoClaim, QueueShared};
use crate::run::runner::{KeyTurn, RunHooks, Runner};

/// The hooks of a worker. It takes keys until its group is closed.
pub(super) struct WorkerHooks(pub(super) Arc<ThreadGroup>);

impl<K> RunHooks<K> for WorkerHooks {
    #[inline]
    fn is_shut(&self) -> bool {
        self.0.is_closed()
    }
}

/// The worker of one thread.
pub(super) struct Worker<K: Key> {
    pub(super) queue: Arc<QueueShared<K>>,
    pub(super) group: Arc<ThreadGroup>,
    pub(super) slot: Arc<WorkerSlot>,
    pub(super) runner: Runner<K, WorkerHooks>,
}

/// The turn of a worker. It lasts until the queue is empty; in a simulation, for one key.
struct WorkerTurn<'a> {
    group: &'a ThreadGroup,
    slot: &'a Arc<WorkerSlot>,
    one_key: bool,
}

impl KeyTurn for WorkerTurn<'_> {
    #[inline]
    fn begin(&self, _start: Nanos, deadline: Nanos, record: u32) -> Run<'_> {
        match deadline {
            Nanos::NEVER => Run::begin(self.slot),
            deadline => self.group.begin_until(self.slot, deadline, record),
        }
    }

    fn slot(&self) -> &Arc<WorkerSlot> {
        self.slot
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.one_key
    }

    #[inline]
    fn more(&self) {}
}

impl<K: Key + fmt::Debug> Worker<K> {
    /// Runs one key that is ready, or waits for keys and runs them.
    ///
    /// Both have one copy of the run loop. Two copies take more instructions per run.
    #[inline(never)]
    fn serve(&mut self, one_key: bool) -> NoClaim {
        let Self { queue, group, slot, runner } = self;
        runner.serve(&WorkerTurn { group, slot, one_key }, || {
            if one_key { queue.try_dequeue(|| false) } else { queue.dequeue(Nanos::NEVER, || group.is_closed()) }
        })
    }
}

impl<K: Key + fmt::Debug> Task for Worker<K> {
    /// Blocks until the queue is closed and empty, or the group is closed.
    fn step(&mut self, _now: Nanos) -> Next {
        while let NoClaim::Empty = self.serve(false) {}
        Next::Finished
    }

    fn due(&mut self, _next: Nanos) -> Nanos {
        if self.group.is_closed() || self.queue.is_due() { Nanos::ZERO } else { Nanos::NEVER }
    }

    /// Runs one key.
    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        if self.group.is_closed() {
            return Next::Finished;
        }
        if let Some(key) = self.queue.shuffle(turn.draw) {
            (turn.say)(format!("{:?}", crate::base::text::ShownKey(&key)));
        }
        if let NoClaim::Closed = self.serve(true) { Next::Finished } else { Next::At(Nanos::NEVER) }
    }
}
