//! A queue on a held clock with single letters as keys, and the words of the tables for the state of a key.

use std::time::{Duration, Instant};

use homeostat::queue::{EnqueueMethod, KeyState, PendingRerun, WorkQueueBuilder};
use homeostat::{Claim, Enqueue, ManualClock, Priority, Shutdown, WorkQueue};

pub(crate) const ZERO: Duration = Duration::ZERO;

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// The state of a key in the words of the tables. Times are in seconds since the clock was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Is {
    Idle,
    Ready,
    Delayed(u64),
    No,
    Soft,
    At(u64),
    Now,
}

/// A queue on a held clock that shows 1,000 s.
pub(crate) struct Bench {
    pub(crate) clock: ManualClock,
    pub(crate) origin: Instant,
    pub(crate) queue: WorkQueue<char>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|settings| settings)
    }

    pub(crate) fn with(set: impl FnOnce(WorkQueueBuilder<char>) -> WorkQueueBuilder<char>) -> Self {
        let clock = ManualClock::new();
        let origin = clock.now();
        clock.advance(secs(1_000));
        let queue = set(WorkQueue::builder().clock(clock.clock())).build();
        Self { clock, origin, queue }
    }

    /// Brings `k` into a state, with 1,300 s as its time, and makes `a` and `b` ready around it.
    pub(crate) fn bring(&self, to: Is) -> Option<Claim<char>> {
        let claim = matches!(to, Is::No | Is::Soft | Is::At(_) | Is::Now).then(|| self.claim('k'));
        self.queue.enqueue('a');
        match to {
            Is::Idle | Is::No => {}
            Is::Ready | Is::Soft => {
                self.queue.enqueue('k');
            }
            Is::Delayed(1_300) | Is::At(1_300) => {
                self.queue.enqueue_after('k', secs(300));
            }
            Is::Now => {
                self.queue.enqueue_now('k');
            }
            Is::Delayed(_) | Is::At(_) => panic!("the columns know one time"),
        }
        self.queue.enqueue('b');
        assert_eq!(self.is('k'), to);
        claim
    }

    /// Shuts the queue down if the test fails meanwhile, so that no thread of its scope waits forever.
    pub(crate) fn watch(&self) -> impl Drop + '_ {
        struct Watch<'a>(&'a WorkQueue<char>);
        impl Drop for Watch<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.shutdown(Shutdown::Discard);
                }
            }
        }
        Watch(&self.queue)
    }

    pub(crate) fn claim(&self, key: char) -> Claim<char> {
        self.queue.enqueue(key);
        let claim = self.take();
        assert_eq!(*claim, key);
        claim
    }

    pub(crate) fn take(&self) -> Claim<char> {
        self.queue.try_dequeue().unwrap()
    }

    pub(crate) fn ask(&self, method: EnqueueMethod) -> homeostat::EnqueueOutcome {
        self.queue.request('k', method.into())
    }

    pub(crate) fn is(&self, key: char) -> Is {
        self.named(self.queue.state(&key))
    }

    pub(crate) fn named(&self, state: KeyState) -> Is {
        let time = |at: Option<Instant>| at.map_or(NEVER, |at| (at - self.origin).as_secs());
        match state {
            KeyState::Idle => Is::Idle,
            KeyState::Ready(_) => Is::Ready,
            KeyState::Delayed(at) => Is::Delayed(time(at)),
            KeyState::Processing(PendingRerun::None) => Is::No,
            KeyState::Processing(PendingRerun::Soft) => Is::Soft,
            KeyState::Processing(PendingRerun::At(at)) => Is::At(time(at)),
            KeyState::Processing(PendingRerun::Now) => Is::Now,
            other => panic!("a state that no table names: {other:?}"),
        }
    }

    pub(crate) fn level(&self, key: char) -> Priority {
        match self.queue.state(&key) {
            KeyState::Ready(level) => level,
            other => panic!("not in line: {other:?}"),
        }
    }

    /// Takes all ready keys in order and ends their claims.
    pub(crate) fn line(&self) -> String {
        std::iter::from_fn(|| self.queue.try_dequeue().ok())
            .map(|claim| {
                let key = *claim;
                claim.done();
                key
            })
            .collect()
    }

    /// Takes all ready keys without ending their claims, so that no other key becomes ready.
    pub(crate) fn claims(&self) -> Vec<Claim<char>> {
        std::iter::from_fn(|| self.queue.try_dequeue().ok()).collect()
    }
}
