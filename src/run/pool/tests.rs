//! The state of the pool, step by step.

use std::sync::Arc;
use std::thread;

use super::{Job, Pool, PoolTurn};
use crate::base::clock::{Clock, ManualClock};
use crate::base::group::{SeenRun, ThreadGroup, ThreadGroupKind};
use crate::base::sync::Mutex;
use crate::base::thread::ThreadOptions;
use crate::base::time::Nanos;
use crate::until::until;

/// A member that always has a key, which may not run before this time.
struct Limited(Mutex<Nanos>);

impl Job for Limited {
    fn serve(&self, _turn: &PoolTurn<'_>) {}

    fn has_work(&self) -> bool {
        true
    }

    fn not_before(&self) -> Nanos {
        *self.0.lock()
    }

    fn left(&self) {}

    fn overrun(&self, _overrun: &SeenRun) {}

    fn shuffle(&self, _draw: u64) -> Option<String> {
        None
    }
}

#[test]
fn a_member_is_served_at_once_after_a_thread_has_put_its_token_back() {
    let group = ThreadGroup::new(ThreadGroupKind::Pool, "pool".to_owned(), ManualClock::new().clock(), 2);
    let pool = Pool::new(group, 2, ThreadOptions::new());
    let limited = Arc::new(Limited(Mutex::new(Nanos::ZERO)));
    let job: Arc<dyn Job> = Arc::<Limited>::clone(&limited);
    let membership = pool.join(Arc::clone(&job), 2);
    membership.open();
    let take = |number| pool.take(&mut pool.state.lock(), number).map(|(member, ..)| member);

    let first = take(0).unwrap();
    membership.offer();
    let second = take(1).unwrap();
    // The first thread has the last token. The second one finds none and leaves.
    *limited.0.lock() = Nanos(2_000_000_000);
    pool.finish(1, second, &job);
    assert!(take(1).is_none(), "there is no token");
    // The first thread finds no key, returns its token and leaves.
    *limited.0.lock() = Nanos::ZERO;
    pool.finish(0, first, &job);
    assert_eq!(take(0), Some(first), "there is a token again");
}

#[test]
fn a_late_report_of_an_overrun_keeps_the_mark_of_a_later_run() {
    let group = ThreadGroup::new(ThreadGroupKind::Pool, "pool".to_owned(), ManualClock::new().clock(), 1);
    let pool = Pool::new(Arc::clone(&group), 1, ThreadOptions::new());
    let job: Arc<dyn Job> = Arc::new(Limited(Mutex::new(Nanos::ZERO)));
    let membership = pool.join(Arc::clone(&job), 1);
    membership.open();
    let (member, ..) = pool.take(&mut pool.state.lock(), 0).unwrap();
    let runs = [1, 2].map(|record| {
        let run = group.begin_until(&group.slots[0], Nanos::NEVER, record);
        (group.slots[0].look().unwrap(), (record == 2).then_some(run))
    });
    pool.overrun(&runs[1].0);
    pool.overrun(&runs[0].0);
    drop(runs);
    pool.finish(0, member, &job);
    let state = pool.state.lock();
    assert_eq!((state.busy, state.stuck), (0, 0));
}

/// A held clock counts the sleeping threads, so they fall asleep at once.
#[test]
fn a_thread_without_work_sleeps_after_its_looks() {
    for (clock, looks_left) in [(Clock::system(), 0), (ManualClock::new().clock(), 3)] {
        let group = ThreadGroup::new(ThreadGroupKind::Pool, "pool".to_owned(), clock, 1);
        let pool = Pool::new(group, 1, ThreadOptions::new());
        let left = thread::scope(|scope| {
            let idle = scope.spawn(|| {
                let mut looks = 3;
                assert!(pool.next(0, &mut looks).is_none());
                looks
            });
            until("the thread sleeps", || pool.state.lock().idle.asleep() > 0);
            pool.group.stop();
            pool.wake();
            idle.join().unwrap()
        });
        assert_eq!(left, looks_left);
    }
}

#[test]
fn while_a_thread_looks_others_sleep_and_are_not_woken() {
    let group = ThreadGroup::new(ThreadGroupKind::Pool, "pool".to_owned(), Clock::system(), 2);
    let pool = Pool::new(group, 2, ThreadOptions::new());
    pool.state.lock().is_looking = true;
    thread::scope(|scope| {
        let idle = scope.spawn(|| {
            let mut looks = 3;
            assert!(pool.next(1, &mut looks).is_none());
            looks
        });
        until("the thread sleeps", || pool.state.lock().idle.asleep() > 0);
        let membership = pool.join(Arc::new(Limited(Mutex::new(Nanos::ZERO))), 1);
        membership.open();
        membership.offer();
        assert_eq!(pool.state.lock().idle.asleep(), 1);
        assert!(pool.take(&mut pool.state.lock(), 0).is_some(), "the looking thread finds the member");
        pool.group.stop();
        pool.wake();
        assert_eq!(idle.join().unwrap(), 3);
    });
}
