//! What happens to an object, told to people: events, as Kubernetes has them.

mod record;
mod writer;

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use self::record::{Happening, Recorded, Records, Written};
use self::writer::Writer;
use super::client::{Client, Part};
use super::error::{ClientError, ObjectRef};
use super::kind::Kind;
use super::object::Object;
use crate::base::clock::{Clock, Wake};
use crate::base::sync::Mutex;
use crate::base::thread::shielded;
use crate::base::time::Nanos;
use crate::base::wait::Waiters;
use crate::run::error::Chain;

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventType {
    /// As it should go.
    Normal,
    /// Somebody may have to do something.
    Warning,
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        })
    }
}

/// Tells people what happens to objects: in the log, and as `Event` objects where a client keeps them. A cheap handle, for any
/// number of threads.
///
/// What happens again (the same type, reason and message, of the same object) is the same event, with a higher count. The
/// recorder remembers so many different ones as [`remember`](EventRecorderBuilder::remember) says. The one that has not happened
/// for longest is forgotten first; if it happens once more, it is a new one.
///
/// Recording never fails and never waits for the client: a thread of the recorder's own (`events-<component>`) stores the events. If the
/// client cannot be reached, that is logged at *warn*, and the event is kept and stored with the next one, or by
/// [`flush`](Self::flush). What the client refuses is logged and dropped. If more different events wait for the client than the
/// recorder remembers, the oldest is [dropped](Self::dropped), and the log says so.
///
/// Clients delete events some time after the last time that they happened: Kubernetes and the clients in this process
/// [after an hour](super::EmbeddedBuilder::event_ttl). An event that goes on happening stays. One that happens again after it was
/// deleted is written anew, under the same name and with the count that the recorder remembers.
///
/// Dropping the last handle stores what is left, and ends the thread. It blocks for as long as the client does.
///
/// In a simulation the thread is played in turns. On any other held clock there is no thread, so that a test sees the same each time:
/// events are stored by `flush` and by the drop of the last handle.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Client, DynamicObject, EventRecorder, EventType, Kind, MemoryClient, Query};
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
/// assert_eq!((events.len(), &events[0]["count"]), (1, &3.into()));
/// assert_eq!(events[0]["involvedObject"]["name"], "vm-1");
/// # Ok::<_, homeostat::objects::ClientError>(())
/// ```
#[derive(Clone)]
pub struct EventRecorder(Arc<Handle>);

/// The thread holds what is within, and the handles of the user hold this.
struct Handle {
    inner: Arc<Inner>,
    writer: OnceLock<Option<Writer>>,
}

struct Inner {
    component: String,
    client: Option<Arc<dyn Client>>,
    log: bool,
    clock: Clock,
    observer: Option<Observer>,
    /// Not held while a client is called.
    records: Mutex<Records>,
    /// For those who wait until another thread has stored its event.
    stored: Waiters,
}

/// Is told of each event: what it is about, its type, reason and message.
type Observer = Box<dyn Fn(&ObjectRef, EventType, &str, &str) + Send + Sync>;

/// Settings for an [`EventRecorder`], each with a default.
#[must_use = "a builder does nothing until it builds"]
pub struct EventRecorderBuilder {
    component: String,
    client: Option<Arc<dyn Client>>,
    log: bool,
    clock: Clock,
    observer: Option<Observer>,
    most: usize,
}

impl EventRecorderBuilder {
    /// Stores events as objects of [`EventRecorder::KIND`] here, in the namespace of what they are about; in `default`, if that is
    /// in none. By default they are not stored.
    pub fn client(self, client: Arc<dyn Client>) -> Self {
        Self { client: Some(client), ..self }
    }

    /// Whether each event is logged: a warning at *warn*, others at *info*. Default: yes.
    pub fn log(self, log: bool) -> Self {
        Self { log, ..self }
    }

    /// Where the time of day comes from. Default: the system's.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Called with each event as it is recorded, also with one that has happened before, on the thread that records it: what it is
    /// about, its type, its reason and its message. Default: nothing.
    pub fn observer(self, observer: impl Fn(&ObjectRef, EventType, &str, &str) + Send + Sync + 'static) -> Self {
        Self { observer: Some(Box::new(observer)), ..self }
    }

    /// How many different events are remembered, and kept while the client cannot be reached; at least one. Default: 4,096.
    pub fn remember(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// The recorder.
    #[must_use]
    pub fn build(self) -> EventRecorder {
        let Self { component, client, log, clock, observer, most } = self;
        let records = Mutex::new(Records::new(most));
        let inner = Arc::new(Inner { component, client, log, clock, observer, records, stored: Waiters::new() });
        EventRecorder(Arc::new(Handle { inner, writer: OnceLock::new() }))
    }
}

impl EventRecorder {
    /// What events are stored as.
    pub const KIND: Kind = Kind::namespaced("", "v1", "Event");

    /// A recorder for this component: the controller that says what happens.
    pub fn builder(component: impl Into<String>) -> EventRecorderBuilder {
        let component = component.into();
        EventRecorderBuilder { component, client: None, log: true, clock: Clock::system(), observer: None, most: 4096 }
    }

    /// Records that something happens to `object`. The reason is one word for programs, written `LikeThis`; the message is for
    /// people, and should say the same in the same words, so that it counts as the same. It is cut after 1,024 bytes.
    pub fn event(&self, object: &impl Object, event: EventType, reason: &str, message: &str) {
        let Inner { component, log, clock, client, observer, records, .. } = &*self.0.inner;
        let component = component.as_str();
        if let Some(observer) = observer {
            observer(&object.object_ref(), event, reason, message);
        }
        let happening = Happening::new(object, event, reason, message);
        let (count, forgotten) = records.lock().raise(happening, clock.time_of_day(), client.is_some());
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
            self.0.store_later();
        }
    }

    /// Blocks until all events that were recorded before are stored, refused, or the client cannot be reached. For the end of a program,
    /// and for tests. Must not be called by the client.
    pub fn flush(&self) {
        self.0.inner.store_all();
    }

    /// How many events were dropped because too many waited for the client.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.inner.records.lock().dropped()
    }

    /// How many different events are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.inner.records.lock().len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Handle {
    fn store_later(&self) {
        let Self { inner, writer } = self;
        if inner.clock.is_held() && inner.clock.scheduler().is_none() {
            return;
        }
        let writer = writer.get_or_init(|| {
            let component = inner.component.as_str();
            let failed = |error: &io::Error| {
                log::warn!(
                    controller = component, error:%;
                    "{component}: there is no thread to store events, so each is stored as it is recorded: {error}"
                );
            };
            Writer::start(inner).inspect_err(failed).ok()
        });
        match writer {
            Some(writer) => writer.wake(),
            None => inner.store_all(),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        match self.writer.get() {
            Some(Some(writer)) => writer.stop(),
            _ => self.inner.store_all(),
        }
    }
}

impl Inner {
    /// Stores what is not stored yet, until nothing is left or the client cannot be reached.
    fn store_all(self: &Arc<Self>) {
        let Some(client) = &self.client else { return };
        while let Some(mut next) = Writing::next(self) {
            shielded("the storing of an event", || next.store(&**client));
            if next.written == Written::Unreachable {
                return;
            }
        }
    }
}

impl Wake for Inner {
    fn wake(&self) {
        let count = self.records.lock().waiting.rouse(usize::MAX, &self.clock);
        self.stored.ring(count);
    }
}

/// Writes an event: as an object of its own, or as a higher count of the one that is there. One that has been removed there
/// meanwhile (most clients do so an hour after the last time) is written anew.
fn store(client: &dyn Client, component: &str, recorded: &Recorded) -> Result<(), ClientError> {
    let patch = || client.patch(&EventRecorder::KIND, &recorded.key(component), &recorded.patch(), Part::Object);
    let create = || client.create(&EventRecorder::KIND, recorded.to_json(component));
    if recorded.is_stored() {
        match patch() {
            Err(ClientError::NotFound { .. }) => create(),
            other => other,
        }
    } else {
        match create() {
            // A call before has reached the client, and its answer not us.
            Err(ClientError::AlreadyExists { .. }) => patch(),
            other => other,
        }
    }
    .map(drop)
}

/// One event in the hands of the thread that writes. Whatever ends it, a panic of the client too, the next one can be taken.
struct Writing<'a> {
    inner: &'a Arc<Inner>,
    recorded: Recorded,
    written: Written,
}

impl<'a> Writing<'a> {
    /// The next event to be written; `None` if there is nothing. Waits while another thread writes.
    fn next(inner: &'a Arc<Inner>) -> Option<Self> {
        let mut records = inner.records.lock();
        while records.is_writing() {
            let wake = || Arc::clone(inner) as Arc<dyn Wake>;
            inner.stored.wait(&mut records, |records| &mut records.waiting, &inner.clock, Nanos::NEVER, wake);
        }
        let recorded = records.take()?;
        drop(records);
        Some(Self { inner, recorded, written: Written::Refused })
    }

    fn store(&mut self, client: &dyn Client) {
        let component = self.inner.component.as_str();
        let Err(error) = store(client, component, &self.recorded) else {
            self.written = Written::Stored;
            return;
        };
        if error.is_transport() {
            self.written = Written::Unreachable;
        }
        let (object, shown) = (self.recorded.object(), Chain(&error));
        log::warn!(
            controller = component, object:%, error:% = shown;
            "{component}: an event about {object} is not stored: {shown}"
        );
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let count = {
            let mut records = self.inner.records.lock();
            records.put_back(&self.recorded, self.written);
            records.waiting.rouse(usize::MAX, &self.inner.clock)
        };
        self.inner.stored.ring(count);
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").field("component", &self.0.inner.component).finish_non_exhaustive()
    }
}

impl fmt::Debug for EventRecorderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorderBuilder").field("component", &self.component).finish_non_exhaustive()
    }
}
