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
    ///
    /// A client that wraps the streams of another client must keep this ability, as the example shows.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::{ClientError, ObjectStream, PollEvents, SharedObject, WatchEvent};
    /// use std::task::Poll;
    ///
    /// type Item = Result<WatchEvent<SharedObject>, ClientError>;
    ///
    /// /// A stream that ends after this many events.
    /// struct Cut(ObjectStream, usize);
    ///
    /// impl Iterator for Cut {
    ///     type Item = Item;
    ///
    ///     fn next(&mut self) -> Option<Item> {
    ///         self.1 = self.1.checked_sub(1)?;
    ///         self.0.next()
    ///     }
    /// }
    ///
    /// impl PollEvents for Cut {
    ///     fn poll(&mut self) -> Poll<Option<Item>> {
    ///         let Some(left) = self.1.checked_sub(1) else { return Poll::Ready(None) };
    ///         let next = self.0.poll();
    ///         self.1 = if next.is_ready() { left } else { self.1 };
    ///         next
    ///     }
    /// }
    ///
    /// fn cut(stream: ObjectStream, after: usize) -> ObjectStream {
    ///     if stream.is_polled() { ObjectStream::polled(Cut(stream, after)) } else { ObjectStream::new(stream.take(after)) }
    /// }
    /// # let _ = cut;
    /// ```
    pub fn polled(events: impl PollEvents + 'static) -> Self {
        Self(StreamSource::Polled(Box::new(events)))
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

impl fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStream").finish_non_exhaustive()
    }
}
