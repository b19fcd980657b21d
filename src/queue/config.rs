//! The settings of a queue.

use std::time::Duration;

use super::slack::TimerSlack;
use crate::base::backoff::Exponential;
use crate::base::clock::Clock;
use crate::base::thread::ThreadOptions;

/// A hook that takes the cancelled key.
pub(crate) type CancelHook<K> = Box<dyn Fn(&K) + Send + Sync>;

/// Returns whether a key has moved to or from this process.
pub(crate) type MovedCheck<K> = Box<dyn Fn(&K) -> bool + Send + Sync>;

/// The settings of a queue.
pub(crate) struct QueueConfig {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) backoff: Exponential,
    pub(crate) floor: Duration,
    pub(crate) min_interval: Duration,
    pub(crate) timer_slack: TimerSlack,
    pub(crate) timing: bool,
    /// Options of the queue's own timer thread.
    pub(crate) threads: ThreadOptions,
    /// The most records that a shutdown looks at in one section.
    pub(crate) sweep: u32,
    pub(crate) on_ready: Option<Box<dyn Fn() + Send + Sync>>,
}

impl QueueConfig {
    /// Returns the slack of delays. A held clock is exact.
    pub(crate) fn slack(&self) -> TimerSlack {
        if self.clock.is_held() { TimerSlack::NONE } else { self.timer_slack }
    }
}
