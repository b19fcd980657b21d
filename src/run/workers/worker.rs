//! One worker: the thin loops around its runs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::group::{Run, ThreadGroup, WorkerSlot};
use crate::base::thread::{Body, Cue, Player, shielded};
use crate::base::time::Nanos;
use crate::queue::{self, Claim, Key, NoClaim};
use crate::run::policy::RetryPolicy;
use crate::run::reconciler::Reconciler;
use crate::run::runner::Runner;

/// One thread's worker.
pub(super) struct Worker<K: Key, R, P> {
    pub(super) queue: Arc<queue::Shared<K>>,
    pub(super) crew: Arc<ThreadGroup>,
    pub(super) seat: Arc<WorkerSlot>,
    pub(super) runner: Runner<R, P>,
}

impl<K, R, P> Worker<K, R, P>
where
    K: Key + fmt::Debug,
    R: Reconciler<K> + 'static,
    P: RetryPolicy<K> + 'static,
{
    /// Waits for a key, works off what is in line, and so on, until there is no more to come.
    fn serve(&mut self, claim: &mut Option<Claim<K>>) {
        while let Ok(taken) = self.queue.dequeue(Nanos::NEVER, || self.crew.is_stopping()) {
            let no_claim = self.work_off(claim.insert(taken), ThreadGroup::is_stopping);
            drop(claim.take());
            match no_claim {
                NoClaim::Empty => {}
                NoClaim::Closed | NoClaim::Stopped => return,
            }
        }
    }

    /// Runs one key, and then whichever is in line, until there is none, or it is to stop. Each is taken under the lock that ends
    /// the one before. Does not block but in the reconciler.
    fn work_off(&mut self, claim: &mut Claim<K>, stop: impl Fn(&ThreadGroup) -> bool) -> NoClaim {
        let Self { crew, seat, runner, .. } = self;
        loop {
            let ending = runner.run(claim, seat, |_, deadline| match deadline {
                Nanos::NEVER => Run::begin(seat),
                deadline => crew.begin_until(seat, deadline, claim.record()),
            });
            if let Err(no_claim) = claim.turn(ending, || stop(crew)) {
                return no_claim;
            }
        }
    }
}

impl<K, R, P> Body for Worker<K, R, P>
where
    K: Key + fmt::Debug,
    R: Reconciler<K> + 'static,
    P: RetryPolicy<K> + 'static,
{
    fn run(mut self) {
        // Outside the catch: a key's drop must not panic while another panic unwinds.
        let mut claim = None;
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve(&mut claim))) {
            shielded("the drop of a key", || drop(claim.take()));
            self.runner.survive(panic);
        }
    }

    fn into_player(self) -> Option<Box<dyn Player>> {
        Some(Box::new(self))
    }
}

/// A turn is one key.
impl<K, R, P> Player for Worker<K, R, P>
where
    K: Key + fmt::Debug,
    R: Reconciler<K> + 'static,
    P: RetryPolicy<K> + 'static,
{
    fn due(&mut self) -> Nanos {
        if self.crew.is_stopping() || self.queue.is_due() { Nanos::ZERO } else { Nanos::NEVER }
    }

    fn play(&mut self, cue: &Cue<'_>) -> bool {
        if self.crew.is_stopping() {
            return false;
        }
        let mut claim = None;
        let served = catch_unwind(AssertUnwindSafe(|| {
            if let Some(key) = self.queue.shuffle(cue.draw) {
                (cue.say)(format!("{key:?}"));
            }
            let taken = self.queue.try_dequeue(|| false);
            let goes_on = !matches!(taken, Err(NoClaim::Closed));
            if let Ok(taken) = taken {
                self.work_off(claim.insert(taken), |_| true);
            }
            goes_on
        }));
        shielded("the drop of a key", || drop(claim.take()));
        served.unwrap_or_else(|panic| {
            self.runner.survive(panic);
            true
        })
    }
}
