//! Requests to a queue and their outcomes.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::time::Duration;

/// The maximum number of records that one section of the queue's lock handles.
pub(crate) const BATCH: u32 = 1024;

/// The priority level of a key. Each level is first in, first out. Higher levels are served first, without starving
/// lower ones: see [`STARVATION_BOUND`](crate::queue::STARVATION_BOUND).
///
/// A key keeps the highest level that was requested for it until the queue forgets it, however its runs end. Its
/// retries are as urgent as the request was, as in controller-runtime. A key with periodic requeues is never forgotten
/// and never loses its level: enqueue it at the level that its requeues may have.
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
/// # Ok::<_, homeostat::queue::DequeueError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// For sweeps and initial listings: nothing shows that a key has changed.
    Low,
    /// The default.
    #[default]
    Normal,
    /// For requests that a person waits for.
    High,
}

impl Priority {
    /// All levels, highest first.
    pub(crate) const SERVED: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(crate) const fn level(self) -> usize {
        self as usize
    }
}

/// The reasons for a run, as a set. The reasons of all requests that led to a run are merged.
///
/// Eleven reasons are predefined. [`Reasons::user`] returns five more, which the program defines.
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
    /// An event named the key, but not the kind of change.
    pub const EVENT: Self = Self(1 << 1);
    /// A sweep over all known keys.
    pub const RESYNC: Self = Self(1 << 2);
    /// The previous run failed.
    pub const RETRY: Self = Self(1 << 3);
    /// The previous run asked for this one.
    pub const REQUEUE: Self = Self(1 << 4);
    /// A person or program asked for the key by name.
    pub const MANUAL: Self = Self(1 << 5);
    /// The object was created.
    pub const CREATED: Self = Self(1 << 6);
    /// The object was updated.
    pub const UPDATED: Self = Self(1 << 7);
    /// The object was deleted.
    pub const DELETED: Self = Self(1 << 8);
    /// An object that belongs to this one has changed.
    pub const SECONDARY: Self = Self(1 << 9);
    /// The object vanished without a visible deletion.
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

    /// Returns the program's own reason number `n`.
    ///
    /// # Panics
    ///
    /// If `n` is 5 or more.
    #[must_use]
    pub const fn user(n: u32) -> Self {
        assert!(n < 5, "a program has five reasons of its own, 0 to 4");
        Self(1 << (11 + n))
    }

    /// Returns whether every reason of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether no reason was given.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Reasons {
    #[inline]
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn of_bits(bits: u16) -> Self {
        Self(bits)
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
    /// Writes the names, separated by commas; `none` for the empty set.
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

/// The methods of [`Enqueue`](crate::Enqueue) as values.
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
    /// See [`Enqueue::enqueue_if_absent`](crate::Enqueue::enqueue_if_absent).
    EnqueueIfAbsent,
    /// See [`Enqueue::enqueue`](crate::Enqueue::enqueue).
    Enqueue,
    /// See [`Enqueue::enqueue_now`](crate::Enqueue::enqueue_now).
    EnqueueNow,
    /// See [`Enqueue::enqueue_after`](crate::Enqueue::enqueue_after).
    EnqueueAfter(Duration),
    /// See [`Enqueue::reschedule`](crate::Enqueue::reschedule).
    Reschedule(Duration),
    /// See [`Enqueue::enqueue_debounced`](crate::Enqueue::enqueue_debounced).
    EnqueueDebounced {
        /// The time without such a request after which the key runs.
        quiet: Duration,
        /// The longest delay after the first request.
        max_wait: Duration,
    },
    /// See [`Enqueue::enqueue_now_debounced`](crate::Enqueue::enqueue_now_debounced).
    EnqueueNowDebounced {
        /// The time without such a request after which the key runs.
        quiet: Duration,
        /// The longest delay after any of these requests.
        max_wait: Duration,
    },
    /// See [`Enqueue::enqueue_resync`](crate::Enqueue::enqueue_resync).
    EnqueueResync,
    /// Like `EnqueueResync`, but only for the keys that the [gates](crate::run::Gate::selects) of a controller select.
    /// Other keys are ignored. A queue without a controller takes all keys.
    EnqueueSelected,
}

/// A request for one key: the method, the priority and the reasons.
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
/// # Ok::<_, homeostat::queue::DequeueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnqueueRequest {
    /// The method.
    pub method: EnqueueMethod,
    /// The priority. A request raises the level of a key and never lowers it.
    pub priority: Priority,
    /// The reasons. They are merged into the reasons of the run.
    pub reasons: Reasons,
}

impl EnqueueRequest {
    /// Returns a request at normal priority without a reason.
    #[must_use]
    pub const fn new(method: EnqueueMethod) -> Self {
        Self { method, priority: Priority::Normal, reasons: Reasons::NONE }
    }

    /// Returns the same request with this priority.
    #[must_use]
    pub const fn at(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Returns the same request with these reasons added.
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

/// The outcome of a request.
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
    /// The request made the key ready.
    Queued,
    /// The key was ready already.
    Merged,
    /// The request set the delay of the key.
    Scheduled,
    /// The key still waits for the end of an earlier delay.
    Held,
    /// The key is being processed and runs again afterwards.
    Rerun,
    /// Nothing changed: the method adds nothing to this state, or a filter refused the key.
    Ignored,
    /// The queue is shut down and takes no requests.
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

/// The mode of a shutdown. Later variants are stricter. A shutdown can only become stricter.
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
    /// Delayed keys are ready at once, in due order. Every known key runs once more.
    RunDelayedNow,
    /// Ready keys are served. Delayed runs are dropped and reported.
    ServeReady,
    /// No key is served. All scheduled runs are dropped and reported.
    Discard,
}

/// The state of a key when a shutdown dropped its scheduled run.
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
    /// The key was ready.
    Ready,
    /// The key was delayed.
    Delayed,
    /// The key was being processed and had a pending rerun.
    PendingRerun,
    /// After the shutdown, the run asked for another one, was aborted, or was deferred.
    Requeue,
    /// The run failed after the shutdown.
    Retry,
}
