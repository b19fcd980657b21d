//! The recorder and its builder.

use std::fmt;
use std::mem;
use std::sync::{Arc, OnceLock};

use super::super::client::Client;
use super::super::error::ObjectRef;
use super::super::kind::Kind;
use super::super::object::Object;
use super::record::{EVENT, EventIdentity, EventRecords, EventType, PassFailures, Reporter};
use super::storing::{Observer, RecorderCore};
use super::writer::EventWriter;
use crate::sync::Mutex;
use homeostat::base::{Clock, ThreadOptions};
use homeostat::rt::{Chain, Monitor, OwnerProcess};

/// Records events about objects: in the log, and also as `Event` objects if it has a client. A cheap handle for any
/// number of threads.
///
/// If an event happens again (same object, type, action, reason and message), its count in `series` rises. The recorder
/// remembers a [limited number](EventRecorderBuilder::remember) of different events. It forgets the event that has not
/// happened for longest; if that event happens again, it counts as a new one.
///
/// Recording never fails and never waits for the client: a thread of the recorder (`events-<component>`) stores the
/// events. If the client is unreachable or overloaded, the recorder logs that at *warn* and keeps the event. It tries
/// again after a second, then after longer delays up to a minute, and in [`flush`](Self::flush). After 12 failed tries
/// in a row it [drops](Self::dropped) the event, and the log says so. Until the next try, other events in the same
/// namespace wait too, but events in other namespaces are stored.
///
/// If the client refuses an event, the recorder logs and drops it; the level is *debug* if the namespace of the event
/// is gone. If more different events wait for the client than the recorder remembers, it drops the oldest, and the log
/// says so.
///
/// Kubernetes and the embedded clients delete an event [an hour](super::super::EmbeddedBuilder::event_ttl) after it
/// last happened. If a deleted event happens again, it is created again, with the same name and the count that the
/// recorder remembers.
///
/// An event about a cluster-wide object is stored in the namespace `default`, as Kubernetes requires. Kubernetes 1.20
/// refuses such events.
///
/// If the system refuses to start the thread, the events wait until a later event starts it, or until `flush` or the
/// drop of the last handle stores them.
///
/// Dropping the last handle tries to store the remaining events, as `flush` does, and ends the thread. The drop blocks
/// as long as the client does. If events are lost, the log gives their number at *warn*.
///
/// On a [`ManualClock`](homeostat::ManualClock) there is no thread, so that a test sees the same each time: `flush` and
/// the drop of the last handle store the events. A simulation schedules the thread like any other.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Client, DynamicObject, EventRecorder, EventType, Kind, MemoryClient, Query};
/// use std::sync::Arc;
///
/// const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
/// let client = Arc::new(MemoryClient::new());
/// let recorder = EventRecorder::builder("vm-controller").client(client.clone()).build();
/// let vm = DynamicObject::new(&VM, "default", "vm-1");
/// for _ in 0..3 {
///     recorder.event(&vm, EventType::Warning, "NoDisk", "disk-1 is not there");
/// }
/// recorder.flush();
/// let events = client.list(&EventRecorder::KIND, &Query::all().namespace("default"))?.items;
/// let [event] = &events[..] else { panic!("the same event three times is one object") };
/// assert_eq!(event.pointer("/series/count").and_then(|count| count.as_u64()), Some(3));
/// assert_eq!(event.pointer("/regarding/name").unwrap(), "vm-1");
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
#[derive(Clone)]
#[doc(alias = "recorder")]
#[doc(alias = "event broadcaster")]
pub struct EventRecorder {
    handle: Arc<RecorderHandle>,
    action: Arc<str>,
}

/// The handle of a recorder. The thread holds only `core`, so the last handle can end it.
struct RecorderHandle {
    core: Arc<RecorderCore>,
    writer: OnceLock<EventWriter>,
    /// Whether the system has ever refused the thread: only the first refusal is logged. Locked while the thread
    /// starts.
    refused: Mutex<bool>,
    owner: OwnerProcess,
}

/// The action of events that have no other action.
const ACTION: &str = "Reconcile";

/// Settings for an [`EventRecorder`], each with a default.
#[must_use = "settings do nothing until `build` is called"]
pub struct EventRecorderBuilder {
    component: String,
    instance: Option<String>,
    client: Option<Arc<dyn Client>>,
    log: bool,
    clock: Clock,
    observer: Option<Observer>,
    most: usize,
    threads: ThreadOptions,
}

impl EventRecorderBuilder {
    /// Stores events with this client, as objects of [`EventRecorder::KIND`]. By default there is no client, and events
    /// are not stored.
    ///
    /// An event is stored in the namespace of its object, or in `default` if the object has none. (Kubernetes up to
    /// 1.20 refuses events about cluster-wide objects there.)
    pub fn client(self, client: Arc<dyn Client>) -> Self {
        Self { client: Some(client), ..self }
    }

    /// Sets the name of this process, for the field `reportingInstance`: several processes may run the same component.
    /// Default: the variable `HOSTNAME` (in Kubernetes the name of the pod), otherwise the component.
    pub fn instance(self, instance: impl Into<String>) -> Self {
        Self { instance: Some(instance.into()), ..self }
    }

    /// Sets whether events are logged: warnings at *warn*, others at *info*. Default: true.
    pub fn log(self, log: bool) -> Self {
        Self { log, ..self }
    }

    /// Sets the clock for the times of events. Default: the system clock.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Sets a function that is called with each event: its object, type, reason and message. Default: none.
    ///
    /// The thread that records the event calls it, and it is called for repeated events too.
    pub fn observer(self, observer: impl Fn(&ObjectRef, EventType, &str, &str) + Send + Sync + 'static) -> Self {
        Self { observer: Some(Box::new(observer)), ..self }
    }

    /// Sets how many different events are remembered; at least one. Default: 4,096. Events that wait for the client are
    /// included.
    pub fn remember(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Sets the options of the thread that stores the events. Default: the platform's.
    pub fn thread_options(self, threads: ThreadOptions) -> Self {
        Self { threads, ..self }
    }

    /// Builds the recorder.
    #[must_use]
    pub fn build(self) -> EventRecorder {
        let Self { component, instance, client, log, clock, observer, most, threads } = self;
        let records = Monitor::of(clock.clone(), EventRecords::new(most));
        let host = || std::env::var("HOSTNAME").ok();
        let instance = instance.or_else(host).filter(|name| !name.is_empty()).unwrap_or_else(|| component.clone());
        let reporter = Reporter::new(&component, &instance);
        let core = RecorderCore { component, reporter, client, log, clock, observer, threads, records };
        let (core, writer, refused) = (Arc::new(core), OnceLock::new(), Mutex::new(false));
        let handle = Arc::new(RecorderHandle { core, writer, refused, owner: OwnerProcess::current() });
        EventRecorder { handle, action: ACTION.into() }
    }
}

impl EventRecorder {
    /// The kind of the stored events.
    pub const KIND: Kind = EVENT;

    /// Returns settings for a recorder of this component, usually the name of the controller.
    pub fn builder(component: impl Into<String>) -> EventRecorderBuilder {
        EventRecorderBuilder {
            component: component.into(),
            instance: None,
            client: None,
            log: true,
            clock: Clock::system(),
            observer: None,
            most: 4096,
            threads: ThreadOptions::new(),
        }
    }

    /// Returns a handle of the same recorder for events with this action, such as `Provision`. Default: `Reconcile`.
    ///
    /// The action is one word for programs, `LikeThis`. It names the controller's attempt that the event reports about.
    #[must_use]
    pub fn action(&self, action: impl Into<Arc<str>>) -> Self {
        Self { handle: Arc::clone(&self.handle), action: action.into() }
    }

    /// Records an event about `object`.
    ///
    /// The reason is one word for programs, `LikeThis`. The message is for people. Use the same words for the same
    /// event, so that it is counted as a repetition. The message is cut after 1,024 bytes, the reason and the action
    /// after 128.
    pub fn event(&self, object: &impl Object, event: EventType, reason: &str, message: &str) {
        let RecorderCore { component, log, clock, client, observer, records, .. } = &*self.handle.core;
        let component = component.as_str();
        if let Some(observer) = observer {
            observer(&object.object_ref(), event, reason, message);
        }
        let identity = EventIdentity::new(object, event, &self.action, reason, message);
        let (count, forgotten) = records.with(|records| records.raise(identity, clock.time_of_day(), client.is_some()));
        if *log {
            let level = if event == EventType::Warning { log::Level::Warn } else { log::Level::Info };
            let object = object.object_ref();
            log::log!(
                level, controller = component, object:%, reason, message, count;
                "{component}: {object}: {reason}: {message} (count {count})"
            );
        }
        if let Some(lost) = forgotten {
            let (object, reason) = (&lost.object, lost.reason.as_str());
            log::warn!(
                controller = component, object:%, reason;
                "{component}: the event {reason} about {object} could not be stored and is forgotten"
            );
        }
        if client.is_some() {
            self.handle.store_later();
        }
    }

    /// Tries once to store each event recorded so far. Blocks until they are stored or refused, or the client cannot be
    /// reached.
    ///
    /// If the client cannot be reached for an event, the other events in its namespace wait for a later try. After such
    /// failures in three namespaces in a row, all events wait.
    ///
    /// Use it at the end of a program and in tests. The client must not call it.
    pub fn flush(&self) {
        self.handle.core.store_all(&mut PassFailures::default());
    }

    /// Returns how many events were dropped because too many waited for the client, or because 12 tries in a row
    /// failed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.handle.core.records.with(|records| records.dropped())
    }

    /// Returns how many different events are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.handle.core.records.with(|records| records.len())
    }

    /// Returns whether no event is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl RecorderHandle {
    /// Makes the thread store the waiting events. Starts it if necessary; if the system refuses it, the events keep
    /// waiting.
    fn store_later(&self) {
        let clock = &self.core.clock;
        if clock.is_held() && clock.seed().is_none() {
            return;
        }
        if self.writer.get().is_none() {
            self.start_writer();
        }
        if let Some(writer) = self.writer.get() {
            writer.wake();
        }
    }

    fn start_writer(&self) {
        // Locked until the end, so that no second thread is started.
        let mut refused = self.refused.lock();
        if self.writer.get().is_some() {
            return;
        }
        match EventWriter::start(&self.core) {
            Ok(writer) => {
                let _ = self.writer.set(writer);
            }
            Err(error) => {
                let is_known = mem::replace(&mut *refused, true);
                drop(refused);
                if !is_known {
                    let component = self.core.component.as_str();
                    let error = Chain(&error);
                    log::warn!(
                        controller = component, error:%;
                        "{component}: cannot start the thread that stores events (trying again with each event): {error}"
                    );
                }
            }
        }
    }
}

impl Drop for RecorderHandle {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // The parent of this forked process stores the events.
            return;
        }
        match self.writer.get() {
            Some(writer) => writer.stop(),
            None => {
                self.core.store_all(&mut PassFailures::default());
            }
        }
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").field("component", &self.handle.core.component).finish_non_exhaustive()
    }
}

impl fmt::Debug for EventRecorderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorderBuilder").field("component", &self.component).finish_non_exhaustive()
    }
}
