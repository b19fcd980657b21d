//! The foundation of the crate: errors, locks, threads, time, cancellation, backoff and waiting.

pub(crate) mod backoff;
pub(crate) mod cancel;
pub(crate) mod chain;
pub(crate) mod clock;
pub(crate) mod end;
pub(crate) mod error;
pub(crate) mod group;
pub(crate) mod mark;
pub(crate) mod process;
pub(crate) mod running;
pub(crate) mod spawn;
pub(crate) mod sync;
pub(crate) mod task;
pub(crate) mod task_thread;
pub(crate) mod text;
pub(crate) mod thread;
pub(crate) mod time;
pub(crate) mod wait;

pub use self::backoff::Exponential;
pub use self::cancel::{CancellationToken, OnCancel};
pub use self::clock::{Clock, ManualClock};
pub use self::end::EndHook;
pub use self::error::{EndError, StartError, StartErrorKind};
pub use self::running::{Runnable, Running, RunningPhase, RunningStatus};
pub use self::thread::ThreadOptions;
