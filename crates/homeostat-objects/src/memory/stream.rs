//! A watch of an embedded client: reads the history, and waits at its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use super::server::EmbeddedEngine;
use super::state::ServerState;
use crate::rules::event::event_of;
use crate::{ClientError, Kind, ObjectKey, ObjectRef, PollEvents, Query, SharedObject, WatchEvent};
use homeostat::base::{CancellationToken, OnCancel};
use homeostat::rt::{AutoResetEvent, Nanos};

/// The versions that mean "any version". A watch from one of them begins with the objects that exist.
const ANY: [&str; 2] = ["", "0"];
/// The most events to read at once, and the most bytes of their objects. They stay in memory until a slow reader takes
/// them.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 64 << 10;

pub(super) struct Stream {
    server: Arc<EmbeddedEngine>,
    kind: Kind,
    query: Query,
    /// The version up to which the history has been read.
    read: u64,
    /// The last version that the reader has seen, in an event or a bookmark.
    seen: u64,
    ready: VecDeque<WatchEvent<SharedObject>>,
    signal: Arc<AutoResetEvent>,
    stop: CancellationToken,
    /// Sets the signal when `stop` is cancelled.
    _on_stop: OnCancel,
    /// `None` once the stream has ended.
    registration: Option<Registration>,
}

impl Stream {
    pub(super) fn new(
        server: &Arc<EmbeddedEngine>,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<Self, ClientError> {
        let signal = AutoResetEvent::new(server.clock.clone());
        let wake = Arc::clone(&signal);
        // Register before reading the state: later changes set the signal.
        let namespace = query.namespace.as_deref().unwrap_or_default();
        let registration = Some(Registration::new(server, kind, namespace, &signal));
        let state = server.snapshot();
        let mut ready = VecDeque::new();
        let read = if let Some(from) = from.filter(|from| !ANY.contains(from)) {
            let known = from.parse().ok().filter(|from| state.since(*from).is_some());
            known.ok_or_else(|| unreachable_version(kind, query, from, state.head))?
        } else {
            let objects = state.select(kind, query);
            ready.reserve_exact(objects.len() + 1);
            ready.extend(objects.into_iter().map(WatchEvent::Added));
            ready.push_back(WatchEvent::Bookmark(state.head.to_string()));
            state.head
        };
        Ok(Self {
            server: Arc::clone(server),
            kind: kind.clone(),
            query: query.clone(),
            read,
            seen: read,
            ready,
            signal,
            stop: stop.clone(),
            _on_stop: stop.on_cancel(move || wake.set()),
            registration,
        })
    }

    /// Reads the next changes from the history, if any.
    fn read(&mut self) -> Result<(), ClientError> {
        let state = self.server.snapshot();
        let Some(changes) = state.since(self.read) else {
            return Err(unreachable_version(&self.kind, &self.query, &self.read.to_string(), state.head));
        };
        let mut bytes = 0;
        for change in changes {
            if *change.location.kind == self.kind
                && self.query.may_select(&change.location.key)
                && let Some(event) =
                    event_of(change.old.as_ref(), &change.object, change.removed, change.version, &self.query)
            {
                bytes += event.object().map_or(0, SharedObject::footprint);
                // The first event is read even if it is larger.
                if !self.ready.is_empty() && (self.ready.len() >= BATCH || bytes > BATCH_BYTES) {
                    break;
                }
                self.ready.push_back(event);
                self.seen = change.version;
            }
            self.read = change.version;
        }
        self.bookmark(&state);
        Ok(())
    }

    /// Adds a bookmark if the reader has skipped many changes, well before its version is gone.
    fn bookmark(&mut self, state: &ServerState) {
        if self.ready.is_empty() && self.read - self.seen > state.most_history() as u64 / 4 {
            self.seen = self.read;
            self.ready.push_back(WatchEvent::Bookmark(self.read.to_string()));
        }
    }
}

impl Iterator for Stream {
    type Item = Result<WatchEvent<SharedObject>, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Poll::Ready(event) = self.poll() {
                return event;
            }
            self.signal.wait_until(Nanos::NEVER);
        }
    }
}

impl PollEvents for Stream {
    fn poll(&mut self) -> Poll<Option<Self::Item>> {
        if self.registration.is_none() || self.stop.is_cancelled() {
            self.registration = None;
            return Poll::Ready(None);
        }
        if self.ready.is_empty()
            && let Err(error) = self.read()
        {
            self.registration = None;
            return Poll::Ready(Some(Err(error)));
        }
        self.ready.pop_front().map_or(Poll::Pending, |event| Poll::Ready(Some(Ok(event))))
    }
}

/// Returns the error for a version that the history does not have.
fn unreachable_version(kind: &Kind, query: &Query, version: &str, head: u64) -> ClientError {
    let listed = ObjectRef::new(kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), ""));
    let is_ahead = version.parse().is_ok_and(|version: u64| version > head);
    if is_ahead { ClientError::ahead(listed, version) } else { ClientError::gone(listed, version) }
}

/// A registered stream. Dropping it removes the stream from the server's watchers.
struct Registration {
    server: Arc<EmbeddedEngine>,
    kind: Kind,
    namespace: String,
    number: u64,
}

impl Registration {
    /// Registers a stream of a kind, in one namespace, or in all if the namespace is empty.
    fn new(server: &Arc<EmbeddedEngine>, kind: &Kind, namespace: &str, signal: &Arc<AutoResetEvent>) -> Self {
        let number = server.watchers.lock().add(kind, namespace, signal);
        Self { server: Arc::clone(server), kind: kind.clone(), namespace: namespace.to_owned(), number }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.server.watchers.lock().remove(&self.kind, &self.namespace, self.number);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed, even in its helpers")]

    use serde_json::json;

    use super::*;
    use crate::{Client, MemoryClient};

    const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");

    /// For a slow reader, few objects stay in memory, and none is missed.
    #[test]
    fn a_stream_reads_ahead_by_a_number_of_bytes() {
        let client = MemoryClient::new();
        let sizes = [30_000, 30_000, 30_000, 100, 200_000, 100, 100];
        for (number, size) in sizes.into_iter().enumerate() {
            let meta = json!({"namespace": "default", "name": format!("n-{number}")});
            let object = json!({
                "apiVersion": THING.api_version(), "kind": "Thing", "metadata": meta, "data": "x".repeat(size),
            });
            client.create(&THING, object).unwrap();
        }
        let stop = CancellationToken::new();
        let mut stream = Stream::new(&client.server, &THING, &Query::all(), Some("0"), &stop).unwrap();
        let Some(Ok(WatchEvent::Bookmark(version))) = stream.nth(sizes.len()) else { panic!("no bookmark") };
        for round in 0..2 {
            for number in 0..sizes.len() {
                let patch = crate::Patch::Merge(json!({"round": round}));
                let key = ObjectKey::new("default", &format!("n-{number}"));
                client.patch(&THING, &key, &patch, crate::PatchTarget::Object).unwrap();
            }
        }
        let mut stream = Stream::new(&client.server, &THING, &Query::all(), Some(&version), &stop).unwrap();
        let mut ahead = Vec::new();
        for number in 0..2 * sizes.len() {
            let Poll::Ready(Some(Ok(WatchEvent::Modified(object)))) = stream.poll() else { panic!("no event") };
            assert_eq!(object.name(), format!("n-{}", number % sizes.len()));
            ahead.push(stream.ready.len());
        }
        assert_eq!(ahead, [1, 0, 1, 0, 0, 3, 2, 1, 0, 1, 0, 0, 1, 0]);
        assert!(stream.poll().is_pending());
    }

    #[test]
    fn a_version_from_the_future_is_not_called_too_old() {
        let (client, stop) = (MemoryClient::new(), CancellationToken::new());
        let error = |from| client.watch(&THING, &Query::all(), Some(from), &stop).unwrap_err().to_string();
        assert!(error("7").starts_with("Thing: the server has not reached version 7"), "{}", error("7"));
        assert!(error("no-version").starts_with("Thing: version no-version is too old or unknown"));
    }
}
