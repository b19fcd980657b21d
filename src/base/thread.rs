//! Threads. The only file that spawns them.

use std::any::Any;
#[cfg(all(target_os = "linux", not(loom)))]
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[cfg(all(test, loom))]
use loom::thread;
#[cfg(not(all(test, loom)))]
use std::thread;

pub(crate) use thread::ThreadId;

use super::process::OwnerProcess;
use crate::base::error::BoxError;

/// The options of the crate's threads: a stack size and a start hook.
///
/// Logs, errors, panic messages and status show the full name of a thread, for example `vms-watchdog` or `vms-0`. On
/// Linux, tools such as `top` and `gdb` show the role and number first, `watchdog-vms` or `0-vms`, because Linux keeps
/// only the first 15 bytes of a name.
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
    /// The number of threads to refuse.
    #[cfg(all(test, not(loom)))]
    refusals: Arc<std::sync::atomic::AtomicUsize>,
    /// The end of the names of threads to refuse.
    #[cfg(all(test, not(loom)))]
    refused: Option<&'static str>,
}

/// Called with the thread's name.
type StartHook = Arc<dyn Fn(&str) + Send + Sync>;

impl ThreadOptions {
    /// Creates options with the platform's stack size and without a hook.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the stack size in bytes.
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Runs `hook` on each thread before anything else, with the thread's full name.
    ///
    /// Use it for priorities, affinity or signal masks. A panic of the hook is logged, and the thread continues.
    #[must_use]
    pub fn on_start(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_start = Some(Arc::new(hook));
        self
    }

    /// Refuses this many threads, like a system without resources.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn refusing(mut self, refusals: Arc<std::sync::atomic::AtomicUsize>) -> Self {
        self.refusals = refusals;
        self
    }

    /// Returns options that refuse threads with names that end in `refused`, and the names of the started threads. The
    /// names end once the options are dropped.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn refusing_named(refused: &'static str) -> (Self, std::sync::mpsc::Receiver<String>) {
        let (report, started) = std::sync::mpsc::channel();
        let options = Self::new().on_start(move |name| {
            let _ = report.send(name.to_owned());
        });
        (Self { refused: Some(refused), ..options }, started)
    }

    /// Starts a thread that runs `body`, which a simulation cannot interrupt. To run a [`Task`](crate::rt::Task), call
    /// [`spawn`](crate::rt::spawn()).
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a thread.
    pub fn spawn(&self, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<Joiner> {
        self.spawn_boxed(name, Box::new(body))
    }

    fn spawn_boxed(&self, name: String, body: Box<dyn FnOnce() + Send>) -> io::Result<Joiner> {
        if name.contains('\0') {
            // Otherwise the standard library would panic.
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "its name contains a NUL character"));
        }
        #[cfg(all(test, not(loom)))]
        {
            use std::sync::atomic::Ordering::SeqCst;
            let is_named = self.refused.is_some_and(|refused| name.ends_with(refused));
            if is_named || self.refusals.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "the test refuses it"));
            }
        }
        let mut builder = thread::Builder::new().name(name.clone());
        if let Some(bytes) = self.stack_size {
            builder = builder.stack_size(bytes);
        }
        let on_start = self.on_start.clone();
        let thread_name = name.clone();
        #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
        let handle = builder.spawn(move || {
            #[cfg(all(target_os = "linux", not(loom)))]
            show_to_the_system(&thread_name);
            if let Some(hook) = on_start {
                shielded("the start hook of a thread", || hook(&thread_name));
            }
            body();
        })?;
        Ok(Joiner { name, role: Role::Thread(handle), owner: OwnerProcess::current() })
    }
}

/// Roles in thread names. The system sees them before the rest of the name.
#[cfg(all(target_os = "linux", not(loom)))]
const ROLES: &str = "accept callbacks connection deadline driver elector history member pool reader sockets source subscription timer \
    watchdog writer";

/// Renames this thread for the system. Panic messages still show its full name.
#[cfg(all(target_os = "linux", not(loom)))]
fn show_to_the_system(name: &str) {
    // Without this file, only tools that list threads are affected.
    let _ = std::fs::write("/proc/thread-self/comm", system_name(name));
}

/// Returns the name of a thread for the system. Linux keeps the first 15 bytes, so role and number come first.
#[cfg(all(target_os = "linux", not(loom)))]
fn system_name(name: &str) -> String {
    let mut parts = VecDeque::new();
    let mut rest = name;
    while let Some((head, end)) = rest.rsplit_once('-') {
        let is_number = !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number && !ROLES.split(' ').any(|role| role == end) {
            break;
        }
        parts.push_front(match end {
            "connection" => "conn",
            "subscription" => "sub",
            part => part,
        });
        rest = head;
    }
    parts.push_back(rest);
    Vec::from(parts).join("-")
}

impl fmt::Debug for ThreadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadOptions")
            .field("stack_size", &self.stack_size)
            .field("on_start", &self.on_start.is_some())
            .finish_non_exhaustive()
    }
}

/// Returns the id of the calling thread.
pub(crate) fn current_thread() -> ThreadId {
    thread::current().id()
}

/// The handle for joining one thread or task. Dropping it does not stop the thread.
///
/// # Examples
///
/// ```
/// use homeostat::ThreadOptions;
///
/// let joiner = ThreadOptions::new().spawn("reader".to_owned(), || ())?;
/// assert!(!joiner.is_current());
/// joiner.join();
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct Joiner {
    name: String,
    role: Role,
    /// A forked process has a copy of this handle, but not the thread.
    owner: OwnerProcess,
}

enum Role {
    Thread(thread::JoinHandle<()>),
    Task { is_current: Box<dyn Fn() -> bool + Send + Sync>, join: Box<dyn FnOnce() + Send + Sync> },
}

impl Joiner {
    /// Creates the joiner of a task without its own thread, for a [`Scheduler`](crate::rt::Scheduler). The module
    /// [`rt`](crate::rt) has an example.
    ///
    /// `is_current` returns whether the caller is a step of this task, or runs on its thread. `join` blocks until the
    /// task has left.
    pub fn of_task(
        name: String,
        is_current: impl Fn() -> bool + Send + Sync + 'static,
        join: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        let role = Role::Task { is_current: Box::new(is_current), join: Box::new(join) };
        Self { name, role, owner: OwnerProcess::current() }
    }

    /// Returns whether the caller runs on this thread.
    #[must_use]
    pub fn is_current(&self) -> bool {
        match &self.role {
            Role::Thread(handle) => handle.thread().id() == thread::current().id(),
            Role::Task { is_current, .. } => is_current(),
        }
    }

    /// Blocks until the thread has ended. Logs the panic that ended it. Returns at once on the thread itself, and in a
    /// forked process.
    pub fn join(self) {
        if !self.owner.is_current() || self.is_current() {
            return;
        }
        match self.role {
            Role::Thread(handle) => {
                if let Err(panic) = handle.join() {
                    log_panic(&self.name, &*panic);
                }
            }
            Role::Task { join, .. } => join(),
        }
    }
}

impl fmt::Debug for Joiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joiner").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Logs the panic that ended a thread. A panic of the logger is ignored.
pub(crate) fn log_panic(thread: &str, panic: &(dyn Any + Send)) {
    let message = panic_message(panic);
    let log = || log::error!(thread, panic = message; "{thread}: the thread panicked: {message}");
    let _ = catch_unwind(AssertUnwindSafe(log));
}

/// The payload of a panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Returns the text of a panic, from the payload that [`catch_unwind`] returned.
///
/// # Examples
///
/// ```
/// let panic = std::panic::catch_unwind(|| panic!("out of disks")).unwrap_err();
/// assert_eq!(homeostat::rt::panic_message(&*panic), "out of disks");
/// ```
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "a panic with a non-string payload"
    }
}

/// Calls user code and catches its panic. Logs the panic as the error "`what` panicked", with its text.
///
/// # Examples
///
/// ```
/// homeostat::rt::shielded("the hook of a disk", || panic!("out of disks"));
/// // logged: the hook of a disk panicked: out of disks
/// ```
pub fn shielded(what: &str, code: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(code)) {
        log_shielded(what, &*panic);
    }
}

#[cold]
fn log_shielded(what: &str, panic: &(dyn Any + Send)) {
    let message = panic_message(panic);
    log::error!(panic = message; "{what} panicked: {message}");
}

/// Calls user code. Converts its panic into an error.
pub(crate) fn unless_it_panics<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(code))
        .unwrap_or_else(|panic| Err(format!("it panicked: {}", panic_message(&*panic)).into()))
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn system_names_begin_with_role_and_number() {
        for (name, system) in [
            ("vms-0", "0-vms"),
            ("appliance-volumes-12", "12-appliance-volumes"),
            ("appliance-volumes-watchdog", "watchdog-appliance-volumes"),
            ("appliance-pool-0", "pool-0-appliance"),
            ("appliance-pool-watchdog", "pool-watchdog-appliance"),
            ("vms-control-0", "0-vms-control"),
            ("pool-0-deadline", "0-deadline-pool"),
            ("vms-callbacks", "callbacks-vms"),
            ("vms-subscription-1-0", "sub-1-0-vms"),
            ("vms-source-2-0", "source-2-0-vms"),
            ("warehouse-orders-reader", "reader-warehouse-orders"),
            ("warehouse-orders-writer", "writer-warehouse-orders"),
            ("kubectl-gateway-accept", "accept-kubectl-gateway"),
            ("kubectl-gateway-sockets", "sockets-kubectl-gateway"),
            ("kubectl-gateway-connection-12", "conn-12-kubectl-gateway"),
            ("warehouse-workers-member-0", "member-0-warehouse-workers"),
            ("warehouse-history-0", "history-0-warehouse"),
            ("timer", "timer"),
            ("a name", "a name"),
            ("-0", "0-"),
            ("", ""),
        ] {
            assert_eq!(system_name(name), system);
        }
    }

    #[test]
    fn only_the_system_sees_the_reordered_name() {
        let (report, reported) = std::sync::mpsc::channel();
        let hooked = report.clone();
        let options = ThreadOptions::new().on_start(move |name| hooked.send(name.to_owned()).unwrap());
        let body = move || {
            report.send(thread::current().name().unwrap().to_owned()).unwrap();
            report.send(std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim_end().to_owned()).unwrap();
        };
        let name = "a-rather-long-name-watchdog";
        options.spawn(name.to_owned(), body).unwrap().join();
        assert_eq!(reported.iter().take(3).collect::<Vec<_>>(), [name, name, "watchdog-a-rath"]);
    }
}
