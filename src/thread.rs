//! The one place that spawns threads.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[cfg(loom)]
use loom::thread;
#[cfg(not(loom))]
use std::thread;

/// How the crate's threads are made: stack size, and a hook that each one runs first.
///
/// # Examples
///
/// ```
/// use homeostat::ThreadOptions;
///
/// let options = ThreadOptions::new()
///     .stack_size(256 * 1024)
///     .on_start(|name| log::debug!("{name} starts"));
/// # let _ = options;
/// ```
#[derive(Clone, Default)]
pub struct ThreadOptions {
    stack_size: Option<usize>,
    on_start: Option<StartHook>,
}

/// Called with the name of the thread.
type StartHook = Arc<dyn Fn(&str) + Send + Sync>;

impl ThreadOptions {
    /// The platform's stack size, no hook.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The stack size in bytes.
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Runs `hook` with the thread's name, on each thread, before anything else: for priorities, affinity, signal masks.
    /// A panic of it is logged, and the thread goes on.
    #[must_use]
    pub fn on_start(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_start = Some(Arc::new(hook));
        self
    }

    /// Starts a thread.
    ///
    /// # Errors
    ///
    /// What the operating system says when it gives no thread.
    pub(crate) fn spawn(&self, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<Joiner> {
        if name.contains('\0') {
            // The standard library panics.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "its name has a NUL in it"));
        }
        let mut builder = thread::Builder::new().name(name.clone());
        if let Some(bytes) = self.stack_size {
            builder = builder.stack_size(bytes);
        }
        let on_start = self.on_start.clone();
        let thread_name = name.clone();
        #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
        let handle = builder.spawn(move || {
            if let Some(hook) = on_start {
                shielded("the start hook of a thread", || hook(&thread_name));
            }
            body();
        })?;
        Ok(Joiner { name, handle })
    }
}

impl fmt::Debug for ThreadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadOptions")
            .field("stack_size", &self.stack_size)
            .field("on_start", &self.on_start.is_some())
            .finish()
    }
}

/// A thread to be joined.
#[derive(Debug)]
pub(crate) struct Joiner {
    name: String,
    handle: thread::JoinHandle<()>,
}

impl Joiner {
    /// Whether this is the thread that asks.
    pub(crate) fn is_current(&self) -> bool {
        self.handle.thread().id() == thread::current().id()
    }

    /// Waits for the thread to end; a panic that ended it is logged. On that very thread it returns at once.
    pub(crate) fn join(self) {
        if self.is_current() {
            return;
        }
        if let Err(panic) = self.handle.join() {
            log::error!(thread = self.name.as_str(), panic = panic_message(&*panic); "a thread panicked");
        }
    }
}

/// What a panic carries.
pub(crate) type Panic = Box<dyn Any + Send>;

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "a panic without a text"
    }
}

/// Runs code of the user's that must not take others down: a panic is logged as "`what` panicked", and goes no further.
pub(crate) fn shielded(what: &str, code: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(code)) else {
        return;
    };
    // The logger and the drop of what the panic carries are user code too. What they throw in turn is let go unseen.
    let report = AssertUnwindSafe(|| {
        log::error!(panic = panic_message(&*panic); "{what} panicked");
        drop(panic);
    });
    if let Err(again) = catch_unwind(report) {
        std::mem::forget(again);
    }
}

/// Drops values whose `Drop` may panic: all of them, then the first panic goes on.
pub(crate) fn drop_each<T>(values: impl IntoIterator<Item = T>) {
    let mut first = None;
    for value in values {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            if first.is_none() {
                first = Some(panic);
            } else {
                // Its drop may panic in turn, and would keep the other values from being dropped.
                std::mem::forget(panic);
            }
        }
    }
    if let Some(panic) = first {
        std::panic::resume_unwind(panic);
    }
}
