//! Which events a subscriber wants: small values that are put together.

use std::fmt;
use std::ops::Not;
use std::sync::Arc;

use super::event::{Event, EventKind};

/// Which events a subscriber wants.
///
/// **A deletion passes, unless a predicate names deletions**: those made by [`deletions`](Self::deletions) and
/// [`no_deletions`](Self::no_deletions), and [`only`](Self::only) where [`EventKind::Deleted`] is listed. All others are not
/// asked about deletions, also under `and`, `or` and `not`: a reconciler that does not hear of a deletion leaves behind what
/// it has made. [`Event::Synced`] passes always.
///
/// | a deletion | `b` names none | `b` says yes | `b` says no |
/// |---|---|---|---|
/// | `a` names none | passes | passes | does not |
/// | `a` says yes | passes | passes | `and`: does not; `or`: passes |
/// | `a` says no | does not | `and`: does not; `or`: passes | does not |
///
/// `not` turns a yes and a no around, and of one that names none it makes one that names none.
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

/// `None`: an event is a deletion, and this does not name deletions.
type Judge<K, T> = dyn Fn(&Event<K, T>) -> Option<bool> + Send + Sync;

impl<K: 'static, T: 'static> Predicate<K, T> {
    /// Any function of an event. It is not asked about deletions: see [`deletions`](Self::deletions).
    pub fn new(accepts: impl Fn(&Event<K, T>) -> bool + Send + Sync + 'static) -> Self {
        Self::judge(move |event| (event.kind() != EventKind::Deleted).then(|| accepts(event)))
    }

    /// Events of these kinds. A deletion passes also where it is not listed; listing it names it, so that the `not` of this
    /// one refuses deletions.
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

    /// Updates that change what `of` returns; all that is no update.
    pub fn changed_by<V: PartialEq>(of: impl Fn(&T) -> V + Send + Sync + 'static) -> Self {
        Self::generation(move |value| Some(of(value)))
    }

    /// Updates that change the generation, which rises with what is wanted of a thing and not with its status; all that is
    /// no update. Where one of the two values has none, the update passes.
    pub fn generation<V: PartialEq>(of: impl Fn(&T) -> Option<V> + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Updated { old, new, .. } => match (of(old), of(new)) {
                (Some(old), Some(new)) => old != new,
                _ => true,
            },
            _ => true,
        })
    }

    /// Events of things that `selects` accepts; of an update, what was or what is: who leaves a selection is noticed.
    pub fn matching(selects: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| event.value().is_none_or(&selects) || event.old().is_some_and(&selects))
    }

    /// Names deletions: those that `accepts` does, which is given the key and the last value. Passes all that is no deletion.
    pub fn deletions(accepts: impl Fn(&K, &T) -> bool + Send + Sync + 'static) -> Self {
        Self::judge(move |event| match event {
            Event::Deleted { key, last } => Some(accepts(key, last)),
            _ => Some(true),
        })
    }

    /// Names deletions: none. Passes all that is no deletion.
    #[must_use]
    pub fn no_deletions() -> Self {
        Self::deletions(|_, _| false)
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.with(other, false)
    }

    /// One of the two, or both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.with(other, true)
    }

    /// The other events. Also written `!predicate`.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "it does; this one reads beside `and` and `or`")]
    pub fn not(self) -> Self {
        Self::judge(move |event| (self.0)(event).map(Not::not))
    }

    /// Whether an event passes.
    #[must_use]
    pub fn accepts(&self, event: &Event<K, T>) -> bool {
        event.kind() == EventKind::Synced || (self.0)(event).unwrap_or(true)
    }

    fn judge(judge: impl Fn(&Event<K, T>) -> Option<bool> + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// Both, if `decisive` is false; either, if it is true: one that says `decisive` decides, and the other is not asked. Where
    /// only one of the two names deletions, it decides alone.
    fn with(self, other: Self, decisive: bool) -> Self {
        Self::judge(move |event| match (self.0)(event) {
            one if one == Some(decisive) => one,
            one => (other.0)(event).or(one),
        })
    }
}

impl<K: 'static, T: 'static> Not for Predicate<K, T> {
    type Output = Self;

    fn not(self) -> Self {
        Self::not(self)
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
