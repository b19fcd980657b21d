//! The run loop: takes keys from a queue, runs each one, and ends its claim. Workers and controllers share it.
//!
//! # Invariants
//!
//! - A runner owns its context and its counters. A run leaves nothing in the context.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::metrics::RunCounters;
use super::outcome::{JudgedRun, RunJudge, RunResult};
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::group::{Run, SeenRun, WorkerSlot};
use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::base::text::ShownKey;
use crate::base::thread::shielded;
use crate::base::time::{Nanos, Rounded};
use crate::queue::{Claim, DequeueError, Ending, Key, QueueShared, Reasons};
use crate::run::context::{Context, RunInfo};
use crate::run::error::{BoxError, Panicked};
use crate::run::fence::Fence;
use crate::run::gate::Permit;
use crate::run::reconciler::{Action, FailedRun, Reconciler, RetryPolicy};

/// A reconciler with its type erased, so that there is only one run loop per key type.
pub(crate) type Reconcile<K> = Box<dyn Fn(&Context, &K) -> Result<Action, BoxError> + Send + Sync>;

/// Boxes a reconciler.
pub(crate) fn boxed<K, R: Reconciler<K> + 'static>(reconciler: R) -> Reconcile<K> {
    Box::new(move |cx, key| reconciler.reconcile(cx, key).map_err(Into::into))
}

/// The settings that all runs of one reconciler share.
pub(crate) struct RunSettings<K, H> {
    /// The name of the workers or the controller in log lines.
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    /// Cancels the contexts of all runs.
    pub(crate) abort: CancellationToken,
    pub(crate) reconcile: Reconcile<K>,
    pub(crate) policy: Box<dyn RetryPolicy<K>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) hooks: H,
}

/// Hooks that the owner of a run loop implements. By default they do nothing.
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

    /// Decides whether a key that was taken is run. Returns the permits for its run, or the ending of its claim.
    #[inline]
    fn admit(&self, _key: &K, _reasons: Reasons) -> Result<Vec<Permit>, Ending> {
        Ok(Vec::new())
    }

    /// Returns the term in which the runs happen, if there was an election. Called before the first run.
    fn fence(&self) -> Option<Fence> {
        None
    }

    /// Called when a run begins.
    #[inline]
    fn begin(&self, _key: &K) {}

    /// Returns whether [`observe`](Self::observe) is called at the end of each run.
    #[inline]
    fn is_observed(&self) -> bool {
        false
    }

    /// Called with the result, the context, the start and the end of a run, before [`note`](Self::note).
    fn observe(&self, _key: &K, _result: &RunResult<'_>, _cx: &Context, _times: (Nanos, Nanos)) {}

    /// Called with the outcome of a run, before its claim ends.
    #[inline]
    fn note(&self, _key: &K, _outcome: RunResult<'_>) {}

    /// Called when the claim of a key that leaves the queue without a run has ended.
    fn refused(&self, _key: K, _reasons: Reasons) {}

    /// Returns a copy of the key for [`settle`](Self::settle), if threads wait for keys. Called before the claim ends.
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
    fn begin(&self, start: Nanos, deadline: Nanos, record: u32, reasons: Reasons) -> Run<'_>;

    /// Returns the slot of the thread.
    fn slot(&self) -> &Arc<WorkerSlot>;

    /// Returns whether the thread runs no further key. Called after each run.
    fn is_over(&self) -> bool;

    /// Called when a key was taken and others are left in the queue.
    fn more(&self);
}

/// Runs keys one after the other. Reuses its parts, so that a run allocates nothing.
pub(crate) struct Runner<K, H> {
    runs: Arc<RunSettings<K, H>>,
    judge: RunJudge,
    /// The context of all runs, one after the other.
    cx: Context,
    /// The start and the end of the last run, if runs are timed.
    times: (Nanos, Nanos),
    /// Whether a token was taken that no run has used yet.
    has_token: bool,
}

impl<K: Key + fmt::Debug, H: RunHooks<K>> Runner<K, H> {
    /// Creates a runner that counts in `counters`, which it alone writes.
    pub(crate) fn new(runs: Arc<RunSettings<K, H>>, counters: Arc<RunCounters>, slot: &Arc<WorkerSlot>) -> Self {
        let (slot, abort, fence) = (Some(Arc::clone(slot)), runs.abort.clone(), runs.hooks.fence());
        let cx = Context::new(runs.clock.clone(), Nanos::NEVER, abort.clone(), slot, RunInfo::default()).in_term(fence);
        let (controller, draws) = (Arc::clone(&runs.name), runs.clock.draws());
        let judge = RunJudge { controller, abort, counters, draws };
        Self { runs, judge, cx, times: (Nanos::NEVER, Nanos::ZERO), has_token: false }
    }

    /// Moves the runner to another worker slot.
    pub(crate) fn use_slot(&mut self, slot: &Arc<WorkerSlot>) {
        self.cx.use_slot(slot);
    }

    /// Runs a key from `first`, then further queued keys. Returns the reason for stopping.
    ///
    /// Stops when the turn is over, the queue is empty, or no key may be run now. Blocks only in `first` and in the
    /// reconciler. A panic in the key's own code or in the policy ends its claim as failed, and counts as an empty
    /// queue.
    pub(crate) fn serve(
        &mut self,
        turn: &impl KeyTurn,
        first: impl FnOnce() -> Result<Claim<K>, DequeueError>,
    ) -> DequeueError {
        catch_unwind(AssertUnwindSafe(|| self.serve_keys(turn, first))).unwrap_or_else(|panic| {
            self.judge.log_foreign_panic(&*panic);
            if self.has_token {
                self.runs.hooks.put_token_back();
            }
            self.runs.hooks.settle(None);
            DequeueError::Empty
        })
    }

    fn serve_keys(
        &mut self,
        turn: &impl KeyTurn,
        first: impl FnOnce() -> Result<Claim<K>, DequeueError>,
    ) -> DequeueError {
        self.has_token = self.runs.hooks.take_token();
        if !self.has_token {
            return DequeueError::Empty;
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
            let permits = match self.runs.hooks.admit(claim.key(), claim.reasons()) {
                Ok(permits) => permits,
                Err(ending) => match self.pass_over(&mut claim, ending, turn) {
                    Ok(()) => continue,
                    Err(no_claim) => return no_claim,
                },
            };
            for fence in permits.iter().filter_map(Permit::fence) {
                // The run is cancelled when the term ends.
                self.cx.fence = Some(fence.clone());
            }
            self.has_token = false;
            let ending = self.run(&claim, turn);
            drop(permits);
            let hooks = &self.runs.hooks;
            let awaited = hooks.awaited(claim.key());
            if turn.is_over() || !hooks.take_token() {
                claim.end(ending);
                hooks.settle(awaited);
                return DequeueError::Empty;
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
    fn pass_over(&self, claim: &mut Claim<K>, ending: Ending, turn: &impl KeyTurn) -> Result<(), DequeueError> {
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
        let Self { runs, cx, judge, times, .. } = self;
        let key = &ShownKey(claim.key());
        if log::log_enabled!(log::Level::Trace) {
            judge.log_start(key, &turn.slot().name);
        }
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
            let _run = turn.begin(start, deadline, claim.record(), call.reasons);
            catch_unwind(AssertUnwindSafe(|| (runs.reconcile)(cx, claim.key())))
        };
        cx.end();
        let end = if start == Nanos::NEVER { Nanos::ZERO } else { runs.clock.nanos() };
        if end >= deadline {
            judge.counters.timeouts.count();
        }
        if H::TIMED {
            let (queued, worked) = (call.queued_for.unwrap_or_default(), end.since(start));
            judge.counters.queue_time.add(queued);
            judge.counters.work_time.add(worked);
            *times = (start, end);
        }
        match outcome {
            Ok(Ok(action)) => {
                let (result, ending) = judge.succeeded(key, action);
                self.note(claim.key(), result);
                ending
            }
            Ok(Err(error)) => self.failed(claim, &Ok(error)),
            Err(panic) => {
                let error = judge.panicked(key, &*panic);
                self.failed(claim, &Err(error))
            }
        }
    }

    /// Handles a run that returned an error or panicked.
    #[cold]
    #[inline(never)]
    fn failed(&mut self, claim: &Claim<K>, error: &Result<BoxError, Panicked>) -> Ending {
        let Self { runs, cx, judge, .. } = self;
        let (key, failures) = (&ShownKey(claim.key()), claim.failures_if_retried());
        let run = JudgedRun { key, reasons: claim.reasons(), failures, cx };
        let policy = |failures, error: &(dyn Error + 'static), random| {
            runs.policy.decide(&FailedRun { key: claim.key(), failures, error, random })
        };
        let (result, ending) = match error {
            Ok(error) => judge.failed(&run, &**error, &policy),
            Err(panicked) => judge.decide(&run, panicked, &policy),
        };
        self.note(claim.key(), result);
        ending
    }

    /// Passes the outcome of a run to the hooks.
    #[inline]
    fn note(&self, key: &K, outcome: RunResult<'_>) {
        if self.runs.hooks.is_observed() {
            self.observe(key, &outcome);
        }
        self.runs.hooks.note(key, outcome);
    }

    /// Tells the observers. It is separate from `note`, so that a run without observers takes a fast path.
    #[cold]
    #[inline(never)]
    fn observe(&self, key: &K, outcome: &RunResult<'_>) {
        self.runs.hooks.observe(key, outcome, &self.cx, self.times);
    }
}

/// Counts and logs an overrun.
pub(crate) fn report_overrun<K: Key + fmt::Debug>(
    controller: &str,
    queue: &QueueShared<K>,
    timeout: Duration,
    overruns: &AtomicU64,
    overrun: &SeenRun,
) {
    // Two reports may run at once.
    overruns.fetch_add(1, Relaxed);
    let (thread, timeout) = (overrun.slot.name.as_str(), Rounded(timeout));
    shielded("the report of an overrun", || {
        // Cloning and showing the key is user code. If the run ends now, the key may no longer belong to it.
        if let Some(key) = queue.key_in_process(overrun.record).filter(|_| overrun.goes_on()) {
            let key = &ShownKey(&key);
            log::warn!(
                controller, thread, key:?, timeout:%;
                "{controller}: the run of {key:?} has passed its deadline and still runs, after {timeout}, on {thread}"
            );
        } else {
            log::warn!(
                controller, thread, timeout:%;
                "{controller}: a run has passed its deadline of {timeout} and has ended since, on {thread}"
            );
        }
    });
}
