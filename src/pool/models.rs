//! A pool of one or two threads and its members, in every interleaving.

use std::sync::Arc;

use loom::thread;

use super::{Job, Pool, Rest, Turn};
use crate::clock::ManualClock;
use crate::crew::{Crew, Overrun};
use crate::sync::Mutex;
use crate::thread::ThreadOptions;
use crate::time::Nanos;

/// A member that counts the keys it has and those it has run.
struct Counted(Mutex<(usize, usize)>);

impl Counted {
    fn new(keys: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new((keys, 0))))
    }

    fn add(&self) {
        self.0.lock().0 += 1;
    }

    fn run(&self) -> usize {
        self.0.lock().1
    }
}

impl Job for Counted {
    fn serve(&self, turn: &Turn<'_>) -> Rest {
        loop {
            {
                let mut counts = self.0.lock();
                if counts.0 == 0 {
                    return Rest::Done;
                }
                counts.0 -= 1;
                counts.1 += 1;
                if counts.0 > 0 {
                    drop(counts);
                    turn.more();
                }
            }
            if turn.is_over() {
                return Rest::Done;
            }
        }
    }

    fn has_work(&self) -> bool {
        self.0.lock().0 > 0
    }

    fn left(&self) {}

    fn overrun(&self, _overrun: &Overrun<'_>) {}
}

fn pool(threads: usize, spares: usize) -> Arc<Pool> {
    let crew = Crew::with_spares("pool".to_owned(), ManualClock::new().clock(), threads, spares, |_| {});
    Pool::new(crew, threads, ThreadOptions::new())
}

/// Stops the pool once a job has run so many keys, and joins its threads: an idle thread that is not woken is a deadlock.
fn working(pool: &Arc<Pool>, number: usize) -> thread::JoinHandle<()> {
    let pool = Arc::clone(pool);
    thread::spawn(move || pool.work(number))
}

fn stop(pool: &Pool) {
    pool.crew.stop();
    pool.nudge();
}

/// What is explored with at most so many preemptions: of three threads, all interleavings take longer than a test may.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A thread that waits has its wake, and one that ends a turn sees what came at its end.
#[test]
fn a_key_that_comes_as_a_thread_finds_nothing_more_is_run() {
    explore(3, || {
        let pool = pool(1, 0);
        let job = Counted::new(1);
        let member = Arc::new(pool.join(Arc::clone(&job) as Arc<dyn Job>, 1));
        let worker = working(&pool, 0);
        member.open();
        job.add();
        member.offer();
        wait_for(&job, 2);
        stop(&pool);
        worker.join().unwrap();
        assert!(member.wait_until_left(Nanos::ZERO));
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
        wait_for(&jobs[0], 1);
        wait_for(&jobs[1], 1);
        stop(&pool);
        worker.join().unwrap();
        for member in &members {
            member.end();
        }
    });
}

/// Nobody serves it once that was waited for, whatever it had.
#[test]
fn a_member_that_is_closed_is_left() {
    explore(3, || {
        let pool = pool(1, 0);
        let job = Counted::new(2);
        let member = pool.join(Arc::clone(&job) as Arc<dyn Job>, 1);
        member.open();
        let worker = working(&pool, 0);
        member.close();
        assert!(member.wait_until_left(Nanos::NEVER));
        let run = job.run();
        stop(&pool);
        worker.join().unwrap();
        assert_eq!(job.run(), run);
        member.end();
    });
}

/// Waits, by looking again and again, until a job has run so many keys.
fn wait_for(job: &Counted, keys: usize) {
    while job.run() < keys {
        thread::yield_now();
    }
}
