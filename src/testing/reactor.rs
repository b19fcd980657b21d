//! What calls of a test's client meet on their way.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::base::sync::Mutex;
use crate::objects::{ClientError, Kind, ObjectRef};

/// A method of a [`Client`](crate::objects::Client).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum Verb {
    Get,
    List,
    Create,
    Update,
    UpdateStatus,
    Patch,
    PatchStatus,
    Apply,
    Delete,
    Watch,
}

/// What a client is asked for.
///
/// # Examples
///
/// ```
/// use homeostat::testing::{Call, Reactor};
/// use serde_json::json;
///
/// fn ghosts(call: &Call<'_>) -> bool {
///     call.sent.is_none() && call.object.key().name() == "ghost"
/// }
/// let reactor = Reactor::answer(None, |call| ghosts(call).then(|| Ok(json!({"metadata": {"name": "ghost"}}))));
/// # let _ = reactor;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The method.
    pub verb: Verb,
    /// Which object; without a name, if all of a kind are meant, and called `web-*`, if a name is to be made that begins so.
    pub object: &'a ObjectRef,
    /// The object, the fields or the patch; nothing, if it is not a call that sends one.
    pub sent: Option<&'a Value>,
}

/// What calls of a [`TestClient`](super::TestClient) meet on their way: they fail, are answered, or are changed.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{ClientError, Kind};
/// use homeostat::testing::{Reactor, Verb};
/// use serde_json::json;
///
/// const POD: Kind = Kind::namespaced("", "v1", "Pod");
/// let unreachable = Reactor::fail(Verb::Create).kind(&POD);
/// let lost = Reactor::fail(Verb::Update)
///     .error(|object| ClientError::conflict(object.clone(), "it has changed"))
///     .once();
/// let defaults = Reactor::change(Verb::Create, |pod| pod["spec"]["restartPolicy"] = json!("Always")).kind(&POD);
/// # let _ = (unreachable, lost, defaults);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Reactor {
    verb: Option<Verb>,
    kind: Option<Kind>,
    name: Option<String>,
    times: Option<u32>,
    /// How often it does something yet.
    left: Arc<Mutex<Option<u32>>>,
    reaction: Reaction,
}

/// What a call is answered with, if it is.
type Answer = Option<Result<Value, ClientError>>;

#[derive(Clone)]
enum Reaction {
    Fail(Arc<dyn Fn(&ObjectRef) -> ClientError + Send + Sync>),
    Answer(Arc<dyn Fn(&Call<'_>) -> Answer + Send + Sync>),
    Change(Arc<dyn Fn(&mut Value) + Send + Sync>),
}

impl Reactor {
    /// Calls of this method fail, and do nothing; of all, if it is `None`. The error is a [`Transport`](ClientError::Transport).
    pub fn fail(verb: impl Into<Option<Verb>>) -> Self {
        let error = |object: &ObjectRef| ClientError::transport(object.clone(), "a reactor fails this call");
        Self::new(verb.into(), Reaction::Fail(Arc::new(error)))
    }

    /// Calls of this method, or of all, are answered like this, and do nothing else; those for which this returns `None` go on. A list
    /// is answered with an array of its objects; a watch can only fail.
    pub fn answer(
        verb: impl Into<Option<Verb>>,
        answer: impl Fn(&Call<'_>) -> Option<Result<Value, ClientError>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(verb.into(), Reaction::Answer(Arc::new(answer)))
    }

    /// What is sent by this method, or by all, is changed on its way, as an admission webhook does it: the object, the fields or the
    /// patch.
    pub fn change(verb: impl Into<Option<Verb>>, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self::new(verb.into(), Reaction::Change(Arc::new(change)))
    }

    fn new(verb: Option<Verb>, reaction: Reaction) -> Self {
        Self { verb, kind: None, name: None, times: None, left: Arc::default(), reaction }
    }

    /// Failing with this error.
    ///
    /// # Panics
    ///
    /// If it is not one that [fails](Self::fail).
    pub fn error(self, error: impl Fn(&ObjectRef) -> ClientError + Send + Sync + 'static) -> Self {
        assert!(matches!(self.reaction, Reaction::Fail(_)), "this reactor does not fail calls");
        Self { reaction: Reaction::Fail(Arc::new(error)), ..self }
    }

    /// For objects of this kind alone.
    pub fn kind(self, kind: &Kind) -> Self {
        Self { kind: Some(kind.clone()), ..self }
    }

    /// For objects of this name alone.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// For the first such call alone.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// For so many such calls, the first ones. Those that it neither answers nor changes are not counted.
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// The same, for another client: it has not done anything yet.
    pub(super) fn renewed(&self) -> Self {
        Self { left: Arc::new(Mutex::new(self.times)), ..self.clone() }
    }

    /// What it answers to a call, if anything.
    pub(super) fn react(&self, verb: Verb, object: &ObjectRef, sent: Option<&mut Value>) -> Answer {
        let fits = self.verb.is_none_or(|own| own == verb)
            && self.kind.as_ref().is_none_or(|kind| kind == object.kind())
            && self.name.as_ref().is_none_or(|name| name == object.key().name())
            && (sent.is_some() || !matches!(self.reaction, Reaction::Change(_)));
        if !fits || !self.take() {
            return None;
        }
        match &self.reaction {
            Reaction::Fail(error) => Some(Err(error(object))),
            Reaction::Answer(answer) => {
                let answer = answer(&Call { verb, object, sent: sent.as_deref() });
                if answer.is_none() {
                    self.put_back();
                }
                answer
            }
            Reaction::Change(change) => {
                if let Some(sent) = sent {
                    change(sent);
                }
                None
            }
        }
    }

    fn put_back(&self) {
        if let Some(left) = &mut *self.left.lock() {
            *left += 1;
        }
    }

    fn take(&self) -> bool {
        match &mut *self.left.lock() {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor")
            .field("verb", &self.verb)
            .field("kind", &self.kind)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
