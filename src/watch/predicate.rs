//! Predicates that select the events of a subscriber.

use std::fmt;
use std::ops::Not;
use std::sync::Arc;

use super::event::{Event, EventKind};

/// A filter for the events of a subscriber. Filters can be combined.
///
/// **A deletion passes unless a predicate decides about deletions.** Only these do: [`deletions`](Self::deletions),
/// [`no_deletions`](Self::no_deletions), and [`only`](Self::only) with [`EventKind::Deleted`] in its list. All other
/// predicates are not called for deletions, not even under `and`, `or` and `not`: a reconciler that misses a deletion
/// does not clean up. [`Event::Synced`] always passes.
///
/// | a deletion | `b` undecided | `b` accepts | `b` refuses |
/// |---|---|---|---|
/// | `a` undecided | passes | passes | does not |
/// | `a` accepts | passes | passes | `and`: does not; `or`: passes |
/// | `a` refuses | does not | `and`: does not; `or`: passes | does not |
///
/// `not` swaps accept and refuse; a predicate that is undecided about deletions stays undecided.
///
/// # Examples
///
/// ```
/// use homeostat::{Event, Predicate};
/// use std::sync::Arc;
///
/// struct Vm { generation: u64, zone: &'static str }
///
/// let ours = Predicate::matching(|vm: &Vm| vm.zone == "b");
/// let wanted = Predicate::generation(|vm: &Vm| Some(vm.generation)).and(ours);
///
/// let vm = |generation, zone| Arc::new(Vm { generation, zone });
/// assert!(wanted.accepts(&Event::Created { key: 7, new: vm(1, "b") }));
/// assert!(wanted.accepts(&Event::Updated { key: 7, old: vm(1, "b"), new: vm(2, "b") }));
/// assert!(!wanted.accepts(&Event::Updated { key: 7, old: vm(2, "b"), new: vm(2, "b") })); // its status, say
/// assert!(!wanted.accepts(&Event::Created { key: 7, new: vm(1, "a") }));
/// assert!(wanted.accepts(&Event::Deleted { key: 7, last: vm(1, "a") })); // a deletion passes
/// ```
#[doc(alias = "filter")]
pub struct Predicate<K, T>(Arc<Judge<K, T>>);

/// The function of a predicate. Returns `None` if the event is a deletion and the predicate does not decide about
/// deletions.
type Judge<K, T> = dyn Fn(&Event<K, T>) -> Option<bool> + Send + Sync;

impl<K: 'static, T: 'static> Predicate<K, T> {
    /// Passes events for which `accepts` returns true. Not called for deletions: see [`deletions`](Self::deletions).
    pub fn new(accepts: impl Fn(&Event<K, T>) -> bool + Send + Sync + 'static) -> Self {
        Self::judge(move |event| (event.kind() != EventKind::Deleted).then(|| accepts(event)))
    }

    /// Passes events of these kinds. A deletion passes even if it is not listed. If it is listed, the predicate decides
    /// about deletions, so its `not` refuses them.
    ///
    /// ```
    /// use homeostat::{Event, Predicate};
    /// use homeostat::watch::EventKind;
    /// use std::sync::Arc;
    ///
    /// let created = Predicate::only([EventKind::Created]);
    /// let gone = Event::Deleted { key: 7, last: Arc::new("vm") };
    /// assert!(created.accepts(&gone));
    /// assert!(!created.and(Predicate::no_deletions()).accepts(&gone));
    /// ```
    pub fn only(kinds: impl IntoIterator<Item = EventKind>) -> Self {
        let kinds: Vec<_> = kinds.into_iter().collect();
        Self::judge(move |event| {
            let listed = kinds.contains(&event.kind());
            (listed || event.kind() != EventKind::Deleted).then_some(listed)
        })
    }

    /// Passes updates that change the result of `of`, and all events that are not updates.
    pub fn changed_by<V: PartialEq>(of: impl Fn(&T) -> V + Send + Sync + 'static) -> Self {
        Self::generation(move |value| Some(of(value)))
    }

    /// Passes updates that change the generation, and all events that are not updates. The generation rises with each
    /// change of the desired state, not of the status. If one of the two values has no generation, the update passes.
    pub fn generation<V: PartialEq>(of: impl Fn(&T) -> Option<V> + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Updated { old, new, .. } => match (of(old), of(new)) {
                (Some(old), Some(new)) => old != new,
                _ => true,
            },
            _ => true,
        })
    }

    /// Passes events of items that `selects` accepts. An update passes if the old or the new value is accepted, so that
    /// an item which leaves the selection is noticed.
    pub fn matching(selects: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| event.value().is_none_or(&selects) || event.old().is_some_and(&selects))
    }

    /// Passes deletions for which `accepts(key, last_value)` returns true, and all other events.
    pub fn deletions(accepts: impl Fn(&K, &T) -> bool + Send + Sync + 'static) -> Self {
        Self::judge(move |event| match event {
            Event::Deleted { key, last } => Some(accepts(key, last)),
            _ => Some(true),
        })
    }

    /// Refuses all deletions, and passes all other events.
    #[must_use]
    pub fn no_deletions() -> Self {
        Self::deletions(|_, _| false)
    }

    /// Passes events that both predicates accept.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.with(other, false)
    }

    /// Passes events that at least one of the predicates accepts.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.with(other, true)
    }

    /// Returns whether an event passes.
    #[must_use]
    pub fn accepts(&self, event: &Event<K, T>) -> bool {
        event.kind() == EventKind::Synced || (self.0)(event).unwrap_or(true)
    }

    fn judge(judge: impl Fn(&Event<K, T>) -> Option<bool> + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// Combines two predicates: if one returns `decisive`, it decides, and the other need not be called. If only one
    /// decides about deletions, it decides alone.
    fn with(self, other: Self, decisive: bool) -> Self {
        Self::judge(move |event| match (self.0)(event) {
            one if one == Some(decisive) => one,
            one => (other.0)(event).or(one),
        })
    }
}

impl<K: 'static, T: 'static> Not for Predicate<K, T> {
    type Output = Self;

    /// Passes events that this predicate refuses.
    fn not(self) -> Self {
        Self::judge(move |event| (self.0)(event).map(Not::not))
    }
}

impl<K, T> Clone for Predicate<K, T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, T> fmt::Debug for Predicate<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predicate").finish_non_exhaustive()
    }
}
