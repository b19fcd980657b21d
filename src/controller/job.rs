//! A controller as a member of a pool: its turns, and the rules of its runs.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::failed_keys::{FailedKey, bounded};
use super::state::ControllerState;
use crate::base::group::Overrun;
use crate::base::sync::Mutex;
use crate::base::thread::shielded;
use crate::base::time::{Nanos, Rounded};
use crate::queue::{Claim, Ending, Key};
use crate::run::context::Context;
use crate::run::error::{BoxError, Chain, terminal};
use crate::run::metrics::Counters;
use crate::run::policy::RetryPolicy;
use crate::run::pool::{Job, Turn};
use crate::run::reconciler::{Action, Reconciler};
use crate::run::runner::{Failed, Ledger, Next, Outcome, Runner, Runs};

/// A failed run, as the hook of [`on_error`](super::ControllerBuilder::on_error) sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunFailure<'a, K> {
    /// The name of the controller.
    pub controller: &'a str,
    /// The key.
    pub key: &'a K,
    /// The error; [`Panicked`](crate::run::Panicked) if the reconciler panicked.
    pub error: &'a (dyn Error + 'static),
    /// The number of failed runs in a row, including this one.
    pub failures: u32,
    /// The time until the retry, from now; `None` if there is no retry.
    pub retry_after: Option<Duration>,
}

pub(super) type ErrorHook<K> = Box<dyn Fn(&RunFailure<'_, K>) + Send + Sync>;

pub(super) type Validate<K> = Box<dyn Fn(&K) -> Result<(), BoxError> + Send + Sync>;

/// Keeps what a controller needs to know of its runs.
pub(super) struct RunRecorder<K: Key> {
    pub(super) state: Arc<ControllerState<K>>,
    pub(super) on_error: Option<ErrorHook<K>>,
    #[cfg(feature = "metrics")]
    pub(super) timings: super::export::RunTimings,
}

impl<K: Key> RunRecorder<K> {
    pub(super) fn new(state: &Arc<ControllerState<K>>, on_error: Option<ErrorHook<K>>) -> Self {
        Self {
            state: Arc::clone(state),
            on_error,
            #[cfg(feature = "metrics")]
            timings: super::export::RunTimings::new(&state.name),
        }
    }

    fn failed(&self, key: &K, failed: &Failed<'_>) {
        let Failed { error, failures, next } = *failed;
        self.state.failed.add(FailedKey {
            key: key.clone(),
            error: bounded(Chain(error).to_string()),
            failures,
            since: self.state.clock.now(),
            parked: !matches!(next, Next::Retry(_)),
        });
        if let Some(hook) = &self.on_error {
            let retry_after = if let Next::Retry(after) = next { Some(after) } else { None };
            let failure = RunFailure { controller: &self.state.name, key, error, failures, retry_after };
            shielded("the error hook of a controller", || hook(&failure));
        }
    }
}

impl<K: Key + Sync> Ledger<K> for RunRecorder<K> {
    const TIMED: bool = true;

    #[cfg(feature = "metrics")]
    fn timed(&self, queued: Duration, worked: Duration) {
        self.timings.record(queued, worked);
    }

    #[inline]
    fn begin(&self, key: &K) {
        self.state.waiters.begin(key);
    }

    fn note(&self, key: &K, outcome: Outcome<'_>) {
        match &outcome {
            Outcome::Succeeded | Outcome::Requeued(_) => self.state.failed.forget(key),
            Outcome::Failed(failed) => self.failed(key, failed),
            Outcome::Aborted => {}
        }
        self.state.waiters.note(key, &outcome);
    }
}

/// A reconciler that is called with valid keys only.
pub(super) struct Checked<K, R> {
    pub(super) reconciler: R,
    pub(super) valid: Option<Validate<K>>,
}

impl<K: Key, R: Reconciler<K>> Reconciler<K> for Checked<K, R> {
    type Error = BoxError;

    fn reconcile(&self, cx: &Context, key: &K) -> Result<Action, BoxError> {
        if let Some(valid) = &self.valid {
            valid(key).map_err(terminal)?;
        }
        self.reconciler.reconcile(cx, key).map_err(Into::into)
    }
}

type ControllerRuns<K, R, P> = Runs<Checked<K, R>, P, RunRecorder<K>>;
type ControllerRunner<K, R, P> = Runner<Checked<K, R>, P, RunRecorder<K>>;

/// The job of one controller.
pub(super) struct ControllerJob<K: Key, R, P> {
    state: Arc<ControllerState<K>>,
    runs: Arc<ControllerRuns<K, R, P>>,
    /// The runners that no thread uses now.
    runners: Mutex<Vec<ControllerRunner<K, R, P>>>,
}

impl<K, R, P> ControllerJob<K, R, P>
where
    K: Key + Sync + fmt::Debug,
    R: Reconciler<K> + 'static,
    P: RetryPolicy<K> + 'static,
{
    pub(super) fn new(recorder: RunRecorder<K>, reconciler: Checked<K, R>, policy: P) -> Self {
        let state = Arc::clone(&recorder.state);
        let runs = Arc::new(Runs {
            name: state.name.clone(),
            clock: state.clock.clone(),
            abort: state.abort.clone(),
            reconciler,
            policy,
            timeout: state.timeout,
            ledger: recorder,
        });
        Self { state, runs, runners: Mutex::new(Vec::new()) }
    }

    fn runner(&self, turn: &Turn<'_>) -> ControllerRunner<K, R, P> {
        let idle = self.runners.lock().pop();
        if let Some(mut runner) = idle {
            runner.sit(turn.seat());
            return runner;
        }
        let counters = Arc::new(Counters::default());
        self.state.counters.lock().push(Arc::clone(&counters));
        Runner::new(Arc::clone(&self.runs), counters, turn.seat())
    }

    fn serve_with(&self, turn: &Turn<'_>, runner: &mut ControllerRunner<K, R, P>, slot: &mut Option<Claim<K>>) {
        let state = &*self.state;
        let queue = &state.queue.shared;
        let mut ended = None;
        loop {
            if !state.rate.take() {
                if let (Some(claim), Some(ending)) = (slot.take(), ended) {
                    claim.end(ending);
                    state.waiters.settle();
                }
                return;
            }
            let taken = match (&mut *slot, ended) {
                (Some(claim), Some(ending)) => {
                    let taken = claim.turn(ending, || !state.takes_keys());
                    state.waiters.settle();
                    taken
                }
                _ => queue.try_dequeue(|| !state.takes_keys()).map(|claim| *slot = Some(claim)),
            };
            let Some(claim) = slot.as_mut().filter(|_| taken.is_ok()) else {
                state.rate.put_back();
                return;
            };
            if claim.leaves_more() {
                turn.more();
            }
            let ending = if state.suspended.hold_back(claim.key(), claim.reasons()) {
                Ending::PutAside(claim.reasons())
            } else {
                runner.run(claim, turn.seat(), |start, deadline| turn.begin(start, deadline, claim.record()))
            };
            if turn.is_over() {
                if let Some(claim) = slot.take() {
                    claim.end(ending);
                }
                state.waiters.settle();
                return;
            }
            ended = Some(ending);
        }
    }
}

impl<K, R, P> Job for ControllerJob<K, R, P>
where
    K: Key + Sync + fmt::Debug,
    R: Reconciler<K> + 'static,
    P: RetryPolicy<K> + 'static,
{
    fn serve(&self, turn: &Turn<'_>) {
        let mut runner = self.runner(turn);
        let mut claim = None;
        let served = catch_unwind(AssertUnwindSafe(|| self.serve_with(turn, &mut runner, &mut claim)));
        drop(claim);
        self.runners.lock().push(runner);
        if let Err(panic) = served {
            self.state.waiters.settle();
            resume_unwind(panic);
        }
    }

    fn has_work(&self) -> bool {
        self.state.queue.shared.has_ready()
    }

    fn not_before(&self) -> Nanos {
        self.state.next_token()
    }

    fn shuffle(&self, draw: u64) -> Option<String> {
        let state = &*self.state;
        let key = (state.next_token() == Nanos::ZERO).then(|| state.queue.shared.shuffle(draw)).flatten()?;
        Some(format!("{} {key:?}", state.name))
    }

    /// Notifies the threads that wait for the end of a stopped controller. If it is stopped after this check, the end of its
    /// control thread notifies them.
    fn left(&self) {
        if self.state.is_stopped() {
            self.state.end.notify();
        }
    }

    fn overrun(&self, overrun: &Overrun<'_>) {
        let state = &*self.state;
        state.overruns.count();
        let (controller, thread, timeout) =
            (state.name.as_str(), overrun.thread, Rounded(state.timeout.unwrap_or_default()));
        if let Some(key) = state.queue.shared.key_in_process(overrun.record).filter(|_| overrun.goes_on()) {
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
    }
}
