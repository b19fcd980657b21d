//! The builder of a queue.

use std::fmt;
use std::hash::BuildHasher;
use std::time::Duration;

use super::request::BATCH;
use super::shared::{QueueConfig, QueueHooks, QueueShared};
use super::wheel::TimerSlack;
use super::{Key, WorkQueue};
use crate::base::backoff::Exponential;
use crate::base::clock::Clock;
use crate::base::thread::ThreadOptions;

/// A builder for a [`WorkQueue`]. Every setting has a default.
///
/// # Examples
///
/// ```
/// use homeostat::{Exponential, WorkQueue};
/// use std::time::Duration;
///
/// let queue: WorkQueue<u64> = WorkQueue::builder()
///     .name("vm")
///     .backoff(Exponential::new(Duration::from_millis(50), Duration::from_secs(30)))
///     .timing(true)
///     .build();
/// assert_eq!(queue.name(), "vm");
/// ```
#[must_use = "settings do nothing until `build` is called"]
pub struct WorkQueueBuilder<K, S = FastState> {
    config: QueueConfig,
    hasher: S,
    hooks: QueueHooks<K>,
}

impl<K: Key> WorkQueueBuilder<K> {
    pub(super) fn new() -> Self {
        Self {
            config: QueueConfig {
                name: "queue".to_owned(),
                clock: Clock::system(),
                backoff: Exponential::default(),
                floor: Duration::ZERO,
                min_interval: Duration::ZERO,
                timer_slack: TimerSlack::DEFAULT,
                timing: false,
                threads: ThreadOptions::new(),
                sweep: BATCH,
            },
            hasher: FastState::default(),
            hooks: QueueHooks { on_ready: None, on_cancel: None, on_forgotten: None, selects: None },
        }
    }
}

impl<K: Key, S: BuildHasher> WorkQueueBuilder<K, S> {
    /// Sets the name for log lines and for the timer thread (`<name>-timer`). Default: `queue`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Sets the clock for delays and timeouts. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.config.clock = clock;
        self
    }

    /// Sets the backoff of [`Claim::retry`](crate::Claim::retry) and of a dropped claim. Its limit on retries is
    /// ignored: a queue never gives up a key. Default: [`Exponential::default`].
    pub fn backoff(mut self, backoff: Exponential) -> Self {
        self.config.backoff = backoff;
        self
    }

    /// Sets the shortest wait of `enqueue_now` during a backoff. Default: zero, so that it ends a backoff at once.
    pub fn floor(mut self, floor: Duration) -> Self {
        self.config.floor = floor;
        self
    }

    /// Sets the shortest pause between the end of a key's run and the start of its next run. Default: zero.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.config.min_interval = interval;
        self
    }

    /// Sets how late a delay may end: at most one `part`th of the delay, and at most `most`. Default: 256 and 8.4 ms.
    ///
    /// Delays that end within the slack of each other share one wakeup, and may become ready in a different order. More
    /// slack saves CPU time and energy. Both limits are rounded down to powers of two. The slack is at least 131 µs. A
    /// held clock has no slack.
    ///
    /// ```
    /// use homeostat::WorkQueue;
    /// use std::time::Duration;
    ///
    /// // A delay of a minute or more ends up to a second late.
    /// let relaxed: WorkQueue<u64> = WorkQueue::builder().timer_slack(60, Duration::from_secs(1)).build();
    /// // Every delay ends at most 131 µs late.
    /// let precise: WorkQueue<u64> = WorkQueue::builder().timer_slack(1, Duration::ZERO).build();
    /// # drop((relaxed, precise));
    /// ```
    pub fn timer_slack(mut self, part: u32, most: Duration) -> Self {
        self.config.timer_slack = TimerSlack::new(part, most);
        self
    }

    /// Sets whether to measure how long a key is ready before a claim takes it. This costs two clock readings per key.
    /// Default: off; [`Workers`](crate::Workers) turn it on when they start.
    pub fn timing(mut self, timing: bool) -> Self {
        self.config.timing = timing;
        self
    }

    /// Sets the options of the timer thread.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.config.threads = options;
        self
    }

    /// Sets the maximum number of records that a shutdown visits in one section.
    #[cfg(all(test, loom))]
    pub(super) fn sweep(mut self, most: u32) -> Self {
        self.config.sweep = most;
        self
    }

    /// Calls `hook` when a key becomes ready while no other key is ready. It is called without the lock, on the thread
    /// that made the key ready, so another thread may have taken the key since. A panic of the hook is logged.
    pub fn on_ready(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.on_ready = Some(Box::new(hook));
        self
    }

    /// Sets all hooks.
    pub(crate) fn hooks(mut self, hooks: QueueHooks<K>) -> Self {
        self.hooks = hooks;
        self
    }

    /// Sets the hasher. Default: [`FastState`].
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> WorkQueueBuilder<K, T> {
        WorkQueueBuilder { config: self.config, hasher, hooks: self.hooks }
    }

    /// Builds the queue.
    ///
    /// The timer thread starts with the first delay. If the system refuses the thread, the queue tries again while
    /// delays are pending: on its next use, and while a thread waits in [`dequeue`](WorkQueue::dequeue).
    ///
    /// # Panics
    ///
    /// If the name contains a NUL character, which no thread name may contain.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> WorkQueue<K, S> {
        let name = &self.config.name;
        assert!(!name.contains('\0'), "the name of a queue is {name:?}, but must be free of NUL characters");
        WorkQueue { shared: QueueShared::new(self.config, self.hooks), hasher: self.hasher }
    }
}

impl<K, S> fmt::Debug for WorkQueueBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueueBuilder")
            .field("name", &self.config.name)
            .field("clock", &self.config.clock)
            .field("on_ready", &self.hooks.on_ready.is_some())
            .finish_non_exhaustive()
    }
}

/// The default hasher: fast, and seeded anew for each queue.
///
/// Accidental collisions are rare. If an attacker chooses the keys, set another hasher with
/// [`WorkQueueBuilder::hasher`].
///
/// # Examples
///
/// ```
/// use homeostat::WorkQueue;
/// use homeostat::queue::FastState;
/// use std::hash::RandomState;
///
/// let fast: WorkQueue<u64, FastState> = WorkQueue::builder().build();
/// let hardened: WorkQueue<u64, RandomState> = WorkQueue::builder().hasher(RandomState::new()).build();
/// # drop((fast, hardened));
/// ```
#[derive(Clone, Debug, Default)]
pub struct FastState(hashbrown::DefaultHashBuilder);

impl BuildHasher for FastState {
    type Hasher = <hashbrown::DefaultHashBuilder as BuildHasher>::Hasher;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}
