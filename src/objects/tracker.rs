//! Who asked to be called again when another object changes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::json::{key_of, text_of};
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::ObjectMeta;
use super::object::Object;
use super::selector::LabelSelector;
use crate::clock::Clock;
use crate::queue::{Enqueue, FastState, Key};
use crate::sync::Mutex;
use crate::time::Nanos;
use crate::watch::Subscriber;

/// Remembers which keys asked to be called again when another object changes: one that they refer to and do not own. A cheap
/// handle, for any number of threads.
///
/// A reconciler tracks what it is about to read, in each run anew: the track that it makes holds for one lease, and is forgotten
/// then. So a reference that is no longer there needs no word, and a key that is gone leaves nothing behind. The lease should
/// be longer than the time between two runs of a key: twice the resync interval.
///
/// Track first and read then: of a change in between, the key is told.
///
/// Kinds are compared without their versions: what a reference says of the version is how it wants to read an object, not which
/// one it means. Who tracks an object by its name is found at once, however many names are tracked; each different selector for
/// its kind is one more step.
///
/// # Examples
///
/// A reconciler of apps reads a config map that the app names:
///
/// ```
/// use homeostat::objects::{DynamicObject, Kind, Object, ObjectKey, TrackRef, Tracker};
/// use homeostat::{Watch, WorkQueue};
/// use std::time::Duration;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let (queue, tracker) = (WorkQueue::new(), Tracker::new(Duration::from_secs(1200)));
/// let config_maps = Watch::<ObjectKey, DynamicObject>::push();
/// let subscription = config_maps.watch().subscribe(tracker.subscriber(&CONFIG_MAP, &queue))?;
///
/// let (app, colours) = (ObjectKey::new("default", "shop"), ObjectKey::new("default", "colours"));
/// tracker.track(&CONFIG_MAP, TrackRef::name(colours.clone()), app.clone());
///
/// config_maps.set(colours, DynamicObject::new(&CONFIG_MAP, "default", "colours"));
/// assert_eq!(*queue.dequeue()?, app);
/// # drop(subscription);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
pub struct Tracker<K = ObjectKey>(Arc<Inner<K>>);

struct Inner<K> {
    clock: Clock,
    lease: Duration,
    tracks: Mutex<Tracks<K>>,
}

/// Which objects of a kind are tracked.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{ObjectKey, TrackRef};
///
/// let one = TrackRef::name(ObjectKey::new("default", "colours"));
/// let some = TrackRef::selector(Some("default"), "app=web".parse()?);
/// assert_ne!(one, some);
/// # Ok::<_, homeostat::objects::ParseSelectorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TrackRef {
    /// The one of this key, whether it is there or not.
    Name(ObjectKey),
    /// Those with such labels.
    Selector {
        /// In this namespace; in all, if there is none.
        namespace: Option<String>,
        /// Their labels.
        labels: LabelSelector,
    },
}

impl TrackRef {
    /// The one of this key, whether it is there or not.
    #[must_use]
    pub fn name(key: ObjectKey) -> Self {
        Self::Name(key)
    }

    /// Those with such labels, in this namespace or in all.
    #[must_use]
    pub fn selector(namespace: Option<&str>, labels: LabelSelector) -> Self {
        Self::Selector { namespace: namespace.map(str::to_owned), labels }
    }
}

impl<K: Key> Tracker<K> {
    /// A tracker that forgets what has not been tracked for this long. [`Duration::MAX`]: it forgets nothing by itself.
    #[must_use]
    pub fn new(lease: Duration) -> Self {
        Self::with_clock(lease, Clock::system())
    }

    /// The same, by this clock.
    #[must_use]
    pub fn with_clock(lease: Duration, clock: Clock) -> Self {
        Self(Arc::new(Inner { clock, lease, tracks: Mutex::new(Tracks::default()) }))
    }

    /// `by` wants to be called again when such an object of this kind changes: for one lease from now on, also if it has asked
    /// before.
    pub fn track(&self, kind: &Kind, what: TrackRef, by: K) {
        let what = Arc::new(Tracked { kind: Sort(kind.clone()), what });
        self.with_tracks(|tracks, now| tracks.insert(what, by, now.after(self.0.lease)));
    }

    /// Forgets all that this one has asked for: it is gone.
    pub fn untrack(&self, by: &K) {
        self.with_tracks(|tracks, _| tracks.remove_all(by));
    }

    /// Who asked for the object of this kind and with this metadata: by its name or its labels, each once, in no order.
    #[must_use]
    pub fn trackers_of(&self, kind: &Kind, meta: &ObjectMeta) -> Vec<K> {
        self.find(kind, meta.key(), &meta.namespace, |labels| labels.selects(&meta.labels))
    }

    /// As [`trackers_of`](Self::trackers_of), of the object of this JSON.
    #[must_use]
    pub fn trackers_of_json(&self, kind: &Kind, object: &Value) -> Vec<K> {
        let labels = &object["metadata"]["labels"];
        self.find(kind, key_of(object), text_of(object, "namespace"), |selector| selector.selects_json(labels))
    }

    fn find(&self, kind: &Kind, key: ObjectKey, namespace: &str, selects: impl Fn(&LabelSelector) -> bool) -> Vec<K> {
        let named = Tracked { kind: Sort(kind.clone()), what: TrackRef::Name(key) };
        let mut found = self.with_tracks(|tracks, _| tracks.find(&named, namespace, selects));
        self.0.clock.arrange(&mut found, |key| key);
        found
    }

    /// All tracks behind the one of this number, in the order in which they were made or renewed last: their numbers, what is tracked,
    /// and who tracks it.
    #[cfg(feature = "testing")]
    pub(crate) fn tracks_after(&self, number: u64) -> Vec<(u64, Kind, TrackRef, K)> {
        self.with_tracks(|tracks, _| {
            let behind = tracks.by_end.iter().filter(|((_, own), _)| *own > number);
            let mut found: Vec<_> = behind
                .map(|((_, own), (tracked, by))| (*own, tracked.kind.0.clone(), tracked.what.clone(), by.clone()))
                .collect();
            found.sort_by_key(|(own, ..)| *own);
            found
        })
    }

    /// How many tracks there are: who tracks two selectors has two.
    #[must_use]
    pub fn len(&self) -> usize {
        self.with_tracks(|tracks, _| tracks.by_end.len())
    }

    /// Whether nobody tracks anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every call forgets first what has ended: what nobody asks for any more does not stay.
    fn with_tracks<R>(&self, work: impl FnOnce(&mut Tracks<K>, Nanos) -> R) -> R {
        let now = self.0.clock.nanos();
        let mut tracks = self.0.tracks.lock();
        tracks.forget(now);
        work(&mut tracks, now)
    }

    /// What a watch of objects of this kind tells of each change: it puts into `to` who asked for the object as it is, or as it
    /// was before. So it hears of an object that its selector no longer selects, once. The reason is
    /// [secondary](crate::Reasons::SECONDARY).
    ///
    /// For a watch of JSON:
    ///
    /// ```
    /// use homeostat::objects::{Kind, ObjectKey, TrackRef, Tracker};
    /// use homeostat::{Subscriber, Watch, WorkQueue};
    /// use serde_json::{Value, json};
    /// use std::time::Duration;
    ///
    /// const NODE: Kind = Kind::cluster("", "v1", "Node");
    /// let (queue, tracker) = (WorkQueue::new(), Tracker::new(Duration::from_secs(1200)));
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
        Subscriber::to_owner(to, move |_key, object: &T| tracker.trackers_of(&kind, object.meta())).secondary()
    }
}

impl<K> Tracker<K> {
    /// The same for all its handles, and for no other tracker as long as there is one.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl<K> Clone for Tracker<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Tracker<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { clock, lease, .. } = &*self.0;
        f.debug_struct("Tracker").field("lease", lease).field("clock", clock).finish_non_exhaustive()
    }
}

/// A kind without its version.
#[derive(Clone)]
struct Sort(Kind);

impl PartialEq for Sort {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name() && self.0.group() == other.0.group()
    }
}

impl Eq for Sort {}

impl Hash for Sort {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.name(), self.0.group()).hash(state);
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Tracked {
    kind: Sort,
    what: TrackRef,
}

/// When a track ends, and a number that tells tracks of one end apart.
type End = (Nanos, u64);

/// Each track stands in three places: where it is found by what is tracked, by who tracks, and by its end.
struct Tracks<K> {
    by_what: HashMap<Arc<Tracked>, HashMap<K, End, FastState>, FastState>,
    by_whom: HashMap<K, HashSet<Arc<Tracked>, FastState>, FastState>,
    by_end: BTreeMap<End, (Arc<Tracked>, K)>,
    /// Of those in `by_what` the ones that are no names.
    selectors: HashMap<Sort, HashSet<Arc<Tracked>, FastState>, FastState>,
    next: u64,
}

impl<K> Default for Tracks<K> {
    fn default() -> Self {
        Self {
            by_what: HashMap::default(),
            by_whom: HashMap::default(),
            by_end: BTreeMap::new(),
            selectors: HashMap::default(),
            next: 0,
        }
    }
}

impl<K: Key> Tracks<K> {
    fn insert(&mut self, what: Arc<Tracked>, by: K, end: Nanos) {
        self.next += 1;
        let end = (end, self.next);
        // The one that is known, so that a track that is renewed holds no second.
        let what = self.by_what.get_key_value(&what).map_or(what, |(known, _)| Arc::clone(known));
        if let TrackRef::Selector { .. } = what.what {
            self.selectors.entry(what.kind.clone()).or_default().insert(Arc::clone(&what));
        }
        if let Some(before) = self.by_what.entry(Arc::clone(&what)).or_default().insert(by.clone(), end) {
            self.by_end.remove(&before);
        } else {
            self.by_whom.entry(by.clone()).or_default().insert(Arc::clone(&what));
        }
        self.by_end.insert(end, (what, by));
    }

    fn find(&self, named: &Tracked, namespace: &str, selects: impl Fn(&LabelSelector) -> bool) -> Vec<K> {
        let mut found: HashSet<&K, FastState> = self.by_what.get(named).into_iter().flat_map(HashMap::keys).collect();
        for tracked in self.selectors.get(&named.kind).into_iter().flatten() {
            if let TrackRef::Selector { namespace: within, labels } = &tracked.what
                && within.as_ref().is_none_or(|within| within == namespace)
                && selects(labels)
            {
                found.extend(self.by_what.get(tracked).into_iter().flat_map(HashMap::keys));
            }
        }
        found.into_iter().cloned().collect()
    }

    fn forget(&mut self, now: Nanos) {
        while let Some(first) = self.by_end.first_entry().filter(|first| first.key().0 <= now) {
            let (what, by) = first.remove();
            self.remove(&what, &by);
            if let Some(of) = self.by_whom.get_mut(&by) {
                of.remove(&what);
                if of.is_empty() {
                    self.by_whom.remove(&by);
                }
            }
        }
    }

    fn remove_all(&mut self, by: &K) {
        for what in self.by_whom.remove(by).into_iter().flatten() {
            if let Some(end) = self.remove(&what, by) {
                self.by_end.remove(&end);
            }
        }
    }

    /// Takes a track from `by_what`, and from `selectors` if it was the last of its kind.
    fn remove(&mut self, what: &Arc<Tracked>, by: &K) -> Option<End> {
        let trackers = self.by_what.get_mut(what)?;
        let end = trackers.remove(by);
        if trackers.is_empty() {
            self.by_what.remove(what);
            if let Some(of_kind) = self.selectors.get_mut(&what.kind) {
                of_kind.remove(what);
                if of_kind.is_empty() {
                    self.selectors.remove(&what.kind);
                }
            }
        }
        end
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_track_that_ends_leaves_nothing_behind() {
        let clock = ManualClock::new();
        let tracker = Tracker::with_clock(Duration::from_secs(1), clock.clock());
        let kind = Kind::namespaced("", "v1", "ConfigMap");
        let ends: [&dyn Fn(); 2] = [&|| clock.advance(Duration::from_secs(1)), &|| tracker.untrack(&"a")];
        for end in ends {
            for _ in 0..2 {
                tracker.track(&kind, TrackRef::name(ObjectKey::cluster("x")), "a");
                tracker.track(&kind, TrackRef::selector(None, LabelSelector::label("app", "web")), "a");
            }
            end();
            assert!(tracker.is_empty());
            let Tracks { by_what, by_whom, by_end, selectors, .. } = &*tracker.0.tracks.lock();
            assert_eq!((by_what.len(), by_whom.len(), by_end.len(), selectors.len()), (0, 0, 0, 0));
        }
    }
}
