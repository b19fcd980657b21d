//! What a feeder asks of a queue, and what the queue answers.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::time::Duration;

/// The most records that one section of the queue's lock handles.
pub(crate) const BATCH: u32 = 1024;

/// Which level a key stands in. Each level is first in, first out; a higher one is served first, without starving a lower
/// one (see [`STARVATION_BOUND`](crate::queue::STARVATION_BOUND)).
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, Priority, WorkQueue};
///
/// let queue = WorkQueue::new();
/// queue.at(Priority::Low).enqueue("swept");
/// queue.at(Priority::High).enqueue("asked for");
/// assert_eq!(*queue.try_dequeue()?, "asked for");
/// # Ok::<_, homeostat::queue::TryDequeueError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Sweeps and initial listings: nothing says that anything has changed.
    Low,
    /// The default.
    #[default]
    Normal,
    /// What a person waits for.
    High,
}

impl Priority {
    /// All levels, in the order in which they are served.
    pub(crate) const SERVED: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(crate) const fn level(self) -> usize {
        self as usize
    }
}

/// Why a run is called: a set of reasons, merged over all requests that led to it.
///
/// The low eleven bits are named here; [`Reasons::user`] gives the remaining five to the program.
///
/// # Examples
///
/// ```
/// use homeostat::Reasons;
///
/// let reasons = Reasons::POLL | Reasons::MANUAL | Reasons::user(0);
/// assert!(reasons.contains(Reasons::POLL));
/// assert!(!reasons.contains(Reasons::RETRY));
/// assert_eq!(reasons.to_string(), "poll, manual, user-0");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Reasons(u16);

impl Reasons {
    /// No reason given.
    pub const NONE: Self = Self(0);
    /// A poller listed the key.
    pub const POLL: Self = Self(1);
    /// Something happened to it, without saying what.
    pub const EVENT: Self = Self(1 << 1);
    /// A sweep over all known keys.
    pub const RESYNC: Self = Self(1 << 2);
    /// The run before failed.
    pub const RETRY: Self = Self(1 << 3);
    /// The run before asked for it.
    pub const REQUEUE: Self = Self(1 << 4);
    /// A person or program asked for it by name.
    pub const MANUAL: Self = Self(1 << 5);
    /// What the key names was created.
    pub const CREATED: Self = Self(1 << 6);
    /// What the key names was updated.
    pub const UPDATED: Self = Self(1 << 7);
    /// What the key names was deleted.
    pub const DELETED: Self = Self(1 << 8);
    /// Something that belongs to what the key names has changed.
    pub const SECONDARY: Self = Self(1 << 9);
    /// What the key names vanished without a deletion that could be seen.
    pub const PURGED: Self = Self(1 << 10);

    const NAMES: [&'static str; 11] = [
        "poll",
        "event",
        "resync",
        "retry",
        "requeue",
        "manual",
        "created",
        "updated",
        "deleted",
        "secondary",
        "purged",
    ];

    /// The program's own reason number `n`.
    ///
    /// # Panics
    ///
    /// If `n` is 5 or more.
    #[must_use]
    pub const fn user(n: u32) -> Self {
        assert!(n < 5, "a program has five reasons of its own, 0 to 4");
        Self(1 << (11 + n))
    }

    /// Whether every reason of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no reason was given.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Reasons {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Reasons {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Reasons {
    /// The names, separated by commas; `none` for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for bit in (0..16).filter(|bit| self.0 & (1 << bit) != 0) {
            f.write_str(separator)?;
            match Self::NAMES.get(bit) {
                Some(name) => f.write_str(name)?,
                None => write!(f, "user-{}", bit - Self::NAMES.len())?,
            }
            separator = ", ";
        }
        if self.is_empty() {
            f.write_str("none")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reasons({self})")
    }
}

/// How sure a feeder is that a run is wanted, and when. The methods of [`Enqueue`](crate::Enqueue) as values.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, WorkQueue};
/// use homeostat::queue::EnqueueMethod;
///
/// let queue = WorkQueue::new();
/// let tally = queue.request_all(&mut ["vm-1", "vm-2"].into_iter(), EnqueueMethod::EnqueueIfAbsent.into());
/// assert_eq!(tally.total(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueMethod {
    /// "Still there": the feeder will say it again.
    EnqueueIfAbsent,
    /// "Changed": a run that starts after this call; a delay that stands decides when.
    Enqueue,
    /// "Changed", and no delay holds it back.
    EnqueueNow,
    /// A run this much later, if no wake is pending.
    EnqueueAfter(Duration),
    /// The wake is this much later, whatever it was.
    Reschedule(Duration),
    /// A run once the key has been quiet, but no later than the cap.
    EnqueueDebounced {
        /// How long nothing must be heard of the key.
        quiet: Duration,
        /// How long the first request can be put off in all.
        max_wait: Duration,
    },
    /// "Changed": as [`EnqueueDebounced`](Self::EnqueueDebounced), and no other delay holds the run back longer.
    EnqueueNowDebounced {
        /// How long nothing must be heard of the key.
        quiet: Duration,
        /// How long after any of these requests the run starts, at the latest.
        max_wait: Duration,
    },
    /// "Unchanged": a run, unless the key is in line, is being processed, backs off, or is debounced.
    EnqueueResync,
}

/// One request for one key: the method, the level, and why.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, EnqueueOutcome, Priority, Reasons, WorkQueue};
/// use homeostat::queue::{EnqueueMethod, EnqueueRequest};
///
/// let queue = WorkQueue::new();
/// let request = EnqueueRequest::new(EnqueueMethod::EnqueueNow).at(Priority::High).because(Reasons::MANUAL);
/// assert_eq!(queue.request("vm-1", request), EnqueueOutcome::Queued);
/// assert_eq!(queue.try_dequeue()?.reasons(), Reasons::MANUAL);
/// # Ok::<_, homeostat::queue::TryDequeueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnqueueRequest {
    /// What is asked.
    pub method: EnqueueMethod,
    /// The level to stand in. A request raises the level of a key and never lowers it.
    pub priority: Priority,
    /// Why; merged into the reasons of the run.
    pub reasons: Reasons,
}

impl EnqueueRequest {
    /// `method` at normal priority, without a reason.
    #[must_use]
    pub const fn new(method: EnqueueMethod) -> Self {
        Self { method, priority: Priority::Normal, reasons: Reasons::NONE }
    }

    /// The same in the level `priority`.
    #[must_use]
    pub const fn at(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The same with `reasons` added.
    #[must_use]
    pub fn because(mut self, reasons: Reasons) -> Self {
        self.reasons |= reasons;
        self
    }
}

impl From<EnqueueMethod> for EnqueueRequest {
    fn from(method: EnqueueMethod) -> Self {
        Self::new(method)
    }
}

/// What became of a request: nothing is silent.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, EnqueueOutcome, WorkQueue};
///
/// let queue = WorkQueue::new();
/// assert_eq!(queue.enqueue("vm-1"), EnqueueOutcome::Queued);
/// assert_eq!(queue.enqueue("vm-1"), EnqueueOutcome::Merged);
/// assert_eq!(queue.enqueue_if_absent("vm-1"), EnqueueOutcome::Ignored);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EnqueueOutcome {
    /// The key stands in line now because of this request.
    Queued,
    /// The key stood in line already; the request joined it.
    Merged,
    /// The key waits for a time that this request has set.
    Scheduled,
    /// The key waits for a time that was set before; the request joined that wait.
    Held,
    /// The key is being processed and will run again afterwards.
    Rerun,
    /// Nothing changed: the request was of the kind that adds nothing to what is there, or a filter refused the key.
    Ignored,
    /// The queue is shut down and takes no more.
    Closed,
}

impl fmt::Display for EnqueueOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queued => "queued",
            Self::Merged => "merged",
            Self::Scheduled => "scheduled",
            Self::Held => "held",
            Self::Rerun => "rerun",
            Self::Ignored => "ignored",
            Self::Closed => "closed",
        })
    }
}

/// How a queue is shut down. Later values are stricter; a shutdown can become stricter and never more lenient.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, EnqueueOutcome, Shutdown, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// queue.enqueue_after("vm-1", Duration::from_secs(3600));
/// queue.shutdown(Shutdown::RunDelayedNow);
/// assert_eq!(*queue.dequeue()?, "vm-1");
/// assert_eq!(queue.enqueue("vm-2"), EnqueueOutcome::Closed);
/// # Ok::<_, homeostat::queue::DequeueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shutdown {
    /// Everything known runs once more: what is delayed becomes ready at once, in due order.
    RunDelayedNow,
    /// What stands in line is served; what is delayed is dropped and reported.
    ServeReady,
    /// Nothing more is served: everything that waits is dropped and reported.
    Discard,
}

/// A wake that a shutdown dropped: where the key was when it lost it.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, WorkQueue};
/// use homeostat::queue::DroppedRun;
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// queue.enqueue_after("vm-1", Duration::from_secs(3600));
/// assert_eq!(queue.drain(Duration::ZERO).dropped, [("vm-1", DroppedRun::Delayed)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DroppedRun {
    /// It stood in line.
    Ready,
    /// It waited for a time.
    Delayed,
    /// It was being processed and was to run again.
    PendingRerun,
    /// Its run asked for another one after the shutdown, or was aborted.
    Requeue,
    /// Its run failed after the shutdown and was not tried again.
    Retry,
}
