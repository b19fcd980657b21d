//! Watches: streams of events, either one JSON text in each line, or one message after the other.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;

use super::accept::ObjectForm;
use super::deadlines::WatchDeadlines;
use super::protobuf;
use super::reads::ObjectReader;
use super::status::StatusError;
use super::store::{StoreHealth, StoreUse};
use super::table::{ObjectView, RowContent, footprint};
use crate::http::{Reply, ReplyBody, ReplyStream, SinkWriter};
use crate::kinds::ServedResource;
use homeostat::base::Clock;
use homeostat_objects::{ClientError, Query, SharedObject, WatchEvent};

/// A watch that a client has requested.
pub(super) struct ServedWatch {
    pub(super) reader: ObjectReader,
    pub(super) clock: Clock,
    pub(super) deadlines: Arc<WatchDeadlines>,
    pub(super) store: Arc<StoreHealth>,
    pub(super) resource: ServedResource,
    pub(super) form: ObjectForm,
    pub(super) rows: RowContent,
    pub(super) query: Query,
    /// The existing objects, if the watch starts with them.
    pub(super) initial: Vec<SharedObject>,
    /// The version after which changes are sent.
    pub(super) from: String,
    /// Whether a bookmark marks the end of the initial events.
    pub(super) marks_initial: bool,
    pub(super) bookmarks: bool,
    pub(super) timeout: Option<Duration>,
}

impl ServedWatch {
    pub(super) fn reply(self) -> Reply {
        let media = self.view().stream_media();
        let holds = footprint(&self.initial);
        let run = move |out: &mut ReplyStream<'_>| self.run(out);
        let body = ReplyBody::Stream(Box::new(run));
        Reply { body, holds, ..Reply::new(StatusCode::OK, media, "") }
    }

    /// Sends events until the token is cancelled or the timeout passes. An error is sent as the last event.
    ///
    /// If the next object is large and other replies use the memory, the watch also ends. Its client resumes later
    /// from the last version that it has received.
    fn run(mut self, sink: &mut ReplyStream<'_>) -> io::Result<()> {
        let stop = sink.gone().child();
        let _deadline = self.timeout.map(|timeout| self.deadlines.cancel_after(timeout, &stop)).transpose()?;
        let mut heads = true;
        let initial = std::mem::take(&mut self.initial);
        let mut held = footprint(&initial);
        for object in initial {
            if stop.is_cancelled() {
                return Ok(());
            }
            self.send(sink, "ADDED", &object, std::mem::take(&mut heads))?;
            held -= footprint(std::slice::from_ref(&object));
            drop(object);
            sink.hold(held);
        }
        if self.marks_initial && self.bookmarks {
            self.send_bookmark(sink, &self.from, true)?;
        }
        let events = match self.reader.watch(&self.query, Some(&self.from), &stop) {
            Ok(events) => events,
            Err(error) => return self.send_error(sink, &error),
        };
        for event in events {
            let (kind, object) = match event {
                Ok(WatchEvent::Added(object)) => ("ADDED", object),
                Ok(WatchEvent::Modified(object)) => ("MODIFIED", object),
                Ok(WatchEvent::Deleted(object)) => ("DELETED", object),
                Ok(WatchEvent::Bookmark(version)) => {
                    if self.bookmarks {
                        self.send_bookmark(sink, &version, false)?;
                    }
                    continue;
                }
                Err(error) => {
                    self.send_error(sink, &error)?;
                    continue;
                }
            };
            if !sink.hold(object.footprint()) {
                return Ok(());
            }
            self.send(sink, kind, &object, std::mem::take(&mut heads))?;
            drop(object);
            sink.hold(0);
        }
        Ok(())
    }

    fn send(&self, sink: &mut ReplyStream<'_>, kind: &str, object: &SharedObject, heads: bool) -> io::Result<()> {
        let view = self.view();
        self.send_event(sink, kind, |out| view.write_object(object, heads, out))
    }

    fn send_bookmark(&self, sink: &mut ReplyStream<'_>, version: &str, ends_initial: bool) -> io::Result<()> {
        let view = self.view();
        let mark = view.other(&view.bookmark(version, ends_initial));
        self.send_event(sink, "BOOKMARK", |out| out.write_all(&mark))
    }

    fn send_error(&self, sink: &mut ReplyStream<'_>, error: &ClientError) -> io::Result<()> {
        let error = StatusError::of_client(error);
        if let Some(cause) = error.store_failure() {
            self.store.failed(StoreUse::Read, cause);
        }
        let status = self.view().other(&error.json());
        self.send_event(sink, "ERROR", |out| out.write_all(&status))
    }

    /// Sends an event. `write` writes the event's object.
    fn send_event(
        &self,
        sink: &mut ReplyStream<'_>,
        kind: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.form == ObjectForm::Protobuf {
            let mut object = Vec::new();
            write(&mut object)?;
            return sink.send(&protobuf::watch_frame(kind, &object));
        }
        let mut out = SinkWriter::new(sink);
        write!(out, "{{\"type\":\"{kind}\",\"object\":")?;
        write(&mut out)?;
        out.write_all(b"}\n")?;
        out.flush()
    }

    fn view(&self) -> ObjectView<'_> {
        ObjectView { resource: &self.resource, form: self.form, rows: self.rows, now: now(&self.clock) }
    }
}

/// Returns the time of day.
pub(super) fn now(clock: &Clock) -> Timestamp {
    Timestamp::try_from(clock.time_of_day()).unwrap_or_default()
}
