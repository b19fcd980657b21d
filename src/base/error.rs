//! The errors of starting and joining.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Any error that can move between threads.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The error of a start.
///
/// The cause is an invalid setting, a thread that the system refused, a stopped watch, or a panic of user code.
///
/// # Examples
///
/// ```
/// use homeostat::base::StartErrorKind;
/// use homeostat::{Poller, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::<u64>::new();
/// let error = Poller::new(Duration::ZERO, |_cx| Ok::<_, String>(vec![])).start(&queue).unwrap_err();
/// assert_eq!(error.kind(), StartErrorKind::InvalidSetting);
/// assert_eq!(error.to_string(), "period is 0ns, but must be longer than zero");
/// ```
pub struct StartError {
    kind: StartErrorKind,
    message: String,
    source: Option<BoxError>,
}

/// The kind of a [`StartError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartErrorKind {
    /// A setting or name is invalid. The message names the field and the value, or the name.
    InvalidSetting,
    /// The operating system refused a thread. The source is its error.
    Thread,
    /// The watch of a subscription has been stopped. The message names the watch.
    Stopped,
    /// User code panicked while a component of a manager started. The message names the component and the panic.
    Panicked,
    /// A simulation of the crate `homeostat-testing` cannot schedule the thread, because the thread waits for a channel
    /// or runs user code. The message names the thread.
    NotSimulated,
    /// An address, a file or a device cannot be used. The message names it. The source is the reason.
    Unavailable,
}

impl StartError {
    fn new(kind: StartErrorKind, message: String, source: Option<BoxError>) -> Self {
        Self { kind, message, source }
    }

    /// Creates the error of an invalid setting. The message is "`field` is `value`, but must be `rule`".
    pub fn setting(field: &'static str, value: &impl fmt::Debug, rule: &'static str) -> Self {
        Self::new(StartErrorKind::InvalidSetting, format!("{field} is {value:?}, but must be {rule}"), None)
    }

    /// Rejects a number of threads that no program can have.
    pub(crate) fn check_threads(field: &'static str, threads: usize, least: usize) -> Result<(), Self> {
        match threads {
            _ if threads < least => Err(Self::setting(field, &threads, "at least 1")),
            10_001.. => Err(Self::setting(field, &threads, "at most 10,000")),
            _ => Ok(()),
        }
    }

    /// Rejects a time of zero.
    pub(crate) fn check_time(field: &'static str, time: Duration) -> Result<(), Self> {
        if time.is_zero() { Err(Self::setting(field, &time, "longer than zero")) } else { Ok(()) }
    }

    /// Rejects an empty name, and a name that no thread can have.
    pub(crate) fn check_required_name(name: &str) -> Result<(), Self> {
        if name.is_empty() { Err(Self::named("name", name, "is empty")) } else { Self::check_name(name) }
    }

    /// Rejects a name that no thread can have.
    ///
    /// # Errors
    ///
    /// Returns the error of an invalid setting if the name has a NUL.
    pub fn check_name(name: &str) -> Result<(), Self> {
        if name.contains('\0') { Err(Self::setting("name", &name, "free of NUL characters")) } else { Ok(()) }
    }

    /// Creates the error of a named item, such as `manager "edge" has already been started`.
    #[must_use]
    pub fn named(kind: &'static str, name: &str, fault: impl fmt::Display) -> Self {
        Self::new(StartErrorKind::InvalidSetting, format!("{kind} {name:?} {fault}"), None)
    }

    /// Creates the error of a thread that the operating system refused. `name` is the name of the thread.
    #[must_use]
    pub fn thread(name: &str, source: std::io::Error) -> Self {
        Self::new(StartErrorKind::Thread, format!("the system cannot start thread {name}"), Some(source.into()))
    }

    /// Creates the error of an address, a file or a device that cannot be used.
    ///
    /// `what` is the message, such as `cannot listen on 127.0.0.1:80`. `source` is the reason.
    pub fn unavailable(what: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::new(StartErrorKind::Unavailable, what.into(), Some(source.into()))
    }

    /// Creates the error of a thread that a simulation cannot schedule. `name` is the name of the thread.
    #[must_use]
    pub fn not_simulated(name: &str) -> Self {
        let message = format!("{name} cannot be simulated: it waits for something other than the clock");
        Self::new(StartErrorKind::NotSimulated, message, None)
    }

    pub(crate) fn stopped(watch: &str) -> Self {
        Self::new(StartErrorKind::Stopped, format!("watch {watch:?} has been stopped"), None)
    }

    pub(crate) fn panicked(component: &str, message: &str) -> Self {
        Self::new(StartErrorKind::Panicked, format!("{component} panicked as it was started: {message}"), None)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> StartErrorKind {
        self.kind
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

/// The error of an end: the first failure, and the threads that have not ended.
///
/// [`Manager::run`](crate::Manager::run) and each method of a [`Running`](crate::Running) that waits for the end return
/// it.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Component, Context, Manager, WorkQueue, Workers};
/// use std::time::Duration;
///
/// let queue = WorkQueue::<String>::new();
/// let idle = |_cx: &Context, _vm: &String| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let mut workers = Workers::new(idle).start(&queue)?;
/// let error = workers.join_timeout(Duration::ZERO).unwrap_err(); // nothing has asked them to stop
/// assert_eq!(error.to_string(), "still running: worker-0");
///
/// let manager = Manager::builder().build()?;
/// let running = manager.start()?;
/// manager.add(Component::function("beat", |_cx: &Context| Err("no pulse")))?;
/// let error = running.join().unwrap_err();
/// assert_eq!((error.component(), error.to_string().as_str()), (Some("beat"), "beat: no pulse"));
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Clone)]
pub struct EndError {
    failure: Option<FailedComponent>,
    still_running: Vec<String>,
}

/// The name of a failed component, and its error.
type FailedComponent = (String, Arc<BoxError>);

impl EndError {
    /// Creates the error from the names of the threads that have not ended.
    pub fn of_threads(threads: impl IntoIterator<Item: Into<String>>) -> Self {
        Self { failure: None, still_running: threads.into_iter().map(Into::into).collect() }
    }

    pub(crate) fn failed(component: &str, error: Arc<BoxError>) -> Self {
        Self { failure: Some((component.to_owned(), error)), still_running: Vec::new() }
    }

    /// Returns the error of a failure and of these threads. `Ok` without both.
    pub(crate) fn unless_well(failure: Option<FailedComponent>, still_running: Vec<String>) -> Result<(), Self> {
        if failure.is_none() && still_running.is_empty() { Ok(()) } else { Err(Self { failure, still_running }) }
    }

    /// Adds the failure of a component, unless the error has one.
    pub(crate) fn with_failure(mut self, component: &str, error: Arc<BoxError>) -> Self {
        self.failure.get_or_insert_with(|| (component.to_owned(), error));
        self
    }

    /// Returns whether everything has ended, with a failure.
    pub(crate) fn has_ended(&self) -> bool {
        self.failure.is_some() && self.still_running.is_empty()
    }

    /// Returns the name of the component that failed first. `None` if threads have not ended, but no component failed.
    #[must_use]
    pub fn component(&self) -> Option<&str> {
        self.failure.as_ref().map(|(component, _)| component.as_str())
    }

    /// Returns the error of the component that failed first.
    #[must_use]
    pub fn failure(&self) -> Option<&BoxError> {
        self.failure.as_ref().map(|(_, error)| &**error)
    }

    /// Returns the names of the threads that had not ended. Empty if everything has ended.
    #[must_use]
    pub fn still_running(&self) -> &[String] {
        &self.still_running
    }
}

impl fmt::Display for EndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((component, error)) = &self.failure {
            let text = error.to_string();
            // An error about the component itself already contains its name.
            let is_named = [format!("controller {component}: "), format!("manager {component:?} ")];
            if is_named.iter().any(|start| text.starts_with(start)) {
                f.write_str(&text)?;
            } else {
                write!(f, "{component}: {text}")?;
            }
        }
        match (&self.failure, self.still_running.is_empty()) {
            (_, true) => Ok(()),
            (None, false) => write!(f, "still running: {}", self.still_running.join(", ")),
            (Some(_), false) => write!(f, "; still running: {}", self.still_running.join(", ")),
        }
    }
}

impl Error for EndError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failure.as_ref().and_then(|(_, error)| error.source())
    }
}
