//! One worker: the thin loops around its runs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::crew::{Crew, Run, Seat};
use crate::queue::{self, Claim, Key, NoClaim};
use crate::reconcile::Reconciler;
use crate::reconcile::policy::RetryPolicy;
use crate::run::Runner;
use crate::thread::shielded;
use crate::time::Nanos;

/// One thread's worker.
pub(super) struct Worker<K: Key, R, P> {
    pub(super) queue: Arc<queue::Shared<K>>,
    pub(super) crew: Arc<Crew>,
    pub(super) seat: Arc<Seat>,
    pub(super) runner: Runner<R, P>,
}

impl<K, R, P> Worker<K, R, P>
where
    K: Key + fmt::Debug,
    R: Reconciler<K> + 'static,
    P: RetryPolicy<K> + 'static,
{
    /// The thread's body.
    pub(super) fn into_body(mut self) -> impl FnOnce() {
        move || {
            // Outside the catch: a key's drop must not panic while another panic unwinds.
            let mut claim = None;
            while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve(&mut claim))) {
                shielded("the drop of a key", || drop(claim.take()));
                self.runner.survive(panic);
            }
        }
    }

    /// Waits for a key, works off what is in line, and so on, until there is no more to come.
    fn serve(&mut self, claim: &mut Option<Claim<K>>) {
        while let Ok(taken) = self.queue.dequeue(Nanos::NEVER, || self.crew.is_stopping()) {
            let no_claim = self.work_off(claim.insert(taken));
            drop(claim.take());
            match no_claim {
                NoClaim::Empty => {}
                NoClaim::Closed | NoClaim::Stopped => return,
            }
        }
    }

    /// Runs one key, and then whichever is in line, until there is none. Each is taken under the lock that ends the one before.
    /// Does not block but in the reconciler.
    fn work_off(&mut self, claim: &mut Claim<K>) -> NoClaim {
        let Self { crew, seat, runner, .. } = self;
        loop {
            let ending = runner.run(claim, seat, |_, deadline| match deadline {
                Nanos::NEVER => Run::begin(seat),
                deadline => crew.begin_until(seat, deadline, claim.record()),
            });
            if let Err(no_claim) = claim.turn(ending, || crew.is_stopping()) {
                return no_claim;
            }
        }
    }
}
