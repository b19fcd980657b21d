//! What the cases are made of: a client to ask, objects to ask with, and how a case ends.

use std::fmt::Debug;
use std::panic::Location;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use serde_json::{Value, json};

use super::{WIDGET, ZONE};
use crate::base::cancel::CancellationToken;
use crate::base::thread::ThreadOptions;
use crate::objects::{
    Client, ClientError, DeleteOptions, FieldOwner, Kind, ObjectKey, ObjectStream, Patch, PatchTarget, Query,
    WatchEvent,
};

/// How long a client may take for what it has to do: no case waits that long if all is well.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many changes a case makes at most while a watch of it is not read, if it says nothing else.
const LIVELY: usize = 60;

/// How a case ends, if not well.
#[derive(Debug)]
pub(super) enum Stop {
    /// Where, and what was wrong.
    Failed(String),
    /// Why it cannot be asked.
    Skipped(String),
}

pub(super) type Outcome<T = ()> = Result<T, Stop>;

#[track_caller]
pub(super) fn failed(why: impl std::fmt::Display) -> Stop {
    let at = Location::caller();
    Stop::Failed(format!("{}:{}: {why}", at.file(), at.line()))
}

impl From<ClientError> for Stop {
    /// An error that was not due.
    #[track_caller]
    fn from(error: ClientError) -> Self {
        failed(format_args!("{error}"))
    }
}

/// Fails unless both are equal.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "most are made in the call")]
pub(super) fn same<T: PartialEq<U> + Debug, U: Debug>(what: &str, found: T, expected: U) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(failed(format_args!("{what}: {found:?}, expected {expected:?}")))
}

/// Fails unless this is so.
#[track_caller]
pub(super) fn holds(what: &str, so: bool) -> Outcome {
    if so { Ok(()) } else { Err(failed(format_args!("not so: {what}"))) }
}

/// Why a client refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    AlreadyExists,
    Conflict,
    Invalid,
    Gone,
    Transport,
}

impl Refusal {
    pub(super) fn of(error: &ClientError) -> Self {
        match error {
            ClientError::NotFound { .. } => Self::NotFound,
            ClientError::AlreadyExists { .. } => Self::AlreadyExists,
            ClientError::Conflict { .. } => Self::Conflict,
            ClientError::Invalid { .. } => Self::Invalid,
            ClientError::Gone { .. } => Self::Gone,
            ClientError::Transport { .. } => Self::Transport,
        }
    }
}

/// The client of one case.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) client: Arc<dyn Client>,
    pub(super) history: Option<usize>,
    cascades: bool,
}

type Answer = Result<Value, ClientError>;

impl Subject {
    pub(super) fn new(client: Arc<dyn Client>, history: Option<usize>, cascades: bool) -> Self {
        Self { client, history, cascades }
    }

    /// Skips the case if the back end does not cascade.
    pub(super) fn needs_cascading(&self) -> Outcome {
        if self.cascades { Ok(()) } else { Err(Stop::Skipped("the back end does not cascade".to_owned())) }
    }

    /// Skips the case if a watch cannot go back this many changes.
    pub(super) fn needs_history(&self, changes: usize) -> Outcome {
        match self.history {
            Some(history) if history < changes => {
                Err(Stop::Skipped(format!("the back end knows the last {history} changes only, of {changes}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn create(&self, object: Value) -> Answer {
        owned_answer(self.client.create(&kind_of(&object), object))
    }

    pub(super) fn update(&self, object: Value) -> Answer {
        owned_answer(self.client.update(&kind_of(&object), object))
    }

    pub(super) fn update_status(&self, object: Value) -> Answer {
        owned_answer(self.client.update_status(&kind_of(&object), object))
    }

    pub(super) fn apply(&self, object: Value, owner: &FieldOwner) -> Answer {
        owned_answer(self.client.apply(&kind_of(&object), object, owner))
    }

    /// The widget of this name, in the namespace `default`.
    pub(super) fn get(&self, name: &str) -> Answer {
        owned_answer(self.client.get(&WIDGET, &key(name)))
    }

    pub(super) fn patch(&self, name: &str, patch: &Patch) -> Answer {
        owned_answer(self.client.patch(&WIDGET, &key(name), patch, PatchTarget::Object))
    }

    pub(super) fn merge(&self, name: &str, patch: Value) -> Answer {
        self.patch(name, &Patch::Merge(patch))
    }

    pub(super) fn merge_status(&self, name: &str, patch: Value) -> Answer {
        owned_answer(self.client.patch(&WIDGET, &key(name), &Patch::Merge(patch), PatchTarget::Status))
    }

    pub(super) fn delete(&self, name: &str) -> Answer {
        self.delete_with(name, &DeleteOptions::default())
    }

    pub(super) fn delete_with(&self, name: &str, options: &DeleteOptions) -> Answer {
        owned_answer(self.client.delete(&WIDGET, &key(name), options))
    }

    /// What a query lists.
    pub(super) fn list(&self, query: &Query) -> Result<(String, Vec<Value>), ClientError> {
        let list = self.client.list(&WIDGET, query)?;
        Ok((list.version, list.items.iter().map(|item| (**item).clone()).collect()))
    }

    /// The version of the client now.
    pub(super) fn version(&self) -> Result<String, ClientError> {
        Ok(self.client.list(&WIDGET, &Query::all())?.version)
    }

    /// Everything there is.
    pub(super) fn all(&self) -> Result<Vec<Arc<Value>>, ClientError> {
        let mut all = self.client.list(&WIDGET, &Query::all())?.items;
        all.extend(self.client.list(&ZONE, &Query::all())?.items);
        Ok(all)
    }

    /// Fails unless the call is refused so, the error names the object (as its message does), and nothing has been written.
    #[track_caller]
    pub(super) fn refused<T: Debug>(
        &self,
        refusal: Refusal,
        object: &str,
        call: impl FnOnce() -> Result<T, ClientError>,
    ) -> Outcome<ClientError> {
        let before = self.all()?;
        let error = match call() {
            Ok(done) => return Err(failed(format_args!("is done, not {refusal:?}: {done:?}"))),
            Err(error) => error,
        };
        same(&format!("refused, but as in {error}"), Refusal::of(&error), refusal)?;
        same("the object of the error", error.object().to_string(), object)?;
        holds(&format!("the message {:?} names {object}", error.to_string()), error.to_string().contains(object))?;
        same("the objects after a refusal", self.all()?, before)?;
        Ok(error)
    }

    /// Fails unless the call is refused as invalid, for a field at or below this path, whose value the error tells.
    #[track_caller]
    pub(super) fn invalid<T: Debug>(
        &self,
        object: &str,
        path: &str,
        told: &str,
        call: impl FnOnce() -> Result<T, ClientError>,
    ) -> Outcome {
        let error = self.refused(Refusal::Invalid, object, call)?;
        let ClientError::Invalid { field, value, rule, .. } = &error else { return Ok(()) };
        let below = field.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        holds(&format!("the field {field:?} is in {path:?} ({error})"), below)?;
        holds(&format!("the value {value:?} has {told:?} in it ({error})"), value.contains(told))?;
        holds("the error has a rule", !rule.is_empty())?;
        holds(&format!("the message has the field: {error}"), error.to_string().contains(field))
    }

    /// A watch of widgets, and what it tells. Skips the case if what is told may be gone before it is read.
    #[track_caller]
    pub(super) fn watch(&self, query: &Query, from: Option<&str>) -> Outcome<Told> {
        self.needs_history(LIVELY)?;
        let stop = CancellationToken::new();
        let stream = self.client.watch(&WIDGET, query, from, &stop)?;
        Told::of(stream, stop)
    }

    /// Waits until there is no such widget.
    #[track_caller]
    pub(super) fn vanishes(&self, name: &str) -> Outcome {
        self.becomes(name, |object| object.is_none())
    }

    /// Waits until the widget is so.
    #[track_caller]
    pub(super) fn becomes(&self, name: &str, so: impl Fn(Option<&Value>) -> bool) -> Outcome {
        let told = self.watch(&Query::all().namespace("default").field("metadata.name", name), None)?;
        let mut object: Option<Arc<Value>> = None;
        let mut complete = false;
        while !complete || !so(object.as_deref()) {
            match told.event() {
                Ok(WatchEvent::Bookmark(_)) => complete = true,
                Ok(WatchEvent::Deleted(_)) => object = None,
                Ok(WatchEvent::Added(now) | WatchEvent::Modified(now)) => object = Some(now),
                Err(Stop::Failed(why)) => return Err(failed(format_args!("waits for {name}, is {object:?}: {why}"))),
                Err(skipped @ Stop::Skipped(_)) => return Err(skipped),
            }
        }
        Ok(())
    }
}

pub(super) fn owned_answer(answer: Result<Arc<Value>, ClientError>) -> Answer {
    answer.map(|object| (*object).clone())
}

fn kind_of(object: &Value) -> Kind {
    if object["kind"] == ZONE.name() { ZONE } else { WIDGET }
}

/// Of an object in the namespace `default`.
pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// A widget in the namespace `default`.
pub(super) fn widget(name: &str) -> Value {
    widget_in("default", name)
}

pub(super) fn widget_in(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": WIDGET.api_version(), "kind": WIDGET.name(),
        "metadata": {"namespace": namespace, "name": name}, "spec": {"size": 1},
    })
}

pub(super) fn zone(name: &str) -> Value {
    json!({"apiVersion": ZONE.api_version(), "kind": ZONE.name(), "metadata": {"name": name}, "spec": {"size": 1}})
}

/// The object with this value at a path (`/spec/size`); fields that the path lacks are made.
pub(super) fn with(mut object: Value, path: &str, value: Value) -> Value {
    let place = path.split('/').skip(1).fold(&mut object, |json, name| match name.parse::<usize>() {
        Ok(index) if json.is_array() => &mut json[index],
        _ => &mut json[name],
    });
    *place = value;
    object
}

/// The object without what is at a path.
pub(super) fn without(mut object: Value, path: &str) -> Value {
    if let Some((parent, name)) = path.rsplit_once('/')
        && let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut)
    {
        fields.remove(name);
    }
    object
}

/// A text of the metadata; empty, if there is none.
pub(super) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(super) fn version(object: &Value) -> &str {
    meta(object, "resourceVersion")
}

/// What an object that belongs to this one has among its owners.
pub(super) fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
    })
}

pub(super) type Event = WatchEvent<Arc<Value>>;

/// What an event says of which object: `Added default/a`.
pub(super) fn brief(event: &Event) -> String {
    let (verb, object) = match event {
        WatchEvent::Added(object) => ("Added", object),
        WatchEvent::Modified(object) => ("Modified", object),
        WatchEvent::Deleted(object) => ("Deleted", object),
        WatchEvent::Bookmark(_) => return "Bookmark".to_owned(),
    };
    format!("{verb} {}/{}", meta(object, "namespace"), meta(object, "name"))
}

/// A watch that a thread reads.
pub(super) struct Told {
    events: Receiver<Result<Event, ClientError>>,
    pub(super) stop: CancellationToken,
}

impl Told {
    #[track_caller]
    pub(super) fn of(stream: ObjectStream, stop: CancellationToken) -> Outcome<Self> {
        let (sender, events) = channel();
        let read = move || stream.map(|event| sender.send(event)).take_while(Result::is_ok).for_each(drop);
        ThreadOptions::new().spawn("conformance-watch".to_owned(), read).map_err(failed)?;
        Ok(Self { events, stop })
    }

    /// The next item of the stream: `None` when it ends.
    #[track_caller]
    pub(super) fn item(&self) -> Outcome<Option<Result<Event, ClientError>>> {
        match self.events.recv_timeout(PATIENCE) {
            Ok(item) => Ok(Some(item)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(failed(format_args!("the watch tells nothing for {PATIENCE:?}"))),
        }
    }

    #[track_caller]
    pub(super) fn event(&self) -> Outcome<Event> {
        match self.item()? {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(failed(error)),
            None => Err(failed("the watch has ended")),
        }
    }

    /// The next event that is no bookmark.
    #[track_caller]
    pub(super) fn change(&self) -> Outcome<Event> {
        loop {
            let event = self.event()?;
            if !matches!(event, WatchEvent::Bookmark(_)) {
                return Ok(event);
            }
        }
    }

    /// The changes up to the one of the object of this name.
    #[track_caller]
    pub(super) fn changes_until(&self, name: &str) -> Outcome<Vec<Event>> {
        let mut changes = Vec::new();
        loop {
            changes.push(self.change()?);
            if changes.last().and_then(WatchEvent::object).is_some_and(|object| meta(object, "name") == name) {
                return Ok(changes);
            }
        }
    }

    /// Fails unless the next changes are these, as [`brief`] has them.
    #[track_caller]
    pub(super) fn tells(&self, expected: &[&str]) -> Outcome<Vec<Event>> {
        let mut changes = Vec::new();
        for expected in expected {
            let change = self.change()?;
            same(&format!("after {} changes the watch", changes.len()), brief(&change), *expected)?;
            changes.push(change);
        }
        Ok(changes)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Runs `body` in so many threads at once, and gives what each returns.
#[track_caller]
pub(super) fn together<T: Send + 'static>(
    threads: usize,
    body: impl Fn(usize) -> Outcome<T> + Send + Sync + 'static,
) -> Outcome<Vec<T>> {
    let (sender, results) = channel();
    let (body, start) = (Arc::new(body), Arc::new(Barrier::new(threads)));
    for number in 0..threads {
        let (sender, body, start) = (sender.clone(), Arc::clone(&body), Arc::clone(&start));
        let run = move || {
            start.wait();
            let _ = sender.send((number, body(number)));
        };
        ThreadOptions::new().spawn(format!("conformance-{number}"), run).map_err(failed)?;
    }
    drop(sender);
    let mut done: Vec<_> = results.iter().collect();
    done.sort_by_key(|(number, _)| *number);
    let done = done.into_iter().map(|(_, result)| result).collect::<Outcome<Vec<T>>>()?;
    same("threads that have come to their end", done.len(), threads)?;
    Ok(done)
}

impl Stop {
    /// The same, in this part of the case.
    pub(super) fn of(self, part: &str) -> Self {
        match self {
            Self::Failed(why) => Self::Failed(format!("{part}: {why}")),
            Self::Skipped(why) => Self::Skipped(why),
        }
    }
}
