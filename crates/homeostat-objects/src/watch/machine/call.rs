//! The calls that a watch makes to its client, and their consequences.

use crate::{ClientError, Query, SharedObject};
use homeostat::rt::{Chain, Nanos};

/// The next action of the driver.
#[derive(Debug)]
pub(crate) enum WatchCall {
    /// Wait until this time.
    Pause(Nanos),
    /// List a page, then call [`listed`](super::WatchMachine::listed).
    List(Query),
    /// Open a stream from this version (`None` for a streaming list), then call
    /// [`opened`](super::WatchMachine::opened).
    Open(Option<String>),
    /// Read the stream, then call [`received`](super::WatchMachine::received), or at `until`
    /// [`timed_out`](super::WatchMachine::timed_out).
    Read { until: Nanos },
}

/// The consequences of a result.
#[derive(Debug, Default)]
pub(crate) struct WatchReaction {
    pub(crate) change: Option<Change>,
    pub(crate) report: Option<Report>,
}

/// A change of the store.
#[derive(Debug)]
pub(crate) enum Change {
    /// Replaces the whole content with these objects. Objects that the client cannot read keep their values.
    ReplaceAll {
        objects: Vec<SharedObject>,
        unreadable: Vec<ClientError>,
    },
    Set(SharedObject),
    Remove(SharedObject),
    /// The client cannot read this object. It keeps its value.
    Unreadable(ClientError),
}

/// A report about the health of the source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// A list or an event has arrived.
    Works,
    /// A stream is open, but may be quiet.
    Resumed,
    /// A stream has ended without an error and without an event.
    EndedWithoutEvent,
    Failed(String),
    /// The watch changes its method from here on.
    Note(String),
}

impl From<Report> for WatchReaction {
    fn from(report: Report) -> Self {
        Self { change: None, report: Some(report) }
    }
}

impl From<Change> for WatchReaction {
    fn from(change: Change) -> Self {
        Self { change: Some(change), report: None }
    }
}

/// Returns a note that ends with the text of an error.
pub(super) fn note(text: &str, error: &ClientError) -> WatchReaction {
    Report::Note(format!("{text}: {}", Chain(error))).into()
}

/// Returns whether an error of a stream concerns only one object, so that the stream continues.
pub(super) fn concerns_one_object(error: &ClientError) -> bool {
    error.is_invalid() && !error.object().key().name().is_empty()
}
