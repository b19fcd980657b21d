//! The task of a worker's thread.

use std::fmt;
use std::sync::Arc;

use crate::base::group::{Run, ThreadGroup, WorkerSlot};
use crate::base::task::TurnContext;
use crate::base::task::{Next, Task};
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

impl<K: Key + fmt::Debug> Task for Worker<K> {
    /// Blocks until the queue is closed and empty, or the group is closed.
    fn step(&mut self, _now: Nanos) -> Next {
        let Self { queue, group, slot, runner } = self;
        let turn = WorkerTurn { group, slot, one_key: false };
        while let NoClaim::Empty = runner.serve(&turn, || queue.dequeue(Nanos::NEVER, || group.is_closed())) {}
        Next::Finished
    }

    fn due(&mut self, _next: Nanos) -> Nanos {
        if self.group.is_closed() || self.queue.is_due() { Nanos::ZERO } else { Nanos::NEVER }
    }

    /// Runs one key.
    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        let Self { queue, group, slot, runner } = self;
        if group.is_closed() {
            return Next::Finished;
        }
        if let Some(key) = queue.shuffle(turn.draw) {
            (turn.say)(format!("{:?}", crate::base::text::ShownKey(&key)));
        }
        let turn = WorkerTurn { group, slot, one_key: true };
        match runner.serve(&turn, || queue.try_dequeue(|| false)) {
            NoClaim::Closed => Next::Finished,
            NoClaim::Empty | NoClaim::Stopped => Next::At(Nanos::NEVER),
        }
    }
}
