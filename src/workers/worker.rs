//! One worker: a step that runs one key, and the thin loops around it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::metrics::Counters;
use crate::backoff::Draws;
use crate::crew::{Crew, Run, Seat};
use crate::queue::{self, Claim, Ending, Key, NoClaim};
use crate::reconcile::context::{Call, Context};
use crate::reconcile::error::{BoxError, Cancelled, Chain, Panicked, RequeueAfter, Terminal, find};
use crate::reconcile::policy::{Failure, RetryPolicy, Verdict};
use crate::reconcile::{Action, Reconciler};
use crate::thread::{Panic, panic_message, shielded};
use crate::time::Nanos;

/// What the workers of one set have in common.
pub(super) struct Shared<K: Key, R, P> {
    pub(super) reconciler: R,
    pub(super) policy: P,
    pub(super) timeout: Option<Duration>,
    pub(super) queue: Arc<queue::Shared<K>>,
    pub(super) crew: Arc<Crew>,
}

/// One thread's worker. What a run needs it has at hand: a run makes nothing, and takes no handle of anything.
pub(super) struct Worker<K: Key, R, P> {
    shared: Arc<Shared<K, R, P>>,
    seat: Arc<Seat>,
    counters: Arc<Counters>,
    /// That of the run under way, or of the last one, which has left nothing in it.
    cx: Context,
    draws: Draws,
}

impl<K, R, P> Worker<K, R, P>
where
    K: Key + fmt::Debug,
    R: Reconciler<K>,
    P: RetryPolicy<K>,
{
    pub(super) fn new(shared: Arc<Shared<K, R, P>>, seat: Arc<Seat>, counters: Arc<Counters>) -> Self {
        let (clock, abort) = (shared.crew.clock.clone(), shared.crew.abort.clone());
        let cx = Context::new(clock, Nanos::NEVER, abort, Some(Arc::clone(&seat)), Call::default());
        Self { shared, seat, counters, cx, draws: Draws::random() }
    }

    /// The thread's body.
    ///
    /// A panic that comes this far is one of the key's own code (`Clone`, `Drop`, `Debug`) or of a policy. The claim it passed
    /// by, if any, has ended as failed.
    pub(super) fn into_body(mut self) -> impl FnOnce()
    where
        R: 'static,
        P: 'static,
    {
        move || {
            // Outside the catch: a key's drop must not panic while another panic unwinds.
            let mut claim = None;
            while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve(&mut claim))) {
                shielded("the drop of a key", || drop(claim.take()));
                self.survive(panic);
            }
        }
    }

    /// Waits for a key, works off what is in line, and so on, until there is no more to come.
    fn serve(&mut self, claim: &mut Option<Claim<K>>) {
        while let Ok(taken) = self.shared.queue.dequeue(Nanos::NEVER, || self.shared.crew.is_stopping()) {
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
        loop {
            let ending = self.run(claim);
            if let Err(no_claim) = claim.turn(ending, || self.shared.crew.is_stopping()) {
                return no_claim;
            }
        }
    }

    /// A step of the thread: one run, from a claim to how it is to end.
    fn run(&mut self, claim: &Claim<K>) -> Ending {
        let Self { shared, seat, cx, .. } = self;
        let crew = &*shared.crew;
        log::trace!(workers = crew.name.as_str(), thread = seat.name.as_str(), key:? = claim.key(); "reconciling");
        let call = Call {
            reasons: claim.reasons(),
            failures: claim.failures(),
            priority: claim.priority(),
            queued_for: claim.queued_for(),
        };
        let outcome = {
            let _run = match shared.timeout {
                None => {
                    cx.renew(Nanos::NEVER, call);
                    Run::begin(seat)
                }
                Some(timeout) => {
                    let deadline = crew.clock.nanos().after(timeout);
                    cx.renew(deadline, call);
                    crew.begin_until(seat, deadline, claim.record())
                }
            };
            catch_unwind(AssertUnwindSafe(|| shared.reconciler.reconcile(cx, claim.key()).map_err(Into::into)))
        };
        cx.end();
        match outcome {
            Ok(Ok(action)) => self.succeeded(claim, action),
            Ok(Err(error)) => self.failed(claim, error),
            Err(panic) => self.panicked(claim, panic),
        }
    }

    fn succeeded(&self, claim: &Claim<K>, action: Action) -> Ending {
        let counters = &self.counters;
        match action {
            Action(None) => {
                counters.successes.count();
                log::debug!(workers = self.name(), key:? = claim.key(); "reconciled");
                Ending::Done
            }
            Action(Some(after)) => {
                counters.requeues.count();
                log::debug!(workers = self.name(), key:? = claim.key(), after:?; "reconciled, to run again");
                Ending::RequeueAfter(after)
            }
        }
    }

    fn failed(&mut self, claim: &Claim<K>, error: BoxError) -> Ending {
        let judged = catch_unwind(AssertUnwindSafe(|| self.judge(claim, &*error)));
        // An error is the user's code, down to its drop, which must not panic while a policy's panic unwinds.
        shielded("the drop of an error", || drop(error));
        judged.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn judge(&mut self, claim: &Claim<K>, error: &(dyn std::error::Error + 'static)) -> Ending {
        let counters = &self.counters;
        let (workers, key) = (self.name(), claim.key());
        // Terminal comes first: what it marks may have any of the others as its source.
        if Terminal::find(error).is_some() {
            counters.terminal_errors.count();
            log::warn!(workers, key:?, error:% = Chain(error); "reconcile failed for good");
            return Ending::Done;
        }
        if let Some(requeue) = RequeueAfter::find(error) {
            counters.requeues.count();
            let after = requeue.after();
            log::info!(workers, key:?, after:?, reason = requeue.reason(); "requeue asked");
            return Ending::RequeueAfter(after);
        }
        // Only if it is true: a key put back without end by a run that nobody has aborted would spin.
        if find(error) == Some(&Cancelled::Aborted) && self.shared.crew.abort.is_cancelled() {
            counters.aborted.count();
            log::debug!(workers, key:?; "aborted; the key goes back to the queue");
            return Ending::PutBack(claim.reasons());
        }
        self.decide(claim, error)
    }

    fn panicked(&mut self, claim: &Claim<K>, panic: Panic) -> Ending {
        self.counters.panics.count();
        let error = Panicked::new(panic_message(&*panic));
        log::error!(workers = self.name(), key:? = claim.key(), panic = error.message(); "the reconciler panicked");
        shielded("the drop of a panic", || drop(panic));
        self.decide(claim, &error)
    }

    /// Asks the policy.
    fn decide(&mut self, claim: &Claim<K>, error: &(dyn std::error::Error + 'static)) -> Ending {
        let failures = claim.failures_if_retried();
        let random = self.draws.next();
        let counters = &self.counters;
        let (workers, key) = (self.name(), claim.key());
        match self.shared.policy.decide(&Failure { key, failures, error, random }) {
            Verdict::Retry(backoff) => {
                counters.retries.count();
                log::warn!(workers, key:?, error:% = Chain(error), failures, backoff:?; "reconcile failed, to be retried");
                Ending::Retry(backoff)
            }
            Verdict::Drop => {
                counters.drops.count();
                log::warn!(workers, key:?, error:% = Chain(error), failures; "reconcile failed, not retried");
                Ending::Done
            }
        }
    }

    fn survive(&self, panic: Panic) {
        log::error!(workers = self.name(), panic = panic_message(&*panic); "a key's own code or a policy panicked");
        shielded("the drop of a panic", || drop(panic));
    }

    fn name(&self) -> &str {
        &self.shared.crew.name
    }
}
