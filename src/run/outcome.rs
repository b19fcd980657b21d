//! The results of runs: how they are counted and logged, and how their claims end.
//!
//! Nothing here depends on the type of the keys, so the code is compiled once and not in each program.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::error::{Cancelled, Chain, Muted, Panicked, RequeueAfter, Terminal, find};
use super::metrics::RunCounters;
use super::reconciler::{Action, Follow};
use crate::base::backoff::Draws;
use crate::base::cancel::CancellationToken;
use crate::base::mark::RetryAfter;
use crate::base::text::{OneLine, one_line};
use crate::base::thread::panic_message;
use crate::base::time::Rounded;
use crate::queue::{Ending, Reasons};

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
    /// The time until the retry. `None` if the policy does not retry the key, or if the error is terminal.
    pub(crate) retry_after: Option<Duration>,
}

/// An ended run with its settings, for counting and logging.
pub(super) struct JudgedRun<'a> {
    /// Shows the key. It never panics.
    pub(super) key: &'a dyn Debug,
    pub(super) reasons: Reasons,
    /// The number of failed runs in a row if this one has failed.
    pub(super) failures: u32,
    pub(super) cx: &'a Context,
}

/// Counts and logs the results of the runs of one runner.
pub(super) struct RunJudge {
    pub(super) controller: Arc<str>,
    pub(super) abort: CancellationToken,
    pub(super) counters: Arc<RunCounters>,
    pub(super) draws: Draws,
}

/// Asks the policy about an error: the failures in a row, the error and a random number.
pub(super) type AskPolicy<'p> = &'p dyn Fn(u32, &(dyn Error + 'static), u64) -> Option<Duration>;

impl RunJudge {
    /// Handles a run that returned an action. Every run pays for this function, so the logging is in separate
    /// functions.
    #[inline]
    pub(super) fn succeeded(&self, key: &dyn Debug, action: Action) -> (RunResult<'static>, Ending) {
        let (after, ending) = match action.0 {
            Follow::Nothing => {
                self.counters.successes.count();
                if log::log_enabled!(log::Level::Debug) {
                    self.log_success(key);
                }
                return (RunResult::Succeeded, Ending::Done);
            }
            Follow::Requeue(after) => (after, Ending::RequeueAfter(after)),
            Follow::Retry(after) => (after, Ending::Retry(after)),
        };
        self.counters.requeues.count();
        self.log_requeue(key, after);
        (RunResult::Requeued(after), ending)
    }

    #[cold]
    fn log_success(&self, key: &dyn Debug) {
        let controller = &*self.controller;
        log::debug!(controller, key:?; "{controller}: reconciled {key:?}");
    }

    #[inline(never)]
    fn log_requeue(&self, key: &dyn Debug, after: Duration) {
        let (controller, shown) = (&*self.controller, Rounded(after));
        log::debug!(controller, key:?, after:% = shown; "{controller}: reconciled {key:?}, to run again in {shown}");
    }

    #[cold]
    pub(super) fn log_start(&self, key: &dyn Debug, thread: &str) {
        let controller = &*self.controller;
        log::trace!(controller, thread, key:?; "{controller}: reconciling {key:?} on {thread}");
    }

    /// Handles a run that returned an error.
    #[inline(never)]
    pub(super) fn failed<'e>(
        &mut self,
        run: &JudgedRun<'_>,
        error: &'e (dyn Error + 'static),
        policy: AskPolicy<'_>,
    ) -> (RunResult<'e>, Ending) {
        let (controller, counters, key) = (&*self.controller, &self.counters, run.key);
        // Checked first: the source of a terminal error may be one of the errors below.
        if Terminal::find(error).is_some() {
            counters.terminal_errors.count();
            let shown = OneLine(Chain(error));
            log::warn!(
                controller, key:?, error:% = shown;
                "{controller}: reconcile of {key:?} failed, parked until its next request: {shown}"
            );
            let failed = Failed { error, failures: run.failures, retry_after: None };
            return (RunResult::Failed(failed), Ending::Done);
        }
        if let Some(requeue) = RequeueAfter::find(error) {
            counters.requeues.count();
            let after = requeue.after();
            let (shown, error_shown) = (Rounded(after), OneLine(Chain(error)));
            log::info!(
                controller, key:?, after:% = shown, error:% = error_shown;
                "{controller}: {key:?} requested a requeue after {shown}: {error_shown}"
            );
            return (RunResult::Requeued(after), Ending::RequeueAfter(after));
        }
        // Only during an abort. Otherwise a run that returns this error would put its key back endlessly, and spin.
        let is_aborted = match find(error) {
            Some(Cancelled::Aborted) => self.abort.is_closed(),
            Some(Cancelled::TermEnded) => run.cx.fence().is_err(),
            _ => false,
        };
        if is_aborted {
            counters.aborted.count();
            log::debug!(controller, key:?; "{controller}: aborted; {key:?} goes back to the queue");
            return (RunResult::Aborted, Ending::PutBack(run.reasons));
        }
        self.decide(run, error, policy)
    }

    /// Counts and logs a panic of the reconciler, and returns it as an error for [`decide`](Self::decide).
    #[cold]
    pub(super) fn panicked(&self, key: &dyn Debug, panic: &(dyn std::any::Any + Send)) -> Panicked {
        self.counters.panics.count();
        let error = Panicked::new(panic_message(panic));
        let (controller, message) = (&*self.controller, one_line(error.message()));
        log::error!(controller, key:?, panic:% = message; "{controller}: the reconciler panicked at {key:?}: {message}");
        error
    }

    /// Lets the policy decide about a failed run.
    #[inline(never)]
    pub(super) fn decide<'e>(
        &mut self,
        run: &JudgedRun<'_>,
        error: &'e (dyn Error + 'static),
        policy: AskPolicy<'_>,
    ) -> (RunResult<'e>, Ending) {
        let random = self.draws.draw();
        let (controller, counters, key, failures) = (&*self.controller, &self.counters, run.key, run.failures);
        // A panic has been logged as an error.
        let level = if error.is::<Panicked>() { log::Level::Debug } else { log::Level::Warn };
        let is_muted = Muted::find(error).is_some();
        let error = Muted::unwrap(error);
        let chain = OneLine(Chain(error));
        let (retry_after, ending) = if let Some(backoff) = policy(failures, error, random) {
            let backoff = RetryAfter::find(error).map_or(backoff, |least| backoff.max(least.delay()));
            counters.retries.count();
            let shown = Rounded(backoff);
            let level = if is_muted { log::Level::Debug } else { level };
            log::log!(
                level, controller, key:?, error:% = chain, failures, backoff:% = shown;
                "{controller}: reconcile of {key:?} failed, to be retried in {shown} (failure {failures}): {chain}"
            );
            (Some(backoff), Ending::Retry(backoff))
        } else {
            counters.drops.count();
            log::log!(
                level, controller, key:?, error:% = chain, failures;
                "{controller}: reconcile of {key:?} failed, parked until its next request (failure {failures}): {chain}"
            );
            (None, Ending::Done)
        };
        (RunResult::Failed(Failed { error, failures, retry_after }), ending)
    }

    /// Logs a panic outside the reconciler.
    #[cold]
    pub(super) fn log_foreign_panic(&self, panic: &(dyn std::any::Any + Send)) {
        let (controller, message) = (&*self.controller, one_line(panic_message(panic)));
        log::error!(controller, panic:% = message; "{controller}: a key's own code or a policy panicked: {message}");
    }
}
