//! A controller's job in a pool: its turns and its runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::failed_keys::FailedKey;
use super::observers::{EndedRun, RunOutcome};
use super::state::ControllerState;
use crate::base::group::SeenRun;
use crate::base::sync::Mutex;
use crate::base::text::bounded;
use crate::base::time::Nanos;
use crate::queue::{Ending, Key, Reasons};
use crate::run::context::Context;
use crate::run::error::Chain;
use crate::run::fence::Fence;
use crate::run::gate::{Admission, Permit};
use crate::run::metrics::RunCounters;
use crate::run::outcome::{Failed, RunResult};
use crate::run::pool::{Job, PoolTurn};
use crate::run::reconciler::RetryPolicy;
use crate::run::runner::{KeyTurn, Reconcile, RunHooks, RunSettings, Runner, report_overrun};

impl<K: Key> ControllerState<K> {
    /// Asks the gates of the settings and of the watches.
    #[cold]
    fn ask_gates(&self, key: &K, reasons: Reasons) -> Result<Vec<Permit>, Ending>
    where
        K: Sync + fmt::Debug,
    {
        self.gates.admit(&self.taken(key), reasons).map_err(|refusal| {
            if let Admission::Defer(delay) = refusal {
                return Ending::Defer(reasons, delay);
            }
            self.failed.forget_if(key, |_| true);
            Ending::Leave
        })
    }

    fn note_failure(&self, key: &K, failed: &Failed<'_>) {
        let Failed { error, failures, retry_after } = *failed;
        let now = self.clock.now();
        self.failed.add(FailedKey {
            key: key.clone(),
            error: bounded(Chain(error).to_string()),
            failures,
            since: now,
            failing_since: now,
            next_try: None,
            parked: retry_after.is_none(),
        });
    }
}

impl<K: Key + Sync + fmt::Debug> RunHooks<K> for Arc<ControllerState<K>> {
    const TIMED: bool = true;

    fn is_shut(&self) -> bool {
        !ControllerState::takes_keys(self) || self.wants_chores()
    }

    fn take_token(&self) -> bool {
        self.rate.take()
    }

    fn put_token_back(&self) {
        self.rate.put_back();
    }

    #[inline]
    fn admit(&self, key: &K, reasons: Reasons) -> Result<Vec<Permit>, Ending> {
        if self.term.get().is_some_and(|term| term.check().is_err()) {
            // The manager aborts everything soon. Meanwhile no run may begin.
            self.set_conditions(|conditions| conditions.leading = false);
            return Err(Ending::Defer(reasons, Duration::MAX));
        }
        let ControllerState { suspended, gates, .. } = &**self;
        if suspended.has(key) {
            return Err(Ending::Defer(reasons, Duration::MAX));
        }
        if gates.is_empty() { Ok(Vec::new()) } else { self.ask_gates(key, reasons) }
    }

    fn fence(&self) -> Option<Fence> {
        self.term.get().cloned()
    }

    fn refused(&self, key: K, reasons: Reasons) {
        self.gates.iter().for_each(|gate| gate.refused(&self.taken(&key), reasons));
    }

    #[inline]
    fn awaited(&self, key: &K) -> Option<K> {
        self.waiters.awaited(key)
    }

    #[inline]
    fn settle(&self, ended: Option<K>) {
        self.waiters.settle(ended.as_ref());
    }

    #[inline]
    fn begin(&self, key: &K) {
        self.waiters.begin(key);
    }

    #[inline]
    fn is_observed(&self) -> bool {
        self.observers.any()
    }

    fn observe(&self, key: &K, result: &RunResult<'_>, cx: &Context, (start, end): (Nanos, Nanos)) {
        let clock = &self.clock;
        let failed = if let RunResult::Failed(failed) = result { Some(failed) } else { None };
        self.observers.ended(&EndedRun {
            key: &self.taken(key),
            reasons: cx.reasons(),
            attempt: cx.attempt(),
            queued_for: cx.queued_for().unwrap_or_default(),
            started: clock.instant(start).unwrap_or_else(|| clock.now()),
            took: end.since(start),
            thread: cx.thread().unwrap_or_default(),
            outcome: RunOutcome::of(result),
            error: failed.map(|failed| failed.error),
            retry_after: failed.and_then(|failed| failed.retry_after),
        });
    }

    fn note(&self, key: &K, outcome: RunResult<'_>) {
        match &outcome {
            RunResult::Succeeded | RunResult::Requeued(_) => {
                self.failed.forget_if(key, |_| true);
            }
            RunResult::Failed(failed) => self.note_failure(key, failed),
            RunResult::Aborted => {}
        }
        self.waiters.note(key, &outcome);
    }
}

type ControllerRunner<K> = Runner<K, Arc<ControllerState<K>>>;

/// The job of one controller.
pub(super) struct ControllerJob<K: Key> {
    runs: Arc<RunSettings<K, Arc<ControllerState<K>>>>,
    /// The runners that no thread uses now.
    runners: Mutex<Vec<ControllerRunner<K>>>,
}

impl<K: Key + Sync + fmt::Debug> ControllerJob<K> {
    pub(super) fn new(
        state: &Arc<ControllerState<K>>,
        reconcile: Reconcile<K>,
        policy: Box<dyn RetryPolicy<K>>,
    ) -> Arc<Self> {
        let runs = Arc::new(RunSettings {
            name: Arc::from(state.name.as_str()),
            clock: state.clock.clone(),
            abort: state.abort.clone(),
            reconcile,
            policy,
            timeout: state.timeout,
            hooks: Arc::clone(state),
        });
        Arc::new(Self { runs, runners: Mutex::new(Vec::new()) })
    }

    fn state(&self) -> &ControllerState<K> {
        &self.runs.hooks
    }

    fn runner(&self, turn: &PoolTurn<'_>) -> ControllerRunner<K> {
        let idle = self.runners.lock().pop();
        if let Some(mut runner) = idle {
            runner.use_slot(turn.slot());
            return runner;
        }
        let counters = Arc::new(RunCounters::default());
        self.state().counters.lock().push(Arc::clone(&counters));
        Runner::new(Arc::clone(&self.runs), counters, turn.slot())
    }
}

impl<K: Key + Sync + fmt::Debug> Job for ControllerJob<K> {
    fn serve(&self, turn: &PoolTurn<'_>) {
        let state = self.state();
        if state.wants_chores() {
            state.do_chores();
        }
        let mut runner = self.runner(turn);
        runner.serve(turn, || state.queue.shared.try_dequeue(|| !state.takes_keys()));
        self.runners.lock().push(runner);
    }

    fn has_work(&self) -> bool {
        self.state().queue.shared.has_ready() || self.state().wants_chores()
    }

    fn not_before(&self) -> Nanos {
        self.state().next_token()
    }

    fn shuffle(&self, draw: u64) -> Option<String> {
        let state = self.state();
        let key = (state.next_token() == Nanos::ZERO).then(|| state.queue.shared.shuffle(draw)).flatten()?;
        Some(format!("{} {:?}", state.name, crate::base::text::ShownKey(&key)))
    }

    /// Notifies the threads that wait for the end of a stopped controller. If the controller is stopped after this
    /// check, the end of its control task notifies them.
    fn left(&self) {
        if self.state().is_stopped() {
            self.state().end_membership();
            self.state().end.notify();
        }
    }

    fn overrun(&self, overrun: &SeenRun) {
        let ControllerState { name, queue, timeout, overruns, .. } = self.state();
        report_overrun(name, &queue.shared, timeout.unwrap_or_default(), overruns, overrun);
    }
}
