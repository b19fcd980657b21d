//! Controllers on one thread, in simulated time. No test here waits or starts a thread.

mod clusters;
mod ends;
mod events;
mod fleet;
mod leases;
mod machines;
mod manager;
mod moves;
mod order;
mod own_writes;
mod races;
mod selecting;
mod steps;
mod times;

use std::sync::Arc;
use std::time::Duration;

use homeostat::{Action, BoxError, Clock, Context, Running, WorkerPool};
use homeostat_testing::Simulation;
use parking_lot::Mutex;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

type Key = &'static str;

type Outcome = Result<Action, BoxError>;

/// Notes with their times.
#[derive(Clone)]
struct Notes {
    clock: Clock,
    from: std::time::Instant,
    list: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Notes {
    fn new(sim: &Simulation) -> Self {
        Self { clock: sim.clock(), from: sim.now(), list: Arc::default() }
    }

    fn add(&self, what: impl Into<String>) {
        self.list.lock().push((self.clock.now() - self.from, what.into()));
    }

    fn all(&self) -> Vec<(Duration, String)> {
        self.list.lock().clone()
    }

    fn whats(&self) -> Vec<String> {
        self.list.lock().iter().map(|(_, what)| what.clone()).collect()
    }

    fn times(&self) -> Vec<Duration> {
        self.list.lock().iter().map(|(at, _)| *at).collect()
    }

    /// Returns a reconciler that notes the key, and then calls `then`.
    fn run<F: Fn(&Context, Key) -> Outcome + Send + Sync>(
        &self,
        then: F,
    ) -> impl Fn(&Context, &Key) -> Outcome + Send + Sync + use<F> {
        let notes = self.clone();
        move |cx, key| {
            notes.add(*key);
            then(cx, key)
        }
    }
}

/// Returns the result of a run that succeeds and awaits a change.
#[expect(clippy::unnecessary_wraps, reason = "it is for reconcilers")]
fn done(_cx: &Context, _key: Key) -> Outcome {
    Ok(Action::await_change())
}

fn pool(sim: &Simulation, threads: usize) -> Running<WorkerPool> {
    WorkerPool::builder().threads(threads).clock(sim.clock()).start().unwrap()
}

/// Returns the panic message of `test`.
fn panic_of(test: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).expect_err("it is to panic");
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap()
}

/// The environment variable that marks the processes of tests.
const CHILD: &str = "HOMEOSTAT_TEST_CHILD";
