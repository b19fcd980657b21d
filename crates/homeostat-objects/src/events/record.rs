//! The events that a recorder remembers, with their counts, and the queue of events that must be stored.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::client::Patch;
use super::super::error::ObjectRef;
use super::super::json::micros;
use super::super::key::ObjectKey;
use super::super::kind::Kind;
use super::super::object::Object;
use super::super::stable_hash::stable_hash;
use super::super::validate::is_subdomain;

/// The kind of event objects.
pub(super) const EVENT: Kind = Kind::namespaced("events.k8s.io", "v1", "Event");

/// The limits of an API server, in bytes: for the note of an event, and for its other texts.
const MOST_NOTE: usize = 1024;
const MOST_TEXT: usize = 128;
const MOST_NAME: usize = 253;
const MOST_LABEL: usize = 63;
/// The namespace for events about objects without a namespace.
const NAMESPACE: &str = "default";
/// An event is dropped after this many failures in a row, as in client-go.
const MOST_TRIES: u32 = 12;
/// After failures in this many namespaces in a row, the client counts as unreachable.
const MOST_FAILURES: usize = 3;

/// The type of an event, for the field `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventType {
    /// Nothing is wrong.
    Normal,
    /// Somebody may need to act.
    Warning,
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        })
    }
}

/// The identity of an event: if the same event happens again, only its count rises.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct EventIdentity {
    pub(super) object: ObjectRef,
    uid: String,
    event: EventType,
    action: String,
    pub(super) reason: String,
    message: String,
}

impl EventIdentity {
    pub(super) fn new(object: &impl Object, event: EventType, action: &str, reason: &str, message: &str) -> Self {
        Self {
            object: object.object_ref(),
            uid: object.meta().uid.clone(),
            event,
            action: cut(action, MOST_TEXT).to_owned(),
            reason: cut(reason, MOST_TEXT).to_owned(),
            message: cut(message, MOST_NOTE).to_owned(),
        }
    }

    /// Returns the namespace of the event object.
    fn namespace(&self) -> &str {
        let namespace = self.object.key().namespace();
        if namespace.is_empty() { NAMESPACE } else { namespace }
    }
}

/// Cuts a text to at most this many bytes, between two characters.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// The sender of events, in a form that the server accepts.
pub(super) struct Reporter {
    controller: String,
    instance: String,
}

impl Reporter {
    /// Replaces the characters that a server would refuse, and cuts texts that are too long.
    pub(super) fn new(component: &str, instance: &str) -> Self {
        Self { controller: qualified(component), instance: cut(instance, MOST_TEXT).to_owned() }
    }
}

/// Converts a text to a qualified name: optionally a domain and `/`, then at most 63 letters, digits, `-`, `_` and `.`.
fn qualified(text: &str) -> String {
    let (domain, name) = text.rsplit_once('/').filter(|(domain, _)| is_subdomain(domain)).unwrap_or(("", text));
    let allowed = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
    let name: String = name.chars().map(allowed).collect();
    let is_edge = |letter: char| !letter.is_ascii_alphanumeric();
    let name = cut(name.trim_matches(is_edge), MOST_LABEL).trim_end_matches(is_edge);
    let name = if name.is_empty() { "controller" } else { name };
    if domain.is_empty() { name.to_owned() } else { format!("{domain}/{name}") }
}

/// The count and the times of an event.
#[derive(Clone, Copy, Debug)]
struct Series {
    count: i32,
    first: Timestamp,
    last: Timestamp,
    /// Whether the client has stored it.
    stored: bool,
    /// How many times in a row the client could not be reached to store it.
    failures: u32,
    /// Its key in `EventRecords::order`.
    turn: u64,
    /// Its key in `EventRecords::pending`.
    pending: Option<u64>,
}

/// An event that must be stored.
pub(super) struct Recorded {
    identity: Arc<EventIdentity>,
    series: Series,
}

impl Recorded {
    /// Returns the object that the event is about.
    pub(super) fn object(&self) -> &ObjectRef {
        &self.identity.object
    }

    /// Returns the namespace of the event object.
    pub(super) fn namespace(&self) -> &str {
        self.identity.namespace()
    }
}

/// The failures since the last full pass over the pending events.
#[derive(Debug, Default)]
pub(super) struct PassFailures {
    /// The namespaces for which the client could not be reached. Other events in these namespaces are not tried.
    namespaces: HashSet<String>,
    in_a_row: usize,
}

impl PassFailures {
    /// Counts the outcome of storing an event of this namespace.
    pub(super) fn count(&mut self, namespace: &str, outcome: StoreOutcome) {
        if outcome == StoreOutcome::Unreachable {
            self.namespaces.insert(namespace.to_owned());
            self.in_a_row += 1;
        } else {
            self.in_a_row = 0;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    /// Returns whether the client counts as unreachable for all namespaces.
    pub(super) fn is_unreachable(&self) -> bool {
        self.in_a_row >= MOST_FAILURES
    }
}

/// A pass over the events that are pending at its start. It tries each of them at most once.
#[derive(Debug)]
pub(super) struct EventPass {
    /// The last place that the pass has visited.
    after: u64,
    /// The last place at the start of the pass.
    end: u64,
}

/// The outcome of storing an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreOutcome {
    Stored,
    /// The client refuses it permanently.
    Refused,
    /// The client cannot be reached. Try again later.
    Unreachable,
}

/// The remembered events.
pub(super) struct EventRecords {
    most: usize,
    known: HashMap<Arc<EventIdentity>, Series>,
    /// The events in the order of their last occurrence, oldest first.
    order: BTreeMap<u64, Arc<EventIdentity>>,
    /// The events that wait to be stored, without the event that is being stored.
    pending: BTreeMap<u64, Arc<EventIdentity>>,
    /// The place of the event that a thread is storing.
    storing: Option<u64>,
    dropped: u64,
    next: u64,
}

impl EventRecords {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            known: HashMap::new(),
            order: BTreeMap::new(),
            pending: BTreeMap::new(),
            storing: None,
            dropped: 0,
            next: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Counts an event. Returns its count. If another event was forgotten to make space before it was stored, also
    /// returns that event.
    pub(super) fn raise(
        &mut self,
        identity: EventIdentity,
        now: SystemTime,
        keep: bool,
    ) -> (i32, Option<Arc<EventIdentity>>) {
        let now = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
        self.next += 1;
        let turn = self.next;
        let identity = Arc::new(identity);
        let (identity, series) = match self.known.get_key_value(&identity) {
            Some((known, series)) => {
                self.order.remove(&series.turn);
                (Arc::clone(known), *series)
            }
            None => {
                (identity, Series { count: 0, first: now, last: now, stored: false, failures: 0, turn, pending: None })
            }
        };
        let pending = series.pending.or_else(|| keep.then_some(turn));
        let count = series.count.saturating_add(1);
        self.order.insert(turn, Arc::clone(&identity));
        if let Some(place) = pending {
            self.pending.insert(place, Arc::clone(&identity));
        }
        self.known.insert(identity, Series { count, last: now, turn, pending, ..series });
        (count, self.forget_one())
    }

    fn forget_one(&mut self) -> Option<Arc<EventIdentity>> {
        if self.known.len() <= self.most {
            return None;
        }
        let (_, oldest) = self.order.pop_first()?;
        let place = self.known.remove(&oldest)?.pending?;
        self.dropped += 1;
        self.pending.remove(&place)
    }

    /// Returns how many events were forgotten or abandoned before they were stored.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns how many events wait to be stored, without the event that is being stored.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Begins a pass over the events that are pending now.
    pub(super) fn begin_pass(&self) -> EventPass {
        EventPass { after: 0, end: self.next }
    }

    /// Returns the place of the next event of a pass.
    fn next_place(&self, pass: &EventPass, failures: &PassFailures) -> Option<u64> {
        let mut rest = self.pending.range((Excluded(pass.after), Included(pass.end)));
        let place = rest.find(|(_, identity)| !failures.namespaces.contains(identity.namespace()));
        place.map(|(place, _)| *place)
    }

    /// Returns whether a pass must wait for the thread that is storing an event.
    pub(super) fn is_busy(&self, pass: &EventPass, failures: &PassFailures) -> bool {
        self.storing.is_some_and(|place| place <= pass.end || self.next_place(pass, failures).is_some())
    }

    /// Takes the next event of a pass; `None` if none remains or another event is being stored.
    pub(super) fn take(&mut self, pass: &mut EventPass, failures: &PassFailures) -> Option<Recorded> {
        if self.storing.is_some() {
            return None;
        }
        let place = self.next_place(pass, failures)?;
        let identity = self.pending.remove(&place)?;
        let series = self.known.get_mut(&identity)?;
        series.pending = None;
        self.storing = Some(place);
        pass.after = place;
        Some(Recorded { identity, series: *series })
    }

    /// Finishes storing an event. If the client was unreachable, the event waits to be stored again, after the others.
    /// Returns whether it is dropped instead: either the client was unreachable too often, or the event has been
    /// forgotten.
    pub(super) fn finish(&mut self, recorded: &Recorded, outcome: StoreOutcome) -> bool {
        self.storing = None;
        let Some(series) = self.known.get_mut(&recorded.identity) else {
            let is_lost = outcome == StoreOutcome::Unreachable;
            self.dropped += u64::from(is_lost);
            return is_lost;
        };
        series.stored |= outcome == StoreOutcome::Stored;
        series.failures = if outcome == StoreOutcome::Unreachable { series.failures + 1 } else { 0 };
        if series.failures >= MOST_TRIES {
            series.failures = 0;
            self.dropped += 1;
            // It may have happened again since it was taken.
            if let Some(place) = series.pending.take() {
                self.pending.remove(&place);
            }
            return true;
        }
        if series.failures > 0 && series.pending.is_none() {
            self.next += 1;
            series.pending = Some(self.next);
            self.pending.insert(self.next, Arc::clone(&recorded.identity));
        }
        false
    }

    /// Returns whether an event waits for another try.
    pub(super) fn has_failed(&self) -> bool {
        self.pending.values().any(|identity| self.known.get(identity).is_some_and(|series| series.failures > 0))
    }
}

impl Recorded {
    /// Returns whether the client has stored this event before.
    pub(super) fn is_stored(&self) -> bool {
        self.series.stored
    }

    /// Returns the key of the event object: the name of the regarded object, and a hash of 16 digits.
    pub(super) fn key(&self, reporter: &Reporter) -> ObjectKey {
        let EventIdentity { object, uid, event, action, reason, message } = &*self.identity;
        let first = self.series.first.as_nanosecond().to_string();
        let (kind, event) = (object.kind().to_string(), event.to_string());
        let regarded = object.key().to_string();
        let own: [&str; 9] = [&first, &reporter.controller, &kind, &regarded, uid, &event, action, reason, message];
        let hash = stable_hash(&own);
        let of = cut(object.key().name(), MOST_NAME - 1 - hash.len()).trim_end_matches(['-', '.']);
        let name = if is_subdomain(of) { format!("{of}.{hash}") } else { hash };
        ObjectKey::new(self.namespace(), &name)
    }

    pub(super) fn to_json(&self, reporter: &Reporter) -> Value {
        let EventIdentity { object, uid, event, action, reason, message } = &*self.identity;
        let key = self.key(reporter);
        let mut regarding = json!({
            "apiVersion": object.kind().api_version(), "kind": object.kind().name(), "name": object.key().name(),
        });
        for (field, value) in [("namespace", object.key().namespace()), ("uid", uid)] {
            if !value.is_empty() {
                regarding[field] = value.into();
            }
        }
        let mut json = json!({
            "apiVersion": EVENT.api_version(),
            "kind": EVENT.name(),
            "metadata": {"namespace": key.namespace(), "name": key.name()},
            "regarding": regarding,
            "type": event.to_string(),
            "action": action,
            "reason": reason,
            "note": message,
            "eventTime": micros(self.series.first),
            "reportingController": reporter.controller,
            "reportingInstance": reporter.instance,
        });
        if let Some(series) = self.series() {
            json["series"] = series;
        }
        json
    }

    /// Returns the patch that updates the count and the time of a stored event; `None` if the event has happened only
    /// once.
    pub(super) fn patch(&self) -> Option<Patch> {
        self.series().map(|series| Patch::Merge(json!({"series": series})))
    }

    /// Returns the count and the time of the last repetition. A server accepts counts of 2 and more.
    fn series(&self) -> Option<Value> {
        let Series { count, last, .. } = self.series;
        (count > 1).then(|| json!({"count": count, "lastObservedTime": micros(last)}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_become_qualified_names() {
        let long = format!("{}-x", "a".repeat(62));
        for (component, name) in [
            ("vms", "vms"),
            ("example.com/vm-controller", "example.com/vm-controller"),
            ("my controller!", "my-controller"),
            ("Not a domain/vms", "Not-a-domain-vms"),
            ("vms/", "vms/controller"),
            ("", "controller"),
            ("é", "controller"),
            (&long, &"a".repeat(62)),
        ] {
            assert_eq!(qualified(component), name, "{component}");
        }
    }

    #[test]
    fn times_have_six_digits() {
        assert_eq!(micros(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
        assert_eq!(micros("2024-05-01T10:00:00.123456789Z".parse().unwrap()), "2024-05-01T10:00:00.123456Z");
    }
}
