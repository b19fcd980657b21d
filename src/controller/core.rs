//! What a controller's threads and handles have in common, and its turn in a pool.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::book::{Book, WaitError};
use super::rate::Bucket;
use super::source::Source;
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::group::{Ended, Overrun};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicBool;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::thread::shielded;
use crate::base::time::{Nanos, Rounded};
use crate::queue::{Claim, Ending, Key, Shutdown, WorkQueue};
use crate::run::context::Context;
use crate::run::error::{BoxError, Chain, terminal};
use crate::run::metrics::{Counter, Counters};
use crate::run::policy::RetryPolicy;
use crate::run::pool::{Job, Membership, Turn};
use crate::run::reconciler::{Action, Reconciler};
use crate::run::runner::{Ledger, Outcome, Runner, Runs};
use crate::watch::source::SourceHandle;

/// What does not depend on the reconciler's type.
pub(super) struct Common<K: Key> {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) queue: WorkQueue<K>,
    pub(super) abort: CancellationToken,
    pub(super) book: Arc<Book<K>>,
    pub(super) timeout: Option<Duration>,
    pub(super) doors: Mutex<RunConditions>,
    /// Not all doors are open: no key is taken.
    shut: AtomicBool,
    rate: Mutex<Option<Bucket>>,
    limited: AtomicBool,
    pub(super) max_concurrent: Mutex<usize>,
    pub(super) resync: Mutex<Option<Duration>>,
    pub(super) sources: Mutex<Vec<Box<dyn Source>>>,
    /// Of all sources that have been started, also of those that have ended since.
    pub(super) source_handles: Mutex<Vec<SourceHandle>>,
    /// How long a source may fail before the controller is not ready, if that is set for this controller.
    pub(super) unready_after: OnceLock<Duration>,
    pub(super) membership: OnceLock<Arc<Membership>>,
    /// Those of each runner that there has been.
    pub(super) counters: Mutex<Vec<Arc<Counters>>>,
    /// Counted by the watchdog.
    pub(super) overruns: Counter,
    /// Tells the keeper that a setting has changed.
    pub(super) changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    #[cfg(feature = "metrics")]
    pub(super) exporter: OnceLock<super::export::Exporter>,
    /// Called when something of it has ended: a source, its keeper, or, once it has been stopped, the last run.
    pub(super) on_end: OnceLock<Ended>,
    /// Why it has stopped by itself.
    failure: Mutex<Option<Arc<BoxError>>>,
    on_failure: OnceLock<Box<dyn Fn(Arc<BoxError>) + Send + Sync>>,
}

/// What has to be so for keys to be taken.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub(super) struct RunConditions {
    /// The initial listings are in.
    pub(super) synced: bool,
    /// This process leads.
    pub(super) leading: bool,
    pub(super) suspended: bool,
    /// It has been stopped.
    pub(super) closed: bool,
}

impl RunConditions {
    fn are_open(self) -> bool {
        self.synced && self.leading && !self.suspended && !self.closed
    }
}

impl<K: Key> Common<K> {
    pub(super) fn new(
        name: String,
        queue: WorkQueue<K>,
        book: Arc<Book<K>>,
        timeout: Option<Duration>,
        max_concurrent: usize,
        resync: Option<Duration>,
        rate: Option<Bucket>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            clock: queue.clock(),
            queue,
            abort: CancellationToken::new(),
            book,
            timeout,
            doors: Mutex::new(RunConditions::default()),
            shut: AtomicBool::new(true),
            limited: AtomicBool::new(rate.is_some()),
            rate: Mutex::new(rate),
            max_concurrent: Mutex::new(max_concurrent),
            resync: Mutex::new(resync),
            sources: Mutex::new(Vec::new()),
            source_handles: Mutex::new(Vec::new()),
            unready_after: OnceLock::new(),
            membership: OnceLock::new(),
            counters: Mutex::new(Vec::new()),
            overruns: Counter::default(),
            changed: OnceLock::new(),
            #[cfg(feature = "metrics")]
            exporter: OnceLock::new(),
            on_end: OnceLock::new(),
            failure: Mutex::new(None),
            on_failure: OnceLock::new(),
        })
    }

    /// Opens or closes a door, and has the pool serve this controller if all are open. Once one is closed, no key is taken.
    pub(super) fn set_doors(&self, change: impl FnOnce(&mut RunConditions)) {
        let mut doors = self.doors.lock();
        change(&mut doors);
        self.shut.store(!doors.are_open(), SeqCst);
        if !doors.are_open() {
            // Takes the lock under which a thread that is about to take a key looks at `shut`.
            let _ = self.queue.len();
        }
        if let Some(membership) = self.membership.get() {
            // Under the lock, so that the last change is the last to be told.
            if doors.are_open() {
                membership.open();
            } else {
                membership.close();
            }
        }
    }

    /// Takes no further key, and drops what waits. Runs under way go on.
    pub(super) fn stop(&self) {
        self.end();
        self.book.close(WaitError::Stopped);
    }

    /// Takes no further key: none once this has returned. Drops nothing.
    pub(super) fn close_doors(&self) {
        self.set_doors(|doors| doors.closed = true);
    }

    /// Drops everything that waits. Whoever waits for some of it is told once the book is closed.
    fn end(&self) {
        self.close_doors();
        self.book.freeze();
        for source in &*self.sources.lock() {
            source.stop();
        }
        shielded("a key of a queue that closes", || self.queue.shutdown(Shutdown::Discard));
        self.tell_keeper();
    }

    pub(super) fn abort(&self) {
        self.stop();
        for source in &*self.sources.lock() {
            source.abort();
        }
        self.abort.cancel();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.doors.lock().closed
    }

    /// Whether a door is closed.
    fn is_shut(&self) -> bool {
        self.shut.load(SeqCst)
    }

    pub(super) fn tell_keeper(&self) {
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }

    /// It cannot go on.
    pub(super) fn fail(&self, error: BoxError) {
        let error = Arc::new(error);
        // Whoever sees the failure finds the controller stopped, and whoever is told of the failure finds it here.
        self.end();
        let hook = {
            let mut failure = self.failure.lock();
            failure.get_or_insert_with(|| Arc::clone(&error));
            self.on_failure.get()
        };
        self.book.close(WaitError::Failed);
        if let Some(hook) = hook {
            shielded("who is told of a failure", || hook(Arc::clone(&error)));
        }
        // The logger is user code, and may be why it fails.
        shielded("the report of a failure", || {
            let (controller, shown) = (self.name.as_str(), Chain(&**error));
            log::error!(controller, error:% = shown; "{controller}: the controller has failed: {shown}");
        });
    }

    pub(super) fn failure(&self) -> Option<Arc<BoxError>> {
        self.failure.lock().clone()
    }

    /// Has `hook` called once it has failed, and at once if it has. The first hook counts.
    pub(super) fn on_failure(&self, hook: Box<dyn Fn(Arc<BoxError>) + Send + Sync>) {
        let failure = {
            let failure = self.failure.lock();
            let _ = self.on_failure.set(hook);
            failure.clone()
        };
        if let (Some(hook), Some(error)) = (self.on_failure.get(), failure) {
            hook(error);
        }
    }

    pub(super) fn set_rate(&self, rate: Option<Bucket>) {
        let mut current = self.rate.lock();
        *current = rate;
        self.limited.store(current.is_some(), SeqCst);
        drop(current);
        if let Some(membership) = self.membership.get() {
            membership.release();
        }
    }

    /// Takes a token, if the rate is limited. Returns whether a key may be run.
    fn take_token(&self) -> bool {
        if !self.limited.load(SeqCst) {
            return true;
        }
        self.rate.lock().as_mut().is_none_or(|bucket| bucket.take(self.clock.nanos()).is_ok())
    }

    /// When there will be a token; zero if there is one. A key that is in line waits for it from now on.
    fn next_token(&self) -> Nanos {
        if !self.limited.load(SeqCst) {
            return Nanos::ZERO;
        }
        let (wanted, now) = (self.queue.shared.has_ready(), self.clock.nanos());
        match &mut *self.rate.lock() {
            Some(bucket) if wanted => bucket.wait(now),
            Some(bucket) => bucket.next(now),
            None => Nanos::ZERO,
        }
    }

    fn put_token_back(&self) {
        if self.limited.load(SeqCst)
            && let Some(bucket) = &mut *self.rate.lock()
        {
            bucket.put_back();
        }
    }
}

/// What the runs of a controller tell it.
pub(super) struct Records<K: Key>(pub(super) Arc<Common<K>>);

impl<K: Key + Sync> Ledger<K> for Records<K> {
    const TIMED: bool = true;

    #[cfg(feature = "metrics")]
    fn timed(&self, queued: Duration, worked: Duration) {
        if let Some(exporter) = self.0.exporter.get() {
            exporter.timed(queued, worked);
        }
    }

    #[inline]
    fn begin(&self, key: &K) {
        self.0.book.begin(key);
    }

    fn note(&self, key: &K, outcome: Outcome<'_>) {
        self.0.book.note(&self.0.name, key, &outcome);
    }
}

/// A reconciler that is called with valid keys only.
pub(super) struct Checked<K, R> {
    pub(super) reconciler: R,
    pub(super) valid: Option<Validate<K>>,
}

pub(super) type Validate<K> = Box<dyn Fn(&K) -> Result<(), BoxError> + Send + Sync>;

impl<K: Key, R: Reconciler<K>> Reconciler<K> for Checked<K, R> {
    type Error = BoxError;

    fn reconcile(&self, cx: &Context, key: &K) -> Result<Action, BoxError> {
        if let Some(valid) = &self.valid {
            valid(key).map_err(terminal)?;
        }
        self.reconciler.reconcile(cx, key).map_err(Into::into)
    }
}

type ControllerRuns<K, R, P> = Runs<Checked<K, R>, P, Records<K>>;
type ControllerRunner<K, R, P> = Runner<Checked<K, R>, P, Records<K>>;

/// The controller as a member of its pool.
pub(super) struct Core<K: Key, R, P> {
    pub(super) common: Arc<Common<K>>,
    pub(super) runs: Arc<ControllerRuns<K, R, P>>,
    /// Those that no thread uses now.
    runners: Mutex<Vec<ControllerRunner<K, R, P>>>,
}

impl<K, R, P> Core<K, R, P>
where
    K: Key + Sync + fmt::Debug,
    R: Reconciler<K> + 'static,
    P: RetryPolicy<K> + 'static,
{
    pub(super) fn new(common: Arc<Common<K>>, reconciler: Checked<K, R>, policy: P) -> Self {
        let runs = Arc::new(Runs {
            name: common.name.clone(),
            clock: common.clock.clone(),
            abort: common.abort.clone(),
            reconciler,
            policy,
            timeout: common.timeout,
            ledger: Records(Arc::clone(&common)),
        });
        Self { common, runs, runners: Mutex::new(Vec::new()) }
    }

    fn runner(&self, turn: &Turn<'_>) -> ControllerRunner<K, R, P> {
        let idle = self.runners.lock().pop();
        if let Some(mut runner) = idle {
            runner.sit(turn.seat());
            return runner;
        }
        let counters = Arc::new(Counters::default());
        self.common.counters.lock().push(Arc::clone(&counters));
        Runner::new(Arc::clone(&self.runs), counters, turn.seat())
    }

    fn serve_with(&self, turn: &Turn<'_>, runner: &mut ControllerRunner<K, R, P>, slot: &mut Option<Claim<K>>) {
        let common = &*self.common;
        let queue = &common.queue.shared;
        let mut ended = None;
        loop {
            if !common.take_token() {
                if let (Some(claim), Some(ending)) = (slot.take(), ended) {
                    claim.end(ending);
                    common.book.settle();
                }
                return;
            }
            let taken = match (&mut *slot, ended) {
                (Some(claim), Some(ending)) => {
                    let taken = claim.turn(ending, || common.is_shut());
                    common.book.settle();
                    taken
                }
                _ => queue.try_dequeue(|| common.is_shut()).map(|claim| *slot = Some(claim)),
            };
            let Some(claim) = slot.as_mut().filter(|_| taken.is_ok()) else {
                common.put_token_back();
                return;
            };
            if claim.leaves_more() {
                turn.more();
            }
            let ending = if common.book.holds(claim.key(), claim.reasons()) {
                Ending::PutAside(claim.reasons())
            } else {
                runner.run(claim, turn.seat(), |start, deadline| turn.begin(start, deadline, claim.record()))
            };
            if turn.is_over() {
                if let Some(claim) = slot.take() {
                    claim.end(ending);
                }
                common.book.settle();
                return;
            }
            ended = Some(ending);
        }
    }
}

impl<K, R, P> Job for Core<K, R, P>
where
    K: Key + Sync + fmt::Debug,
    R: Reconciler<K> + 'static,
    P: RetryPolicy<K> + 'static,
{
    fn serve(&self, turn: &Turn<'_>) {
        let mut runner = self.runner(turn);
        // Outside the catch: a key's drop must not panic while another panic unwinds.
        let mut claim = None;
        let served = catch_unwind(AssertUnwindSafe(|| self.serve_with(turn, &mut runner, &mut claim)));
        shielded("the drop of a key", || drop(claim.take()));
        self.runners.lock().push(runner);
        if let Err(panic) = served {
            self.common.book.settle();
            resume_unwind(panic);
        }
    }

    fn has_work(&self) -> bool {
        self.common.queue.shared.has_ready()
    }

    fn not_before(&self) -> Nanos {
        self.common.next_token()
    }

    fn shuffle(&self, draw: u64) -> Option<String> {
        let common = &*self.common;
        let key = (common.next_token() == Nanos::ZERO).then(|| common.queue.shared.shuffle(draw)).flatten()?;
        Some(format!("{} {key:?}", common.name))
    }

    /// A controller that goes on has not ended, however often its threads leave it. If it is stopped after this look, whoever stops it
    /// looks afterwards whether it is still served.
    fn left(&self) {
        if self.common.is_stopped()
            && let Some(hook) = self.common.on_end.get()
        {
            hook();
        }
    }

    fn overrun(&self, overrun: &Overrun<'_>) {
        let common = &*self.common;
        common.overruns.count();
        let (controller, thread, timeout) =
            (common.name.as_str(), overrun.thread, Rounded(common.timeout.unwrap_or_default()));
        if let Some(key) = common.queue.shared.key_in_process(overrun.record).filter(|_| overrun.goes_on()) {
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
