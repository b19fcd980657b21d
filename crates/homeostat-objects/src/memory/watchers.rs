//! The streams that wait for changes, by kind and namespace.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::Kind;
use crate::rules::change::ObjectChange;
use homeostat::rt::AutoResetEvent;

/// The signals of streams, by the number of the stream.
type Signals = HashMap<u64, Arc<AutoResetEvent>>;

#[derive(Default)]
pub(super) struct Watchers {
    /// The number of the next stream.
    count: u64,
    /// By kind, then by namespace. Streams of all namespaces are under the empty one.
    streams: HashMap<Kind, HashMap<String, Signals>>,
    /// The last version for which all streams were woken.
    woken: u64,
}

impl Watchers {
    pub(super) fn new(head: u64) -> Self {
        Self { woken: head, ..Self::default() }
    }

    /// Returns the signals of the streams that these changes affect. Every `pace` versions it returns the signals of
    /// all streams, so that they catch up before the history forgets their position.
    pub(super) fn concerned(&mut self, changes: &[Arc<ObjectChange>], pace: u64) -> Vec<Arc<AutoResetEvent>> {
        let head = changes.last().map_or(self.woken, |change| change.version);
        if head.saturating_sub(self.woken) > pace {
            self.woken = head;
            return self.streams.values().flat_map(HashMap::values).flat_map(HashMap::values).cloned().collect();
        }
        let mut concerned = Vec::new();
        let mut seen = HashSet::new();
        for location in changes.iter().map(|change| &change.location) {
            let Some(streams) = self.streams.get(&*location.kind) else { continue };
            for namespace in ["", location.key.namespace()] {
                if seen.insert((&*location.kind, namespace))
                    && let Some(signals) = streams.get(namespace)
                {
                    concerned.extend(signals.values().cloned());
                }
            }
        }
        concerned
    }

    /// Adds a stream of a kind, in one namespace, or in all if the namespace is empty. Returns its number.
    pub(super) fn add(&mut self, kind: &Kind, namespace: &str, signal: &Arc<AutoResetEvent>) -> u64 {
        let number = self.count;
        self.count += 1;
        let streams = self.streams.entry(kind.clone()).or_default();
        streams.entry(namespace.to_owned()).or_default().insert(number, Arc::clone(signal));
        number
    }

    /// Removes the stream that was added with this kind and namespace under this number.
    pub(super) fn remove(&mut self, kind: &Kind, namespace: &str, number: u64) {
        let Some(streams) = self.streams.get_mut(kind) else { return };
        let Some(signals) = streams.get_mut(namespace) else { return };
        signals.remove(&number);
        if signals.is_empty() {
            streams.remove(namespace);
        }
        if streams.is_empty() {
            self.streams.remove(kind);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}
