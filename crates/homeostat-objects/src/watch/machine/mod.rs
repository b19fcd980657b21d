//! Decides for a watch of objects: the next call to the client, the changes of the store, the pauses.
//!
//! A [driver](super::driver) makes the [calls](WatchCall) and passes the results back. Times are plain numbers.
//!
//! # How objects are listed
//!
//! | the client | first | if that fails |
//! |---|---|---|
//! | is [local](crate::Capabilities::local), or the query has a limit | a list | a list |
//! | is remote | a streaming list: a stream without a version, up to its first bookmark (the *end marker*) | a list |
//!
//! Lists follow the ladder of client-go (`tools/cache/reflector.go`). The first list may be of any version; a later one
//! must have reached the last version that the watch has seen. If the server cannot do that, the watch takes the newest
//! list. If a page is gone, or the version of a list in pages, the watch lists all objects at once. A watch that gets
//! no end marker lists from then on. If the server refuses streaming lists, the watch uses pages for the lists that no
//! cache answers.
//!
//! After a failure, a remote watch lists one object before it resumes. That list must have reached the last version.
//! Without this check, a server that was restored to an older state would keep the stream waiting.
//!
//! # Invariants
//!
//! - A stream resumes at the version of the last change in the store. Only a newest list or a streaming list moves that
//!   version backward.
//! - Versions are compared only as decimal numbers, and only within one watch. Unless both are decimal numbers, neither
//!   counts as older.
//! - Only a complete list replaces the store, so a deletion between two streams shows as a key that the list lacks.
//! - A pause separates attempts. A bounded number of attempts needs no pause: after real changes, and where a step of
//!   the ladder cannot recur.

mod call;
mod listing;
mod pauses;
mod streaming;

use std::time::Duration;

pub(super) use self::call::{Change, Report, WatchCall, WatchReaction};
use self::call::{concerns_one_object, note};
use self::listing::{PageEffect, PagedListing, RequiredVersion, StreamingList};
use self::pauses::{EndedAttempt, Pauses};
pub use self::streaming::LONGEST_SILENCE;
use self::streaming::{Following, Streaming, longest_silence};
use crate::client::ReadableList;
use crate::version::is_older;
use crate::{ClientError, ClientErrorKind, Query, SharedObject, WatchEvent};
use homeostat::base::Exponential;
use homeostat::rt::{Chain, Draws, Nanos, Rounded};
use homeostat::run::RetryAfter;

/// The number of failed streaming lists in a row after which the watch only lists.
const STREAMING_FAILURES: u32 = 3;
/// The number of silent streams in a row after which the objects are listed again.
const SILENT_STREAMS: u32 = 2;

/// The state machine of one watch.
#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact")]
pub(super) struct WatchMachine {
    query: Query,
    /// Whether calls are cheap and streams never stall.
    local: bool,
    pauses: Pauses,
    phase: WatchPhase,
    /// The last version seen. Empty if the objects must be listed for the first time.
    version: String,
    /// Whether the next list must be the newest one.
    newest: bool,
    /// Whether the next list has pages.
    in_pages: bool,
    streaming: Streaming,
    /// Whether a stream of this watch has sent a bookmark that is not an end marker.
    has_bookmarks: bool,
    /// How many streams in a row were silent from their beginning.
    silent_streams: u32,
}

/// The current activity of a watch.
enum WatchPhase {
    Listing(PagedListing),
    /// Opens a stream of changes. `is_fresh` if the version is from a list that has just arrived.
    Opening {
        is_fresh: bool,
    },
    /// Checks whether the server has reached the version, after a failure. A restored server may wait for the version
    /// without answering.
    Probing,
    OpeningStreamingList,
    StreamingList(StreamingList),
    Following(Following),
}

impl WatchMachine {
    /// Returns whether a stream is open.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.phase, WatchPhase::StreamingList(_) | WatchPhase::Following(_))
    }

    pub(super) fn new(query: Query, local: bool, backoff: Exponential, draws: Draws) -> Self {
        // A query with a limit asks for pages.
        let streaming = if local || query.limit.is_some() { Streaming::Off } else { Streaming::Preferred(0) };
        let mut machine = Self {
            query,
            local,
            pauses: Pauses::new(backoff, draws),
            phase: WatchPhase::OpeningStreamingList,
            version: String::new(),
            newest: false,
            in_pages: true,
            streaming,
            has_bookmarks: false,
            silent_streams: 0,
        };
        machine.list_again();
        machine
    }

    /// Returns the next action.
    pub(super) fn next(&self, now: Nanos) -> WatchCall {
        if let Some(end) = self.pauses.end(now) {
            return WatchCall::Pause(end);
        }
        match &self.phase {
            WatchPhase::Listing(listing) => WatchCall::List(listing.query(&self.query)),
            WatchPhase::Probing => WatchCall::List(Query {
                limit: Some(1),
                not_older_than: Some(self.version.clone()),
                ..self.query.clone()
            }),
            WatchPhase::Opening { .. } => WatchCall::Open(Some(self.version.clone())),
            WatchPhase::OpeningStreamingList => WatchCall::Open(None),
            WatchPhase::StreamingList(list) => WatchCall::Read { until: list.deadline() },
            WatchPhase::Following(_) if self.local => WatchCall::Read { until: Nanos::NEVER },
            WatchPhase::Following(following) => {
                WatchCall::Read { until: following.heard.after(longest_silence(self.has_bookmarks)) }
            }
        }
    }

    /// Returns the last version seen.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Processes the answer to [`WatchCall::List`].
    pub(super) fn listed(&mut self, now: Nanos, answer: Result<ReadableList, ClientError>) -> WatchReaction {
        let listing = match &mut self.phase {
            WatchPhase::Listing(listing) => listing,
            WatchPhase::Probing => return self.probed(now, answer),
            _ => return WatchReaction::default(),
        };
        match answer.map(|page| listing.take(page)) {
            Ok(PageEffect::More) => WatchReaction::default(),
            Ok(PageEffect::Repeated) => self.fail(now, "two pages of a list have the same continue token".to_owned()),
            Ok(PageEffect::TooOld(version)) => {
                self.newest = true;
                self.phase = self.listing();
                let text = format!("listing the newest objects: a list has version {version}, before {}", self.version);
                Report::Note(text).into()
            }
            Ok(PageEffect::Complete(items, unreadable, version)) => {
                if let Streaming::Skipped(failures) = self.streaming {
                    self.streaming = Streaming::Preferred(failures);
                }
                self.phase = WatchPhase::Opening { is_fresh: true };
                self.replaced(items, unreadable, version)
            }
            Err(error) if error.is_gone() && listing.continues() => {
                // Pages could be too slow again. The pager of client-go does the same.
                self.in_pages = false;
                self.phase = self.listing();
                note("listing the objects again, without pages", &error)
            }
            Err(error) if error.is_gone() && listing.may_be_old() => {
                self.newest = true;
                self.phase = self.listing();
                note("listing the newest objects", &error)
            }
            Err(error) => {
                // The server may never reach the version, for example after a restore.
                self.newest |= listing.has_required_version();
                self.fail_with(now, &error)
            }
        }
    }

    /// Processes a list of one object that must have reached the last version. It does not matter whether the client
    /// can read the object.
    fn probed(&mut self, now: Nanos, answer: Result<ReadableList, ClientError>) -> WatchReaction {
        match answer.map(|(list, _)| list) {
            Ok(list) if !is_older(&list.version, &self.version) => {
                self.phase = WatchPhase::Opening { is_fresh: false };
                WatchReaction::default()
            }
            Ok(list) => {
                let text = format!(
                    "the server is at version {}, before {}: listing the newest objects",
                    list.version, self.version
                );
                self.newest = true;
                self.list_again();
                Report::Note(text).into()
            }
            Err(error) if error.is_gone() => {
                self.newest = true;
                self.list_again();
                note("listing the newest objects", &error)
            }
            Err(error) => self.interrupted(now, &error),
        }
    }

    /// Processes the answer to [`WatchCall::Open`].
    pub(super) fn opened(&mut self, now: Nanos, answer: Result<(), ClientError>) -> WatchReaction {
        match (&self.phase, answer) {
            (WatchPhase::OpeningStreamingList, Ok(())) => {
                self.phase = WatchPhase::StreamingList(StreamingList::new(now));
                WatchReaction::default()
            }
            (WatchPhase::OpeningStreamingList, Err(error)) => self.streaming_failed(now, &error),
            (WatchPhase::Opening { is_fresh }, Ok(())) => {
                self.phase = WatchPhase::Following(Following { is_resumed: !is_fresh, ..Following::new(now) });
                Report::Resumed.into()
            }
            (WatchPhase::Opening { is_fresh: true }, Err(error)) if error.is_gone() => {
                // The list took too long, or a cache had an old one.
                (self.newest, self.in_pages) = (true, false);
                self.list_again();
                self.fail_with(now, &error)
            }
            (WatchPhase::Opening { .. }, Err(error)) => self.interrupted(now, &error),
            _ => WatchReaction::default(),
        }
    }

    /// Processes the next item of the stream; `None` at its end.
    pub(super) fn received(
        &mut self,
        now: Nanos,
        item: Option<Result<WatchEvent<SharedObject>, ClientError>>,
    ) -> WatchReaction {
        match (&mut self.phase, item) {
            (WatchPhase::StreamingList(list), Some(Err(error))) if concerns_one_object(&error) => {
                list.take_unreadable(now, error.clone());
                Change::Unreadable(error).into()
            }
            (WatchPhase::Following(following), Some(Err(error))) if concerns_one_object(&error) => {
                following.heard = now;
                Change::Unreadable(error).into()
            }
            (WatchPhase::StreamingList(_), None) => {
                self.streaming_has_failed();
                self.fail(now, "a streaming list ended before its end marker".to_owned())
            }
            (WatchPhase::StreamingList(_), Some(Err(error))) => self.streaming_failed(now, &error),
            (WatchPhase::StreamingList(list), Some(Ok(event))) => {
                let Some(version) = list.take(now, event) else { return WatchReaction::default() };
                let (objects, unreadable) = list.finish();
                self.streaming = Streaming::Preferred(0);
                self.phase = WatchPhase::Following(Following { has_delivered: true, ..Following::new(now) });
                self.replaced(objects, unreadable, version)
            }
            (WatchPhase::Following(following), None) => {
                let report = (!following.has_delivered).then_some(Report::EndedWithoutEvent);
                self.retry(now, false, Duration::ZERO);
                WatchReaction { change: None, report }
            }
            (WatchPhase::Following(_), Some(Err(error))) => self.interrupted(now, &error),
            (WatchPhase::Following(_), Some(Ok(event))) => self.follow(now, event),
            _ => WatchReaction::default(),
        }
    }

    /// Processes a timeout of [`WatchCall::Read`]. The stream has been closed.
    pub(super) fn timed_out(&mut self, now: Nanos) -> WatchReaction {
        match &self.phase {
            WatchPhase::StreamingList(list) => {
                let (count, time) = list.extent(now);
                let time = Rounded(time);
                let text = format!("a streaming list of {count} objects has no end marker after {time}: listing them");
                self.streaming = Streaming::Off;
                self.list_again();
                Report::Failed(text).into()
            }
            WatchPhase::Following(following) => {
                // A server without bookmarks may have nothing to send.
                let has_failed = self.has_bookmarks;
                let text = format!("a stream has been silent for {}", Rounded(now.since(following.heard)));
                let is_quiet = !following.has_delivered;
                self.silent_streams += 1;
                if self.silent_streams >= SILENT_STREAMS {
                    // The server may be waiting for a version that it had before a restore.
                    self.newest |= has_failed;
                    self.list_again_after(now, has_failed);
                } else {
                    self.retry(now, has_failed, Duration::ZERO);
                }
                let report =
                    if has_failed { Some(Report::Failed(text)) } else { is_quiet.then_some(Report::EndedWithoutEvent) };
                WatchReaction { change: None, report }
            }
            _ => WatchReaction::default(),
        }
    }

    /// Handles a panic in a call or in a change of the store. Lists the objects again.
    pub(super) fn panicked(&mut self, now: Nanos) {
        self.list_again_after(now, true);
    }

    /// Processes an event of a stream of changes.
    fn follow(&mut self, now: Nanos, event: WatchEvent<SharedObject>) -> WatchReaction {
        let WatchPhase::Following(following) = &mut self.phase else { return WatchReaction::default() };
        let (version, change) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                (object.resource_version().to_owned(), Some(Change::Set(object)))
            }
            WatchEvent::Deleted(object) => (object.resource_version().to_owned(), Some(Change::Remove(object))),
            WatchEvent::Bookmark(version) => (version, None),
        };
        if is_older(&version, &self.version) {
            let text =
                format!("the server went back from version {} to {version}: listing the newest objects", self.version);
            following.has_changed = false;
            self.newest = true;
            self.list_again_after(now, true);
            return Report::Failed(text).into();
        }
        following.heard = now;
        self.silent_streams = 0;
        self.has_bookmarks |= change.is_none();
        if !version.is_empty() && version != self.version {
            following.has_changed |= change.is_some();
            self.version = version;
        }
        let is_first = !std::mem::replace(&mut following.has_delivered, true);
        WatchReaction { change, report: is_first.then_some(Report::Works) }
    }

    /// Processes a complete list.
    fn replaced(&mut self, objects: Vec<SharedObject>, unreadable: Vec<ClientError>, version: String) -> WatchReaction {
        self.version = version;
        self.newest = false;
        self.silent_streams = 0;
        WatchReaction { change: Some(Change::ReplaceAll { objects, unreadable }), report: Some(Report::Works) }
    }

    /// Processes an error of a stream of changes.
    fn interrupted(&mut self, now: Nanos, error: &ClientError) -> WatchReaction {
        if error.is_gone() {
            // The server works again, but has forgotten the version. The next list brings a new version, so this cannot
            // recur at once.
            match &self.phase {
                WatchPhase::Opening { is_fresh: false } => self.list_again(),
                WatchPhase::Following(stream) if stream.is_resumed && !stream.has_delivered => self.list_again(),
                _ => self.list_again_after(now, true),
            }
            return note("listing the objects again", error);
        }
        if *error.kind() == ClientErrorKind::KindNotServed {
            // If the kind is served again later, it may have other objects.
            self.list_again_after(now, true);
            return Report::Failed(Chain(error).to_string()).into();
        }
        self.fail_with(now, error)
    }

    /// Processes an error of a streaming list.
    fn streaming_failed(&mut self, now: Nanos, error: &ClientError) -> WatchReaction {
        if error.is_invalid() {
            self.streaming = Streaming::Refused;
            self.list_again();
            return note("the client has no streaming lists: using plain lists from now on", error);
        }
        let concerns_lists_too = matches!(
            error.kind(),
            ClientErrorKind::Forbidden
                | ClientErrorKind::Unauthorized
                | ClientErrorKind::TooManyRequests { .. }
                | ClientErrorKind::KindNotServed
        );
        if !concerns_lists_too {
            self.streaming_has_failed();
        }
        self.fail_with(now, error)
    }

    fn streaming_has_failed(&mut self) {
        let (Streaming::Preferred(failures) | Streaming::Skipped(failures)) = self.streaming else { return };
        let failures = failures + 1;
        self.streaming = if failures >= STREAMING_FAILURES { Streaming::Off } else { Streaming::Skipped(failures) };
    }

    fn fail_with(&mut self, now: Nanos, error: &ClientError) -> WatchReaction {
        self.retry(now, true, RetryAfter::find(error).map_or(Duration::ZERO, |asked| asked.delay()));
        Report::Failed(Chain(error).to_string()).into()
    }

    fn fail(&mut self, now: Nanos, text: String) -> WatchReaction {
        self.retry(now, true, Duration::ZERO);
        Report::Failed(text).into()
    }

    /// Lists the objects after a pause.
    fn list_again_after(&mut self, now: Nanos, failed: bool) {
        self.pause(now, failed, Duration::ZERO);
        self.list_again();
    }

    /// Lists the objects.
    fn list_again(&mut self) {
        self.phase = match self.streaming {
            Streaming::Preferred(_) => WatchPhase::OpeningStreamingList,
            Streaming::Skipped(_) | Streaming::Off | Streaming::Refused => self.listing(),
        };
    }

    fn listing(&self) -> WatchPhase {
        let required = match (self.newest, self.version.is_empty()) {
            (true, _) => RequiredVersion::Newest,
            (false, true) => RequiredVersion::Any,
            (false, false) => RequiredVersion::AtLeast(self.version.clone()),
        };
        let is_refused = matches!(self.streaming, Streaming::Refused);
        let limit = self.query.limit.filter(|_| self.in_pages);
        WatchPhase::Listing(PagedListing::new(required, limit, self.in_pages && is_refused))
    }

    /// Begins the next attempt after a pause: resumes the stream if there was one, or lists.
    fn retry(&mut self, now: Nanos, failed: bool, asked: Duration) {
        self.pause(now, failed, asked);
        match self.phase {
            // Without a version, changes between two streams would be lost.
            WatchPhase::Following(_) | WatchPhase::Opening { .. } | WatchPhase::Probing if !self.version.is_empty() => {
                let is_probed = failed && !self.local;
                self.phase = if is_probed { WatchPhase::Probing } else { WatchPhase::Opening { is_fresh: false } };
            }
            _ => self.list_again(),
        }
    }

    /// Begins the pause after an attempt. `asked` is the delay that the server asks for.
    fn pause(&mut self, now: Nanos, has_failed: bool, asked: Duration) {
        let (lasted, has_changed) = match &self.phase {
            WatchPhase::Following(following) => (now.since(following.began), following.has_changed),
            _ => (Duration::ZERO, false),
        };
        self.in_pages |= has_changed;
        self.pauses.begin(now, &EndedAttempt { lasted, has_changed, has_failed, asked });
    }
}
