//! The errors of the queue.

use std::error::Error;
use std::fmt;

use crate::base::chain::debug_with_causes;

/// The error of [`dequeue`](crate::WorkQueue::dequeue): the queue is shut down, and no key is left.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DequeueError;

/// The error of [`try_dequeue`](crate::WorkQueue::try_dequeue) and
/// [`dequeue_timeout`](crate::WorkQueue::dequeue_timeout).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
// One machine word wide. With a smaller error, a `Result` would store the words of a claim in parts.
#[repr(usize)]
pub enum TryDequeueError {
    /// No key is ready, or became ready in time.
    Empty,
    /// The queue is shut down, and no key is left.
    Closed,
}

const CLOSED: &str = "the queue is shut down, and no key is left";

impl fmt::Display for DequeueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CLOSED)
    }
}

impl fmt::Display for TryDequeueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no key is ready",
            Self::Closed => CLOSED,
        })
    }
}

impl Error for DequeueError {}
impl Error for TryDequeueError {}

debug_with_causes!(DequeueError, TryDequeueError);
