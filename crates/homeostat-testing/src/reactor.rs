//! Reactors: they fail, answer or change the calls of a test client.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::sync::Mutex;
use homeostat_objects::{ClientError, Kind, ObjectRef, Verb};

/// A call to a client, as a reactor sees it.
///
/// # Examples
///
/// ```
/// use homeostat_testing::{Call, Reactor};
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
    /// The object. The name is empty in lists and watches. If the client generates a name from `web-`, the name is
    /// `web-*`.
    pub object: &'a ObjectRef,
    /// The object, the fields or the patch that the call sends, if any.
    pub sent: Option<&'a Value>,
}

/// Fails, answers or changes calls of a [`TestClient`](super::TestClient).
///
/// # Examples
///
/// ```
/// use homeostat_objects::{ClientError, Kind, Verb};
/// use homeostat_testing::{Reactor};
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
    /// How many more calls it affects.
    left: Arc<Mutex<Option<u32>>>,
    reaction: Reaction,
}

/// The answer of a reactor, if it gives one.
type ReactorReply = Option<Result<Value, ClientError>>;

#[derive(Clone)]
enum Reaction {
    Fail(Arc<dyn Fn(&ObjectRef) -> ClientError + Send + Sync>),
    Answer(Arc<dyn Fn(&Call<'_>) -> ReactorReply + Send + Sync>),
    Change(Arc<dyn Fn(&mut Value) + Send + Sync>),
}

impl Reactor {
    /// Fails calls of this method, or all calls if `verb` is `None`. The error is a
    /// [`Transport`](homeostat_objects::ClientErrorKind::Transport).
    pub fn fail(verb: impl Into<Option<Verb>>) -> Self {
        let error = |object: &ObjectRef| ClientError::transport(object.clone(), "a reactor fails this call");
        Self::new(verb.into(), Reaction::Fail(Arc::new(error)))
    }

    /// Answers calls of this method, or all calls, instead of the client. If `answer` returns `None`, the call
    /// continues.
    ///
    /// To answer a list, return an array of objects. To answer a deletion, return the object if finalizers keep it, or
    /// `null` if it is gone. A watch can only be failed.
    pub fn answer(
        verb: impl Into<Option<Verb>>,
        answer: impl Fn(&Call<'_>) -> Option<Result<Value, ClientError>> + Send + Sync + 'static,
    ) -> Self {
        Self::new(verb.into(), Reaction::Answer(Arc::new(answer)))
    }

    /// Changes the object, the fields or the patch that a call sends, as an admission webhook does.
    pub fn change(verb: impl Into<Option<Verb>>, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self::new(verb.into(), Reaction::Change(Arc::new(change)))
    }

    fn new(verb: Option<Verb>, reaction: Reaction) -> Self {
        Self { verb, kind: None, name: None, times: None, left: Arc::default(), reaction }
    }

    /// Sets the error of a reactor that fails calls.
    ///
    /// # Panics
    ///
    /// Panics unless [`fail`](Self::fail) created the reactor.
    pub fn error(self, error: impl Fn(&ObjectRef) -> ClientError + Send + Sync + 'static) -> Self {
        assert!(matches!(self.reaction, Reaction::Fail(_)), "this reactor does not fail calls");
        Self { reaction: Reaction::Fail(Arc::new(error)), ..self }
    }

    /// Limits the reactor to objects of this kind.
    pub fn kind(self, kind: &Kind) -> Self {
        Self { kind: Some(kind.clone()), ..self }
    }

    /// Limits the reactor to objects of this name.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Limits the reactor to the first matching call.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Limits the reactor to the first matching calls. Calls that it neither answers nor changes do not count.
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Returns a copy with its count of calls reset.
    pub(super) fn renewed(&self) -> Self {
        Self { left: Arc::new(Mutex::new(self.times)), ..self.clone() }
    }

    /// Returns the answer to a call, or `None` if the call continues.
    pub(super) fn react(&self, verb: Verb, object: &ObjectRef, sent: Option<&mut Value>) -> ReactorReply {
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
