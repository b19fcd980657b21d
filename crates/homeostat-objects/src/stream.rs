//! The events of a client's watch.

use std::fmt;
use std::task::Poll;

use super::error::ClientError;
use super::shared::SharedObject;

/// An event of a watch. Every reader must handle each kind of event.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<T> {
    /// The object was created, or the query selects it now.
    Added(T),
    /// The object has changed.
    Modified(T),
    /// The object was deleted, or the query no longer selects it. Holds the last state that the query selected, with
    /// the version of this event.
    Deleted(T),
    /// All events up to this version have been delivered.
    Bookmark(String),
}

impl<T> WatchEvent<T> {
    /// Returns the object; `None` for a bookmark.
    #[must_use]
    pub fn object(&self) -> Option<&T> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::Bookmark(_) => None,
        }
    }

    /// Converts the object of the event.
    ///
    /// # Errors
    ///
    /// The errors of `convert`.
    pub fn try_map<U, E>(self, convert: impl FnOnce(T) -> Result<U, E>) -> Result<WatchEvent<U>, E> {
        Ok(match self {
            Self::Added(object) => WatchEvent::Added(convert(object)?),
            Self::Modified(object) => WatchEvent::Modified(convert(object)?),
            Self::Deleted(object) => WatchEvent::Deleted(convert(object)?),
            Self::Bookmark(version) => WatchEvent::Bookmark(version),
        })
    }
}

/// An item of a stream.
pub(super) type StreamItem = Result<WatchEvent<SharedObject>, ClientError>;

/// The events of a [watch](super::Client::watch): a blocking iterator.
pub struct ObjectStream(StreamSource);

enum StreamSource {
    Blocking(Box<dyn Iterator<Item = StreamItem> + Send>),
    Polled(Box<dyn PollEvents>),
}

/// A source of events that can be read without blocking.
pub trait PollEvents: Iterator<Item = Result<WatchEvent<SharedObject>, ClientError>> + Send {
    /// Returns the next event, or `Pending` where [`next`](Iterator::next) would block.
    fn poll(&mut self) -> Poll<Option<Self::Item>>;
}

impl ObjectStream {
    /// Returns a stream of these events, which can only be read by blocking.
    pub fn new(events: impl Iterator<Item = Result<WatchEvent<SharedObject>, ClientError>> + Send + 'static) -> Self {
        Self(StreamSource::Blocking(Box::new(events)))
    }

    /// Returns a stream that can also be read without blocking. Simulations need this.
    pub fn polled(events: impl PollEvents + 'static) -> Self {
        Self(StreamSource::Polled(Box::new(events)))
    }

    /// Changes each event and error. The new stream can be read without blocking if this one can.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::{ObjectStream, SharedObject};
    ///
    /// /// Hides the values of secrets.
    /// fn without_data(secrets: ObjectStream) -> ObjectStream {
    ///     secrets.map_events(|event| {
    ///         event?.try_map(|secret| {
    ///             let mut secret = secret.to_value();
    ///             secret["data"].take();
    ///             Ok(SharedObject::from(secret))
    ///         })
    ///     })
    /// }
    /// # let _ = without_data;
    /// ```
    #[must_use]
    pub fn map_events(
        self,
        change: impl FnMut(Result<WatchEvent<SharedObject>, ClientError>) -> Result<WatchEvent<SharedObject>, ClientError>
        + Send
        + 'static,
    ) -> Self {
        let is_polled = self.is_polled();
        let events = MappedEvents { events: self, change };
        if is_polled { Self::polled(events) } else { Self::new(events) }
    }

    /// Returns whether the stream can be read without blocking.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        matches!(self.0, StreamSource::Polled(_))
    }

    /// Returns the next event, or `Pending` if it has not arrived. A stream that is [not polled](Self::is_polled)
    /// blocks instead.
    pub fn poll(&mut self) -> Poll<Option<Result<WatchEvent<SharedObject>, ClientError>>> {
        match &mut self.0 {
            StreamSource::Blocking(events) => Poll::Ready(events.next()),
            StreamSource::Polled(events) => events.poll(),
        }
    }
}

impl Iterator for ObjectStream {
    type Item = Result<WatchEvent<SharedObject>, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            StreamSource::Blocking(events) => events.next(),
            StreamSource::Polled(events) => events.next(),
        }
    }
}

/// The events of a stream, each changed.
struct MappedEvents<F> {
    events: ObjectStream,
    change: F,
}

impl<F: FnMut(StreamItem) -> StreamItem> Iterator for MappedEvents<F> {
    type Item = StreamItem;

    fn next(&mut self) -> Option<StreamItem> {
        self.events.next().map(&mut self.change)
    }
}

impl<F: FnMut(StreamItem) -> StreamItem + Send> PollEvents for MappedEvents<F> {
    fn poll(&mut self) -> Poll<Option<StreamItem>> {
        self.events.poll().map(|event| event.map(&mut self.change))
    }
}

impl fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStream").finish_non_exhaustive()
    }
}
