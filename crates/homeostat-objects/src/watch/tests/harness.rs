//! A machine for tests that answer each of its calls.

use std::time::Duration;

use super::super::machine::{Change, Report, WatchCall, WatchMachine, WatchReaction};
use super::server::{SECOND, object};
use crate::{ClientError, ObjectList, Query, SharedObject, WatchEvent};
use homeostat::base::Exponential;
use homeostat::rt::{Draws, Nanos};

pub(super) const LOCAL: bool = true;
pub(super) const REMOTE: bool = false;

/// A machine and its time.
pub(super) struct Machine {
    pub(super) machine: WatchMachine,
    pub(super) now: Nanos,
}

/// Returns a machine that pauses for 1, 2, 4, 4 … seconds.
pub(super) fn machine(local: bool, query: Query) -> Machine {
    let backoff = Exponential::new(SECOND, 4 * SECOND).jitter(0.0);
    Machine { machine: WatchMachine::new(query, local, backoff, Draws::new(1)), now: Nanos::ZERO }
}

impl Machine {
    /// Returns the next call as text: `list` with the version that it must have reached and `paged`, `open` with its
    /// version, or `read` or `pause` with the time until its end.
    pub(super) fn next(&self) -> String {
        match self.machine.next(self.now) {
            WatchCall::Pause(until) => format!("pause {:?}", until.since(self.now)),
            WatchCall::List(query) => {
                let paged = if query.limit.is_some() { " paged" } else { "" };
                format!("list {}{paged}", query.not_older_than.as_deref().unwrap_or("newest"))
            }
            WatchCall::Open(from) => format!("open {}", from.as_deref().unwrap_or("streaming list")),
            WatchCall::Read { until: Nanos::NEVER } => "read".to_owned(),
            WatchCall::Read { until } => format!("read {:?}", until.since(self.now)),
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// Asserts a pause, and waits until it ends.
    pub(super) fn pauses(&mut self, seconds: u32) {
        assert_eq!(self.next(), format!("pause {:?}", SECOND * seconds));
        self.pass(SECOND * seconds);
    }

    pub(super) fn listed(&mut self, version: &str) -> WatchReaction {
        self.listed_page(ObjectList::new(version, vec![object(1, 1, 1)]))
    }

    pub(super) fn listed_page(&mut self, page: ObjectList<SharedObject>) -> WatchReaction {
        self.machine.listed(self.now, Ok((page, Vec::new())))
    }

    /// Answers the check of the server's version.
    pub(super) fn probed(&mut self, version: &str) {
        assert!(self.listed(version).change.is_none(), "one object is no list");
    }

    pub(super) fn list_fails(&mut self, error: ClientError) -> WatchReaction {
        self.machine.listed(self.now, Err(error))
    }

    pub(super) fn opened(&mut self) -> WatchReaction {
        self.machine.opened(self.now, Ok(()))
    }

    pub(super) fn open_fails(&mut self, error: ClientError) -> WatchReaction {
        self.machine.opened(self.now, Err(error))
    }

    pub(super) fn changed(&mut self, version: u64) -> WatchReaction {
        self.machine.received(self.now, Some(Ok(WatchEvent::Modified(object(1, version, 1)))))
    }

    pub(super) fn bookmark(&mut self, version: &str) -> WatchReaction {
        self.machine.received(self.now, Some(Ok(WatchEvent::Bookmark(version.to_owned()))))
    }

    pub(super) fn ends(&mut self) -> WatchReaction {
        self.machine.received(self.now, None)
    }

    pub(super) fn breaks(&mut self, error: ClientError) -> WatchReaction {
        self.machine.received(self.now, Some(Err(error)))
    }

    pub(super) fn times_out(&mut self) -> WatchReaction {
        self.machine.timed_out(self.now)
    }

    /// Lists the objects and opens a stream.
    pub(super) fn follow(&mut self, version: &str) {
        self.listed(version);
        assert_eq!(self.next(), format!("open {version}"));
        self.opened();
    }

    /// Opens a streaming list that is complete.
    pub(super) fn stream(&mut self, version: &str) {
        assert_eq!(self.next(), "open streaming list");
        self.opened();
        assert!(matches!(self.bookmark(version).change, Some(Change::ReplaceAll { .. })));
    }
}

pub(super) fn has_failed(reaction: &WatchReaction) -> bool {
    matches!(reaction.report, Some(Report::Failed(_)))
}
