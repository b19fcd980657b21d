//! What each of a pool's threads does: by itself, or in turns.

use std::sync::Arc;

use super::Pool;
use crate::base::thread::{Body, Cue, Player};
use crate::base::time::Nanos;

/// The body of one of a pool's threads.
pub(super) struct Working {
    pub(super) pool: Arc<Pool>,
    pub(super) number: usize,
}

impl Body for Working {
    fn run(self) {
        self.pool.work(self.number);
    }

    fn into_player(self) -> Option<Box<dyn Player>> {
        Some(Box::new(self))
    }
}

/// A turn is one key.
impl Player for Working {
    fn due(&mut self) -> Nanos {
        let state = self.pool.state.lock();
        let ready = !state.line.is_empty() && !self.pool.is_full(&state);
        if ready || self.pool.crew.is_stopping() { Nanos::ZERO } else { self.pool.waits_until(&state) }
    }

    fn play(&mut self, cue: &Cue<'_>) -> bool {
        let Self { pool, number } = self;
        if pool.crew.is_stopping() {
            return false;
        }
        let (found, stuck) = {
            let mut state = pool.state.lock();
            (pool.take(&mut state, *number), Arc::clone(&state.seats[*number].stuck))
        };
        if let Some(found) = found {
            if let Some(key) = found.2.shuffle(cue.draw) {
                (cue.say)(key);
            }
            pool.serve(*number, &stuck, found);
        }
        true
    }
}
