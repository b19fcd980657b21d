//! A machine with a server, a store and the record of a subscriber.

use std::time::Duration;

use super::super::machine::{Change, Report, WatchCall, WatchMachine, WatchReaction};
use super::server::{Read, SECOND, Server, State, Stream, UNDECODABLE, parts};
use crate::Query;
use homeostat::base::Exponential;
use homeostat::rt::{Draws, Nanos};

/// A machine with a server, a store and the record of a subscriber.
pub(super) struct Watcher {
    pub(super) machine: WatchMachine,
    pub(super) server: Server,
    stream: Option<Stream>,
    pub(super) now: Nanos,
    pub(super) store: State,
    /// The changes that a subscriber got: the version of an object, or its removal.
    pub(super) told: Vec<(u8, Option<u64>)>,
    /// The times of lists (first pages) and of opened streams.
    pub(super) calls: Vec<Nanos>,
    pub(super) reports: Vec<Report>,
    /// Whether the watch has seen versions that a restore has removed, and has not listed since.
    pub(super) is_ahead: bool,
}

impl Watcher {
    pub(super) fn new(server: Server, limit: Option<usize>, seed: u64) -> Self {
        let query = Query { limit, ..Query::all() };
        let backoff = Exponential::new(Duration::from_millis(800), 30 * SECOND);
        let machine = WatchMachine::new(query, server.is_local(), backoff, Draws::new(seed));
        Self {
            machine,
            server,
            stream: None,
            now: Nanos::ZERO,
            store: State::new(),
            told: Vec::new(),
            calls: Vec::new(),
            reports: Vec::new(),
            is_ahead: false,
        }
    }

    /// Makes one step. Time passes until then. Returns `false` if nothing further happens, or nothing before `until`.
    pub(super) fn step(&mut self, until: Nanos) -> bool {
        let reaction = match self.machine.next(self.now) {
            WatchCall::Pause(end) => {
                assert!(end > self.now);
                if end > until {
                    self.now = self.now.max(until);
                    return false;
                }
                self.now = end;
                return true;
            }
            WatchCall::List(query) => {
                if query.continue_token.is_none() {
                    self.calls.push(self.now);
                }
                let answer = self.server.list(&query);
                self.machine.listed(self.now, answer.map(|list| (list, Vec::new())))
            }
            WatchCall::Open(from) => {
                self.calls.push(self.now);
                let opened = self.server.open(self.now, from.as_deref()).map(|stream| self.stream = Some(stream));
                self.machine.opened(self.now, opened)
            }
            WatchCall::Read { until: deadline } => {
                let stream = self.stream.as_mut().expect("an open stream");
                match self.server.read(stream, self.now) {
                    Read::Item(item) => self.machine.received(self.now, item),
                    Read::Quiet(next) => {
                        let next = next.min(deadline);
                        if next > until {
                            self.now = self.now.max(until);
                            return false;
                        }
                        self.now = next;
                        if next < deadline {
                            return true;
                        }
                        self.machine.timed_out(self.now)
                    }
                }
            }
        };
        self.react(reaction);
        true
    }

    /// Restores the server to an older state, by this many versions.
    pub(super) fn restore(&mut self, back: u8) {
        self.server.restore(back);
        self.is_ahead = self.machine.version().parse().is_ok_and(|version: u64| version > self.server.head);
    }

    fn react(&mut self, reaction: WatchReaction) {
        if !self.machine.is_reading() {
            self.stream = None;
        }
        self.reports.extend(reaction.report);
        match reaction.change {
            None | Some(Change::Unreadable(_)) => {}
            Some(Change::Set(object)) => self.set(parts(&object)),
            Some(Change::Remove(object)) => self.remove(parts(&object).0),
            Some(Change::ReplaceAll { objects, .. }) => {
                self.is_ahead = false;
                let listed: Vec<_> = objects.iter().map(parts).collect();
                let lacking = |name: &&u8| !listed.iter().any(|listed| listed.0 == **name);
                for name in self.store.keys().filter(lacking).copied().collect::<Vec<_>>() {
                    self.remove(name);
                }
                for listed in listed {
                    self.set(listed);
                }
            }
        }
    }

    /// Stores an object as a watch does: an undecodable object keeps the old value, and a known version changes
    /// nothing.
    fn set(&mut self, (name, version, size): (u8, u64, u8)) {
        if size != UNDECODABLE && self.store.get(&name).is_none_or(|known| known.0 != version) {
            self.store.insert(name, (version, size));
            self.told.push((name, Some(version)));
        }
    }

    fn remove(&mut self, name: u8) {
        if self.store.remove(&name).is_some() {
            self.told.push((name, None));
        }
    }

    /// Returns whether the store equals the objects of the server. An undecodable object may have an old value or no
    /// value.
    pub(super) fn is_right(&self) -> bool {
        let state = self.server.state();
        let is_right = |(name, entry): (&u8, &(u64, u8))| {
            if entry.1 == UNDECODABLE { true } else { self.store.get(name) == Some(entry) }
        };
        state.iter().all(is_right) && self.store.keys().all(|name| state.contains_key(name))
    }
}
