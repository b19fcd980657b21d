//! Condition sets: conditions and a summary of them.

use jiff::Timestamp;

use super::condition::{Condition, ConditionStatus, find_condition, set_condition};

/// The conditions of an object type, and the condition that summarizes them.
///
/// The summary is usually `Ready` for objects that keep running, and `Succeeded` for objects that finish. Declare the
/// set once, as a constant. Each change of a condition computes the summary:
///
/// | summary | if | reason and message |
/// |---|---|---|
/// | false | a condition is false | from the first false condition |
/// | unknown | no condition is false, but one is unknown or missing | from the first such condition |
/// | true | all conditions are true | its own name as the reason |
///
/// A true summary has the lowest observed generation of its conditions, if each has one.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Condition, ConditionSet, ConditionStatus};
///
/// const CONDITIONS: ConditionSet = ConditionSet::new("Ready", &["ImageResolved", "Built"]);
/// let (mut conditions, now) = (vec![], "2026-05-01T08:00:00Z".parse().unwrap());
/// CONDITIONS.initialize(&mut conditions, now);
///
/// CONDITIONS.set(&mut conditions, Condition::new("ImageResolved", ConditionStatus::True, "Resolved"), now);
/// CONDITIONS.set(&mut conditions, Condition::new("Built", ConditionStatus::False, "NoSource").message("no commit"), now);
/// assert_eq!((conditions[0].kind.as_str(), conditions[0].message.as_str()), ("Ready", "no commit"));
///
/// CONDITIONS.set(&mut conditions, Condition::new("Built", ConditionStatus::True, "Built"), now);
/// assert!(CONDITIONS.is_happy(&conditions));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionSet {
    happy: &'static str,
    parts: &'static [&'static str],
}

impl ConditionSet {
    /// Returns a set in which `happy` summarizes the conditions `parts`.
    #[must_use]
    pub const fn new(happy: &'static str, parts: &'static [&'static str]) -> Self {
        Self { happy, parts }
    }

    /// Returns the type of the summary.
    #[must_use]
    pub const fn happy(&self) -> &'static str {
        self.happy
    }

    /// Returns the types of all conditions, the summary first.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.happy).chain(self.parts.iter().copied())
    }

    /// Sets missing conditions to unknown, with the reason `Initializing`. For `now`, see [`set_condition`].
    pub fn initialize(&self, conditions: &mut Vec<Condition>, now: Timestamp) {
        for kind in self.kinds() {
            if find_condition(conditions, kind).is_none() {
                set_condition(conditions, Condition::new(kind, ConditionStatus::Unknown, "Initializing"), now);
            }
        }
    }

    /// Sets a condition as [`set_condition`] does, and updates the summary. Returns whether anything has changed.
    ///
    /// A condition outside the set is also stored, but does not affect the summary. The summary itself can be set only
    /// if the set has no other conditions.
    pub fn set(&self, conditions: &mut Vec<Condition>, condition: Condition, now: Timestamp) -> bool {
        let changed =
            (self.parts.is_empty() || condition.kind != self.happy) && set_condition(conditions, condition, now);
        let sum = self.sum(conditions);
        sum.is_some_and(|sum| set_condition(conditions, sum, now)) || changed
    }

    /// Returns whether the summary is true.
    #[must_use]
    pub fn is_happy(&self, conditions: &[Condition]) -> bool {
        find_condition(conditions, self.happy).is_some_and(Condition::is_true)
    }

    fn sum(&self, conditions: &[Condition]) -> Option<Condition> {
        let first = |status: ConditionStatus| {
            let mut parts = self.parts.iter().map(|kind| (kind, find_condition(conditions, kind)));
            let (kind, found) =
                parts.find(|(_, found)| found.map_or(ConditionStatus::Unknown, |found| found.status) == status)?;
            let missing = || Condition::new(*kind, status, format!("{kind}Missing"));
            let sum = found.map_or_else(missing, Clone::clone).last_transition_time(None);
            Some(Condition { kind: self.happy.to_owned(), ..sum })
        };
        let observed =
            || self.parts.iter().map(|kind| find_condition(conditions, kind)?.observed_generation).min().flatten();
        let happy = || Condition::new(self.happy, ConditionStatus::True, self.happy).observed_generation(observed());
        (!self.parts.is_empty())
            .then(|| first(ConditionStatus::False).or_else(|| first(ConditionStatus::Unknown)).unwrap_or_else(happy))
    }
}

#[cfg(test)]
mod tests {
    use super::ConditionStatus::{False, True, Unknown};
    use super::*;

    const LIVING: ConditionSet = ConditionSet::new("Ready", &["A", "B"]);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status(conditions: &[Condition], kind: &str) -> (ConditionStatus, String) {
        let found = find_condition(conditions, kind).unwrap();
        (found.status, found.reason.clone())
    }

    fn set(conditions: &mut Vec<Condition>, kind: &str, status: ConditionStatus, reason: &str) -> bool {
        LIVING.set(conditions, Condition::new(kind, status, reason), at(2))
    }

    /// Checks all pairs of states in both orders, including the cases of reconciler.io's `apis/conditionset_test.go`.
    /// There, a condition that was false once stays false after another one has become true.
    #[test]
    fn the_summary_does_not_depend_on_the_order_of_changes() {
        let sums = |a, b| match (a, b) {
            (True, True) => (True, "Ready"),
            (False, _) => (False, "a"),
            (_, False) => (False, "b"),
            (Unknown, _) => (Unknown, "a"),
            (_, Unknown) => (Unknown, "b"),
        };
        let all = [True, False, Unknown];
        for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b))) {
            for before in all {
                let mut conditions = Vec::new();
                LIVING.initialize(&mut conditions, at(1));
                set(&mut conditions, "A", before, "before");
                set(&mut conditions, "B", before, "before");
                set(&mut conditions, "B", b, "b");
                set(&mut conditions, "A", a, "a");
                let (expected, reason) = sums(a, b);
                assert_eq!(status(&conditions, "Ready"), (expected, reason.to_owned()), "{a:?} {b:?}");
                assert_eq!(LIVING.is_happy(&conditions), expected == True);
            }
        }
    }

    #[test]
    fn existing_conditions_are_not_initialized() {
        let mut conditions = Vec::new();
        set(&mut conditions, "A", True, "a");
        assert_eq!(status(&conditions, "Ready"), (Unknown, "BMissing".to_owned()));
        LIVING.initialize(&mut conditions, at(3));
        assert_eq!(status(&conditions, "A"), (True, "a".to_owned()));
        assert_eq!(status(&conditions, "B"), (Unknown, "Initializing".to_owned()));
        assert!(!LIVING.is_happy(&[]));
    }

    #[test]
    fn other_conditions_do_not_change_the_summary() {
        let mut conditions = Vec::new();
        LIVING.initialize(&mut conditions, at(1));
        assert!(set(&mut conditions, "C", False, "c"));
        assert_eq!((status(&conditions, "C").0, status(&conditions, "Ready").0), (False, Unknown));
        assert!(!set(&mut conditions, "Ready", True, "by hand") && !LIVING.is_happy(&conditions));
        let single = ConditionSet::new("Succeeded", &[]);
        assert!(single.set(&mut conditions, Condition::new("Succeeded", True, "Done"), at(2)));
        assert!(single.is_happy(&conditions));
    }

    #[test]
    fn the_summary_has_its_own_time() {
        let mut conditions = Vec::new();
        LIVING.initialize(&mut conditions, at(1));
        set(&mut conditions, "A", False, "a");
        assert!(LIVING.set(&mut conditions, Condition::new("B", False, "b"), at(5)));
        assert_eq!(find_condition(&conditions, "Ready").unwrap().last_transition_time, Some(at(2)));
        assert!(!LIVING.set(&mut conditions, Condition::new("B", False, "b"), at(6)), "nothing has changed");
    }

    #[test]
    fn the_summary_has_the_lowest_observed_generation() {
        let mut conditions = Vec::new();
        let sum_of = |conditions: &mut Vec<Condition>, kind: &str, generation| {
            let part = Condition::new(kind, True, kind).observed_generation(generation);
            LIVING.set(conditions, part, at(1));
            find_condition(conditions, "Ready").unwrap().observed_generation
        };
        sum_of(&mut conditions, "A", Some(2));
        assert_eq!(sum_of(&mut conditions, "B", Some(1)), Some(1));
        assert_eq!(sum_of(&mut conditions, "B", Some(2)), Some(2));
        assert_eq!(sum_of(&mut conditions, "B", None), None);
    }
}
