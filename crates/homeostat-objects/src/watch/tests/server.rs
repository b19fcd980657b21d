//! A model of a server with faults. Time is a number that the test moves.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::json;

use crate::{ClientError, Kind, ObjectKey, ObjectList, ObjectRef, Query, SharedObject, ValueRef, WatchEvent};
use homeostat::rt::Nanos;

pub(super) const SECOND: Duration = Duration::from_secs(1);
/// The time between two bookmarks.
const MINUTE: Duration = Duration::from_secs(60);
/// An object of this size does not match the type.
pub(super) const UNDECODABLE: u8 = 13;

type Item = Result<WatchEvent<SharedObject>, ClientError>;
/// Names with the version and size of their objects.
pub(super) type State = BTreeMap<u8, (u64, u8)>;

/// A fault of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CallFault {
    Transport,
    Forbidden,
    TooManyRequests(u8),
    KindNotServed,
    Gone,
}

/// The fault of a stream, after a number of items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StreamFault {
    End,
    Break,
    Gone,
    KindNotServed,
    /// Nothing arrives from then on.
    Stall,
    /// The last bookmark is sent again.
    SameBookmark,
    /// A bookmark is sent that is this much older than the last item.
    LateBookmark(u8),
    /// The last event is sent again.
    SameEvent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    List(CallFault),
    /// Before the second page of the next list, this object is deleted and the version forgotten.
    Page(u8),
    /// A cache is this many versions behind, if the query accepts that.
    OldList(u8),
    Open(CallFault),
    Stream(u8, StreamFault),
    /// The next streaming list has no end marker.
    NoMarker,
    /// A cache has not reached the version that the next list must have reached.
    Behind,
}

/// How a server serves streaming lists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StreamingLists {
    Served,
    Refused,
    FailInStream,
    NeverEnd,
}

pub(super) struct Server {
    pub(super) head: u64,
    states: BTreeMap<u64, State>,
    changes: Vec<(u64, u8, Option<u8>, bool)>,
    /// Versions before this one are forgotten.
    oldest: u64,
    pub(super) faults: VecDeque<Fault>,
    pub(super) bookmarks: bool,
    pub(super) streaming: StreamingLists,
    /// Whether a cache answers lists of any version. It ignores their limit.
    pub(super) cached: bool,
    /// The most objects of a page.
    pub(super) most: usize,
    /// Whether a watch from a future version is gone, as with embedded clients. Otherwise the watch
    /// waits.
    local: bool,
    /// The number of deletions of each object.
    pub(super) deletions: BTreeMap<u8, usize>,
    /// The number of restores.
    pub(super) restores: usize,
}

pub(super) struct Stream {
    /// Items that are sent before the changes.
    first: VecDeque<Item>,
    /// The version up to which changes have been sent.
    sent: u64,
    /// The fault, and the number of items before it.
    left: Option<(u8, StreamFault)>,
    bookmark: Option<Nanos>,
    last: Option<WatchEvent<SharedObject>>,
    stalled: bool,
    broken: bool,
    restores: usize,
}

/// The result of reading a stream.
pub(super) enum Read {
    Item(Option<Item>),
    /// Nothing arrives before this time.
    Quiet(Nanos),
}

pub(super) fn things() -> ObjectRef {
    ObjectRef::new(&Kind::namespaced("example.com", "v1", "Thing"), &ObjectKey::cluster(""))
}

pub(super) fn object(name: u8, version: u64, size: u8) -> SharedObject {
    let meta = json!({"name": format!("t-{name}"), "resourceVersion": version.to_string()});
    SharedObject::from(json!({"metadata": meta, "size": size}))
}

/// Returns the name, version and size of an object.
pub(super) fn parts(object: &SharedObject) -> (u8, u64, u8) {
    let name = object.name().trim_start_matches("t-").parse().unwrap();
    let size = object.get("size").and_then(ValueRef::as_u64).unwrap();
    (name, object.resource_version().parse().unwrap(), size.try_into().unwrap())
}

pub(super) fn transport() -> ClientError {
    ClientError::transport(things(), "the line is cut")
}

pub(super) fn gone() -> ClientError {
    ClientError::gone(things(), "1")
}

impl CallFault {
    fn error(self) -> ClientError {
        match self {
            Self::Transport => transport(),
            Self::Forbidden => ClientError::forbidden(things(), "no role"),
            Self::TooManyRequests(delay) => {
                ClientError::too_many_requests(things(), Some(SECOND * delay.into()), "busy")
            }
            Self::KindNotServed => ClientError::kind_not_served(things(), "no such kind"),
            Self::Gone => gone(),
        }
    }
}

impl Server {
    pub(super) fn new(local: bool, bookmarks: bool, streaming: StreamingLists) -> Self {
        Self {
            head: 10,
            states: BTreeMap::from([(10, State::new())]),
            changes: Vec::new(),
            oldest: 10,
            faults: VecDeque::new(),
            bookmarks,
            streaming,
            cached: false,
            most: usize::MAX,
            local,
            deletions: BTreeMap::new(),
            restores: 0,
        }
    }

    pub(super) fn state(&self) -> &State {
        &self.states[&self.head]
    }

    pub(super) fn put(&mut self, name: u8, size: u8) {
        let mut state = self.state().clone();
        self.head += 1;
        let existed = state.insert(name, (self.head, size)).is_some();
        self.changes.push((self.head, name, Some(size), existed));
        self.states.insert(self.head, state);
    }

    pub(super) fn delete(&mut self, name: u8) {
        let mut state = self.state().clone();
        if state.remove(&name).is_some() {
            self.head += 1;
            self.changes.push((self.head, name, None, true));
            self.states.insert(self.head, state);
            *self.deletions.entry(name).or_default() += 1;
        }
    }

    pub(super) fn is_local(&self) -> bool {
        self.local
    }

    /// Forgets all versions before the newest.
    pub(super) fn compact(&mut self) {
        self.oldest = self.head;
    }

    /// Restores the server to an older state, by this many versions. The next changes reuse
    /// versions.
    pub(super) fn restore(&mut self, back: u8) {
        let head = self.head.saturating_sub(back.into()).max(10);
        // The old value of an undecodable object could have a version that the object gets again.
        if head == self.head || self.states[&head].values().any(|(_, size)| *size == UNDECODABLE) {
            return;
        }
        self.head = head;
        self.states.retain(|version, _| *version <= head);
        self.changes.retain(|change| change.0 <= head);
        self.oldest = self.oldest.min(head);
        self.restores += 1;
    }

    /// Takes the first fault that `wanted` accepts.
    fn fault<R>(&mut self, wanted: impl Fn(Fault) -> Option<R>) -> Option<R> {
        let (place, fault) =
            self.faults.iter().enumerate().find_map(|(place, fault)| Some((place, wanted(*fault)?)))?;
        self.faults.remove(place);
        Some(fault)
    }

    fn stream_fault(&mut self) -> Option<(u8, StreamFault)> {
        self.fault(|fault| if let Fault::Stream(after, fault) = fault { Some((after, fault)) } else { None })
    }

    pub(super) fn list(&mut self, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        if let Some(fault) = self.fault(|fault| if let Fault::List(fault) = fault { Some(fault) } else { None }) {
            return Err(fault.error());
        }
        let (version, after) = if let Some(token) = &query.continue_token {
            if let Some(name) = self.fault(|fault| if let Fault::Page(name) = fault { Some(name) } else { None }) {
                self.delete(name);
                self.compact();
                return Err(gone());
            }
            let (version, after) = token.split_once('/').unwrap();
            let (after, restores) = after.split_once('/').unwrap();
            // A client cannot see that a version has another history than its first page.
            if restores != self.restores.to_string() {
                return Err(gone());
            }
            (version.parse().unwrap(), Some(after.parse::<u8>().unwrap()))
        } else {
            let least = query.not_older_than.as_deref().map(|least| least.parse::<u64>().unwrap());
            if least.is_some_and(|least| least > 0)
                && self.fault(|fault| (fault == Fault::Behind).then_some(())).is_some()
            {
                return Err(gone());
            }
            if least.is_some_and(|least| least > self.head) && !self.local {
                return Err(gone());
            }
            let behind = match least {
                Some(_) if !self.local => {
                    self.fault(|fault| if let Fault::OldList(behind) = fault { Some(behind) } else { None })
                }
                _ => None,
            };
            let old = self.head.saturating_sub(behind.unwrap_or(0).into());
            (old.max(least.unwrap_or(0).min(self.head)).max(10), None)
        };
        let Some(state) =
            self.states.get(&version).filter(|_| query.continue_token.is_none() || version >= self.oldest)
        else {
            return Err(gone());
        };
        let rest = state.iter().filter(|(name, _)| after.is_none_or(|after| **name > after));
        let is_cached = self.cached && query.continue_token.is_none() && query.not_older_than.as_deref() == Some("0");
        let limit = query.limit.filter(|_| !is_cached).map_or(usize::MAX, |limit| limit.min(self.most));
        let page: Vec<_> = rest.clone().take(limit).collect();
        let token = (rest.count() > limit).then(|| format!("{version}/{}/{}", page[limit - 1].0, self.restores));
        let items = page.into_iter().map(|(name, (version, size))| object(*name, *version, *size)).collect();
        Ok(ObjectList::new(version.to_string(), items).continue_token(token))
    }

    pub(super) fn open(&mut self, now: Nanos, from: Option<&str>) -> Result<Stream, ClientError> {
        if let Some(fault) = self.fault(|fault| if let Fault::Open(fault) = fault { Some(fault) } else { None }) {
            return Err(fault.error());
        }
        let (mut first, mut left, mut bookmark) = (VecDeque::new(), None, self.bookmarks.then(|| now.after(MINUTE)));
        let sent = if let Some(version) = from {
            let version: u64 = version.parse().unwrap();
            if version < self.oldest || (self.local && version > self.head) {
                return Err(gone());
            }
            version
        } else {
            if self.streaming == StreamingLists::Refused {
                return Err(ClientError::invalid(things(), "sendInitialEvents", "true", "must not be set"));
            }
            let added =
                |(name, (version, size)): (&u8, &(u64, u8))| Ok(WatchEvent::Added(object(*name, *version, *size)));
            first.extend(self.state().iter().map(added));
            let has_marker = self.streaming == StreamingLists::Served
                && self.fault(|fault| (fault == Fault::NoMarker).then_some(())).is_none();
            if has_marker {
                first.push_back(Ok(WatchEvent::Bookmark(self.head.to_string())));
            } else {
                // Clients deliver no other bookmarks before the marker.
                bookmark = None;
            }
            if self.streaming == StreamingLists::FailInStream {
                left = Some((1, StreamFault::Break));
            }
            self.head
        };
        let fault = self.stream_fault();
        Ok(Stream {
            first,
            sent,
            left: left.or(fault),
            bookmark,
            last: None,
            stalled: false,
            broken: false,
            restores: self.restores,
        })
    }

    /// Reads a stream. Bookmarks are sent when they are due.
    pub(super) fn read(&mut self, stream: &mut Stream, now: Nanos) -> Read {
        if stream.broken {
            return Read::Item(None);
        }
        if stream.restores < self.restores {
            // The server has been restarted.
            stream.broken = true;
            return Read::Item(Some(Err(transport())));
        }
        if stream.stalled {
            return Read::Quiet(Nanos::NEVER);
        }
        if let Some((0, fault)) = stream.left.take_if(|(left, _)| *left == 0) {
            stream.left = self.stream_fault();
            match fault {
                StreamFault::End => stream.broken = true,
                StreamFault::Stall => stream.stalled = true,
                StreamFault::SameBookmark | StreamFault::SameEvent => {
                    if let Some(last) = stream.last.clone() {
                        return Read::Item(Some(Ok(last)));
                    }
                }
                StreamFault::LateBookmark(late) => {
                    if stream.first.is_empty() && stream.bookmark.is_some() {
                        let version = stream.sent.saturating_sub(late.into()).max(1);
                        return Read::Item(Some(Ok(WatchEvent::Bookmark(version.to_string()))));
                    }
                }
                StreamFault::Break => return break_off(stream, transport()),
                StreamFault::Gone => return break_off(stream, gone()),
                StreamFault::KindNotServed => return break_off(stream, CallFault::KindNotServed.error()),
            }
            return self.read(stream, now);
        }
        let next = stream.first.pop_front().or_else(|| self.next_change(stream)).or_else(|| {
            let at = stream.bookmark.filter(|at| *at <= now && stream.sent <= self.head)?;
            stream.bookmark = Some(at.after(MINUTE));
            Some(Ok(WatchEvent::Bookmark(self.head.to_string())))
        });
        if let Some(Ok(event)) = &next {
            if let Some((left, _)) = &mut stream.left {
                *left -= 1;
            }
            stream.last = Some(event.clone());
        }
        if next.is_some() {
            return Read::Item(next);
        }
        // A stream from a future version has no bookmarks either.
        if stream.sent > self.head {
            return Read::Quiet(Nanos::NEVER);
        }
        Read::Quiet(stream.bookmark.unwrap_or(Nanos::NEVER))
    }

    fn next_change(&self, stream: &mut Stream) -> Option<Item> {
        let place = self.changes.partition_point(|change| change.0 <= stream.sent);
        let (version, name, size, existed) = *self.changes.get(place)?;
        if version <= self.oldest && stream.sent + 1 < self.oldest {
            // The watch is too slow.
            stream.broken = true;
            return Some(Err(gone()));
        }
        stream.sent = version;
        Some(Ok(match (size, existed) {
            (Some(size), false) => WatchEvent::Added(object(name, version, size)),
            (Some(size), true) => WatchEvent::Modified(object(name, version, size)),
            (None, _) => WatchEvent::Deleted(object(name, version, 0)),
        }))
    }
}

fn break_off(stream: &mut Stream, error: ClientError) -> Read {
    stream.broken = true;
    Read::Item(Some(Err(error)))
}
