//! The kit for authors of engines and sources: threads, tasks, time and waiting, as the rest of the library uses them.

pub use crate::base::backoff::Draws;
pub use crate::base::clock::Scheduler;
pub use crate::base::process::OwnerProcess;
pub use crate::base::spawn::spawn;
pub use crate::base::task::{Next, Task, TurnContext};
pub use crate::base::task_thread::{TaskThread, TaskWaker};
pub use crate::base::text::{OneLine, bounded, one_line};
pub use crate::base::thread::{JoinTask, Joiner, panic_message, shielded};
pub use crate::base::time::{Nanos, Rounded};
pub use crate::base::wait::{AutoResetEvent, Monitor};

pub use crate::base::group::{Handle, Overrun, OverrunHook, Run, ThreadGroup, ThreadGroupKind};
pub use crate::run::error::{Chain, find};
