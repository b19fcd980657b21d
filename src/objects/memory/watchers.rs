//! The streams that wait for changes, by the kind and namespace that they wait for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Server;
use super::state::Change;
use crate::base::wait::AutoResetEvent;
use crate::objects::Kind;

/// The signals of some streams, each under the number of its stream.
type Signals = HashMap<u64, Arc<AutoResetEvent>>;

#[derive(Default)]
pub(super) struct Watchers {
    /// How many streams have been registered so far: the number of the next.
    count: u64,
    /// By kind, then by namespace; the empty one is for streams of all namespaces.
    streams: HashMap<Kind, HashMap<String, Signals>>,
    /// Up to which version all streams have been woken.
    told: u64,
}

impl Watchers {
    pub(super) fn new(head: u64) -> Self {
        Self { told: head, ..Self::default() }
    }

    /// Returns the signals of the streams that these changes concern. Every `pace` versions it returns the signals of all streams, so
    /// that they read on before the history forgets where they are.
    pub(super) fn concerned(&mut self, changes: &[Change], pace: u64) -> Vec<Arc<AutoResetEvent>> {
        let head = changes.last().map_or(self.told, |change| change.version);
        if head.saturating_sub(self.told) > pace {
            self.told = head;
            return self.streams.values().flat_map(HashMap::values).flat_map(HashMap::values).cloned().collect();
        }
        let mut concerned = Vec::new();
        let mut seen = HashSet::new();
        for place in changes.iter().map(|change| &change.place) {
            let Some(streams) = self.streams.get(&*place.kind) else { continue };
            for namespace in ["", place.key.namespace()] {
                if seen.insert((&*place.kind, namespace))
                    && let Some(signals) = streams.get(namespace)
                {
                    concerned.extend(signals.values().cloned());
                }
            }
        }
        concerned
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

/// A registered stream. Dropping it ends the registration.
pub(super) struct Registration {
    server: Arc<Server>,
    kind: Kind,
    namespace: String,
    number: u64,
}

impl Registration {
    /// Registers a stream of a kind, in a namespace or (empty) in all.
    pub(super) fn new(server: &Arc<Server>, kind: &Kind, namespace: &str, signal: &Arc<AutoResetEvent>) -> Self {
        let mut watchers = server.watchers.lock();
        let number = watchers.count;
        watchers.count += 1;
        let streams = watchers.streams.entry(kind.clone()).or_default();
        streams.entry(namespace.to_owned()).or_default().insert(number, Arc::clone(signal));
        Self { server: Arc::clone(server), kind: kind.clone(), namespace: namespace.to_owned(), number }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut watchers = self.server.watchers.lock();
        let Some(streams) = watchers.streams.get_mut(&self.kind) else { return };
        let Some(signals) = streams.get_mut(&self.namespace) else { return };
        signals.remove(&self.number);
        if signals.is_empty() {
            streams.remove(&self.namespace);
        }
        if streams.is_empty() {
            watchers.streams.remove(&self.kind);
        }
    }
}
