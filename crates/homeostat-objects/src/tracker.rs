//! Trackers: remember which keys to enqueue when another object changes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
// The counter outlives each run of a model, so the model checker does not follow it.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::json::{key_of, meta_string};
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::ObjectMeta;
use super::object::Object;
use super::selector::LabelSelector;
use super::value_ref::ValueRef;
use crate::sync::Mutex;
use homeostat::base::Clock;
use homeostat::queue::{Enqueue, FastState, Key};
use homeostat::watch::Subscriber;

/// Remembers which keys to enqueue when another object changes that they refer to but do not own. Clones are cheap.
///
/// A reconciler tracks each object in every run. It first tracks the object and then reads it, so that a change in
/// between enqueues the key. A track stays at least until the key's next run ends.
///
/// Sub-reconcilers just call [`SubContext::track`](crate::sub::SubContext::track). Other reconcilers
/// [begin](Self::begin) each run, and [end](TrackedRun::end) it when it has succeeded. Ending a run forgets the tracks
/// of earlier runs that this run has not repeated.
///
/// If several controllers share a tracker, give each its own [handle](Self::separate). Otherwise a run of one
/// controller would end another controller's tracks for the same key.
///
/// Kinds are compared without their versions. The time to find the keys for a changed object does not depend on the
/// number of tracked names. It grows by one step for each different selector of the kind.
///
/// # Examples
///
/// A reconciler of apps reads a config map that the app names:
///
/// ```
/// use homeostat_objects::{DynamicObject, Kind, Object, ObjectKey, TrackRef, Tracker};
/// use homeostat::{Watch, WorkQueue};
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let (queue, tracker) = (WorkQueue::new(), Tracker::new());
/// let config_maps = Watch::<ObjectKey, DynamicObject>::push();
/// let subscription = config_maps.watch().subscribe(tracker.subscriber(&CONFIG_MAP, &queue))?;
///
/// let (app, colours) = (ObjectKey::new("default", "shop"), ObjectKey::new("default", "colours"));
/// let run = tracker.begin(app.clone());
/// run.track(&CONFIG_MAP, TrackRef::name(colours.clone())); // and then read it
/// run.end();
///
/// config_maps.set(colours, DynamicObject::new(&CONFIG_MAP, "default", "colours"));
/// assert_eq!(*queue.dequeue()?, app);
/// # drop(subscription);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[doc(alias = "tracking")]
pub struct Tracker<K = ObjectKey> {
    core: Arc<TrackerCore<K>>,
    scope: Scope,
}

struct TrackerCore<K> {
    clock: Clock,
    tracks: Mutex<Tracks<K>>,
}

/// Identifies a controller among those that share a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope(u64);

impl Scope {
    /// Returns an id that is unique in the process.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// A run of a key, from [`Tracker::begin`].
///
/// If it is dropped without [`end`](Self::end), the run has failed, and the tracks of earlier runs stay too.
#[must_use = "end the run, or the tracks of earlier runs stay"]
pub struct TrackedRun<K: Key> {
    tracker: Tracker<K>,
    by: K,
    start: u64,
}

impl<K: Key> TrackedRun<K> {
    /// Enqueues the key again when an object of this kind that `what` selects changes. Call it before you read the
    /// object.
    pub fn track(&self, kind: &Kind, what: TrackRef) {
        self.tracker.track(kind, what, self.by.clone());
    }

    /// Forgets the tracks of earlier runs that this run has not repeated.
    pub fn end(self) {
        self.tracker.forget_before(&self.by, self.start);
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for TrackedRun<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedRun").field("by", &self.by).finish_non_exhaustive()
    }
}

/// The tracked objects of a kind.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{ObjectKey, TrackRef};
///
/// let one = TrackRef::name(ObjectKey::new("default", "colours"));
/// let some = TrackRef::selector(Some("default"), "app=web".parse()?);
/// assert_ne!(one, some);
/// # Ok::<_, homeostat_objects::ParseSelectorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TrackRef {
    /// The object with this key, whether it exists or not.
    Name(ObjectKey),
    /// The objects that a selector selects.
    Selector {
        /// The namespace; `None` for all.
        namespace: Option<String>,
        /// The selector for labels.
        labels: LabelSelector,
    },
}

impl TrackRef {
    /// Tracks the object with this key, whether it exists or not.
    #[must_use]
    pub fn name(key: ObjectKey) -> Self {
        Self::Name(key)
    }

    /// Tracks the objects with matching labels in this namespace, or in all.
    #[must_use]
    pub fn selector(namespace: Option<&str>, labels: LabelSelector) -> Self {
        Self::Selector { namespace: namespace.map(str::to_owned), labels }
    }
}

impl<K: Key> Tracker<K> {
    /// Returns a tracker without tracks.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// Returns a tracker without tracks. In a simulation with this clock, the seed decides in which order it enqueues
    /// keys.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self { core: Arc::new(TrackerCore { clock, tracks: Mutex::new(Tracks::default()) }), scope: Scope::new() }
    }

    /// Returns a handle of the same tracker for another controller.
    ///
    /// A change enqueues the keys of all handles. [`TrackedRun::end`] and [`untrack`](Self::untrack) forget only the
    /// tracks of their own handle and its clones.
    #[must_use]
    pub fn separate(&self) -> Self {
        self.in_scope(Scope::new())
    }

    pub(crate) fn in_scope(&self, scope: Scope) -> Self {
        Self { core: Arc::clone(&self.core), scope }
    }

    /// Begins a run of this key. Runs of one key must not overlap.
    pub fn begin(&self, by: K) -> TrackedRun<K> {
        TrackedRun { tracker: self.clone(), by, start: self.now() }
    }

    /// Returns the number of the last track.
    pub(crate) fn now(&self) -> u64 {
        self.core.tracks.lock().last
    }

    /// Forgets the tracks of this key with numbers up to `start`.
    pub(crate) fn forget_before(&self, by: &K, start: u64) {
        self.core.tracks.lock().remove_before(&(by.clone(), self.scope), start);
    }

    /// Enqueues `by` again when an object of this kind that `what` selects changes.
    ///
    /// The track stays until the end of a [run](Self::begin) of the key that has not repeated it, or until
    /// [`untrack`](Self::untrack).
    pub fn track(&self, kind: &Kind, what: TrackRef, by: K) {
        let what = Arc::new(Tracked { kind: UnversionedKind(kind.clone()), what });
        self.core.tracks.lock().insert(what, (by, self.scope));
    }

    /// Forgets all tracks of this key that were made by this handle or its clones. Call it when the key is gone.
    pub fn untrack(&self, by: &K) {
        self.forget_before(by, u64::MAX);
    }

    /// Returns the keys that track the object of this kind with this metadata. Each key appears once; the order is
    /// arbitrary.
    #[must_use]
    pub fn trackers_of(&self, kind: &Kind, meta: &ObjectMeta) -> Vec<K> {
        self.find(kind, meta.key(), &meta.namespace, |labels| labels.selects(&meta.labels))
    }

    /// Returns the keys that track the object of this kind with this JSON. See [`trackers_of`](Self::trackers_of).
    #[must_use]
    pub fn trackers_of_json<'a>(&self, kind: &Kind, object: impl Into<ValueRef<'a>>) -> Vec<K> {
        let object = object.into();
        self.find(kind, key_of(object), meta_string(object, "namespace"), |selector| selector.selects_json(object))
    }

    fn find(&self, kind: &Kind, key: ObjectKey, namespace: &str, selects: impl Fn(&LabelSelector) -> bool) -> Vec<K> {
        let named = Tracked { kind: UnversionedKind(kind.clone()), what: TrackRef::Name(key) };
        let mut found = self.core.tracks.lock().find(&named, namespace, selects);
        self.core.clock.arrange(&mut found, |key| key);
        found
    }

    /// Returns the tracks with higher numbers, ordered by number: the number, the tracked objects, and the key.
    #[must_use]
    pub fn tracks_after(&self, number: u64) -> Vec<(u64, Kind, TrackRef, K)> {
        let tracks = self.core.tracks.lock();
        let all = tracks.by_object.iter().flat_map(|(what, by)| by.iter().map(move |((by, _), own)| (*own, what, by)));
        let behind = all.filter(|(own, ..)| *own > number);
        let mut found: Vec<_> =
            behind.map(|(own, what, by)| (own, what.kind.0.clone(), what.what.clone(), by.clone())).collect();
        found.sort_by_key(|(own, ..)| *own);
        found
    }

    /// Returns the number of tracks. A key that tracks two selectors counts twice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.tracks.lock().by_key.values().map(HashSet::len).sum()
    }

    /// Returns whether there are no tracks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a subscriber for a watch of this kind. It enqueues into `to` the keys that track the changed object in
    /// its new state or in its old state.
    ///
    /// An object that leaves a selector therefore enqueues the key once more. The reason is
    /// [secondary](homeostat::Reasons::SECONDARY).
    ///
    /// For a watch of JSON, use [`trackers_of_json`](Self::trackers_of_json):
    ///
    /// ```
    /// use homeostat_objects::{Kind, ObjectKey, TrackRef, Tracker};
    /// use homeostat::{Subscriber, Watch, WorkQueue};
    /// use serde_json::{Value, json};
    ///
    /// const NODE: Kind = Kind::cluster("", "v1", "Node");
    /// let (queue, tracker) = (WorkQueue::new(), Tracker::new());
    /// tracker.track(&NODE, TrackRef::name(ObjectKey::cluster("node-1")), "vm-1");
    ///
    /// let to = tracker.clone();
    /// let tracked = Subscriber::to_owner(&queue, move |_key, node: &Value| to.trackers_of_json(&NODE, node));
    /// let nodes = Watch::push();
    /// let subscription = nodes.watch().subscribe(tracked.secondary())?;
    /// nodes.set(ObjectKey::cluster("node-1"), json!({"metadata": {"name": "node-1"}}));
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn subscriber<T, Q>(&self, kind: &Kind, to: &Q) -> Subscriber<ObjectKey, T>
    where
        T: Object,
        Q: Enqueue<K> + Clone + Send + 'static,
        K: Sync,
    {
        let (tracker, kind) = (self.clone(), kind.clone());
        Subscriber::to_owner(to, move |_key, object: &T| tracker.trackers_of(&kind, &object.meta())).secondary()
    }
}

impl<K> Tracker<K> {
    /// Returns an id that all handles of this tracker share. No other tracker has it at the same time.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.core).addr()
    }
}

impl<K> Clone for Tracker<K> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), scope: self.scope }
    }
}

impl<K> fmt::Debug for Tracker<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracker").field("clock", &self.core.clock).finish_non_exhaustive()
    }
}

impl<K: Key> Default for Tracker<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// A kind without its version.
#[derive(Clone)]
struct UnversionedKind(Kind);

impl PartialEq for UnversionedKind {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name() && self.0.group() == other.0.group()
    }
}

impl Eq for UnversionedKind {}

impl Hash for UnversionedKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.name(), self.0.group()).hash(state);
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Tracked {
    kind: UnversionedKind,
    what: TrackRef,
}

/// A key and the controller that runs it.
type TrackingKey<K> = (K, Scope);

/// The tracks. Each is stored twice: by the tracked objects, with its number, and by the key.
struct Tracks<K> {
    by_object: HashMap<Arc<Tracked>, HashMap<TrackingKey<K>, u64, FastState>, FastState>,
    by_key: HashMap<TrackingKey<K>, HashSet<Arc<Tracked>, FastState>, FastState>,
    /// The entries of `by_object` that are selectors, by kind.
    selectors: HashMap<UnversionedKind, HashSet<Arc<Tracked>, FastState>, FastState>,
    /// The number of the last track.
    last: u64,
}

impl<K> Default for Tracks<K> {
    fn default() -> Self {
        Self { by_object: HashMap::default(), by_key: HashMap::default(), selectors: HashMap::default(), last: 0 }
    }
}

impl<K: Key> Tracks<K> {
    fn insert(&mut self, what: Arc<Tracked>, by: TrackingKey<K>) {
        self.last += 1;
        // Reuse the known value, so that repeated tracks share one.
        let what = self.by_object.get_key_value(&what).map_or(what, |(known, _)| Arc::clone(known));
        if let TrackRef::Selector { .. } = what.what {
            self.selectors.entry(what.kind.clone()).or_default().insert(Arc::clone(&what));
        }
        self.by_object.entry(Arc::clone(&what)).or_default().insert(by.clone(), self.last);
        self.by_key.entry(by).or_default().insert(what);
    }

    fn find(&self, named: &Tracked, namespace: &str, selects: impl Fn(&LabelSelector) -> bool) -> Vec<K> {
        let keys =
            |tracked: &Tracked| self.by_object.get(tracked).into_iter().flat_map(HashMap::keys).map(|(key, _)| key);
        let mut found: HashSet<&K, FastState> = keys(named).collect();
        for tracked in self.selectors.get(&named.kind).into_iter().flatten() {
            if let TrackRef::Selector { namespace: within, labels } = &tracked.what
                && within.as_ref().is_none_or(|within| within == namespace)
                && selects(labels)
            {
                found.extend(keys(tracked));
            }
        }
        found.into_iter().cloned().collect()
    }

    /// Removes the tracks with numbers up to `number`.
    fn remove_before(&mut self, by: &TrackingKey<K>, number: u64) {
        let Some(mut of) = self.by_key.remove(by) else { return };
        of.retain(|what| {
            let keeps =
                self.by_object.get(what).and_then(|trackers| trackers.get(by)).is_some_and(|made| *made > number);
            if !keeps {
                self.remove(what, by);
            }
            keeps
        });
        if !of.is_empty() {
            self.by_key.insert(by.clone(), of);
        }
    }

    /// Removes a track from `by_object`. If no other key tracks that selector, also removes it from `selectors`.
    fn remove(&mut self, what: &Arc<Tracked>, by: &TrackingKey<K>) {
        let Some(trackers) = self.by_object.get_mut(what) else { return };
        trackers.remove(by);
        if trackers.is_empty() {
            self.by_object.remove(what);
            if let Some(of_kind) = self.selectors.get_mut(&what.kind) {
                of_kind.remove(what);
                if of_kind.is_empty() {
                    self.selectors.remove(&what.kind);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ended_tracks_are_removed() {
        let tracker = Tracker::new();
        let kind = Kind::namespaced("", "v1", "ConfigMap");
        let ends: [&dyn Fn(); 2] = [&|| tracker.begin("a").end(), &|| tracker.untrack(&"a")];
        for end in ends {
            for _ in 0..2 {
                tracker.track(&kind, TrackRef::name(ObjectKey::cluster("x")), "a");
                tracker.track(&kind, TrackRef::selector(None, LabelSelector::label("app", "web")), "a");
            }
            end();
            assert!(tracker.is_empty());
            let Tracks { by_object, by_key, selectors, .. } = &*tracker.core.tracks.lock();
            assert_eq!((by_object.len(), by_key.len(), selectors.len()), (0, 0, 0));
        }
    }
}
