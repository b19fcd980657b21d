//! The thread of a watch: makes the calls that its [machine](super::machine) decides on.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::machine::{Change, Report, WatchCall, WatchMachine, WatchReaction};
use crate::own_writes::ShownObjects;
use crate::repetition::ObservedCalls;
use crate::stream::StreamItem;
use crate::{Api, ClientError, Object, ObjectKey, ObjectRef, ObjectStream, Query, SharedObject};
use homeostat::base::CancellationToken;
use homeostat::rt::{Chain, Nanos, Next, Rounded, SourceState, Task, ThreadGroup, panic_message};
use homeostat::watch::Push;

/// A resumed stream that has not failed for this long counts as healthy.
const CALM: Duration = Duration::from_secs(5);

/// A function that changes each object before the watch keeps it.
pub(super) type Transform<T> = Box<dyn Fn(&mut T) + Send + Sync>;

/// The task of the thread.
pub(super) struct WatchDriver<T: Object> {
    api: Api<T>,
    query: Query,
    transform: Option<Transform<T>>,
    shown: Option<Arc<ShownObjects<T>>>,
    machine: WatchMachine,
    list_timeout: Duration,
    /// The state that the watch reports.
    source: Arc<SourceState>,
    push: Push<ObjectKey, T>,
    stop: CancellationToken,
    stream: Option<OpenStream>,
    group: Arc<ThreadGroup>,
    /// The versions of objects that do not match the type.
    undecodable: HashMap<ObjectKey, String>,
    /// In a simulation: the next event, or the panic that reading it caused.
    polled: Option<Result<Option<StreamItem>, Box<dyn Any + Send>>>,
}

struct OpenStream {
    events: ObjectStream,
    /// Ends the stream.
    stop: CancellationToken,
}

/// Returns a function that reports streams of this source that continue after their deadlines.
pub(super) fn report_overruns(source: Arc<SourceState>) -> Arc<dyn Fn() + Send + Sync> {
    Arc::new(move || source.failed("a silent stream was cancelled but does not end".to_owned()))
}

impl<T: Object> WatchDriver<T> {
    pub(super) fn new(
        api: Api<T>,
        query: Query,
        machine: WatchMachine,
        list_timeout: Duration,
        push: Push<ObjectKey, T>,
        stop: CancellationToken,
        group: &Arc<ThreadGroup>,
    ) -> Self {
        Self {
            api,
            query,
            transform: None,
            shown: None,
            machine,
            list_timeout,
            source: Arc::clone(push.watch().source_state()),
            push,
            stop,
            stream: None,
            group: Arc::clone(group),
            undecodable: HashMap::new(),
            polled: None,
        }
    }

    /// Sets the view of the store, which the driver informs of each step.
    pub(super) fn shown(self, shown: Arc<ShownObjects<T>>) -> Self {
        Self { shown: Some(shown), ..self }
    }

    /// Sets the function that changes each object before the watch keeps it.
    pub(super) fn transform(self, transform: Option<Transform<T>>) -> Self {
        Self { transform, ..self }
    }

    fn now(&self) -> Nanos {
        self.group.clock.nanos()
    }

    /// Makes the next call, or reads one event with `read`. Returns the time of the next step.
    fn advance(&mut self, read: impl FnOnce(&mut Self, &mut OpenStream, Nanos) -> Option<StreamItem>) -> Next {
        if self.stop.is_cancelled() {
            self.stream = None;
            self.push.stop();
            self.advanced(None);
            return Next::Finished;
        }
        let source = Arc::clone(&self.source);
        let _observed = ObservedCalls::begin(move |text| source.failed(text));
        let call = self.machine.next(self.now());
        let done = catch_unwind(AssertUnwindSafe(|| match call {
            WatchCall::Pause(_) => {}
            WatchCall::Read { until } => self.read(until, read),
            WatchCall::List(_) | WatchCall::Open(_) => self.begin(),
        }));
        if let Err(panic) = done {
            self.source.panicked(panic_message(&*panic));
            self.stream = None;
            self.machine.panicked(self.now());
        }
        match self.machine.next(self.now()) {
            WatchCall::Pause(until) => {
                self.source.plan(until, None);
                Next::At(until)
            }
            _ => Next::At(Nanos::ZERO),
        }
    }

    /// Lists the objects and opens a stream.
    fn begin(&mut self) {
        let (client, source) = (Arc::clone(self.api.client()), Arc::clone(&self.source));
        let now = self.now();
        let _listing = source.begin(now, now.after(self.list_timeout));
        while !self.stop.is_cancelled() {
            match self.machine.next(self.now()) {
                WatchCall::List(query) => {
                    let answer = client.list_readable(self.api.kind(), &query, &self.stop);
                    self.react(|machine, now| machine.listed(now, answer));
                }
                WatchCall::Open(from) => {
                    let stop = self.stop.child();
                    let opened = match from {
                        Some(version) => client.watch(self.api.kind(), &self.query, Some(&version), &stop),
                        None => client.stream_list(self.api.kind(), &self.query, &stop),
                    };
                    let answer = opened.map(|events| self.stream = Some(OpenStream { events, stop }));
                    self.react(|machine, now| machine.opened(now, answer));
                }
                WatchCall::Pause(_) | WatchCall::Read { .. } => break,
            }
        }
    }

    /// Reads one event. If `until` passes first, ends the stream.
    fn read(&mut self, until: Nanos, read: impl FnOnce(&mut Self, &mut OpenStream, Nanos) -> Option<StreamItem>) {
        let Some(mut stream) = self.stream.take() else { return };
        let item = read(self, &mut stream, until);
        let timed_out = stream.stop.is_cancelled() && !matches!(item, Some(Ok(_)));
        self.stream = Some(stream);
        self.react(|machine, now| if timed_out { machine.timed_out(now) } else { machine.received(now, item) });
    }

    /// Passes a result to the machine, and makes the changes and reports that it returns. Does nothing after a stop,
    /// because the stop may have caused the result.
    fn react(&mut self, result: impl FnOnce(&mut WatchMachine, Nanos) -> WatchReaction) {
        if self.stop.is_cancelled() {
            return;
        }
        let now = self.now();
        let WatchReaction { change, report } = result(&mut self.machine, now);
        if !self.machine.is_reading() {
            self.stream = None;
        }
        let has_changed = change.is_some();
        let object = change.and_then(|change| self.apply(change));
        if has_changed || self.shown.as_ref().is_some_and(|shown| !shown.is_at(self.machine.version())) {
            self.advanced(object.as_ref());
        }
        match report {
            None => {}
            Some(Report::Works) => self.source.succeeded(),
            Some(Report::Resumed) => self.source.resumed(CALM),
            Some(Report::EndedWithoutEvent) if self.source.recovered() => {}
            Some(Report::EndedWithoutEvent) => {
                self.source.failed(format!("the stream ended without an event in less than {}", Rounded(CALM)));
            }
            Some(Report::Failed(text)) => self.source.failed(text),
            Some(Report::Note(text)) => {
                let source = self.source.name();
                log::info!(source; "{source}: {text}");
            }
        }
    }

    /// Tells the view that the store has all changes so far, or that the watch has stopped.
    fn advanced(&self, object: Option<&ObjectKey>) {
        if let Some(shown) = &self.shown {
            shown.advanced(self.machine.version(), object);
        }
    }

    /// Changes the store. Returns the key of the changed object, if only one changed.
    fn apply(&mut self, change: Change) -> Option<ObjectKey> {
        match change {
            Change::ReplaceAll { objects, unreadable } => {
                self.replace_all(objects, &unreadable);
                None
            }
            Change::Set(object) => {
                let key = object.key();
                if let Some(value) = self.decode(&key, &object) {
                    self.push.set(key.clone(), value);
                }
                Some(key)
            }
            Change::Unreadable(error) => {
                let key = error.object().key();
                self.rejected(key, "", &error);
                Some(key.clone())
            }
            Change::Remove(object) => {
                let key = object.key();
                let last = self.typed(&object);
                self.decoded(&key);
                match last {
                    Ok(last) => self.push.remove_with(&key, last),
                    Err(_) => self.push.remove(&key),
                };
                Some(key)
            }
        }
    }

    fn replace_all(&mut self, objects: Vec<SharedObject>, unreadable: &[ClientError]) {
        let mut before = std::mem::take(&mut self.undecodable);
        let mut items = Vec::with_capacity(objects.len());
        for object in objects {
            let key = object.key();
            // Undecodable objects that are already known are not logged again.
            self.undecodable.extend(before.remove_entry(&key));
            // Drop each object of the list right here, so that the list and the values are not in memory at the same
            // time.
            let value = self.decode(&key, &object).map(Arc::new);
            let value = value.or_else(|| self.push.watch().store().get(&key));
            items.extend(value.map(|value| (key, value)));
        }
        for error in unreadable {
            let key = error.object().key();
            self.undecodable.extend(before.remove_entry(key));
            self.rejected(key, "", error);
            items.extend(self.push.watch().store().get(key).map(|value| (key.clone(), value)));
        }
        if !before.is_empty() {
            self.source.undecodable(self.undecodable.len(), None);
        }
        self.push.replace_all_shared(&items);
    }

    /// Reads an object as a value of the type, and transforms the value.
    fn typed(&self, object: &SharedObject) -> Result<T, ClientError> {
        // The program's code must not stop the watch of the other objects.
        let panicked = |what: &str, panic: &(dyn Any + Send)| {
            let rule = format!("{what} panicked: {}", panic_message(panic));
            ClientError::invalid(ObjectRef::new(self.api.kind(), &object.key()), "", "", rule)
        };
        let read = catch_unwind(AssertUnwindSafe(|| T::from_shared(object)));
        let mut value = read.map_err(|panic| panicked("its deserialization", &*panic))??;
        let Some(transform) = &self.transform else { return Ok(value) };
        let done = catch_unwind(AssertUnwindSafe(|| transform(&mut value)));
        done.map_err(|panic| panicked("the transformation", &*panic))?;
        value.compact();
        Ok(value)
    }

    /// Reads an object as a value of the type. If it does not match, reports that and returns `None`.
    fn decode(&mut self, key: &ObjectKey, object: &SharedObject) -> Option<T> {
        match self.typed(object) {
            Ok(value) => {
                self.decoded(key);
                Some(value)
            }
            Err(error) => {
                self.rejected(key, object.resource_version(), &error);
                None
            }
        }
    }

    /// Reports an object that cannot be read, once for each version.
    fn rejected(&mut self, key: &ObjectKey, version: &str, error: &ClientError) {
        if self.undecodable.insert(key.clone(), version.to_owned()).as_deref() != Some(version) {
            let (source, object, shown) = (self.source.name(), key, Chain(error));
            log::warn!(source, object:%, error:% = shown; "{source}: {object} does not match its type and is skipped: {shown}");
            self.source.undecodable(self.undecodable.len(), Some(shown.to_string()));
        }
    }

    /// Forgets that an object did not match the type.
    fn decoded(&mut self, key: &ObjectKey) {
        if !self.undecodable.is_empty() && self.undecodable.remove(key).is_some() {
            self.source.undecodable(self.undecodable.len(), None);
        }
    }

    /// Blocks until the next event. The watchdog ends the stream at `until`.
    fn next_event(&mut self, stream: &mut OpenStream, until: Nanos) -> Option<StreamItem> {
        let _run = (until != Nanos::NEVER).then(|| self.group.begin_call(until, &stream.stop));
        stream.events.next()
    }
}

impl<T: Object> Task for WatchDriver<T> {
    fn step(&mut self, _now: Nanos) -> Next {
        self.advance(Self::next_event)
    }

    fn due(&mut self, next: Nanos) -> Nanos {
        if self.stop.is_cancelled() {
            return Nanos::ZERO;
        }
        let Some(stream) = &mut self.stream else { return next };
        if self.polled.is_none() {
            self.polled = match catch_unwind(AssertUnwindSafe(|| stream.events.poll())) {
                Ok(Poll::Ready(item)) => Some(Ok(item)),
                Ok(Poll::Pending) => None,
                Err(panic) => Some(Err(panic)),
            };
        }
        match self.machine.next(self.now()) {
            WatchCall::Read { until } if self.polled.is_none() => until,
            _ => Nanos::ZERO,
        }
    }

    /// Handles one event.
    fn take_turn(&mut self, _now: Nanos, _draw: u64, _say: &dyn Fn(String)) -> Next {
        let polled = self.polled.take();
        self.advance(|driver, stream, until| {
            if polled.is_none() && driver.group.clock.reached(until) {
                stream.stop.cancel();
            }
            polled.and_then(|item| item.unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }
}
