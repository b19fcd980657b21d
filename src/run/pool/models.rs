//! A pool of one or two threads and its members, in every interleaving.

use std::sync::Arc;

use loom::thread;

use super::{Job, Membership, Pool, PoolTurn};
use crate::base::clock::ManualClock;
use crate::base::group::{SeenRun, ThreadGroup, ThreadGroupKind};
use crate::base::sync::{Condvar, Mutex};
use crate::base::thread::ThreadOptions;
use crate::base::time::Nanos;
use crate::queue::Reasons;
use crate::run::runner::KeyTurn;

/// A member that counts its remaining keys and its runs.
struct Counted {
    counts: Mutex<Counts>,
    /// Notified when a run has begun. Tests wait for it, so that a missing run is a deadlock.
    begun: Condvar,
    /// Each run waits until this number of runs have begun, including itself.
    company: usize,
    /// The first run that takes this closes the member, and waits until no other thread serves it.
    joins: Mutex<Option<Arc<Membership>>>,
}

struct Counts {
    keys: usize,
    run: usize,
    /// The number of active runs, and its maximum.
    active: usize,
    most: usize,
    /// The number of calls of [`left`](Job::left).
    left: usize,
    not_before: Nanos,
}

impl Counted {
    fn new(keys: usize) -> Arc<Self> {
        Self::in_company(keys, 0)
    }

    /// Creates a member with runs that wait until `company` runs have begun.
    fn in_company(keys: usize, company: usize) -> Arc<Self> {
        let counts = Counts { keys, run: 0, active: 0, most: 0, left: 0, not_before: Nanos::ZERO };
        Arc::new(Self { counts: Mutex::new(counts), begun: Condvar::new(), company, joins: Mutex::new(None) })
    }

    fn add(&self) {
        self.counts.lock().keys += 1;
    }

    /// Returns the number of runs that have begun.
    fn run(&self) -> usize {
        self.counts.lock().run
    }

    /// Takes a key. Returns whether more keys are ready. `None` if no key may be run.
    fn take(&self) -> Option<bool> {
        let mut counts = self.counts.lock();
        if counts.keys == 0 || counts.not_before > Nanos::ZERO {
            return None;
        }
        counts.keys -= 1;
        counts.active += 1;
        counts.most = counts.most.max(counts.active);
        Some(counts.keys > 0)
    }

    /// Blocks until at most this number of threads serve this member.
    fn wait_until_served_by(&self, threads: usize, member: &Membership) {
        loop {
            let seen = self.counts.lock().left;
            if member.slots().len() <= threads {
                return;
            }
            let mut counts = self.counts.lock();
            while counts.left == seen {
                self.begun.wait(&mut counts);
            }
        }
    }

    /// Blocks until this number of runs have begun.
    fn wait_for(&self, runs: usize) {
        let mut counts = self.counts.lock();
        while counts.run < runs {
            self.begun.wait(&mut counts);
        }
    }
}

impl Job for Counted {
    fn serve(&self, turn: &PoolTurn<'_>) {
        while let Some(more) = self.take() {
            if more {
                turn.more();
            }
            let run = turn.begin(Nanos::ZERO, Nanos::NEVER, 0, Reasons::NONE);
            self.counts.lock().run += 1;
            self.begun.notify_all();
            self.wait_for(self.company);
            let joins = self.joins.lock().take();
            if let Some(member) = joins {
                member.close();
                self.wait_until_served_by(1, &member);
            }
            drop(run);
            self.counts.lock().active -= 1;
            if turn.is_over() {
                return;
            }
        }
    }

    fn has_work(&self) -> bool {
        self.counts.lock().keys > 0
    }

    fn not_before(&self) -> Nanos {
        self.counts.lock().not_before
    }

    fn left(&self) {
        self.counts.lock().left += 1;
        self.begun.notify_all();
    }

    fn overrun(&self, _overrun: &SeenRun) {}

    fn shuffle(&self, _draw: u64) -> Option<String> {
        None
    }
}

fn pool(threads: usize, spares: usize) -> Arc<Pool> {
    let group =
        ThreadGroup::new(ThreadGroupKind::Pool, "pool".to_owned(), ManualClock::new().clock(), threads + spares);
    Pool::new(group, threads, ThreadOptions::new())
}

/// Starts a thread of the pool. If an idle thread is never woken, the model finds a deadlock.
fn working(pool: &Arc<Pool>, number: usize) -> thread::JoinHandle<()> {
    let pool = Arc::clone(pool);
    thread::spawn(move || pool.work(number))
}

fn stop(pool: &Pool) {
    pool.group.stop();
    pool.wake();
}

/// Stops the pool, and waits until its threads have ended.
fn stop_all(pool: &Pool, workers: [thread::JoinHandle<()>; 2]) {
    stop(pool);
    for worker in workers {
        worker.join().unwrap();
    }
}

/// Explores the interleavings with a bounded number of preemptions: all interleavings of three threads take too long.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A waiting thread is woken, or the thread that ends its turn sees the new key.
#[test]
fn a_key_added_while_a_thread_finds_none_is_run() {
    explore(3, || {
        let pool = pool(1, 0);
        let job = Counted::new(1);
        let member = Arc::new(pool.join(Arc::clone(&job) as Arc<dyn Job>, 1));
        let worker = working(&pool, 0);
        member.open();
        job.add();
        member.offer();
        job.wait_for(2);
        stop(&pool);
        worker.join().unwrap();
        assert!(member.slots().is_empty());
        member.end();
    });
}

#[test]
fn two_members_are_served_by_one_thread() {
    explore(2, || {
        let pool = pool(1, 0);
        let jobs = [Counted::new(1), Counted::new(0)];
        let members = jobs.each_ref().map(|job| pool.join(Arc::clone(job) as Arc<dyn Job>, 1));
        let worker = working(&pool, 0);
        members[0].open();
        members[1].open();
        jobs[1].add();
        members[1].offer();
        jobs[0].wait_for(1);
        jobs[1].wait_for(1);
        stop(&pool);
        worker.join().unwrap();
        for member in &members {
            member.end();
        }
    });
}

/// After the wait, no thread serves the member.
#[test]
fn threads_leave_a_closed_member() {
    explore(3, || {
        let pool = pool(1, 0);
        let job = Counted::new(2);
        let member = pool.join(Arc::clone(&job) as Arc<dyn Job>, 1);
        member.open();
        let worker = working(&pool, 0);
        member.close();
        job.wait_until_served_by(0, &member);
        let run = job.run();
        stop(&pool);
        worker.join().unwrap();
        assert_eq!(job.run(), run);
        member.end();
    });
}

/// The other thread is not the last one to leave, but wakes the run.
#[test]
fn a_run_waits_until_the_other_threads_have_left_its_member() {
    explore(2, || {
        let pool = pool(2, 0);
        let job = Counted::in_company(2, 2);
        let member = Arc::new(pool.join(Arc::clone(&job) as Arc<dyn Job>, 2));
        *job.joins.lock() = Some(Arc::clone(&member));
        let workers = [working(&pool, 0), working(&pool, 1)];
        member.open();
        job.wait_for(2);
        stop_all(&pool, workers);
        member.end();
    });
}

/// With two keys and two threads, both keys run at once if the limit allows it, and never otherwise.
#[test]
fn a_member_is_served_up_to_its_limit() {
    for limit in [1, 2] {
        explore(2, move || {
            let pool = pool(2, 0);
            let job = Counted::in_company(2, limit);
            let member = pool.join(Arc::clone(&job) as Arc<dyn Job>, limit);
            let workers = [working(&pool, 0), working(&pool, 1)];
            member.open();
            job.wait_for(2);
            stop_all(&pool, workers);
            assert_eq!(job.counts.lock().most, limit);
            member.end();
        });
    }
}

/// A greater limit wakes a thread at once: the first run waits for the second.
#[test]
fn a_raised_limit_wakes_a_thread() {
    explore(2, || {
        let pool = pool(2, 0);
        let job = Counted::in_company(2, 2);
        let member = pool.join(Arc::clone(&job) as Arc<dyn Job>, 1);
        let workers = [working(&pool, 0), working(&pool, 1)];
        member.open();
        member.set_limit(2);
        job.wait_for(2);
        stop_all(&pool, workers);
        member.end();
    });
}

/// One thread runs a key that waits for another run, until it is marked as stuck. Then the spare thread takes its
/// place, whether it sleeps or is on its way.
#[test]
fn a_spare_thread_works_in_place_of_a_stuck_one() {
    explore(2, || {
        let pool = pool(1, 1);
        pool.state.lock().started = 2;
        let job = Counted::in_company(2, 2);
        let member = pool.join(Arc::clone(&job) as Arc<dyn Job>, 2);
        let workers = [working(&pool, 0), working(&pool, 1)];
        member.open();
        job.wait_for(1);
        let stuck = pool.group.slots.iter().find(|slot| slot.is_busy()).unwrap();
        assert_eq!(job.run(), 1);
        pool.overrun(&SeenRun::first_of(stuck));
        job.wait_for(2);
        stop_all(&pool, workers);
        let state = pool.state.lock();
        assert_eq!((state.busy, state.stuck), (0, 0));
        drop(state);
        member.end();
    });
}

/// A job that runs two keys in one turn.
struct Twice;

impl Job for Twice {
    fn serve(&self, turn: &PoolTurn<'_>) {
        drop(turn.begin(Nanos::ZERO, Nanos::NEVER, 0, Reasons::NONE));
        if !turn.is_over() {
            let run = turn.begin(Nanos::ZERO, Nanos::NEVER, 0, Reasons::NONE);
            let state = turn.pool.state.lock();
            assert_eq!((state.busy, state.stuck), (1, 0), "one more may be at work in its place");
            drop((state, run));
        }
    }

    fn has_work(&self) -> bool {
        false
    }

    fn not_before(&self) -> Nanos {
        Nanos::ZERO
    }

    fn left(&self) {}

    fn overrun(&self, _overrun: &SeenRun) {}

    fn shuffle(&self, _draw: u64) -> Option<String> {
        None
    }
}

/// The next run of that thread is not stuck, and counts as working.
#[test]
fn a_thread_marked_stuck_as_its_run_ends_begins_no_other_run() {
    explore(3, || {
        let pool = pool(1, 0);
        let member = pool.join(Arc::new(Twice), 1);
        member.open();
        let worker = working(&pool, 0);
        pool.overrun(&SeenRun::first_of(&pool.group.slots[0]));
        stop(&pool);
        worker.join().unwrap();
        let state = pool.state.lock();
        assert_eq!((state.busy, state.stuck), (0, 0));
        drop(state);
        member.end();
    });
}

/// A thread finds no runnable key while the member is released.
#[test]
fn a_member_released_as_its_turn_ends_is_served() {
    explore(3, || {
        let pool = pool(1, 0);
        let job = Counted::new(1);
        job.counts.lock().not_before = Nanos::NEVER;
        let member = pool.join(Arc::clone(&job) as Arc<dyn Job>, 1);
        let worker = working(&pool, 0);
        member.open();
        job.counts.lock().not_before = Nanos::ZERO;
        member.release();
        job.wait_for(1);
        stop(&pool);
        worker.join().unwrap();
        member.end();
    });
}
