//! Runs of a reconciler and their threads: workers of one queue, and pools that controllers share.

pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod fence;
pub(crate) mod gate;
pub(crate) mod metrics;
pub(crate) mod outcome;
pub(crate) mod pool;
pub(crate) mod reconciler;
pub(crate) mod runner;
pub(crate) mod workers;

pub use self::context::Context;
pub use self::error::{BoxError, Cancelled, Muted, Panicked, RequeueAfter, Terminal, muted, terminal};
pub use self::fence::{Fence, TermLimit};
pub use self::gate::{Admission, BringGate, Gate, GateKey, Gates, Permit, ReadState, Release, ResyncForGates};
pub use self::metrics::{Histogram, WorkersMetrics};
pub use self::pool::{WorkerPool, WorkerPoolBuilder};
pub use self::reconciler::{Action, FailedRun, Reconciler, RetryPolicy};
pub use self::workers::{Workers, WorkersControl};
pub use crate::base::mark::RetryAfter;
