//! One run of one key: from a claim to how it is to end. Workers and controllers alike are loops around this.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::metrics::Counters;
use crate::base::backoff::Draws;
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::group::{Run, WorkerSlot};
use crate::base::thread::{Panic, panic_message, shielded};
use crate::base::time::{Nanos, Rounded};
use crate::queue::{Claim, Ending, Key};
use crate::run::context::{Call, Context};
use crate::run::error::{BoxError, Cancelled, Chain, Muted, Panicked, RequeueAfter, Terminal, find};
use crate::run::policy::{Failure, RetryDecision, RetryPolicy};
use crate::run::reconciler::{Action, Follow, Reconciler};

/// What all runs of one reconciler have in common.
pub(crate) struct Runs<R, P, L = ()> {
    /// Of the workers or the controller, in log lines.
    pub(crate) name: String,
    pub(crate) clock: Clock,
    /// Cancels the contexts of all runs.
    pub(crate) abort: CancellationToken,
    pub(crate) reconciler: R,
    pub(crate) policy: P,
    pub(crate) timeout: Option<Duration>,
    pub(crate) ledger: L,
}

/// What is kept of runs beyond their number. Workers keep nothing.
pub(crate) trait Ledger<K>: Send + Sync {
    /// Whether runs are timed, which costs two readings of the clock for each.
    const TIMED: bool;

    /// How long a key was in line and in work, where that is timed.
    fn timed(&self, _queued: Duration, _worked: Duration) {}

    /// A run begins.
    #[inline]
    fn begin(&self, _key: &K) {}

    /// A run has ended; its claim has not yet.
    fn note(&self, key: &K, outcome: Outcome<'_>);
}

impl<K> Ledger<K> for () {
    const TIMED: bool = false;

    #[inline]
    fn note(&self, _key: &K, _outcome: Outcome<'_>) {}
}

/// How a run has ended.
pub(crate) enum Outcome<'a> {
    Succeeded,
    /// It asked for another run, by its action or an error that says so.
    Requeued(Duration),
    /// It was aborted; the key goes back to the queue.
    Aborted,
    Failed(Failed<'a>),
}

pub(crate) struct Failed<'a> {
    pub(crate) error: &'a (dyn Error + 'static),
    /// How many runs in a row have failed, this one included.
    pub(crate) failures: u32,
    pub(crate) next: Next,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Retry(Duration),
    /// The policy gives the key up.
    Drop,
    /// The error says that no try will mend it.
    Terminal,
}

/// Runs keys, one after the other. What a run needs it has at hand: a run makes nothing, and takes no handle of anything.
pub(crate) struct Runner<R, P, L = ()> {
    runs: Arc<Runs<R, P, L>>,
    counters: Arc<Counters>,
    /// That of the run under way, or of the last one, which has left nothing in it.
    cx: Context,
    draws: Draws,
}

impl<R, P, L> Runner<R, P, L> {
    /// Counts in `counters`, which are its own.
    pub(crate) fn new(runs: Arc<Runs<R, P, L>>, counters: Arc<Counters>, seat: &Arc<WorkerSlot>) -> Self {
        let seat = Some(Arc::clone(seat));
        let cx = Context::new(runs.clock.clone(), Nanos::NEVER, runs.abort.clone(), seat, Call::default());
        let draws = runs.clock.draws();
        Self { runs, counters, cx, draws }
    }

    /// From now on it runs keys on another seat.
    pub(crate) fn sit(&mut self, seat: &Arc<WorkerSlot>) {
        self.cx.sit(seat);
    }

    /// A panic that comes as far as the loop around the runs is one of the key's own code (`Clone`, `Drop`, `Debug`) or of a
    /// policy. The claim it passed by, if any, has ended as failed.
    pub(crate) fn survive(&self, panic: Panic) {
        let (controller, message) = (self.name(), panic_message(&*panic));
        log::error!(controller, panic = message; "{controller}: a key's own code or a policy panicked: {message}");
        shielded("the drop of a panic", || drop(panic));
    }

    fn name(&self) -> &str {
        &self.runs.name
    }

    /// Runs the key of a claim. `begin` is told the start and the deadline, [`Nanos::NEVER`] where it does not matter or there is
    /// none, and has the run begin on the thread's seat.
    pub(crate) fn run<'s, K>(
        &mut self,
        claim: &Claim<K>,
        seat: &WorkerSlot,
        begin: impl FnOnce(Nanos, Nanos) -> Run<'s>,
    ) -> Ending
    where
        K: Key + fmt::Debug,
        R: Reconciler<K>,
        P: RetryPolicy<K>,
        L: Ledger<K>,
    {
        let Self { runs, cx, counters, .. } = self;
        let (controller, thread, key) = (runs.name.as_str(), seat.name.as_str(), claim.key());
        log::trace!(controller, thread, key:?; "{controller}: reconciling {key:?} on {thread}");
        runs.ledger.begin(claim.key());
        let call = Call {
            reasons: claim.reasons(),
            failures: claim.failures(),
            priority: claim.priority(),
            queued_for: claim.queued_for(),
        };
        let start = if L::TIMED || runs.timeout.is_some() { runs.clock.nanos() } else { Nanos::NEVER };
        let deadline = runs.timeout.map_or(Nanos::NEVER, |timeout| start.after(timeout));
        cx.renew(deadline, call);
        let outcome = {
            let _run = begin(start, deadline);
            catch_unwind(AssertUnwindSafe(|| runs.reconciler.reconcile(cx, claim.key()).map_err(Into::into)))
        };
        cx.end();
        let end = if start == Nanos::NEVER { Nanos::ZERO } else { runs.clock.nanos() };
        if end >= deadline {
            counters.timeouts.count();
        }
        if L::TIMED {
            let (queued, worked) = (call.queued_for.unwrap_or_default(), end.since(start));
            counters.queue_time.add(queued);
            counters.work_time.add(worked);
            runs.ledger.timed(queued, worked);
        }
        match outcome {
            Ok(Ok(action)) => self.succeeded(claim, action),
            Ok(Err(error)) => self.failed(claim, error),
            Err(panic) => self.panicked(claim, panic),
        }
    }

    fn succeeded<K>(&self, claim: &Claim<K>, action: Action) -> Ending
    where
        K: Key + fmt::Debug,
        L: Ledger<K>,
    {
        let Self { counters, runs, .. } = self;
        let (controller, key) = (self.name(), claim.key());
        let (after, ending) = match action.0 {
            Follow::Nothing => {
                counters.successes.count();
                log::debug!(controller, key:?; "{controller}: reconciled {key:?}");
                runs.ledger.note(key, Outcome::Succeeded);
                return Ending::Done;
            }
            Follow::Requeue(after) => (after, Ending::RequeueAfter(after)),
            Follow::Retry(after) => (after, Ending::Retry(after)),
        };
        counters.requeues.count();
        let shown = Rounded(after);
        log::debug!(controller, key:?, after:% = shown; "{controller}: reconciled {key:?}, to run again in {shown}");
        runs.ledger.note(key, Outcome::Requeued(after));
        ending
    }

    fn failed<K>(&mut self, claim: &Claim<K>, error: BoxError) -> Ending
    where
        K: Key + fmt::Debug,
        P: RetryPolicy<K>,
        L: Ledger<K>,
    {
        let judged = catch_unwind(AssertUnwindSafe(|| self.judge(claim, &*error)));
        // An error is the user's code, down to its drop, which must not panic while a policy's panic unwinds.
        shielded("the drop of an error", || drop(error));
        judged.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn judge<K>(&mut self, claim: &Claim<K>, error: &(dyn Error + 'static)) -> Ending
    where
        K: Key + fmt::Debug,
        P: RetryPolicy<K>,
        L: Ledger<K>,
    {
        let Self { counters, runs, .. } = &*self;
        let (controller, key) = (self.name(), claim.key());
        // Terminal comes first: what it marks may have any of the others as its source.
        if Terminal::find(error).is_some() {
            counters.terminal_errors.count();
            let shown = Chain(error);
            log::warn!(controller, key:?, error:% = shown; "{controller}: reconcile of {key:?} failed for good: {shown}");
            let failures = claim.failures_if_retried();
            runs.ledger.note(key, Outcome::Failed(Failed { error, failures, next: Next::Terminal }));
            return Ending::Done;
        }
        if let Some(requeue) = RequeueAfter::find(error) {
            counters.requeues.count();
            let after = requeue.after();
            let (shown, error_shown) = (Rounded(after), Chain(error));
            log::info!(
                controller, key:?, after:% = shown, error:% = error_shown;
                "{controller}: requeue asked by {key:?}, after {shown}: {error_shown}"
            );
            runs.ledger.note(key, Outcome::Requeued(after));
            return Ending::RequeueAfter(after);
        }
        // Only if it is true: a key put back without end by a run that nobody has aborted would spin.
        if find(error) == Some(&Cancelled::Aborted) && runs.abort.is_closed() {
            counters.aborted.count();
            log::debug!(controller, key:?; "{controller}: aborted; {key:?} goes back to the queue");
            runs.ledger.note(key, Outcome::Aborted);
            return Ending::PutBack(claim.reasons());
        }
        self.decide(claim, error)
    }

    fn panicked<K>(&mut self, claim: &Claim<K>, panic: Panic) -> Ending
    where
        K: Key + fmt::Debug,
        P: RetryPolicy<K>,
        L: Ledger<K>,
    {
        self.counters.panics.count();
        let error = Panicked::new(panic_message(&*panic));
        let (controller, key, message) = (self.name(), claim.key(), error.message());
        log::error!(controller, key:?, panic = message; "{controller}: the reconciler panicked at {key:?}: {message}");
        shielded("the drop of a panic", || drop(panic));
        self.decide(claim, &error)
    }

    /// Asks the policy.
    fn decide<K>(&mut self, claim: &Claim<K>, error: &(dyn Error + 'static)) -> Ending
    where
        K: Key + fmt::Debug,
        P: RetryPolicy<K>,
        L: Ledger<K>,
    {
        let failures = claim.failures_if_retried();
        let random = self.draws.next();
        let Self { counters, runs, .. } = &*self;
        let (controller, key) = (self.name(), claim.key());
        let level = Muted::find(error).map_or(log::Level::Warn, |_| log::Level::Debug);
        let error = Muted::unwrap(error);
        let chain = Chain(error);
        let (next, ending) = match runs.policy.decide(&Failure { key, failures, error, random }) {
            RetryDecision::Retry(backoff) => {
                counters.retries.count();
                let shown = Rounded(backoff);
                log::log!(
                    level, controller, key:?, error:% = chain, failures, backoff:% = shown;
                    "{controller}: reconcile of {key:?} failed, to be retried in {shown} (failure {failures}): {chain}"
                );
                (Next::Retry(backoff), Ending::Retry(backoff))
            }
            RetryDecision::Drop => {
                counters.drops.count();
                log::warn!(
                    controller, key:?, error:% = chain, failures;
                    "{controller}: reconcile of {key:?} failed, not retried (failure {failures}): {chain}"
                );
                (Next::Drop, Ending::Done)
            }
        };
        runs.ledger.note(key, Outcome::Failed(Failed { error, failures, next }));
        ending
    }
}
