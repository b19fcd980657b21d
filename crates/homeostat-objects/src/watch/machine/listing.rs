//! Lists in pages, and streaming lists, until they are complete.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::client::ReadableList;
use crate::version::is_older;
use crate::{ClientError, ObjectKey, Query, SharedObject, WatchEvent};
use homeostat::rt::Nanos;

/// The longest time between two new objects of a streaming list, and before its end marker. A server waits three
/// seconds for its cache, then sends without a pause.
const MARKER_SILENCE: Duration = Duration::from_secs(30);
/// The longest duration of a streaming list. If the end marker is missing, new objects may arrive forever.
const MARKER_DEADLINE: Duration = Duration::from_secs(300);

/// The size of the pages that the watch chooses itself, as client-go does.
const PAGE_SIZE: usize = 500;

/// A list in pages, or in one page without a limit.
pub(super) struct PagedListing {
    required: RequiredVersion,
    limit: Option<usize>,
    token: Option<String>,
    /// The version of the first page.
    version: Option<String>,
    items: Vec<SharedObject>,
    unreadable: Vec<ClientError>,
}

/// The version that a list must have reached.
pub(super) enum RequiredVersion {
    Any,
    AtLeast(String),
    Newest,
}

/// The effect of a page on the list.
pub(super) enum PageEffect {
    /// The list has more pages.
    More,
    /// The page repeats the previous one, and all further pages would too.
    Repeated,
    /// The list is complete, but has this older version.
    TooOld(String),
    /// The list is complete: its objects, the errors of objects that the client cannot read, and its version.
    Complete(Vec<SharedObject>, Vec<ClientError>, String),
}

impl PagedListing {
    /// `limit` is the page size of the query. Without a limit, `may_page` allows the watch to choose one.
    ///
    /// It chooses no limit for a list that must have reached a version, because servers answer such a list from a cache
    /// only if it has no limit. For a list of any version, a cache ignores the limit, and a server without a cache
    /// needs it.
    pub(super) fn new(required: RequiredVersion, limit: Option<usize>, may_page: bool) -> Self {
        let limit = limit.or((may_page && !matches!(required, RequiredVersion::AtLeast(_))).then_some(PAGE_SIZE));
        Self { required, limit, token: None, version: None, items: Vec::new(), unreadable: Vec::new() }
    }

    /// Returns the query of the next page.
    pub(super) fn query(&self, query: &Query) -> Query {
        let not_older_than = match &self.required {
            RequiredVersion::Any => Some("0".to_owned()),
            RequiredVersion::AtLeast(version) => Some(version.clone()),
            RequiredVersion::Newest => None,
        };
        Query { limit: self.limit, continue_token: self.token.clone(), not_older_than, ..query.clone() }
    }

    /// Takes the next page.
    pub(super) fn take(&mut self, (page, unreadable): ReadableList) -> PageEffect {
        self.items.extend(page.items);
        self.unreadable.extend(unreadable);
        let version = self.version.get_or_insert(page.version);
        if let Some(token) = page.continue_token {
            let is_known = self.token.as_ref() == Some(&token);
            self.token = Some(token);
            return if is_known { PageEffect::Repeated } else { PageEffect::More };
        }
        let version = std::mem::take(version);
        match &self.required {
            RequiredVersion::AtLeast(required) if is_older(&version, required) => PageEffect::TooOld(version),
            _ => {
                let unreadable = std::mem::take(&mut self.unreadable);
                PageEffect::Complete(std::mem::take(&mut self.items), unreadable, version)
            }
        }
    }

    /// Returns whether another page must be read.
    pub(super) fn continues(&self) -> bool {
        self.token.is_some() && self.limit.is_some()
    }

    /// Returns whether the list need not be the newest one.
    pub(super) fn may_be_old(&self) -> bool {
        !matches!(self.required, RequiredVersion::Newest)
    }

    /// Returns whether the list must have reached a version.
    pub(super) fn has_required_version(&self) -> bool {
        matches!(self.required, RequiredVersion::AtLeast(_))
    }
}

/// The objects that a stream sends before its end marker.
pub(super) struct StreamingList {
    /// The objects by key, or the errors of objects that the client cannot read.
    items: BTreeMap<ObjectKey, Result<SharedObject, ClientError>>,
    began: Nanos,
    /// The time of the last new object.
    progressed: Nanos,
}

impl StreamingList {
    pub(super) fn new(now: Nanos) -> Self {
        Self { items: BTreeMap::new(), began: now, progressed: now }
    }

    /// Returns when the watch gives up on the list.
    pub(super) fn deadline(&self) -> Nanos {
        self.progressed.after(MARKER_SILENCE).min(self.began.after(MARKER_DEADLINE))
    }

    /// Takes an event. At the end marker, returns the version.
    pub(super) fn take(&mut self, now: Nanos, event: WatchEvent<SharedObject>) -> Option<String> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => self.insert(now, object.key(), Ok(object)),
            WatchEvent::Deleted(object) => drop(self.items.remove(&object.key())),
            WatchEvent::Bookmark(version) => return Some(version),
        }
        None
    }

    /// Takes the error of an object that the client cannot read.
    pub(super) fn take_unreadable(&mut self, now: Nanos, error: ClientError) {
        self.insert(now, error.object().key().clone(), Err(error));
    }

    fn insert(&mut self, now: Nanos, key: ObjectKey, object: Result<SharedObject, ClientError>) {
        // Only new objects count as progress: without a marker, changes may arrive forever.
        if self.items.insert(key, object).is_none() {
            self.progressed = now;
        }
    }

    /// Returns the objects, and the errors of those that the client cannot read.
    pub(super) fn finish(&mut self) -> (Vec<SharedObject>, Vec<ClientError>) {
        let (mut objects, mut unreadable) = (Vec::with_capacity(self.items.len()), Vec::new());
        for object in std::mem::take(&mut self.items).into_values() {
            match object {
                Ok(object) => objects.push(object),
                Err(error) => unreadable.push(error),
            }
        }
        (objects, unreadable)
    }

    /// Returns the number of objects, and the time since the beginning.
    pub(super) fn extent(&self, now: Nanos) -> (usize, Duration) {
        (self.items.len(), now.since(self.began))
    }
}
