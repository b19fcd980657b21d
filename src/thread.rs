//! The one place that spawns threads, and what stands for a thread where there are none.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[cfg(loom)]
use loom::thread;
#[cfg(not(loom))]
use std::thread;

use crate::time::Nanos;

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
        Ok(Joiner { name, role: Role::Thread(handle) })
    }
}

/// What a thread does, from its start to its end.
pub(crate) trait Body: Sized + Send + 'static {
    /// All of it, on a thread of its own.
    fn run(self);

    /// The same as turns, for where there are no threads; `None` if it waits for what no clock knows of.
    fn into_player(self) -> Option<Box<dyn Player>>;
}

impl<F: FnOnce() + Send + 'static> Body for F {
    fn run(self) {
        self();
    }

    fn into_player(self) -> Option<Box<dyn Player>> {
        None
    }
}

/// The body of a thread as turns, one after the other.
pub(crate) trait Player: Send {
    /// From when on it has something to do. Asked again and again; it may have been told something meanwhile.
    fn due(&mut self) -> Nanos;

    /// Does a little of what is due. Returns whether it goes on: `false` is the end of the thread.
    fn play(&mut self, cue: &Cue<'_>) -> bool;
}

/// What a [`Player`] is given for a turn.
pub(crate) struct Cue<'a> {
    pub(crate) now: Nanos,
    /// A random number, for what may be done in any order.
    pub(crate) draw: u64,
    /// Says what the turn is about, once that is known.
    pub(crate) say: &'a dyn Fn(String),
}

/// How a body that is played in turns is joined.
pub(crate) trait Played: Send + Sync {
    /// Whether this is the one whose turn it is.
    fn is_current(&self) -> bool;

    /// Has turns played until this one has ended.
    fn join(&self);
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
pub(crate) struct Joiner {
    name: String,
    role: Role,
}

enum Role {
    Thread(thread::JoinHandle<()>),
    Played(Box<dyn Played>),
}

impl Joiner {
    /// That of a body which is played in turns.
    pub(crate) fn of_played(name: String, played: impl Played + 'static) -> Self {
        Self { name, role: Role::Played(Box::new(played)) }
    }

    /// Whether this is the thread that asks.
    pub(crate) fn is_current(&self) -> bool {
        match &self.role {
            Role::Thread(handle) => handle.thread().id() == thread::current().id(),
            Role::Played(played) => played.is_current(),
        }
    }

    /// Waits for the thread to end; a panic that ended it is logged. On that very thread it returns at once.
    pub(crate) fn join(self) {
        if self.is_current() {
            return;
        }
        match self.role {
            Role::Thread(handle) => {
                if let Err(panic) = handle.join() {
                    log_panic(&self.name, &*panic);
                }
            }
            Role::Played(played) => played.join(),
        }
    }
}

impl fmt::Debug for Joiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joiner").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Says in the log what has ended a thread.
pub(crate) fn log_panic(thread: &str, panic: &(dyn Any + Send)) {
    let message = panic_message(panic);
    log::error!(thread, panic = message; "{thread}: the thread panicked: {message}");
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
        let message = panic_message(&*panic);
        log::error!(panic = message; "{what} panicked: {message}");
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
