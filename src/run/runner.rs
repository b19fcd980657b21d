//! The run loop: takes keys from a queue, runs each one, and ends its claim. Workers and controllers share it.
//!
//! # Invariants
//!
//! - A runner owns its context and its counters. A run leaves nothing in the context.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::metrics::RunCounters;
use crate::base::backoff::Draws;
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::group::{Run, WorkerSlot};
use crate::base::text::{OneLine, ShownKey, one_line};
use crate::base::thread::{Panic, panic_message, shielded};
use crate::base::time::{Nanos, Rounded};
use crate::queue::{Claim, Ending, Key, NoClaim, Reasons};
use crate::run::context::{Context, RunInfo};
use crate::run::error::{Cancelled, Chain, Muted, Panicked, RequeueAfter, Terminal, find};
use crate::run::fence::Fence;
use crate::run::permit::Admission;
use crate::run::policy::{Failure, RetryDecision, RetryPolicy};
use crate::run::reconciler::{Action, Follow, Reconciler};
use crate::run::retry_after::RetryAfter;

/// The settings that all runs of one reconciler share.
pub(crate) struct RunSettings<R, P, H> {
    /// The name of the workers or the controller in log lines.
    pub(crate) name: String,
    pub(crate) clock: Clock,
    /// Cancels the contexts of all runs.
    pub(crate) abort: CancellationToken,
    pub(crate) reconciler: R,
    pub(crate) policy: P,
    pub(crate) timeout: Option<Duration>,
    pub(crate) hooks: H,
}

/// The hooks of the owner of a run loop. By default they do nothing.
pub(crate) trait RunHooks<K>: Send + Sync {
    /// Whether runs are timed. Timing reads the clock twice per run.
    const TIMED: bool = false;

    /// Returns whether no key may be taken now. Called under the queue's lock.
    fn is_shut(&self) -> bool;

    /// Takes a token if the rate is limited. Returns whether another key may be run.
    #[inline]
    fn take_token(&self) -> bool {
        true
    }

    /// Returns a token that was not used for a run.
    #[inline]
    fn put_token_back(&self) {}

    /// Decides whether a key that was taken is run.
    #[inline]
    fn admit(&self, _key: &K, _reasons: Reasons) -> Admission {
        Admission::Run
    }

    /// Returns the term in which the runs happen, if there was an election. Called before the first run.
    fn fence(&self) -> Option<Fence> {
        None
    }

    /// Called when a run begins.
    #[inline]
    fn begin(&self, _key: &K) {}

    /// Called when a run has ended, with its queueing time and run time, if runs are [timed](Self::TIMED).
    #[inline]
    fn timed(&self, _queued: Duration, _worked: Duration) {}

    /// Returns whether [`record`](Self::record) is called at the end of each run.
    #[inline]
    fn is_recording(&self) -> bool {
        false
    }

    /// Called with the outcome, the reasons and the times of a run, before [`note`](Self::note).
    fn record(&self, _key: &K, _outcome: &RunResult<'_>, _run: &EndedRun<'_>) {}

    /// Called with the outcome of a run, before its claim ends.
    #[inline]
    fn note(&self, _key: &K, _outcome: RunResult<'_>) {}

    /// Called when the claim of a key that was [refused](Admission::Refuse) has ended.
    fn refused(&self, _key: K, _reasons: Reasons) {}

    /// Returns a copy of the key of a claim that is about to end, for [`settle`](Self::settle), if threads wait for keys.
    #[inline]
    fn awaited(&self, _key: &K) -> Option<K> {
        None
    }

    /// Called when a claim has ended, with the key from [`awaited`](Self::awaited).
    #[inline]
    fn settle(&self, _ended: Option<K>) {}
}

/// A thread that serves one queue for some time.
pub(crate) trait KeyTurn {
    /// Begins a run that the watchdog can see. `start` is [`Nanos::NEVER`] if it is not needed.
    fn begin(&self, start: Nanos, deadline: Nanos, record: u32) -> Run<'_>;

    /// Returns the slot of the thread.
    fn slot(&self) -> &Arc<WorkerSlot>;

    /// Returns whether the thread runs no further key. Called after each run.
    fn is_over(&self) -> bool;

    /// Called when a key was taken and others are left in the queue.
    fn more(&self);
}

/// A run that has ended, without its result.
pub(crate) struct EndedRun<'a> {
    pub(crate) call: RunInfo,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) thread: &'a str,
}

/// The result of a run.
pub(crate) enum RunResult<'a> {
    Succeeded,
    /// The run requested another run, by its action or its error.
    Requeued(Duration),
    /// The run was aborted. The key returns to the queue.
    Aborted,
    Failed(Failed<'a>),
}

pub(crate) struct Failed<'a> {
    pub(crate) error: &'a (dyn Error + 'static),
    /// The number of failed runs in a row, including this one.
    pub(crate) failures: u32,
    pub(crate) next: NextAttempt,
}

/// The next attempt after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAttempt {
    Retry(Duration),
    /// The policy does not retry the key.
    Drop,
    /// The error is terminal.
    Terminal,
}

/// Runs keys one after the other. Reuses its parts, so that a run allocates nothing.
pub(crate) struct Runner<K, R, P, H> {
    runs: Arc<RunSettings<R, P, H>>,
    counters: Arc<RunCounters>,
    /// The context of all runs, one after the other.
    cx: Context,
    /// The start and the end of the last run, if runs are timed.
    times: (Nanos, Nanos),
    /// Whether a token was taken that no run has used yet.
    has_token: bool,
    draws: Draws,
    key: PhantomData<fn(K)>,
}

impl<K, R, P, H> Runner<K, R, P, H>
where
    K: Key + fmt::Debug,
    R: Reconciler<K>,
    P: RetryPolicy<K>,
    H: RunHooks<K>,
{
    /// Creates a runner that counts in `counters`, which it alone writes.
    pub(crate) fn new(runs: Arc<RunSettings<R, P, H>>, counters: Arc<RunCounters>, slot: &Arc<WorkerSlot>) -> Self {
        let slot = Some(Arc::clone(slot));
        let cx = Context::new(runs.clock.clone(), Nanos::NEVER, runs.abort.clone(), slot, RunInfo::default());
        let cx = cx.in_term(runs.hooks.fence());
        let draws = runs.clock.draws();
        Self { runs, counters, cx, times: (Nanos::NEVER, Nanos::ZERO), has_token: false, draws, key: PhantomData }
    }

    /// Moves the runner to another worker slot.
    pub(crate) fn use_slot(&mut self, slot: &Arc<WorkerSlot>) {
        self.cx.use_slot(slot);
    }

    fn name(&self) -> &str {
        &self.runs.name
    }

    /// Runs a key from `first`, then further queued keys. Returns the reason for stopping.
    ///
    /// Stops when the turn is over, the queue is empty, or no key may be run now. Blocks only in `first` and in the reconciler. A
    /// panic in the key's own code or in the policy ends its claim as failed, and counts as an empty queue.
    pub(crate) fn serve(&mut self, turn: &impl KeyTurn, first: impl FnOnce() -> Result<Claim<K>, NoClaim>) -> NoClaim {
        catch_unwind(AssertUnwindSafe(|| self.serve_keys(turn, first))).unwrap_or_else(|panic| {
            let (controller, message) = (self.name(), one_line(panic_message(&*panic)));
            log::error!(controller, panic:% = message; "{controller}: a key's own code or a policy panicked: {message}");
            if self.has_token {
                self.runs.hooks.put_token_back();
            }
            self.runs.hooks.settle(None);
            NoClaim::Empty
        })
    }

    fn serve_keys(&mut self, turn: &impl KeyTurn, first: impl FnOnce() -> Result<Claim<K>, NoClaim>) -> NoClaim {
        self.has_token = self.runs.hooks.take_token();
        if !self.has_token {
            return NoClaim::Stopped;
        }
        let mut claim = match first() {
            Ok(claim) => claim,
            Err(no_claim) => {
                self.runs.hooks.put_token_back();
                return no_claim;
            }
        };
        loop {
            if claim.leaves_more() {
                turn.more();
            }
            let admitted = match self.runs.hooks.admit(claim.key(), claim.reasons()) {
                Admission::Run => Ok(None),
                Admission::RunWith(permit) => {
                    self.cx.enter_term(permit.fence());
                    Ok(Some(permit))
                }
                Admission::PutAside(delay) => Err(Ending::PutAside(claim.reasons(), delay)),
                Admission::Refuse => Err(Ending::Leave),
            };
            let permit = match admitted {
                Ok(permit) => permit,
                Err(ending) => match self.pass_over(&mut claim, ending, turn) {
                    Ok(()) => continue,
                    Err(no_claim) => return no_claim,
                },
            };
            self.has_token = false;
            let ending = self.run(&claim, turn);
            drop(permit);
            let hooks = &self.runs.hooks;
            let awaited = hooks.awaited(claim.key());
            if turn.is_over() || !hooks.take_token() {
                claim.end(ending);
                hooks.settle(awaited);
                return NoClaim::Stopped;
            }
            self.has_token = true;
            // Ends the claim and takes the next key in one locked section.
            let taken = claim.turn(ending, || hooks.is_shut());
            hooks.settle(awaited);
            if let Err(no_claim) = taken {
                hooks.put_token_back();
                return no_claim;
            }
        }
    }

    /// Ends the claim of a key that is not run, and takes the next key. The token of the first key serves the next one.
    #[cold]
    fn pass_over(&self, claim: &mut Claim<K>, ending: Ending, turn: &impl KeyTurn) -> Result<(), NoClaim> {
        let hooks = &self.runs.hooks;
        let refused = (ending == Ending::Leave).then(|| (claim.key().clone(), claim.reasons()));
        let (is_over, awaited) = (turn.is_over(), hooks.awaited(claim.key()));
        let taken = claim.turn(ending, || is_over || hooks.is_shut());
        if let Some((key, reasons)) = refused {
            // The claim holds the next key by now, which did not panic.
            shielded("the key of a controller", || hooks.refused(key, reasons));
        }
        hooks.settle(awaited);
        taken.inspect_err(|_| hooks.put_token_back())
    }

    /// Runs the key of a claim. Called once, so that it becomes part of the loop.
    fn run(&mut self, claim: &Claim<K>, turn: &impl KeyTurn) -> Ending {
        let Self { runs, cx, counters, times, .. } = self;
        let (controller, thread, key) = (runs.name.as_str(), turn.slot().name.as_str(), &ShownKey(claim.key()));
        log::trace!(controller, thread, key:?; "{controller}: reconciling {key:?} on {thread}");
        runs.hooks.begin(claim.key());
        let call = RunInfo {
            reasons: claim.reasons(),
            failures: claim.failures(),
            priority: claim.priority(),
            queued_for: claim.queued_for(),
        };
        let start = if H::TIMED || runs.timeout.is_some() { runs.clock.nanos() } else { Nanos::NEVER };
        let deadline = runs.timeout.map_or(Nanos::NEVER, |timeout| start.after(timeout));
        cx.renew(deadline, call);
        let outcome = {
            let _run = turn.begin(start, deadline, claim.record());
            catch_unwind(AssertUnwindSafe(|| runs.reconciler.reconcile(cx, claim.key()).map_err(Into::into)))
        };
        cx.end();
        let end = if start == Nanos::NEVER { Nanos::ZERO } else { runs.clock.nanos() };
        if end >= deadline {
            counters.timeouts.count();
        }
        if H::TIMED {
            let (queued, worked) = (call.queued_for.unwrap_or_default(), end.since(start));
            counters.queue_time.add(queued);
            counters.work_time.add(worked);
            runs.hooks.timed(queued, worked);
            *times = (start, end);
        }
        match outcome {
            Ok(Ok(action)) => self.succeeded(claim, action),
            Ok(Err(error)) => self.failed(claim, &*error),
            Err(panic) => self.panicked(claim, &panic),
        }
    }

    /// Passes the outcome of a run to the hooks.
    #[inline]
    fn note(&self, key: &K, outcome: RunResult<'_>) {
        if self.runs.hooks.is_recording() {
            self.record(key, &outcome);
        }
        self.runs.hooks.note(key, outcome);
    }

    /// Records the outcome of a run. It is separate from `note`, so that a run without recording takes a short path.
    #[cold]
    #[inline(never)]
    fn record(&self, key: &K, outcome: &RunResult<'_>) {
        let (start, end) = self.times;
        let thread = self.cx.thread().unwrap_or_default();
        self.runs.hooks.record(key, outcome, &EndedRun { call: self.cx.call, start, end, thread });
    }

    fn succeeded(&self, claim: &Claim<K>, action: Action) -> Ending {
        let counters = &self.counters;
        let (controller, key) = (self.name(), &ShownKey(claim.key()));
        let (after, ending) = match action.0 {
            Follow::Nothing => {
                counters.successes.count();
                log::debug!(controller, key:?; "{controller}: reconciled {key:?}");
                self.note(claim.key(), RunResult::Succeeded);
                return Ending::Done;
            }
            Follow::Requeue(after) => (after, Ending::RequeueAfter(after)),
            Follow::Retry(after) => (after, Ending::Retry(after)),
        };
        counters.requeues.count();
        let shown = Rounded(after);
        log::debug!(controller, key:?, after:% = shown; "{controller}: reconciled {key:?}, to run again in {shown}");
        self.note(claim.key(), RunResult::Requeued(after));
        ending
    }

    fn failed(&mut self, claim: &Claim<K>, error: &(dyn Error + 'static)) -> Ending {
        let Self { counters, runs, .. } = &*self;
        let (controller, key) = (self.name(), &ShownKey(claim.key()));
        // Checked first: the source of a terminal error may be one of the errors below.
        if Terminal::find(error).is_some() {
            counters.terminal_errors.count();
            let shown = OneLine(Chain(error));
            log::warn!(controller, key:?, error:% = shown; "{controller}: reconcile of {key:?} failed for good: {shown}");
            let failures = claim.failures_if_retried();
            self.note(claim.key(), RunResult::Failed(Failed { error, failures, next: NextAttempt::Terminal }));
            return Ending::Done;
        }
        if let Some(requeue) = RequeueAfter::find(error) {
            counters.requeues.count();
            let after = requeue.after();
            let (shown, error_shown) = (Rounded(after), OneLine(Chain(error)));
            log::info!(
                controller, key:?, after:% = shown, error:% = error_shown;
                "{controller}: {key:?} requested a requeue after {shown}: {error_shown}"
            );
            self.note(claim.key(), RunResult::Requeued(after));
            return Ending::RequeueAfter(after);
        }
        // Only during an abort. Otherwise a run that returns this error would put its key back for ever, and spin.
        let is_aborted = match find(error) {
            Some(Cancelled::Aborted) => runs.abort.is_closed(),
            Some(Cancelled::TermEnded) => self.cx.fence().is_err(),
            _ => false,
        };
        if is_aborted {
            counters.aborted.count();
            log::debug!(controller, key:?; "{controller}: aborted; {key:?} goes back to the queue");
            self.note(claim.key(), RunResult::Aborted);
            return Ending::PutBack(claim.reasons());
        }
        self.decide(claim, error)
    }

    fn panicked(&mut self, claim: &Claim<K>, panic: &Panic) -> Ending {
        self.counters.panics.count();
        let error = Panicked::new(panic_message(&**panic));
        let (controller, key, message) = (self.name(), &ShownKey(claim.key()), one_line(error.message()));
        log::error!(controller, key:?, panic:% = message; "{controller}: the reconciler panicked at {key:?}: {message}");
        self.decide(claim, &error)
    }

    /// Lets the policy decide about a failed run.
    fn decide(&mut self, claim: &Claim<K>, error: &(dyn Error + 'static)) -> Ending {
        let failures = claim.failures_if_retried();
        let random = self.draws.draw();
        let Self { counters, runs, .. } = &*self;
        let (controller, key) = (self.name(), &ShownKey(claim.key()));
        let level = Muted::find(error).map_or(log::Level::Warn, |_| log::Level::Debug);
        let error = Muted::unwrap(error);
        let chain = OneLine(Chain(error));
        let (next, ending) = match runs.policy.decide(&Failure { key: claim.key(), failures, error, random }) {
            RetryDecision::Retry(backoff) => {
                let backoff = RetryAfter::find(error).map_or(backoff, |least| backoff.max(least.delay()));
                counters.retries.count();
                let shown = Rounded(backoff);
                log::log!(
                    level, controller, key:?, error:% = chain, failures, backoff:% = shown;
                    "{controller}: reconcile of {key:?} failed, to be retried in {shown} (failure {failures}): {chain}"
                );
                (NextAttempt::Retry(backoff), Ending::Retry(backoff))
            }
            RetryDecision::Drop => {
                counters.drops.count();
                log::warn!(
                    controller, key:?, error:% = chain, failures;
                    "{controller}: reconcile of {key:?} failed, not retried (failure {failures}): {chain}"
                );
                (NextAttempt::Drop, Ending::Done)
            }
        };
        self.note(claim.key(), RunResult::Failed(Failed { error, failures, next }));
        ending
    }
}
