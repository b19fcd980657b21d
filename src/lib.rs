//! A controller runtime on plain OS threads.

mod backoff;
mod cancel;
mod clock;
mod error;
mod queue;
mod sync;
mod thread;
mod time;
mod wait;

pub use self::backoff::Exponential;
pub use self::cancel::{CancellationToken, OnCancel};
pub use self::clock::{Clock, ManualClock};
pub use self::error::{DequeueError, DequeueTimeoutError, StartError, TryDequeueError};
pub use self::queue::{
    Admission, ByRef, Claim, DrainReport, DroppedWake, Enqueue, FastHasher, FastState, Filter, Key, KeyState, Map,
    Priority, QueueBuilder, Reasons, Request, STARVATION_BOUND, Shutdown, Tally, Tee, Verb, View, Wish, WorkQueue,
};
pub use self::thread::ThreadOptions;
