//! A controller runtime on plain OS threads.

mod backoff;
mod cancel;
mod clock;
mod crew;
mod error;
mod poller;
mod queue;
mod reconcile;
mod sync;
mod thread;
mod time;
mod wait;
mod workers;

pub use self::backoff::Exponential;
pub use self::cancel::{CancellationToken, OnCancel};
pub use self::clock::{Clock, ManualClock};
pub use self::crew::StillRunning;
pub use self::error::{DequeueError, DequeueTimeoutError, StartError, TryDequeueError};
pub use self::poller::{Poller, PollerHandle};
pub use self::queue::{
    Admission, ByRef, Claim, DrainReport, DroppedWake, Enqueue, FastHasher, FastState, Filter, Key, KeyState, Map,
    Priority, QueueBuilder, Reasons, Request, STARVATION_BOUND, Shutdown, Tally, Tee, Verb, View, Wish, WorkQueue,
};
pub use self::reconcile::context::Context;
pub use self::reconcile::error::{BoxError, Cancelled, Panicked, RequeueAfter, Terminal, terminal};
pub use self::reconcile::policy::{Failure, NoRetry, RetryPolicy, Verdict};
pub use self::reconcile::{Action, Reconciler};
pub use self::thread::ThreadOptions;
pub use self::workers::{Workers, WorkersHandle, WorkersMetrics};
