//! A worker: a process that owns a share of the jobs, and is a candidate for the leader.

use std::io::{Read, Write, stdin};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use homeostat::run::Fence;
use homeostat::{
    Action, BoxError, CancellationToken, Component, Context, Controller, Exponential, Manager, Predicate, Subscriber,
};
use homeostat_objects::{
    Api, Client, ControllerExt, DynamicObject, Ignore, LeaseElector, LeaseTiming, Members, Object, ObjectKey,
    ObjectMeta, ObjectWatch, Query, ShardHash,
};
use parking_lot::Mutex;

use super::record::{Recorder, now};
use super::{Dice, FINALIZER, GENERATION, JOB, LEADER, OWNER, Orders, WRITES};
use homeostat_test_support::system::pause;

/// The time between two runs of a job. It makes a worker that is cut off try to run its jobs.
const PERIOD: Duration = Duration::from_millis(500);

struct Worker {
    orders: Orders,
    client: Arc<dyn Client>,
    /// The jobs for runs: a call without an answer ends while the others still wait for the lease of this process.
    jobs: Api<DynamicObject>,
    recorder: Recorder,
    dice: Mutex<Dice>,
    /// Held by a run of the leader. A run that ignores the end of its term ends before the next one begins.
    leading: Mutex<()>,
}

/// Works until standard input ends.
pub(super) fn work(orders: Orders, client: Arc<dyn Client>) {
    // The log goes to standard error, which the test shows after a failure.
    if log::set_logger(Box::leak(Box::new(WorkerLog(orders.name.clone())))).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    let limited = client.with_timeout(orders.lease.mul_f64(0.5)).unwrap();
    let jobs = Api::of_kind(limited, JOB);
    let (recorder, dice) = (Recorder::new(), Mutex::new(Dice::new(orders.seed)));
    let worker = Arc::new(Worker { orders, client, jobs, recorder, dice, leading: Mutex::new(()) });
    let stop = CancellationToken::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = worker.lead_often(&stop) {
                worker.recorder.fault(&format!("the worker cannot become the leader: {error}"));
            }
        });
        if let Err(error) = worker.own_jobs() {
            worker.recorder.fault(&format!("the worker cannot own jobs: {error}"));
        }
        stop.cancel();
    });
}

impl Worker {
    /// Returns a share of the lease duration.
    fn part(&self, share: f64) -> Duration {
        self.orders.lease.mul_f64(share)
    }

    fn timing(&self) -> LeaseTiming {
        LeaseTiming::new(self.orders.lease).call_timeout(self.part(0.3))
    }

    /// Runs the jobs that belong to this process until standard input ends.
    fn own_jobs(self: &Arc<Self>) -> Result<(), BoxError> {
        let Orders { name, namespace, .. } = &self.orders;
        let members =
            Members::builder(self.client.clone(), namespace, "workers").identity(name).timing(self.timing()).build()?;
        let backoff = Exponential::new(Duration::from_millis(20), Duration::from_millis(500));
        let watch = ObjectWatch::new(Api::<DynamicObject>::of_kind(self.client.clone(), JOB))
            .query(Query::all().namespace(namespace));
        let watch = watch.backoff(backoff.clone()).start()?;
        let worker = Arc::clone(self);
        let reconcile = move |cx: &Context, key: &ObjectKey| worker.reconcile(cx, key);
        // The writes of the runs change annotations only.
        let wanted = |job: &DynamicObject| (job.meta().uid.clone(), job.meta().generation);
        let controller = Controller::builder("job-owner", reconcile)
            .shards(members.shards(), |job: &ObjectKey| ShardHash::of([job.namespace(), job.name()]))
            .max_concurrent_reconciles(3)
            .retry(backoff)
            .subscribe(&watch, move |jobs| Subscriber::to_itself(jobs).when(Predicate::changed_by(wanted)))
            .build()?;
        let manager = Manager::builder().name("owner").build()?;
        // Before the controller, so that the lease is given back after its last run.
        manager.add(Component::running("workers-member", members.start()?))?;
        manager.add(controller)?;
        manager.add(watch)?;
        let running = manager.start()?;
        stdin().read_to_end(&mut Vec::new())?;
        manager.stop();
        Ok(running.join()?)
    }

    fn reconcile(&self, cx: &Context, key: &ObjectKey) -> Result<Action, BoxError> {
        let exists = key.name() != LEADER && self.run(cx, key, &cx.fence()?)?;
        Ok(if exists { Action::requeue_after(PERIOD) } else { Action::await_change() })
    }

    /// Is a candidate until `stop`, and again after each loss of the leadership.
    fn lead_often(self: &Arc<Self>, stop: &CancellationToken) -> Result<(), BoxError> {
        let Orders { name, namespace, .. } = &self.orders;
        let elector = LeaseElector::builder(self.client.clone(), namespace, "leader")
            .identity(name)
            .timing(self.timing())
            .build()?;
        while !stop.is_cancelled() {
            let manager = Manager::builder().name("candidate").threads(1).abort_grace(self.part(0.1));
            let manager = manager.elector(elector.clone()).build()?;
            let worker = Arc::clone(self);
            manager.add(Component::function("leader", move |cx: &Context| worker.lead(cx)).when_leading())?;
            // Fails at each loss of the leadership.
            if manager.run(stop).is_err() {
                pause(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Writes the object of the leader again and again.
    fn lead(&self, cx: &Context) -> Result<(), BoxError> {
        let key = ObjectKey::new(&self.orders.namespace, LEADER);
        loop {
            // The next round repeats a write that has failed.
            let turn = self.leading.lock();
            let _ = self.run(cx, &key, &cx.fence()?);
            drop(turn);
            cx.sleep(Duration::from_millis(50))?;
        }
    }

    /// Writes the owner, the number and the generation of a job into it. Returns whether it exists.
    fn run(&self, cx: &Context, key: &ObjectKey, fence: &Fence) -> Result<bool, BoxError> {
        let run = self.recorder.begin(key.name(), fence);
        let Some(mut job) = self.jobs.get(key).ignore_not_found()? else { return Ok(false) };
        self.take_time(cx)?;
        {
            let meta: &mut ObjectMeta = &mut job.meta_mut();
            meta.mark_term(fence)?;
            let generation = meta.generation.to_string();
            let writes = meta.annotations.get(WRITES).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default() + 1;
            let facts = [(OWNER, self.orders.name.clone()), (GENERATION, generation), (WRITES, writes.to_string())];
            meta.annotations.extend(facts.map(|(name, value)| (name.to_owned(), value)));
            if meta.is_deleting() {
                meta.finalizers.retain(|finalizer| finalizer != FINALIZER);
            }
        }
        run.write(|| self.jobs.update(&job))?;
        Ok(true)
    }

    /// Lets some runs take longer, so that members come and go meanwhile. Few of them do not heed their cancellation.
    fn take_time(&self, cx: &Context) -> Result<(), BoxError> {
        let mut dice = self.dice.lock();
        let (kind, short, long) = (dice.roll(16), dice.millis(1..30), dice.millis(50..400));
        drop(dice);
        match kind {
            0 => pause(long),
            1..=4 => cx.sleep(long)?,
            5..=8 => cx.sleep(short)?,
            _ => {}
        }
        Ok(())
    }
}

/// Writes the lines of the log to standard error, with their time and the name of the worker.
struct WorkerLog(String);

impl log::Log for WorkerLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("homeostat") && metadata.level() <= log::Level::Info
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = format!("{} {} {} {}\n", now(), self.0, record.level(), record.args());
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}
