//! The task of a pool's thread.

use std::sync::Arc;

use super::Pool;
#[cfg(feature = "testing")]
use crate::base::task::TurnContext;
use crate::base::task::{Next, Task};
use crate::base::time::Nanos;

/// Serves the members of a pool.
pub(super) struct Working {
    pub(super) pool: Arc<Pool>,
    pub(super) number: usize,
}

impl Task for Working {
    /// Blocks until the pool is stopping.
    fn step(&mut self, _now: Nanos) -> Next {
        self.pool.work(self.number);
        Next::Finished
    }

    #[cfg(feature = "testing")]
    fn due(&mut self, _next: Nanos) -> Nanos {
        let state = self.pool.state.lock();
        let ready = !state.line.is_empty() && !self.pool.is_full(&state);
        if ready || self.pool.crew.is_stopping() { Nanos::ZERO } else { self.pool.waits_until(&state) }
    }

    /// Runs one key.
    #[cfg(feature = "testing")]
    fn take_turn(&mut self, turn: &TurnContext<'_>) -> Next {
        let Self { pool, number } = self;
        if pool.crew.is_stopping() {
            return Next::Finished;
        }
        let (found, stuck) = {
            let mut state = pool.state.lock();
            (pool.take(&mut state, *number), Arc::clone(&state.seats[*number].stuck))
        };
        if let Some(found) = found {
            if let Some(key) = found.2.shuffle(turn.draw) {
                (turn.say)(key);
            }
            pool.serve(*number, &stuck, found);
        }
        Next::At(Nanos::NEVER)
    }
}
