//! Requeue, terminal and muted errors, and the errors that may contain them.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::error::Error;
use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use crossbeam_channel::unbounded;
use homeostat::queue::KeyState;
use homeostat::run::{Cancelled, FailedRun, Muted, Panicked, RetryAfter, Terminal, muted};
use homeostat::{
    Action, BoxError, Context, Enqueue, Exponential, Reasons, RequeueAfter, RetryPolicy, Workers, terminal,
};
use log::Level;

use crate::stages::logs::Logs;
use crate::stages::{SECOND, held, step};

type Outcome = Result<Action, BoxError>;

const LATER: Duration = Duration::from_secs(5);

fn not_yet() -> Result<(), RequeueAfter> {
    Err(RequeueAfter::new(LATER, "it still boots"))
}

/// A user-defined error.
#[derive(Debug)]
enum StoreError {
    NotYet(RequeueAfter),
    Other(BoxError),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store says no")
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotYet(error) => Some(error),
            Self::Other(error) => Some(&**error),
        }
    }
}

impl From<RequeueAfter> for StoreError {
    fn from(error: RequeueAfter) -> Self {
        Self::NotYet(error)
    }
}

/// Runs `reconcile` once, and asserts that its key is requeued, logged at info level and not counted as a failure.
fn assert_requeues<E: Into<BoxError> + 'static>(name: &'static str, reconcile: fn() -> Result<Action, E>) {
    let logs = Logs::of(name);
    let (clock, queue) = held();
    let workers = Workers::new(move |_cx: &Context, _key: &&str| reconcile())
        .name(name)
        .start(&queue)
        .expect("settings in range");
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state("vm"), KeyState::Delayed(Some(clock.now() + LATER)), "{name}");
    let metrics = workers.metrics();
    assert_eq!((metrics.requeues, metrics.errors(), metrics.runs()), (1, 0, 1), "{name}");
    let line = &logs.wait_for(Level::Info, "requested a requeue");
    assert_eq!((line.field("key"), line.field("after")), ("\"vm\"", "5s"));
    assert!(line.field("error").contains("it still boots"), "{line:?}");
    assert_eq!(logs.at(Level::Warn), []);
    workers.shutdown(Duration::ZERO).unwrap();
}

/// Runs `reconcile` once, and asserts that it fails.
fn assert_fails<E: Into<BoxError> + 'static>(name: &'static str, reconcile: fn() -> Result<Action, E>) {
    let (clock, queue) = held();
    let workers = Workers::new(move |_cx: &Context, _key: &&str| reconcile())
        .name(name)
        .retry(Exponential::default().max_retries(0))
        .start(&queue)
        .expect("settings in range");
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state("vm"), KeyState::Idle, "{name}");
    assert_eq!((workers.metrics().requeues, workers.metrics().drops), (0, 1), "{name}");
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_requeue_is_found_as_the_source_of_a_user_defined_error() {
    assert_requeues("requeue-own", || -> Result<Action, StoreError> {
        not_yet()?;
        Ok(Action::await_change())
    });
}

#[test]
fn a_requeue_is_found_in_a_box() {
    assert_requeues("requeue-box", || -> Outcome {
        not_yet()?;
        Ok(Action::await_change())
    });
}

#[test]
fn a_requeue_is_found_bare() {
    assert_requeues("requeue-bare", || -> Result<Action, RequeueAfter> {
        not_yet()?;
        Ok(Action::await_change())
    });
}

#[test]
fn a_requeue_is_found_two_sources_deep() {
    assert_requeues("requeue-deep", || -> Result<Action, StoreError> {
        let inner = StoreError::from(RequeueAfter::new(LATER, "it still boots"));
        Err(StoreError::Other(Box::new(StoreError::Other(Box::new(inner)))))
    });
}

#[test]
fn a_requeue_is_found_under_the_context_of_anyhow() {
    assert_requeues("requeue-context", || -> anyhow::Result<Action> {
        not_yet().context("looking at the vm")?;
        Ok(Action::await_change())
    });
    assert_requeues("requeue-contexts", || -> anyhow::Result<Action> {
        not_yet().context("looking at the vm").context("looking at the host")?;
        Ok(Action::await_change())
    });
}

#[test]
fn a_requeue_is_found_in_an_anyhow_error_that_was_moved_out_of_its_box() {
    assert_requeues("requeue-moved", || -> Outcome {
        let run = || -> anyhow::Result<Action> {
            not_yet()?;
            Ok(Action::await_change())
        };
        run().map_err(anyhow::Error::reallocate_into_boxed_dyn_error_without_backtrace)
    });
}

#[test]
fn a_requeue_is_found_at_the_root_of_an_anyhow_error() {
    assert_requeues("requeue-anyhow", || -> anyhow::Result<Action> {
        not_yet()?;
        Ok(Action::await_change())
    });
}

/// A transparent error, like `#[error(transparent)]`, displays its cause and is skipped in the chain of sources.
#[test]
fn a_requeue_is_found_under_a_transparent_error() {
    #[derive(Debug)]
    struct Transparent(RequeueAfter);

    impl fmt::Display for Transparent {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl Error for Transparent {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.source()
        }
    }

    assert_requeues("requeue-transparent", || -> Result<Action, Transparent> {
        not_yet().map_err(Transparent)?;
        Ok(Action::await_change())
    });
}

#[test]
fn a_requeue_is_not_found_attached_as_context() {
    assert_fails("requeue-attached", || -> anyhow::Result<Action> {
        Err(anyhow::anyhow!("no answer").context(RequeueAfter::new(LATER, "it still boots")))
    });
}

/// Each error is tested at the root and under a context.
#[test]
fn every_marked_error_is_found_at_the_root_of_an_anyhow_error() {
    fn both<E: Error + Send + Sync + 'static>(error: fn() -> E) -> [BoxError; 2] {
        [anyhow::Error::new(error()).into(), anyhow::Error::new(error()).context("looking at the vm").into()]
    }
    for error in both(|| terminal("no such port")) {
        assert!(Terminal::find(&*error).is_some(), "{error:?}");
    }
    for error in both(|| muted(terminal("no such port"))) {
        assert!(Terminal::find(&*error).is_some() && Muted::find(&*error).is_some(), "{error:?}");
    }
    for error in both(|| terminal(anyhow::Error::new(RequeueAfter::new(LATER, "why")))) {
        assert!(Terminal::find(&*error).is_some(), "{error:?}");
    }
    for error in both(|| muted(anyhow::Error::new(RequeueAfter::new(LATER, "why")))) {
        assert_eq!(RequeueAfter::find(&*error), Some(&RequeueAfter::new(LATER, "why")), "{error:?}");
    }
    for error in both(|| RetryAfter::new(LATER)) {
        assert_eq!(RetryAfter::find(&*error), Some(RetryAfter::new(LATER)), "{error:?}");
    }
}

#[test]
fn a_terminal_anyhow_error_is_not_retried_and_shown_unchanged() {
    let logs = Logs::of("terminal-anyhow");
    let (clock, queue) = held();
    let reconcile = |_cx: &Context, _key: &&str| -> anyhow::Result<Action> {
        Err(terminal(StoreError::Other("no such port".into())).into())
    };
    let retry = Exponential::new(SECOND, SECOND).jitter(0.0);
    let workers = Workers::new(reconcile).name("terminal-anyhow").retry(retry).start(&queue).unwrap();
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state("vm"), KeyState::Idle);
    assert_eq!((workers.metrics().retries, workers.metrics().terminal_errors), (0, 1));
    assert_eq!(logs.wait_for(Level::Warn, "parked").field("error"), "the store says no: no such port");
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_muted_error_at_the_root_of_an_anyhow_error_is_retried_without_a_warning() {
    let logs = Logs::of("muted-anyhow");
    let (clock, queue) = held();
    let reconcile = |_cx: &Context, _key: &&str| -> anyhow::Result<Action> {
        Err(muted(StoreError::Other("no answer".into())).into())
    };
    let workers = Workers::new(reconcile).name("muted-anyhow").retry(OnceIfOwn).start(&queue).unwrap();
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!(
        queue.state("vm"),
        KeyState::Delayed(Some(clock.now() + SECOND)),
        "the policy sees the error that is marked"
    );
    assert_eq!(logs.wait_for(Level::Debug, "to be retried").field("error"), "the store says no: no answer");
    assert_eq!(logs.at(Level::Warn), []);
    workers.shutdown(Duration::ZERO).unwrap();
}

/// An aborted run usually ends by `cx.check()?`, here in a reconciler that returns `anyhow::Result`.
#[test]
fn an_aborted_run_that_ends_with_an_anyhow_error_has_not_failed() {
    let (_clock, queue) = held();
    let (begun, begins) = unbounded();
    let reconcile = move |cx: &Context, _key: &&str| -> anyhow::Result<Action> {
        begun.send(())?;
        cx.token().wait();
        cx.check()?;
        Ok(Action::await_change())
    };
    let mut workers = Workers::new(reconcile).start(&queue).unwrap();
    queue.enqueue("vm");
    begins.recv().unwrap();
    workers.stop();
    workers.abort();
    workers.join_timeout(Duration::MAX).unwrap();
    assert_eq!((workers.metrics().aborted, workers.metrics().errors()), (1, 0));
}

#[test]
fn a_requeue_sets_the_failures_to_zero() {
    let (clock, queue) = held();
    let (tried, attempts) = unbounded();
    let reconcile = move |cx: &Context, _key: &&str| -> Outcome {
        tried.send((cx.attempt(), cx.reasons()))?;
        if cx.attempt() == 3 {
            not_yet()?;
        }
        Err("no answer".into())
    };
    let workers = Workers::new(reconcile).retry(Exponential::new(SECOND, SECOND).jitter(0.0)).start(&queue).unwrap();
    queue.enqueue("vm");
    for _ in 0..3 {
        step(&clock, &queue);
    }
    let (none, retry, requeue) = (Reasons::NONE, Reasons::RETRY, Reasons::REQUEUE);
    assert_eq!(attempts.try_iter().collect::<Vec<_>>(), [(1, none), (2, retry), (3, retry), (1, requeue)]);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_terminal_error_is_not_retried_and_sets_the_failures_to_zero() {
    let logs = Logs::of("terminal");
    let (clock, queue) = held();
    let (tried, attempts) = unbounded();
    let reconcile = move |cx: &Context, _key: &&str| -> Result<Action, StoreError> {
        tried.send(cx.attempt()).unwrap();
        let error = || StoreError::Other("no such port".into());
        // The terminal error is also found as a source.
        Err(if cx.attempt() < 3 { error() } else { StoreError::Other(Box::new(terminal(error()))) })
    };
    let retry = Exponential::new(SECOND, SECOND).jitter(0.0);
    let workers = Workers::new(reconcile).name("terminal").retry(retry).start(&queue).unwrap();
    queue.enqueue("vm");
    for _ in 0..2 {
        step(&clock, &queue);
    }
    assert_eq!(queue.state("vm"), KeyState::Idle);
    assert_eq!((workers.metrics().retries, workers.metrics().terminal_errors), (2, 1));
    let line = logs.wait_for(Level::Warn, "parked");
    assert_eq!(line.field("error"), "the store says no: no such port");
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!(attempts.try_iter().collect::<Vec<_>>(), [1, 2, 3, 1]);
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn terminal_takes_precedence_over_the_error_that_it_marks() {
    for marked in [StoreError::from(RequeueAfter::new(LATER, "it still boots")), aborted()] {
        let (clock, queue) = held();
        let marked = parking_lot::Mutex::new(Some(marked));
        let reconcile = move |_cx: &Context, _key: &&str| -> Outcome {
            Err(terminal(marked.lock().take().expect("it runs once")).into())
        };
        let workers = Workers::new(reconcile).start(&queue).unwrap();
        queue.enqueue("vm");
        clock.wait_for_sleepers(1);
        assert_eq!(queue.state("vm"), KeyState::Idle);
        assert_eq!((workers.metrics().terminal_errors, workers.metrics().runs()), (1, 1));
        workers.shutdown(Duration::ZERO).unwrap();
    }
}

fn aborted() -> StoreError {
    StoreError::Other(Box::new(Cancelled::Aborted))
}

#[test]
fn an_abort_error_without_an_abort_is_a_failure() {
    let (clock, queue) = held();
    let reconcile = |_cx: &Context, _key: &&str| Err::<Action, _>(aborted());
    let workers = Workers::new(reconcile).retry(Exponential::default().max_retries(0)).start(&queue).unwrap();
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!((workers.metrics().drops, workers.metrics().aborted), (1, 0));
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn find_returns_marked_errors() {
    let error = StoreError::from(RequeueAfter::new(LATER, "it still boots"));
    assert_eq!(RequeueAfter::find(&error).map(RequeueAfter::after), Some(LATER));
    assert_eq!(RequeueAfter::find(&error).map(RequeueAfter::reason), Some("it still boots"));
    assert!(Terminal::find(&error).is_none());
    assert!(Terminal::find(&StoreError::Other(Box::new(terminal("no such port")))).is_some());
    assert_eq!(RequeueAfter::new(LATER, "why").to_string(), "requeue after 5s: why");
    assert_eq!(Cancelled::Aborted.to_string(), "the run was aborted");
    assert_eq!(Cancelled::DeadlineExceeded.to_string(), "the deadline of the run has passed");
    error_of_threads::<Panicked>();
    error_of_threads::<Terminal>();
}

fn error_of_threads<T: Error + Send + Sync + 'static>() {}

/// Retries a `StoreError` once, and no other error.
struct OnceIfOwn;

impl<K> RetryPolicy<K> for OnceIfOwn {
    fn decide(&self, failure: &FailedRun<'_, K>) -> Option<Duration> {
        match failure.error.downcast_ref::<StoreError>() {
            Some(_) if failure.failures == 1 => Some(SECOND),
            _ => None,
        }
    }
}

#[test]
fn a_muted_error_is_retried_as_usual_and_logs_a_warning_only_when_it_is_dropped() {
    let logs = Logs::of("muted");
    let (clock, queue) = held();
    let reconcile =
        |_cx: &Context, _key: &&str| -> Outcome { Err(muted(StoreError::Other("no answer".into())).into()) };
    let workers = Workers::new(reconcile).name("muted").retry(OnceIfOwn).start(&queue).unwrap();
    queue.enqueue("vm");
    clock.wait_for_sleepers(1);
    assert_eq!(queue.state("vm"), KeyState::Delayed(Some(clock.now() + SECOND)));
    let line = logs.wait_for(Level::Debug, "to be retried");
    assert_eq!((line.field("error"), line.field("backoff")), ("the store says no: no answer", "1s"));
    assert_eq!(logs.at(Level::Warn), []);
    step(&clock, &queue);
    assert_eq!((queue.state("vm"), workers.metrics().retries, workers.metrics().drops), (KeyState::Idle, 1, 1));
    assert_eq!(logs.wait_for(Level::Warn, "parked").field("error"), "the store says no: no answer");
    workers.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn the_error_inside_a_muted_error_is_found() {
    let marked: Vec<BoxError> = vec![
        muted(terminal("no such port")).into(),
        muted(StoreError::from(not_yet().unwrap_err())).into(),
        Box::new(StoreError::Other(muted(RequeueAfter::new(LATER, "it still boots")).into())),
    ];
    assert!(Terminal::find(&*marked[0]).is_some());
    assert!(marked[1..].iter().all(|error| RequeueAfter::find(&**error).is_some()));
    assert!(marked.iter().all(|error| Muted::find(&**error).is_some()));
    assert_eq!(marked[0].to_string(), "no such port");
    assert!(Muted::find(&Cancelled::Aborted).is_none());
}
