//! A process as a plain value: its calls, and the answers that it has received so far. Its next request is found by
//! running the calls again with these answers.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, mem};

use serde_json::{Value, json};

use super::bucket::{BUCKET, LISTING, Request, hash};
use crate::connection::{NatsConnection, Play};
use crate::error::NatsError;
use crate::kv::{KvBucket, KvEntry, KvOperation};
use crate::objects::NatsClient;
use crate::objects::store::{ObjectStore, failure};
use crate::options::NatsOptions;
use crate::protocol::{NatsHeaders, NatsMessage};
use crate::sync::Mutex;
use crate::sync::atomic::Ordering;
use homeostat::base::ManualClock;
use homeostat_objects::store::Names;
use homeostat_objects::{
    Client, ClientError, DeleteOptions, Kind, ObjectKey, ObjectRef, Patch, PatchTarget, Propagation,
};

pub(super) const NODE: Kind = Kind::namespaced("x.io", "v1", "Node");

/// A call of a process.
#[derive(Clone, Debug)]
pub(super) enum Call {
    /// Creates an object with a uid from this seed.
    Create(Value, u64),
    Delete(&'static str, Propagation),
    Patch(&'static str, Value),
    /// The first call of a new client.
    Repair,
}

/// The next action of a process.
#[derive(Clone, Debug)]
enum Next {
    Request(Request),
    /// All calls have ended.
    Ended,
}

/// The answer to a request. `None` if the request has failed: perhaps the server has executed it.
type Answer = Option<Arc<str>>;

#[derive(Clone)]
pub(super) struct Process {
    calls: Arc<[Call]>,
    answers: Arc<Vec<Answer>>,
    /// A hash of the calls and the answers, which decide about all that the process does.
    history: u64,
    /// The index of the call that is running.
    call: usize,
    next: Next,
}

/// Answers requests from a list. Keeps the first request that has no answer.
#[derive(Default)]
struct Script {
    answers: Arc<Vec<Answer>>,
    used: usize,
    next: Option<Request>,
}

struct Player(Mutex<Script>);

/// Ends a run that needs a further answer.
struct Suspended;

impl Play for Player {
    fn answer(&self, subject: &str, headers: &NatsHeaders, payload: &[u8]) -> Result<NatsMessage, NatsError> {
        let mut script = self.0.lock();
        let Some(answer) = script.answers.get(script.used).cloned() else {
            script.next = Some(Request::new(subject, headers, payload));
            drop(script);
            std::panic::resume_unwind(Box::new(Suspended))
        };
        script.used += 1;
        let payload = answer.ok_or_else(|| NatsError::timed_out(subject, Duration::from_secs(1)))?.as_bytes().to_vec();
        Ok(NatsMessage { subject: subject.to_owned(), reply: None, headers: NatsHeaders::new(), payload })
    }
}

impl Process {
    fn ended() -> Self {
        Self { calls: Arc::new([]), answers: Arc::default(), history: 0, call: 0, next: Next::Ended }
    }

    pub(super) fn new(calls: Vec<Call>) -> Self {
        let history = hash(&format!("{calls:?}"));
        Self { calls: calls.into(), history, ..Self::ended() }.run()
    }

    /// Continues with the answer to the last request.
    pub(super) fn answered(&mut self, answer: Answer) {
        self.history = hash(&(self.history, &answer));
        Arc::make_mut(&mut self.answers).push(answer);
        *self = mem::replace(self, Self::ended()).run();
    }

    /// Ends the process at once.
    pub(super) fn kill(&mut self) {
        *self = Self::ended();
    }

    pub(super) fn request(&self) -> Option<&Request> {
        match &self.next {
            Next::Request(request) => Some(request),
            Next::Ended => None,
        }
    }

    pub(super) fn is_in_last_call(&self) -> bool {
        self.call + 1 == self.calls.len()
    }

    /// Finds the next request.
    fn run(self) -> Self {
        let known = KNOWN.with_borrow(|known| known.get(&self.history).cloned());
        let (call, next) = known.unwrap_or_else(|| {
            let found = self.run_calls();
            KNOWN.with_borrow_mut(|known| known.insert(self.history, found.clone()));
            found
        });
        match next {
            Next::Request(_) => Self { call, next, ..self },
            Next::Ended => Self::ended(),
        }
    }

    fn run_calls(&self) -> (usize, Next) {
        let player = Arc::new(Player(Mutex::new(Script { answers: Arc::clone(&self.answers), ..Script::default() })));
        let client = client(&player);
        let mut begun = 0;
        let run = || {
            for call in &*self.calls {
                begun += 1;
                // A caller continues after a failed call.
                let _ = call.run(&client);
            }
        };
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(()) => (begun, Next::Ended),
            Err(panic) => {
                let Some(request) = player.0.lock().next.take() else { std::panic::resume_unwind(panic) };
                (begun - 1, Next::Request(request))
            }
        }
    }
}

thread_local! {
    /// The next action of each process by its history.
    static KNOWN: RefCell<HashMap<u64, (usize, Next)>> = RefCell::default();
}

/// The short form, which identifies a state, has the history, which decides about the next request.
impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "history {:x}", self.history)?;
        if f.alternate() { write!(f, ", next {:?}", self.next) } else { Ok(()) }
    }
}

fn client(player: &Arc<Player>) -> NatsClient {
    let clock = ManualClock::at(UNIX_EPOCH + Duration::from_secs(1_767_225_600)).clock();
    // A read that fails is not repeated.
    let options = NatsOptions::new("played").clock(clock).request_timeout(Duration::from_secs(1));
    let bucket = KvBucket {
        connection: NatsConnection::played(options, Arc::clone(player) as Arc<dyn Play>),
        name: BUCKET.to_owned(),
        prefix: format!("$KV.{BUCKET}."),
        direct: false,
        max_value_size: None,
        max_bytes: None,
    };
    let store = ObjectStore::new(bucket, "2026-01-01T00:00:00Z");
    // The room for deletions in a full bucket is another subject.
    store.reserve.store(1 << 20, Ordering::Relaxed);
    store.unchecked.store(1 << 30, Ordering::Relaxed);
    NatsClient { store: Arc::new(store) }
}

impl Call {
    fn run(&self, client: &NatsClient) -> Result<(), ClientError> {
        let key = |name: &str| ObjectKey::new("n", name);
        match self {
            Self::Create(object, seed) => {
                let names = Names::seeded(*seed);
                client.store.write(&|txn| txn.create(&NODE, object.clone(), names)).map(drop)
            }
            Self::Delete(name, propagation) => {
                let options = DeleteOptions::default().propagation(*propagation);
                client.delete(&NODE, &key(name), &options).map(drop)
            }
            Self::Patch(name, patch) => {
                client.patch(&NODE, &key(name), &Patch::Merge(patch.clone()), PatchTarget::Object).map(drop)
            }
            Self::Repair => {
                let answer = client.store.connection().request(LISTING, b"");
                let bucket = || ObjectRef::new(&NODE, &ObjectKey::cluster(BUCKET));
                let answer = answer.map_err(|error| failure(bucket(), error))?;
                let named: BTreeMap<String, String> = serde_json::from_slice(&answer.payload).unwrap();
                let entries = named.into_iter().map(|(key, value)| KvEntry {
                    key,
                    value: value.into_bytes(),
                    revision: 1,
                    created: SystemTime::UNIX_EPOCH,
                    operation: KvOperation::Put,
                    note: None,
                });
                client.store.repair_named(&entries.collect::<Vec<_>>())
            }
        }
    }
}

/// Returns an object. Each owner is a name and a uid.
pub(super) fn node(name: &str, owners: &[(&str, &str)]) -> Value {
    let owners: Vec<_> = owners
        .iter()
        .map(|(name, uid)| {
            json!({"apiVersion": "x.io/v1", "kind": "Node", "name": name, "uid": uid, "blockOwnerDeletion": true})
        })
        .collect();
    let mut object = json!({
        "apiVersion": "x.io/v1", "kind": "Node", "metadata": {"namespace": "n", "name": name},
    });
    if !owners.is_empty() {
        object["metadata"]["ownerReferences"] = owners.into();
    }
    object
}
