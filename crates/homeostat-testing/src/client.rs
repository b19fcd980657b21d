//! A client for tests: it stores the objects that a test gives, and records all writes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::factory::{Sample, whole};
use super::reactor::Reactor;
use crate::sync::Mutex;
use homeostat::base::Clock;
use homeostat_objects::json::{meta_mut, meta_string};
use homeostat_objects::store::delete_each;
use homeostat_objects::{
    Client, ClientAnswer, ClientCall, ClientError, ClientLayer, DeleteOptions, Deletion, FieldOwner, Kind,
    MemoryClient, Object, ObjectKey, ObjectRef, Patch, PatchTarget, SharedObject, Verb,
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
/// number. Generated uids are the same in each run. A [`delete_collection`](Client::delete_collection) counts as a list
/// and its deletions.
///
/// # Examples
///
/// ```
/// use homeostat::ManualClock;
/// use homeostat_objects::{Client, Kind, Object, ObjectKey, Verb};
/// use homeostat_testing::{Factory, Reactor, Sample, TestClient, Write};
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

    fn record(&self, object: &ObjectRef, call: &ClientCall<'_>) {
        let object = || object.clone();
        let write = match call {
            ClientCall::Create(sent) => Write::Create(object(), sent.clone()),
            ClientCall::Update(sent, PatchTarget::Object) => Write::Update(object(), sent.clone()),
            ClientCall::Update(sent, PatchTarget::Status) => Write::UpdateStatus(object(), sent.clone()),
            ClientCall::Patch(_, patch, target) => Write::Patch(object(), patch.clone().into_owned(), *target),
            ClientCall::Apply(fields, owner) => Write::Apply(object(), fields.clone(), (*owner).clone()),
            ClientCall::Delete(_, options) => Write::Delete(object(), (*options).clone()),
            // Each deletion of a collection is a call.
            ClientCall::DeleteCollection(..)
            | ClientCall::Get(_)
            | ClientCall::List { .. }
            | ClientCall::Watch { .. } => return,
        };
        self.shared.writes.lock().push(write);
    }

    /// Passes a call to the reactors, and returns the first answer.
    fn ask(&self, verb: Verb, object: &ObjectRef, mut sent: Option<&mut Value>) -> Option<Result<Value, ClientError>> {
        let reactors = self.shared.reactors.lock().clone();
        reactors.iter().find_map(|reactor| reactor.react(verb, object, sent.as_deref_mut()))
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

pub(super) fn json_of(object: &impl Object) -> Value {
    object.to_json().unwrap_or_else(|error| panic!("{error}"))
}

impl ClientLayer for TestClient {
    fn inner(&self) -> &dyn Client {
        &self.objects
    }

    fn around(&self, _: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        None
    }

    fn call(&self, kind: &Kind, mut call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        if let ClientCall::DeleteCollection(query, options) = &call {
            return delete_each(self, kind, query, options).map(ClientAnswer::Deletions);
        }
        let (verb, object) = (call.verb(), call.object(kind));
        self.record(&object, &call);
        let Some(answer) = self.ask(verb, &object, call.sent_mut()) else {
            if let ClientCall::Create(sent) = call {
                call = ClientCall::Create(self.with_name(kind, sent));
            }
            return call.send(&self.objects, kind);
        };
        match (verb, answer?) {
            (Verb::List, Value::Array(items)) => {
                let mut answer = call.send(&self.objects, kind)?;
                if let ClientAnswer::List((list, _)) = &mut answer {
                    list.items = items.into_iter().map(SharedObject::from).collect();
                }
                Ok(answer)
            }
            (Verb::List, other) => panic!("a reactor must answer a list with an array, not with {other}"),
            (Verb::Watch, _) => panic!("a reactor must not answer a watch; it can only fail it"),
            (Verb::Delete, Value::Null) => Ok(ClientAnswer::Deletion(Deletion::Gone)),
            (Verb::Delete, object) => Ok(ClientAnswer::Deletion(Deletion::Deleting(object.into()))),
            (_, object) => Ok(ClientAnswer::Object(object.into())),
        }
    }
}

impl fmt::Debug for TestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClient").field("objects", &self.objects).finish_non_exhaustive()
    }
}
