//! Virtual namespaces: a namespace exists while it contains an object. The namespace `default` always exists.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::deadlines::WatchDeadlines;
use crate::kinds::{KindRegistry, NAMESPACE, ServedResource};
use homeostat::base::CancellationToken;
use homeostat_objects::{
    Client, ClientError, Kind, ObjectKey, ObjectList, ObjectRef, ObjectStream, Query, SharedObject, WatchEvent,
};

/// How often a watch checks for new namespaces.
const INTERVAL: Duration = Duration::from_secs(5);

/// Finds the namespaces that contain objects.
#[derive(Clone)]
pub(super) struct NamespaceFinder {
    client: Arc<dyn Client>,
    /// The kinds that have namespaces.
    kinds: Arc<[Kind]>,
    deadlines: Arc<WatchDeadlines>,
}

impl NamespaceFinder {
    pub(super) fn new(client: &Arc<dyn Client>, kinds: &KindRegistry, deadlines: &Arc<WatchDeadlines>) -> Self {
        let kinds = kinds.iter().map(ServedResource::kind).filter(|kind| kind.is_namespaced()).cloned().collect();
        Self { client: Arc::clone(client), kinds, deadlines: Arc::clone(deadlines) }
    }

    pub(super) fn get(&self, name: &str) -> Result<SharedObject, ClientError> {
        let (version, names) = self.names()?;
        let missing = || ClientError::not_found(ObjectRef::new(&NAMESPACE, &ObjectKey::cluster(name)));
        names.contains(name).then(|| namespace(name, &version)).ok_or_else(missing)
    }

    pub(super) fn list(&self, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        let (version, names) = self.names()?;
        let namespaces = names.iter().map(|name| namespace(name, &version));
        let namespaces = namespaces.filter(|namespace| query.selects(namespace)).collect();
        Ok(ObjectList::new(version, namespaces))
    }

    /// Streams the existing namespaces, unless `from` is the current version, then those that appear and disappear.
    pub(super) fn watch(&self, query: &Query, from: Option<&str>, stop: &CancellationToken) -> ObjectStream {
        ObjectStream::new(NamespaceStream {
            finder: self.clone(),
            query: query.clone(),
            from: from.map(str::to_owned),
            stop: stop.clone(),
            seen: None,
            pending: VecDeque::new(),
            has_failed: false,
        })
    }

    /// Returns `default` and the namespaces that contain objects, with a version that is not later than any of them.
    fn names(&self) -> Result<(String, BTreeSet<String>), ClientError> {
        let mut names = BTreeSet::from(["default".to_owned()]);
        let mut version = None;
        for kind in &*self.kinds {
            let list = self.client.list(kind, &Query::all())?;
            for object in &list.items {
                if !names.contains(object.namespace()) {
                    names.insert(object.namespace().to_owned());
                }
            }
            version.get_or_insert(list.version);
        }
        Ok((version.unwrap_or_default(), names))
    }

    /// Returns the version of each kind. While they do not change, the namespaces do not change.
    fn versions(&self) -> Result<Vec<String>, ClientError> {
        let version = |kind| Ok(self.client.list(kind, &Query::all().limit(1))?.version);
        self.kinds.iter().map(version).collect()
    }
}

/// Returns a namespace as an object.
pub(super) fn namespace(name: &str, version: &str) -> SharedObject {
    let labels = json!({"kubernetes.io/metadata.name": name});
    json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels, "resourceVersion": version},
        "spec": {}, "status": {"phase": "Active"},
    })
    .into()
}

/// The events of a watch on namespaces.
struct NamespaceStream {
    finder: NamespaceFinder,
    query: Query,
    from: Option<String>,
    stop: CancellationToken,
    /// The namespaces, and the versions of the kinds read before them. `None` at first.
    seen: Option<(BTreeSet<String>, Vec<String>)>,
    pending: VecDeque<WatchEvent<SharedObject>>,
    has_failed: bool,
}

impl NamespaceStream {
    /// Waits until the next check, or until the watch is stopped.
    fn wait(&self) {
        let turn = self.stop.child();
        let is_local = self.finder.client.capabilities().local;
        // Without a deadline, only a stop ends the wait.
        let _deadline = is_local.then(|| self.finder.deadlines.cancel_after(INTERVAL, &turn));
        turn.wait();
    }

    /// Finds the events since the last check.
    fn look(&mut self) -> Result<(), ClientError> {
        let versions = self.finder.versions()?;
        if self.seen.as_ref().is_some_and(|(_, seen)| *seen == versions) {
            return Ok(());
        }
        let (version, names) = self.finder.names()?;
        let is_first = self.seen.is_none();
        let old = match self.seen.take() {
            Some((old, _)) => old,
            None if self.from.as_ref() == Some(&version) => names.clone(),
            None => BTreeSet::new(),
        };
        let selected = |name: &&String| self.query.selects(&namespace(name, &version));
        let gone = old.difference(&names).filter(selected);
        self.pending.extend(gone.map(|name| WatchEvent::Deleted(namespace(name, &version))));
        let new = names.difference(&old).filter(selected);
        self.pending.extend(new.map(|name| WatchEvent::Added(namespace(name, &version))));
        if is_first {
            self.pending.push_back(WatchEvent::Bookmark(version));
        }
        self.seen = Some((names, versions));
        Ok(())
    }
}

impl Iterator for NamespaceStream {
    type Item = Result<WatchEvent<SharedObject>, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_failed && !self.stop.is_cancelled() {
            if let Some(event) = self.pending.pop_front() {
                return Some(Ok(event));
            }
            if self.seen.is_some() {
                self.wait();
            }
            if !self.stop.is_cancelled()
                && let Err(error) = self.look()
            {
                self.has_failed = true;
                return Some(Err(error));
            }
        }
        None
    }
}
