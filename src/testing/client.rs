//! A client for tests: with objects as they are given, and a memory of what is written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::factory::{Sample, whole};
use super::reactor::{Reactor, Verb};
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::objects::json::{key_of, meta_mut, text_of};
use crate::objects::{
    Client, ClientError, DeleteOptions, FieldOwner, Kind, MemoryClient, Object, ObjectKey, ObjectList, ObjectRef,
    ObjectStream, Patch, PatchTarget, Query,
};

/// A call of a client that writes: what was sent, whatever came of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Write {
    /// [`Client::create`].
    Create(ObjectRef, Value),
    /// [`Client::update`].
    Update(ObjectRef, Value),
    /// [`Client::update_status`].
    UpdateStatus(ObjectRef, Value),
    /// [`Client::patch`].
    Patch(ObjectRef, Patch, PatchTarget),
    /// [`Client::apply`].
    Apply(ObjectRef, Value, FieldOwner),
    /// [`Client::delete`].
    Delete(ObjectRef, DeleteOptions),
}

/// A [`Client`] for tests: an embedded one that has objects just as they are [given](Self::give), remembers what is written, and fails
/// where a [`Reactor`] says so. A cheap handle.
///
/// Names that it makes have numbers: `web-001` of `web-`, or the next that no object has. Uids that it makes are the same whenever
/// the same is written.
///
/// # Examples
///
/// ```
/// use homeostat::ManualClock;
/// use homeostat::objects::{Client, Kind, Object, ObjectKey};
/// use homeostat::testing::{Factory, Reactor, Sample, TestClient, Verb, Write};
///
/// let client = TestClient::new(ManualClock::new().clock());
/// let colours = Factory::config_map("default", "colours");
/// client.give(&colours);
/// client.react(&Reactor::fail(Verb::Delete).once());
///
/// let (kind, key) = (colours.sample().kind(), ObjectKey::new("default", "colours"));
/// assert_eq!(client.get(&kind, &key)?["metadata"]["resourceVersion"], "999");
/// assert!(client.delete(&kind, &key, &Default::default()).is_err());
/// assert!(matches!(&*client.writes(), [Write::Delete(object, _)] if object.key() == &key));
/// # Ok::<_, homeostat::objects::ClientError>(())
/// ```
#[derive(Clone)]
pub struct TestClient {
    objects: MemoryClient,
    seed: u64,
    /// How many names have been made that begin so.
    names: Arc<Mutex<BTreeMap<String, u32>>>,
    known: Arc<Known>,
}

/// What clients of one set have in common.
#[derive(Default)]
struct Known {
    writes: Mutex<Vec<Write>>,
    reactors: Mutex<Vec<Reactor>>,
}

/// How much of a `generateName` is kept, as in an embedded client.
const LONGEST_START: usize = 58;

type Answer = Result<Arc<Value>, ClientError>;

impl TestClient {
    /// Without an object, at the time of this clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::with_seed(clock, 0)
    }

    /// One whose uids are not those of clients with another seed.
    pub(super) fn with_seed(clock: Clock, seed: u64) -> Self {
        let objects = MemoryClient::builder().clock(clock).seed(seed).build();
        Self { objects, seed, names: Arc::default(), known: Arc::default() }
    }

    /// With other objects, at the time of this clock; what is written to both is remembered by both, and what reacts to one reacts to
    /// the other.
    #[must_use]
    pub fn beside(&self, clock: Clock) -> Self {
        Self { known: Arc::clone(&self.known), ..Self::with_seed(clock, !self.seed) }
    }

    /// Puts an object there as it is, in the place of the one of its key: no rule is asked. What a client gives to all objects it is
    /// given as [created](super::Factory::created), where it has nothing yet.
    ///
    /// # Panics
    ///
    /// If it cannot be written as JSON.
    pub fn give(&self, object: &impl Sample) {
        let object = whole(object.sample(), 0);
        self.objects.load(&object.kind(), json_of(&object));
    }

    /// What a call meets from now on, before those that were there.
    pub fn react(&self, reactor: &Reactor) {
        self.known.reactors.lock().insert(0, reactor.renewed());
    }

    /// What has been written, in its order. It is remembered until it is [taken](Self::take_writes).
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.known.writes.lock().clone()
    }

    /// What has been written since it was taken last.
    #[must_use]
    pub fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut *self.known.writes.lock())
    }

    fn written(&self, write: impl FnOnce() -> Write) {
        self.known.writes.lock().push(write());
    }

    /// Shows a call to the reactors: the answer of the first that has one.
    fn ask(&self, verb: Verb, object: &ObjectRef, mut sent: Option<&mut Value>) -> Option<Result<Value, ClientError>> {
        let reactors = self.known.reactors.lock().clone();
        reactors.iter().find_map(|reactor| reactor.react(verb, object, sent.as_deref_mut()))
    }

    fn call(
        &self,
        verb: Verb,
        object: &ObjectRef,
        sent: Option<&mut Value>,
        call: impl FnOnce(&MemoryClient) -> Answer,
    ) -> Answer {
        match self.ask(verb, object, sent) {
            Some(answer) => answer.map(Arc::new),
            None => call(&self.objects),
        }
    }

    fn send(&self, verb: Verb, kind: &Kind, mut sent: Value, write: fn(ObjectRef, Value) -> Write) -> Answer {
        let object = ref_of(kind, &sent);
        self.written(|| write(object.clone(), sent.clone()));
        match self.ask(verb, &object, Some(&mut sent)) {
            Some(answer) => answer.map(Arc::new),
            None => match verb {
                Verb::Create => self.objects.create(kind, self.with_name(kind, sent)),
                Verb::Update => self.objects.update(kind, sent),
                _ => self.objects.update_status(kind, sent),
            },
        }
    }

    fn with_name(&self, kind: &Kind, mut object: Value) -> Value {
        let start = text_of(&object, "generateName").to_owned();
        if start.is_empty() || !text_of(&object, "name").is_empty() {
            return object;
        }
        let namespace = text_of(&object, "namespace").to_owned();
        let mut names = self.names.lock();
        let made = names.entry(start.clone()).or_default();
        let name = loop {
            *made += 1;
            let name = format!("{}{made:03}", start.get(..LONGEST_START).unwrap_or(&start));
            if self.objects.get(kind, &ObjectKey::new(&namespace, &name)).is_err() {
                break name;
            }
        };
        meta_mut(&mut object).insert("name".to_owned(), name.into());
        object
    }
}

/// The object that a JSON is; one that is to be given a name is called `web-*`.
pub(super) fn ref_of(kind: &Kind, json: &Value) -> ObjectRef {
    let (key, start) = (key_of(json), text_of(json, "generateName"));
    if key.name().is_empty() && !start.is_empty() {
        return ObjectRef::new(kind, &ObjectKey::new(key.namespace(), &format!("{start}*")));
    }
    ObjectRef::new(kind, &key)
}

pub(super) fn json_of(object: &impl Object) -> Value {
    object.to_json().unwrap_or_else(|error| panic!("{error}"))
}

/// What of a kind is listed or watched.
fn all_of(kind: &Kind, query: &Query) -> ObjectRef {
    ObjectRef::new(kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), ""))
}

impl Client for TestClient {
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Answer {
        self.call(Verb::Get, &ObjectRef::new(kind, key), None, |client| client.get(kind, key))
    }

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        let answer = self.ask(Verb::List, &all_of(kind, query), None).transpose()?;
        let mut list = self.objects.list(kind, query)?;
        match answer {
            Some(Value::Array(items)) => list.items = items.into_iter().map(Arc::new).collect(),
            Some(other) => panic!("a reactor answers a list with {other}, which is no array"),
            None => {}
        }
        Ok(list)
    }

    fn create(&self, kind: &Kind, object: Value) -> Answer {
        self.send(Verb::Create, kind, object, Write::Create)
    }

    fn update(&self, kind: &Kind, object: Value) -> Answer {
        self.send(Verb::Update, kind, object, Write::Update)
    }

    fn update_status(&self, kind: &Kind, object: Value) -> Answer {
        self.send(Verb::UpdateStatus, kind, object, Write::UpdateStatus)
    }

    fn patch(&self, kind: &Kind, key: &ObjectKey, patch: &Patch, target: PatchTarget) -> Answer {
        let object = ObjectRef::new(kind, key);
        self.written(|| Write::Patch(object.clone(), patch.clone(), target));
        let verb = if target == PatchTarget::Status { Verb::PatchStatus } else { Verb::Patch };
        let mut patch = patch.clone();
        let (Patch::Merge(sent) | Patch::Json(sent)) = &mut patch;
        match self.ask(verb, &object, Some(sent)) {
            Some(answer) => answer.map(Arc::new),
            None => self.objects.patch(kind, key, &patch, target),
        }
    }

    fn apply(&self, kind: &Kind, mut fields: Value, owner: &FieldOwner) -> Answer {
        let object = ref_of(kind, &fields);
        self.written(|| Write::Apply(object.clone(), fields.clone(), owner.clone()));
        match self.ask(Verb::Apply, &object, Some(&mut fields)) {
            Some(answer) => answer.map(Arc::new),
            None => self.objects.apply(kind, fields, owner),
        }
    }

    fn delete(&self, kind: &Kind, key: &ObjectKey, options: &DeleteOptions) -> Answer {
        let object = ObjectRef::new(kind, key);
        self.written(|| Write::Delete(object.clone(), options.clone()));
        self.call(Verb::Delete, &object, None, |client| client.delete(kind, key, options))
    }

    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        let answer = self.ask(Verb::Watch, &all_of(kind, query), None).transpose()?;
        assert!(answer.is_none(), "a reactor answers a watch, which can only be failed");
        self.objects.watch(kind, query, from, stop)
    }
}

impl fmt::Debug for TestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClient").field("objects", &self.objects).finish_non_exhaustive()
    }
}
