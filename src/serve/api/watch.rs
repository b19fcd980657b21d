//! Watches: streams of events, one JSON text on each line, or one message after the other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;

use super::accept::ObjectForm;
use super::deadlines::WatchDeadlines;
use super::reads::ObjectReader;
use super::status::StatusError;
use super::table::{ObjectView, RowContent};
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::objects::{ClientError, Query, WatchEvent};
use crate::serve::http::{Reply, ReplyBody, ReplySink};
use crate::serve::kinds::ServedResource;

/// A watch that a client has asked for.
pub(super) struct ServedWatch {
    pub(super) reader: ObjectReader,
    pub(super) clock: Clock,
    pub(super) deadlines: Arc<WatchDeadlines>,
    pub(super) resource: ServedResource,
    pub(super) form: ObjectForm,
    pub(super) rows: RowContent,
    pub(super) query: Query,
    /// `None` to begin with the objects that exist.
    pub(super) from: Option<String>,
    /// Whether a bookmark marks the end of the initial events.
    pub(super) marks_initial: bool,
    pub(super) bookmarks: bool,
    pub(super) timeout: Option<Duration>,
}

impl ServedWatch {
    pub(super) fn reply(self) -> Reply {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(self.view().stream_media()))]);
        let run = move |sink: &mut dyn ReplySink, gone: &CancellationToken| self.run(sink, gone);
        Reply { status: StatusCode::OK, headers, body: ReplyBody::Stream(Box::new(run)), logged: None }
    }

    fn view(&self) -> ObjectView<'_> {
        ObjectView { resource: &self.resource, form: self.form, rows: self.rows, now: now(&self.clock) }
    }

    /// Sends events until the token is cancelled or the time is over. An error is the last event.
    fn run(self, sink: &mut dyn ReplySink, gone: &CancellationToken) -> io::Result<()> {
        let stop = gone.child();
        let _deadline = self.timeout.map(|timeout| self.deadlines.cancel_after(timeout, &stop)).transpose()?;
        let events = match self.reader.watch(&self.query, self.from.as_deref(), &stop) {
            Ok(events) => events,
            Err(error) => return sink.send(&self.error(&error)),
        };
        let (mut marks_initial, mut heads) = (self.marks_initial, true);
        for event in events {
            let view = self.view();
            let (kind, object) = match event {
                Ok(WatchEvent::Added(object)) => ("ADDED", object),
                Ok(WatchEvent::Modified(object)) => ("MODIFIED", object),
                Ok(WatchEvent::Deleted(object)) => ("DELETED", object),
                Ok(WatchEvent::Bookmark(version)) => {
                    if self.bookmarks {
                        let mark = view.bookmark(&version, std::mem::take(&mut marks_initial));
                        sink.send(&view.other_event("BOOKMARK", &mark))?;
                    }
                    continue;
                }
                Err(error) => {
                    sink.send(&self.error(&error))?;
                    continue;
                }
            };
            sink.send(&view.event(kind, &object, std::mem::take(&mut heads)))?;
        }
        Ok(())
    }

    fn error(&self, error: &ClientError) -> Vec<u8> {
        self.view().other_event("ERROR", &StatusError::of_client(error).json())
    }
}

/// Returns the time of day.
pub(super) fn now(clock: &Clock) -> Timestamp {
    Timestamp::try_from(clock.time_of_day()).unwrap_or_default()
}
