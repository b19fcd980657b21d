//! A client for tests: it stores the objects that a test gives, and records all writes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::factory::{Sample, whole};
use super::reactor::{Reactor, Verb};
use crate::sync::Mutex;
use homeostat::base::{CancellationToken, Clock};
use homeostat_objects::json::{key_of, meta_mut, meta_string};
use homeostat_objects::{
    Capabilities, Client, ClientError, DeleteOptions, Deletion, FieldOwner, Kind, MemoryClient, Object, ObjectKey,
    ObjectList, ObjectRef, ObjectStream, Patch, PatchTarget, Query, SharedObject,
};

/// A recorded write: the data that was sent, even if the call failed.
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

/// A [`Client`] for tests. It stores objects exactly as [given](Self::give), records writes, and fails where a
/// [`Reactor`] tells it to.
///
/// Clones are cheap and share all state. Generated names are numbered: `web-` becomes `web-001`, or the next free
/// number. Generated uids are the same in each run.
///
/// # Examples
///
/// ```
/// use homeostat::ManualClock;
/// use homeostat_objects::{Client, Kind, Object, ObjectKey};
/// use homeostat_testing::{Factory, Reactor, Sample, TestClient, Verb, Write};
///
/// let client = TestClient::new(ManualClock::new().clock());
/// let colours = Factory::config_map("default", "colours");
/// client.give(&colours);
/// client.react(&Reactor::fail(Verb::Delete).once());
///
/// let (kind, key) = (colours.sample().kind(), ObjectKey::new("default", "colours"));
/// assert_eq!(client.get(&kind, &key)?.resource_version(), "999");
/// assert!(client.delete(&kind, &key, &Default::default()).is_err());
/// assert!(matches!(&*client.writes(), [Write::Delete(object, _)] if object.key() == &key));
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
#[derive(Clone)]
pub struct TestClient {
    objects: MemoryClient,
    seed: u64,
    /// How many names have been generated for each prefix.
    names: Arc<Mutex<BTreeMap<String, u32>>>,
    shared: Arc<SharedLog>,
}

/// The writes and reactors that [`beside`](TestClient::beside) clients share.
#[derive(Default)]
struct SharedLog {
    writes: Mutex<Vec<Write>>,
    reactors: Mutex<Vec<Reactor>>,
}

/// The length to which a `generateName` is cut, as in an embedded client.
const LONGEST_START: usize = 58;

type ClientResult = Result<SharedObject, ClientError>;

impl TestClient {
    /// Creates a client without objects. The clock gives the times of its objects.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::with_seed(clock, 0)
    }

    /// Creates a client. Clients with other seeds generate other uids.
    pub(super) fn with_seed(clock: Clock, seed: u64) -> Self {
        let objects = MemoryClient::builder().clock(clock).seed(seed).build();
        Self { objects, seed, names: Arc::default(), shared: Arc::default() }
    }

    /// Creates a client with its own objects. Both clients record their writes in one list, and share their reactors.
    #[must_use]
    pub fn beside(&self, clock: Clock) -> Self {
        Self { shared: Arc::clone(&self.shared), ..Self::with_seed(clock, !self.seed) }
    }

    /// Stores an object as it is, and replaces the object with the same key. Does not validate it.
    ///
    /// Missing metadata is filled in, as [`Factory::created`](super::Factory::created) does.
    ///
    /// # Panics
    ///
    /// Panics if the object cannot be written as JSON.
    pub fn give(&self, object: &impl Sample) {
        let object = whole(object.sample(), 0);
        self.objects.load(&object.kind(), json_of(&object));
    }

    /// Adds a reactor. It gets calls before all earlier reactors.
    pub fn react(&self, reactor: &Reactor) {
        self.shared.reactors.lock().insert(0, reactor.renewed());
    }

    /// Returns the writes in order. They stay recorded until [`take_writes`](Self::take_writes).
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.shared.writes.lock().clone()
    }

    /// Returns and removes the recorded writes.
    #[must_use]
    pub fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut *self.shared.writes.lock())
    }

    fn written(&self, write: impl FnOnce() -> Write) {
        self.shared.writes.lock().push(write());
    }

    /// Passes a call to the reactors, and returns the first answer.
    fn ask(&self, verb: Verb, object: &ObjectRef, mut sent: Option<&mut Value>) -> Option<Result<Value, ClientError>> {
        let reactors = self.shared.reactors.lock().clone();
        reactors.iter().find_map(|reactor| reactor.react(verb, object, sent.as_deref_mut()))
    }

    fn send(&self, verb: Verb, kind: &Kind, mut sent: Value, write: fn(ObjectRef, Value) -> Write) -> ClientResult {
        let object = ref_of(kind, &sent);
        self.written(|| write(object.clone(), sent.clone()));
        match self.ask(verb, &object, Some(&mut sent)) {
            Some(answer) => answer.map(SharedObject::from),
            None => match verb {
                Verb::Create => self.objects.create(kind, self.with_name(kind, sent)),
                Verb::Update => self.objects.update(kind, sent),
                _ => self.objects.update_status(kind, sent),
            },
        }
    }

    fn with_name(&self, kind: &Kind, mut object: Value) -> Value {
        let start = meta_string(&object, "generateName").to_owned();
        if start.is_empty() || !meta_string(&object, "name").is_empty() {
            return object;
        }
        let namespace = meta_string(&object, "namespace").to_owned();
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

/// Returns the reference of a JSON object. If it has only a `generateName`, the name is `web-*`.
pub(super) fn ref_of(kind: &Kind, json: &Value) -> ObjectRef {
    let (key, start) = (key_of(json), meta_string(json, "generateName"));
    if key.name().is_empty() && !start.is_empty() {
        return ObjectRef::new(kind, &ObjectKey::new(key.namespace(), &format!("{start}*")));
    }
    ObjectRef::new(kind, &key)
}

pub(super) fn json_of(object: &impl Object) -> Value {
    object.to_json().unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the reference of a list or a watch: it has no name.
fn all_of(kind: &Kind, query: &Query) -> ObjectRef {
    ObjectRef::new(kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), ""))
}

impl Client for TestClient {
    fn get(&self, kind: &Kind, key: &ObjectKey) -> ClientResult {
        match self.ask(Verb::Get, &ObjectRef::new(kind, key), None) {
            Some(answer) => answer.map(SharedObject::from),
            None => self.objects.get(kind, key),
        }
    }

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        let answer = self.ask(Verb::List, &all_of(kind, query), None).transpose()?;
        let mut list = self.objects.list(kind, query)?;
        match answer {
            Some(Value::Array(items)) => list.items = items.into_iter().map(SharedObject::from).collect(),
            Some(other) => panic!("a reactor must answer a list with an array, not with {other}"),
            None => {}
        }
        Ok(list)
    }

    fn create(&self, kind: &Kind, object: Value) -> ClientResult {
        self.send(Verb::Create, kind, object, Write::Create)
    }

    fn update(&self, kind: &Kind, object: Value) -> ClientResult {
        self.send(Verb::Update, kind, object, Write::Update)
    }

    fn update_status(&self, kind: &Kind, object: Value) -> ClientResult {
        self.send(Verb::UpdateStatus, kind, object, Write::UpdateStatus)
    }

    fn patch(&self, kind: &Kind, key: &ObjectKey, patch: &Patch, target: PatchTarget) -> ClientResult {
        let object = ObjectRef::new(kind, key);
        self.written(|| Write::Patch(object.clone(), patch.clone(), target));
        let verb = if target == PatchTarget::Status { Verb::PatchStatus } else { Verb::Patch };
        let mut patch = patch.clone();
        let (Patch::Merge(sent) | Patch::Json(sent)) = &mut patch;
        match self.ask(verb, &object, Some(sent)) {
            Some(answer) => answer.map(SharedObject::from),
            None => self.objects.patch(kind, key, &patch, target),
        }
    }

    fn apply(&self, kind: &Kind, mut fields: Value, owner: &FieldOwner) -> ClientResult {
        let object = ref_of(kind, &fields);
        self.written(|| Write::Apply(object.clone(), fields.clone(), owner.clone()));
        let verb = if owner.target == PatchTarget::Status { Verb::ApplyStatus } else { Verb::Apply };
        match self.ask(verb, &object, Some(&mut fields)) {
            Some(answer) => answer.map(SharedObject::from),
            None => self.objects.apply(kind, fields, owner),
        }
    }

    fn delete(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deletion<SharedObject>, ClientError> {
        let object = ObjectRef::new(kind, key);
        self.written(|| Write::Delete(object.clone(), options.clone()));
        match self.ask(Verb::Delete, &object, None) {
            Some(answer) => answer.map(|left| match left {
                Value::Null => Deletion::Gone,
                object => Deletion::Deleting(SharedObject::from(object)),
            }),
            None => self.objects.delete(kind, key, options),
        }
    }

    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        let answer = self.ask(Verb::Watch, &all_of(kind, query), None).transpose()?;
        assert!(answer.is_none(), "a reactor must not answer a watch; it can only fail it");
        self.objects.watch(kind, query, from, stop)
    }

    fn store_id(&self) -> usize {
        self.objects.store_id()
    }

    fn capabilities(&self) -> Capabilities {
        self.objects.capabilities()
    }
}

impl fmt::Debug for TestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClient").field("objects", &self.objects).finish_non_exhaustive()
    }
}
