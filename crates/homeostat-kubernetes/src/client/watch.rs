//! The event stream of one watch connection.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::vec;

use http::Method;
use ureq::BodyReader;

use super::KubernetesClient;
use super::decode::{self, BadObject, RawEvent};
use super::selection::{objects, selected};
use crate::http::answer::{ApiStatus, RequestLine, ResponseHead};
use crate::http::request_error::{RequestFault, cause_of};
use crate::http::transport::{HttpRequest, OpenAnswer};
use homeostat::base::{CancellationToken, OnCancel};
use homeostat_objects::store::ReadBuffers;
use homeostat_objects::{
    ClientError, FieldSelector, Kind, ObjectKey, ObjectRef, ObjectStream, Query, SharedObject, WatchEvent,
};

/// The largest event in bytes.
const MOST_EVENT: u64 = 64 << 20;
/// The shortest lifetime of a watch in seconds. Each watch asks the server for a random lifetime up to twice as long,
/// so that watches that began together end at different times.
const SHORTEST_SECONDS: u64 = 300;

type Item = Result<WatchEvent<SharedObject>, ClientError>;

/// Starts a watch. Without a version, lists the objects if the server does not stream lists.
pub(super) fn watch(
    client: &KubernetesClient,
    kind: &Kind,
    query: &Query,
    from: Option<&str>,
    stop: &CancellationToken,
) -> Result<ObjectStream, ClientError> {
    begin(client, kind, query, from.filter(|from| !matches!(*from, "" | "0")), true, stop)
}

/// Starts a watch of all objects. Fails if the server does not stream lists.
pub(super) fn stream_list(
    client: &KubernetesClient,
    kind: &Kind,
    query: &Query,
    stop: &CancellationToken,
) -> Result<ObjectStream, ClientError> {
    begin(client, kind, query, None, false, stop)
}

fn begin(
    client: &KubernetesClient,
    kind: &Kind,
    query: &Query,
    from: Option<&str>,
    may_list: bool,
    stop: &CancellationToken,
) -> Result<ObjectStream, ClientError> {
    let mut stream = EventStream {
        client: client.clone(),
        kind: kind.clone(),
        query: query.unpaged(),
        stop: stop.clone(),
        may_list,
        listed: Vec::new().into_iter(),
        unreadable: Vec::new().into_iter(),
        listed_at: None,
        next: None,
        connection: None,
        is_initial: from.is_none(),
        has_begun: false,
        selection: FieldSelection::new(from.is_none()),
        has_ended: false,
    };
    if stop.is_cancelled() {
        stream.has_ended = true;
        return Ok(ObjectStream::new(stream));
    }
    match from {
        Some(version) => stream.connect(Some(version))?,
        None => stream.begin()?,
    }
    Ok(ObjectStream::new(stream))
}

/// The events of one watch.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct EventStream {
    client: KubernetesClient,
    kind: Kind,
    query: Query,
    stop: CancellationToken,
    /// Whether to list the objects if the server does not stream lists.
    may_list: bool,
    /// The objects of the first list, if the server does not stream it.
    listed: vec::IntoIter<SharedObject>,
    /// The errors of that list's unreadable objects.
    unreadable: vec::IntoIter<ClientError>,
    /// The version of that list, for the bookmark after its objects.
    listed_at: Option<String>,
    /// The version to watch from, once the first list was delivered.
    next: Option<String>,
    connection: Option<Connection>,
    /// Whether the objects that existed at the start are still being delivered.
    is_initial: bool,
    /// Whether an event has arrived.
    has_begun: bool,
    selection: FieldSelection,
    has_ended: bool,
}

/// The connection of a watch.
struct Connection {
    reader: BufReader<BodyReader<'static>>,
    line: RequestLine,
    /// The text line of the last event.
    line_buffer: Vec<u8>,
    /// Buffers that are reused to decode the object of each event.
    object_buffers: ReadBuffers,
    /// The fields by which the client must select, because the server does not support them.
    fields: FieldSelector,
    /// Closes the connection when the watch is stopped. Must be the last field, because its drop waits for a running
    /// shutdown.
    _guard: OnCancel,
}

/// The result of reading once.
enum ReadStep {
    Item(Item),
    /// An object could not be decoded. The other events are not affected.
    Unreadable(ClientError),
    /// The event does not concern the stream's reader.
    Skipped,
    End,
}

impl EventStream {
    /// Starts with all objects. The server streams them if it can.
    fn begin(&mut self) -> Result<(), ClientError> {
        let refusal = if self.client.mode_streams(&self.kind) {
            match self.connect(None) {
                Err(error) if error.is_invalid() => {
                    self.client.note_refused_streaming(&self.kind, &error.to_string());
                    error
                }
                result => return result,
            }
        } else {
            self.not_streamed("the server has refused to stream lists")
        };
        if self.may_list { self.list() } else { Err(refusal) }
    }

    /// Returns the error for a list that the server does not stream.
    fn not_streamed(&self, rule: &str) -> ClientError {
        ClientError::invalid(objects(&self.kind, &self.query), "sendInitialEvents", "true", rule)
    }

    /// Lists all objects. The watch continues from the version of the list.
    fn list(&mut self) -> Result<(), ClientError> {
        let (list, unreadable) = match self.client.list_until(&self.kind, &self.query, Some(&self.stop)) {
            Err(_) if self.stop.is_cancelled() => {
                self.has_ended = true;
                return Ok(());
            }
            list => list?,
        };
        (self.listed, self.unreadable) = (list.items.into_iter(), unreadable.into_iter());
        self.listed_at = Some(list.version);
        Ok(())
    }

    /// Opens a watch from this version, or from all objects. A list may have no version. With an empty one, the server
    /// chooses where to begin, and repeats the existing objects.
    fn connect(&mut self, from: Option<&str>) -> Result<(), ClientError> {
        let Self { client, kind, query, stop, .. } = self;
        let transport = &client.shared.transport;
        let lifetime = (SHORTEST_SECONDS + transport.draw() % SHORTEST_SECONDS).to_string();
        let object = objects(kind, query);
        let opened = client.with_fields(kind, query, |fields| {
            let path = |plural: &str| {
                let path = selected(kind, plural, query, &fields.selector)?.query("watch", "1");
                let path = path.query("allowWatchBookmarks", "true").query("timeoutSeconds", &lifetime);
                Ok(match from {
                    None => path.query("sendInitialEvents", "true").query("resourceVersionMatch", "NotOlderThan"),
                    version => path.optional_query("resourceVersion", version.filter(|version| !version.is_empty())),
                })
            };
            let opened = client.exchange(&object, ("WATCH", from.unwrap_or_default()), Some(stop), path, |path| {
                let accept = client.accept(false);
                transport.open(&HttpRequest { method: Method::GET, path, body: None, accept }, stop)
            });
            opened.map(|(answer, line)| (answer, line, fields.rest.clone()))
        });
        let (OpenAnswer { reader, agent }, line, fields) = match opened {
            Err(_) if stop.is_cancelled() => {
                self.has_ended = true;
                return Ok(());
            }
            opened => opened?,
        };
        let guard = stop.on_cancel(move || agent.shutdown());
        let reader = BufReader::with_capacity(16 * 1024, reader);
        self.connection = Some(Connection {
            reader,
            line,
            line_buffer: Vec::new(),
            object_buffers: ReadBuffers::default(),
            fields,
            _guard: guard,
        });
        Ok(())
    }

    /// Reads the next event.
    fn step(&mut self) -> ReadStep {
        if let Some(object) = self.listed.next() {
            self.selection.insert(&object);
            return ReadStep::Item(Ok(WatchEvent::Added(object)));
        }
        if let Some(error) = self.unreadable.next() {
            return ReadStep::Unreadable(error);
        }
        if let Some(version) = self.listed_at.take() {
            self.is_initial = false;
            self.next = Some(version.clone());
            return ReadStep::Item(Ok(WatchEvent::Bookmark(version)));
        }
        if let Some(version) = self.next.take()
            && let Err(error) = self.connect(Some(&version))
        {
            return ReadStep::Item(Err(error));
        }
        let Some(connection) = &mut self.connection else { return ReadStep::End };
        match connection.read() {
            Ok(false) => ReadStep::End,
            Err(cause) => ReadStep::Item(Err(connection.line.error(cause))),
            Ok(true) => {
                self.client.shared.transport.counters.receive(connection.line_buffer.len());
                let event = decode::event(&connection.line_buffer, &self.kind, &mut connection.object_buffers);
                self.convert(event).map_or(ReadStep::Skipped, ReadStep::Item)
            }
        }
    }

    /// Converts an event. `None` if it does not concern the stream's reader.
    fn convert(&mut self, event: Result<RawEvent, BadObject>) -> Option<Item> {
        let connection = self.connection.as_ref()?;
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let event = match event {
            Err(BadObject { namespace, name, fault }) => {
                let object = ObjectRef::new(&self.kind, &ObjectKey::new(&namespace, &name));
                let rule = format!("an event of the watch cannot be read: {fault}");
                return Some(Err(ClientError::invalid(object, "", "", rule)));
            }
            Ok(RawEvent::Error(status)) => {
                let status = ApiStatus::of_event(&status);
                // The server's storage may be unable to stream lists.
                if self.is_initial && is_first && matches!(status.code(), 400 | 422 | 500 | 501) {
                    let is_lasting = self.client.note_refused_streaming(&self.kind, status.message());
                    if self.may_list {
                        self.connection = None;
                        return self.list().err().map(Err);
                    }
                    if is_lasting {
                        let refusal = self.not_streamed(status.message());
                        self.connection = None;
                        return Some(Err(refusal));
                    }
                }
                let head = ResponseHead { code: 200, ..ResponseHead::default() };
                return Some(Err(status.error(&connection.line, &head)));
            }
            Ok(RawEvent::Bookmark { version, ends_initial }) => {
                // The reader would take another bookmark for the end of the initial events.
                if self.is_initial && !ends_initial {
                    return None;
                }
                self.is_initial = false;
                return Some(Ok(WatchEvent::Bookmark(version)));
            }
            Ok(RawEvent::Added(object)) => WatchEvent::Added(object),
            Ok(RawEvent::Modified(object)) => WatchEvent::Modified(object),
            Ok(RawEvent::Deleted(object)) => WatchEvent::Deleted(object),
        };
        if connection.fields.is_empty() {
            Some(Ok(event))
        } else {
            self.selection.filter(&connection.fields, event).map(Ok)
        }
    }
}

impl Iterator for EventStream {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        while !self.has_ended && !self.stop.is_cancelled() {
            match self.step() {
                ReadStep::Skipped => {}
                ReadStep::Item(Ok(event)) => return Some(Ok(event)),
                ReadStep::Unreadable(error) => return Some(Err(error)),
                // An object that cannot be decoded does not affect the others.
                ReadStep::Item(Err(error)) if error.is_invalid() && self.connection.is_some() && self.has_begun => {
                    return Some(Err(error));
                }
                ReadStep::Item(Err(error)) => {
                    self.has_ended = true;
                    // After a stop, the error only shows that the connection was shut down.
                    return Some(Err(error)).filter(|_| !self.stop.is_cancelled());
                }
                ReadStep::End => self.has_ended = true,
            }
        }
        self.connection = None;
        None
    }
}

impl Connection {
    /// Reads a line into the buffer. Returns false at the end of the stream.
    fn read(&mut self) -> Result<bool, RequestFault> {
        loop {
            self.line_buffer.clear();
            // Keep little memory after a large event.
            self.line_buffer.shrink_to(1 << 20);
            self.object_buffers.shrink_to(1 << 20);
            let mut limited = (&mut self.reader).take(MOST_EVENT + 1);
            let length = limited.read_until(b'\n', &mut self.line_buffer);
            let length = length.map_err(|error| cause_of(error.into()))?;
            if length as u64 > MOST_EVENT {
                let fault = format!("an event of the watch has more than {MOST_EVENT} bytes");
                return Err(RequestFault::Unusable { fault, request_id: None });
            }
            if length == 0 {
                return Ok(false);
            }
            if self.line_buffer.last() != Some(&b'\n') {
                return Err(RequestFault::Lost("it ended within an event".to_owned()));
            }
            if !self.line_buffer.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }
}

/// Selects events by fields that the server does not support.
struct FieldSelection {
    /// The keys of selected objects that were delivered.
    delivered: HashSet<ObjectKey>,
    /// Whether all objects from before the first event are in `delivered`.
    is_complete: bool,
}

impl FieldSelection {
    fn new(is_complete: bool) -> Self {
        Self { delivered: HashSet::new(), is_complete }
    }

    fn insert(&mut self, object: &SharedObject) {
        self.delivered.insert(object.key());
    }

    /// Returns the event that a server with support for these fields would send. An object that leaves the selection
    /// counts as deleted.
    fn filter(&mut self, fields: &FieldSelector, event: WatchEvent<SharedObject>) -> Option<WatchEvent<SharedObject>> {
        let (object, is_new, is_deletion) = match event {
            WatchEvent::Added(object) => (object, true, false),
            WatchEvent::Modified(object) => (object, false, false),
            WatchEvent::Deleted(object) => (object, false, true),
            bookmark @ WatchEvent::Bookmark(_) => return Some(bookmark),
        };
        let (key, is_selected) = (object.key(), fields.selects(&object));
        if is_selected && !is_deletion {
            let is_first = self.delivered.insert(key);
            let is_added = is_new || (is_first && self.is_complete);
            return Some(if is_added { WatchEvent::Added(object) } else { WatchEvent::Modified(object) });
        }
        // The reader may know the object from before the first event.
        let may_be_known = !self.is_complete && (is_deletion || !is_new);
        (self.delivered.remove(&key) || may_be_known).then_some(WatchEvent::Deleted(object))
    }
}

impl KubernetesClient {
    /// Returns whether the server may stream the list of a kind.
    fn mode_streams(&self, kind: &Kind) -> bool {
        !self.shared.unstreamed.lock().contains(kind)
    }

    /// Stops streaming lists of a kind if the server cannot do it: it is older than 1.27, has the feature switched
    /// off, or its storage does not support it. Returns whether that is the reason. Other refusals concern one query
    /// or one moment.
    fn note_refused_streaming(&self, kind: &Kind, message: &str) -> bool {
        // Servers before 1.27 refuse `resourceVersionMatch` for a watch. Servers with an older etcd name a missing
        // feature of the storage.
        const REFUSALS: [&str; 3] = ["sendInitialEvents", "resourceVersionMatch", "required storage feature"];
        let is_lasting = REFUSALS.iter().any(|refusal| message.contains(refusal));
        if is_lasting {
            self.shared.unstreamed.lock().insert(kind.clone());
        }
        is_lasting
    }
}
