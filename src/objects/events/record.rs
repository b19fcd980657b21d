//! What a recorder remembers: which events there were, how often, and which of them a client has still to be told.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::client::Patch;
use super::super::digest::digest;
use super::super::error::ObjectRef;
use super::super::json::whole_seconds;
use super::super::key::ObjectKey;
use super::super::object::Object;
use super::super::validate::is_subdomain;
use super::{EventRecorder, EventType};
use crate::base::wait::WaiterCounts;

/// As much as Kubernetes takes for its note.
const MOST_MESSAGE: usize = 1024;
const MOST_NAME: usize = 253;
/// Where events go that are about objects in no namespace.
const NAMESPACE: &str = "default";

/// What happens: the same again is the same event.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Happening {
    pub(super) object: ObjectRef,
    uid: String,
    event: EventType,
    pub(super) reason: String,
    message: String,
}

impl Happening {
    pub(super) fn new(object: &impl Object, event: EventType, reason: &str, message: &str) -> Self {
        Self {
            object: object.object_ref(),
            uid: object.meta().uid.clone(),
            event,
            reason: cut(reason, MOST_MESSAGE).to_owned(),
            message: cut(message, MOST_MESSAGE).to_owned(),
        }
    }
}

/// As many whole letters of a text as fit into so many bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// How often, and when.
#[derive(Clone, Copy, Debug)]
struct Series {
    count: i32,
    first: Timestamp,
    last: Timestamp,
    /// Whether the client has had it.
    stored: bool,
    /// Its place in `Records::order`.
    turn: u64,
    /// Its place in `Records::pending`.
    pending: Option<u64>,
}

/// An event as it is to be written.
pub(super) struct Recorded {
    happening: Arc<Happening>,
    series: Series,
    place: u64,
}

impl Recorded {
    /// The object that the event is about.
    pub(super) fn object(&self) -> &ObjectRef {
        &self.happening.object
    }
}

/// How the writing of an event has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Stored,
    /// Trying again is of no use.
    Refused,
    /// To be tried again.
    Unreachable,
}

pub(super) struct Records {
    most: usize,
    known: HashMap<Arc<Happening>, Series>,
    /// Those that have not happened for longest first.
    order: BTreeMap<u64, Arc<Happening>>,
    /// What is to be written and is in nobody's hands.
    pending: BTreeMap<u64, Arc<Happening>>,
    writing: bool,
    /// Those who wait until nobody writes.
    pub(super) waiting: WaiterCounts,
    dropped: u64,
    next: u64,
}

impl Records {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            known: HashMap::new(),
            order: BTreeMap::new(),
            pending: BTreeMap::new(),
            writing: false,
            waiting: WaiterCounts::default(),
            dropped: 0,
            next: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// It happens, again perhaps. Returns how often it has, and what had to be forgotten for it that no client had been told.
    pub(super) fn raise(&mut self, happening: Happening, now: SystemTime, keep: bool) -> (i32, Option<Arc<Happening>>) {
        let now = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
        self.next += 1;
        let turn = self.next;
        let happening = Arc::new(happening);
        let (happening, series) = match self.known.get_key_value(&happening) {
            Some((known, series)) => {
                self.order.remove(&series.turn);
                (Arc::clone(known), *series)
            }
            None => (happening, Series { count: 0, first: now, last: now, stored: false, turn, pending: None }),
        };
        let pending = series.pending.or_else(|| keep.then_some(turn));
        let count = series.count.saturating_add(1);
        self.order.insert(turn, Arc::clone(&happening));
        if let Some(place) = pending {
            self.pending.insert(place, Arc::clone(&happening));
        }
        self.known.insert(happening, Series { count, last: now, turn, pending, ..series });
        (count, self.forget_one())
    }

    fn forget_one(&mut self) -> Option<Arc<Happening>> {
        if self.known.len() <= self.most {
            return None;
        }
        let (_, oldest) = self.order.pop_first()?;
        let place = self.known.remove(&oldest)?.pending?;
        self.dropped += 1;
        self.pending.remove(&place)
    }

    /// How many have been forgotten that no client had been told.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing
    }

    /// What is to be written next; `None`, if there is nothing or somebody writes.
    pub(super) fn take(&mut self) -> Option<Recorded> {
        if self.writing {
            return None;
        }
        let (place, happening) = self.pending.pop_first()?;
        let series = self.known.get_mut(&happening)?;
        series.pending = None;
        self.writing = true;
        Some(Recorded { happening, series: *series, place })
    }

    /// What was taken is in nobody's hands any more.
    pub(super) fn put_back(&mut self, recorded: &Recorded, written: Written) {
        self.writing = false;
        let Some(series) = self.known.get_mut(&recorded.happening) else { return };
        series.stored |= written == Written::Stored;
        if written == Written::Unreachable && series.pending.is_none() {
            series.pending = Some(recorded.place);
            self.pending.insert(recorded.place, Arc::clone(&recorded.happening));
        }
    }
}

impl Recorded {
    /// Whether the client has had it before.
    pub(super) fn is_stored(&self) -> bool {
        self.series.stored
    }

    /// The key of the event object: the name of what it is about, and 16 digits that no other event has.
    pub(super) fn key(&self, component: &str) -> ObjectKey {
        let Happening { object, uid, event, reason, message } = &*self.happening;
        let first = self.series.first.as_nanosecond().to_string();
        let kind = object.kind().to_string();
        let own = [&first, component, &kind, &object.key().to_string(), uid, &event.to_string(), reason, message];
        let digest = digest(&own);
        let of = cut(object.key().name(), MOST_NAME - 1 - digest.len()).trim_end_matches(['-', '.']);
        let namespace = if object.key().namespace().is_empty() { NAMESPACE } else { object.key().namespace() };
        let name = if is_subdomain(of) { format!("{of}.{digest}") } else { digest };
        ObjectKey::new(namespace, &name)
    }

    pub(super) fn to_json(&self, component: &str) -> Value {
        let Happening { object, uid, event, reason, message } = &*self.happening;
        let key = self.key(component);
        let mut involved = json!({
            "apiVersion": object.kind().api_version(), "kind": object.kind().name(), "name": object.key().name(),
        });
        for (field, value) in [("namespace", object.key().namespace()), ("uid", uid)] {
            if !value.is_empty() {
                involved[field] = value.into();
            }
        }
        json!({
            "apiVersion": EventRecorder::KIND.api_version(),
            "kind": EventRecorder::KIND.name(),
            "metadata": {"namespace": key.namespace(), "name": key.name()},
            "involvedObject": involved,
            "type": event.to_string(),
            "reason": reason,
            "message": message,
            "count": self.series.count,
            "firstTimestamp": whole_seconds(self.series.first).to_string(),
            "lastTimestamp": whole_seconds(self.series.last).to_string(),
            "source": {"component": component},
        })
    }

    /// What makes of the event that is there the one that is to be.
    pub(super) fn patch(&self) -> Patch {
        let last = whole_seconds(self.series.last).to_string();
        Patch::Merge(json!({"count": self.series.count, "lastTimestamp": last}))
    }
}
