//! The errors of the queue. Each way to take a key has its own, with no case that it cannot return.

use std::error::Error;
use std::fmt;

/// [`dequeue`](crate::WorkQueue::dequeue) found the queue shut down and served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DequeueError;

/// Why [`try_dequeue`](crate::WorkQueue::try_dequeue) gave no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TryDequeueError {
    /// No key is in line.
    Empty,
    /// The queue is shut down, and nothing is or will be in line.
    Closed,
}

/// Why [`dequeue_timeout`](crate::WorkQueue::dequeue_timeout) gave no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DequeueTimeoutError {
    /// No key came into line in time.
    Timeout,
    /// The queue is shut down, and nothing is or will be in line.
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

impl fmt::Display for DequeueTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "no key became ready in time",
            Self::Closed => CLOSED,
        })
    }
}

impl Error for DequeueError {}
impl Error for TryDequeueError {}
impl Error for DequeueTimeoutError {}
