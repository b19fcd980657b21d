//! Conditions: observations about an object, and since when they hold.

use jiff::Timestamp;

/// An entry of `status.conditions`.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Condition, ConditionStatus, set_condition};
///
/// let mut conditions = vec![];
/// let (morning, noon) = ("2026-05-01T08:00:00Z".parse().unwrap(), "2026-05-01T12:00:00Z".parse().unwrap());
/// set_condition(&mut conditions, Condition::new("Ready", ConditionStatus::False, "Starting"), morning);
/// set_condition(&mut conditions, Condition::new("Ready", ConditionStatus::False, "NoImage"), noon);
/// assert_eq!(conditions[0].reason, "NoImage");
/// assert_eq!(conditions[0].last_transition_time, Some(morning)); // its status has not changed since
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Condition {
    /// The type of the condition, such as `Ready`. An object has at most one condition of each type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status of the condition.
    pub status: ConditionStatus,
    /// The reason, as one word for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when the condition has this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// The generation of the object that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It is not known whether the condition holds.
    #[default]
    Unknown,
}

impl Condition {
    /// Returns a condition without a message and without a time.
    #[must_use]
    pub fn new(kind: impl Into<String>, status: ConditionStatus, reason: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            status,
            reason: reason.into(),
            message: String::new(),
            last_transition_time: None,
            observed_generation: None,
        }
    }

    /// Sets the message.
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    /// Sets the generation of the object that was observed.
    #[must_use]
    pub fn observed_generation(self, generation: impl Into<Option<i64>>) -> Self {
        Self { observed_generation: generation.into(), ..self }
    }

    /// Sets since when the condition has this status. Without it, [`set_condition`] sets the time.
    #[must_use]
    pub fn last_transition_time(self, time: impl Into<Option<Timestamp>>) -> Self {
        Self { last_transition_time: time.into(), ..self }
    }

    /// Returns whether the status is true.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// Returns the condition of this type.
#[must_use]
pub fn find_condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Sets a condition: replaces the condition of the same type, or appends it. Returns whether anything has changed.
///
/// If the status does not change, the old time is kept. Otherwise the time is the condition's own, or `now` in whole
/// seconds. For `now`, pass `cx.clock().time_of_day().try_into()?`, which follows a held clock, or, in steps,
/// [`SubContext::now`](crate::sub::SubContext::now).
pub fn set_condition(conditions: &mut Vec<Condition>, mut condition: Condition, now: Timestamp) -> bool {
    let now = condition.last_transition_time.unwrap_or_else(|| super::json::whole_seconds(now));
    let Some(known) = conditions.iter_mut().find(|known| known.kind == condition.kind) else {
        condition.last_transition_time = Some(now);
        conditions.push(condition);
        return true;
    };
    let since = if known.status == condition.status { known.last_transition_time } else { None };
    condition.last_transition_time = Some(since.unwrap_or(now));
    let changed = *known != condition;
    *known = condition;
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_time_stays_unless_the_status_changes() {
        let ready = |status, reason: &str| Condition::new("Ready", status, reason);
        let mut conditions = vec![Condition::new("Synced", ConditionStatus::True, "")];
        assert!(set_condition(&mut conditions, ready(ConditionStatus::False, "a"), at(1)));
        assert!(!set_condition(&mut conditions, ready(ConditionStatus::False, "a"), at(2)));
        assert!(set_condition(&mut conditions, ready(ConditionStatus::False, "a").message("b"), at(3)));
        assert_eq!(find_condition(&conditions, "Ready").unwrap().last_transition_time, Some(at(1)));
        assert!(set_condition(&mut conditions, ready(ConditionStatus::True, "a"), at(4)));
        let found = find_condition(&conditions, "Ready").unwrap();
        assert!(found.is_true() && found.message.is_empty());
        assert_eq!(found.last_transition_time, Some(at(4)));
        assert_eq!(conditions.len(), 2);
        assert_eq!(find_condition(&conditions, "ready"), None);
    }

    #[test]
    fn a_condition_has_the_json_of_kubernetes() {
        let json = serde_json::json!({
            "type": "Ready", "status": "False", "reason": "NoImage", "message": "no such image",
            "lastTransitionTime": "2024-05-01T10:00:00Z", "observedGeneration": 2,
        });
        let condition: Condition = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(condition).unwrap(), json);
    }
}
