//! Counts stored objects for the status page.

use std::sync::Arc;

use serde_json::Value;

use super::ObjectApi;
use crate::kinds::{ObjectSource, ServedResource};
use homeostat_objects::{Client, ClientError, Kind, Query, SharedObject};

/// A stored kind, as the status page shows it.
pub(crate) struct KindCount {
    pub(crate) kind: Kind,
    /// The command that lists the objects.
    pub(crate) command: String,
    /// `None` if counting the objects would need the network.
    pub(crate) count: Option<Result<ObjectCount, ClientError>>,
}

/// The number of stored objects of a kind.
pub(crate) struct ObjectCount {
    pub(crate) all: usize,
    /// The number of objects whose condition `Ready` is not `True`.
    pub(crate) not_ready: usize,
    /// The first of these.
    pub(crate) first: Vec<SharedObject>,
}

/// The largest number of objects in [`ObjectCount::first`].
const MOST_FIRST: usize = 20;

/// Returns the condition `Ready` of an object.
pub(crate) fn ready_condition(object: &SharedObject) -> Option<Value> {
    let conditions = object.pointer("/status/conditions")?.to_value();
    conditions.as_array()?.iter().find(|condition| condition["type"] == "Ready").cloned()
}

impl ObjectApi {
    /// Counts the objects of those stored kinds that `may_list` accepts.
    pub(crate) fn counts(&self, may_list: impl Fn(&Kind) -> bool) -> Vec<KindCount> {
        let client = self.client();
        let is_local = client.capabilities().local;
        let stored = self.stored_kinds();
        let count = |kind: &Kind| KindCount {
            kind: kind.clone(),
            command: command(kind, &stored),
            count: is_local.then(|| {
                let objects = client.list(kind, &Query::all())?.items;
                let is_not_ready =
                    |object: &&SharedObject| ready_condition(object).is_some_and(|ready| ready["status"] != "True");
                let of = || objects.iter().filter(is_not_ready);
                let first = of().take(MOST_FIRST).cloned().collect();
                Ok(ObjectCount { all: objects.len(), not_ready: of().count(), first })
            }),
        };
        stored.iter().filter(|kind| may_list(kind)).map(count).collect()
    }
}

/// Returns the `kubectl` command that lists objects of a kind.
fn command(kind: &Kind, stored: &[Kind]) -> String {
    let plural = kind.plural();
    let is_unique = stored.iter().filter(|other| other.plural() == plural).count() == 1;
    let name = if is_unique { plural.into_owned() } else { full_name(kind) };
    format!("kubectl get {name}{}", if kind.is_namespaced() { " -A" } else { "" })
}

impl ObjectApi {
    /// Returns the client that stores the objects.
    pub(crate) fn client(&self) -> Arc<dyn Client> {
        Arc::clone(&self.shared.lock().client)
    }

    /// Returns the stored kind with this name, such as `sites.v1.example.com`.
    pub(crate) fn stored_kind(&self, name: &str) -> Option<Kind> {
        self.stored_kinds().into_iter().find(|kind| full_name(kind) == name)
    }

    /// Returns the kinds that the client stores.
    pub(crate) fn stored_kinds(&self) -> Vec<Kind> {
        let shared = self.shared.lock();
        let stored = shared.kinds.iter().filter(|resource| resource.source() == ObjectSource::Stored);
        stored.map(ServedResource::kind).cloned().collect()
    }
}

/// Returns the name that means one kind only, as `kubectl` reads it.
pub(crate) fn full_name(kind: &Kind) -> String {
    format!("{}.{}.{}", kind.plural(), kind.version(), kind.group())
}
