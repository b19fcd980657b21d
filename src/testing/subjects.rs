//! What cases are about: a step with its resource, or a reconciler with a key.

use std::collections::BTreeMap;
use std::fmt;

use super::case::{Ends, Given, Subject, TestCase, check, sealed};
use super::client::json_of;
use super::config::{Give, give};
use super::difference::{Fault, pretty};
use super::factory::{Sample, whole};
use super::table::Table;
use super::writes::comparable;
use crate::base::cancel::CancellationToken;
use crate::objects::{Object, ObjectKey};
use crate::run::context::Context;
use crate::run::error::BoxError;
use crate::run::reconciler::{Action, Reconciler};
use crate::sub::{Flow, Request, Stash, StashKey, Stashed, SubContext, SubReconciler};

/// A case of a sub-reconciler: a resource, what is there beside it, and what comes of the one step.
///
/// # Examples
///
/// See [the module](super).
pub type SubReconcilerTestCase<T> = TestCase<OfStep<T>>;

/// Cases of a sub-reconciler.
pub type SubReconcilerTable<T> = Table<OfStep<T>>;

/// A case of a whole reconciler: a key, what is there, and what comes of the run.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{DynamicObject, Kind, Object, ObjectKey};
/// use homeostat::sub::{Flow, ResourceReconciler, SubContext, SubResult};
/// use homeostat::testing::{Factory, ReconcilerTable, ReconcilerTestCase};
/// use homeostat::objects::EventType;
/// use serde_json::json;
///
/// const APP: Kind = Kind::namespaced("example.com", "v1", "App");
///
/// fn step(_cx: &SubContext<'_>, app: &mut DynamicObject) -> SubResult {
///     app.fields.insert("status".to_owned(), json!({"ready": true}));
///     Ok(Flow::proceed())
/// }
///
/// let app = Factory::dynamic(&APP, "default", "shop");
/// let ready = app.field("/status/ready", true);
/// ReconcilerTable::new([
///     ReconcilerTestCase::new("nothing is there", &app),
///     ReconcilerTestCase::new("becomes ready", &app)
///         .given(&app)
///         .expect_status_update(&ready)
///         .expect_event(&app, EventType::Normal, "StatusUpdated", "Updated status"),
///     ReconcilerTestCase::new("is ready", &app).given(&ready),
/// ])
/// .run(|given| ResourceReconciler::of_kind("app", APP, given.config(), step));
/// ```
pub type ReconcilerTestCase = TestCase<OfKey>;

/// Cases of a whole reconciler.
pub type ReconcilerTable = Table<OfKey>;

/// A step of a run, and the resource that it is given.
pub struct OfStep<T> {
    resource: T,
    expected: Option<T>,
    given: Vec<(&'static str, Box<dyn Stashed>)>,
    /// With nothing: no longer there.
    stashed: Vec<(&'static str, Option<Box<dyn Stashed>>)>,
}

/// A run for a key.
#[derive(Debug)]
pub struct OfKey(ObjectKey);

impl<T: Object> sealed::Sealed for OfStep<T> {
    fn give(&self) -> Option<Give> {
        Some(give(&self.resource))
    }
}

impl<T: Object> Subject for OfStep<T> {
    type Outcome = Flow;
}

impl sealed::Sealed for OfKey {
    fn give(&self) -> Option<Give> {
        None
    }
}

impl Subject for OfKey {
    type Outcome = Action;
}

impl<T: Object> TestCase<OfStep<T>> {
    /// Of this resource: it is handed to the step, and is in the clients. What a client gives to all objects it has as
    /// [created](super::Factory::created), where it has nothing yet. Until told otherwise it is expected to stay as it is, the stash too,
    /// and the step to [proceed](Flow::proceed).
    pub fn new(name: impl Into<String>, resource: &impl Sample<Object = T>) -> Self {
        let resource = whole(resource.sample(), 0);
        Self::with(name, OfStep { resource, expected: None, given: Vec::new(), stashed: Vec::new() }, Flow::proceed())
    }

    /// A step before has left this in the stash. If nothing else is expected, it is to be there afterwards.
    pub fn given_stashed<V: Stashed>(mut self, key: StashKey<V>, value: V) -> Self {
        self.subject.given.push((key.name(), Box::new(value)));
        self
    }

    /// The step makes this of the resource that it is given. Its `resourceVersion` is not compared, and neither is what a client sets,
    /// and the times of conditions, where the expected one does not say them.
    pub fn expect_resource(mut self, resource: &impl Sample<Object = T>) -> Self {
        self.subject.expected = Some(resource.sample());
        self
    }

    /// Afterwards this is in the stash.
    pub fn expect_stashed<V: Stashed>(mut self, key: StashKey<V>, value: V) -> Self {
        self.subject.stashed.push((key.name(), Some(Box::new(value))));
        self
    }

    /// Afterwards nothing is in the stash under this key.
    pub fn expect_unstashed<V>(mut self, key: StashKey<V>) -> Self {
        self.subject.stashed.push((key.name(), None));
        self
    }

    /// The step does not fail, and asks for this.
    pub fn expect_flow(mut self, flow: Flow) -> Self {
        self.ends = Ends::With(flow);
        self
    }
}

impl TestCase<OfKey> {
    /// Of the key of this object, which need not be there. Until told otherwise the run is expected to
    /// [await a change](Action::await_change).
    pub fn new(name: impl Into<String>, object: &impl Sample) -> Self {
        Self::with(name, OfKey(object.sample().key()), Action::await_change())
    }

    /// The run does not fail, and asks for this.
    pub fn expect_action(mut self, action: Action) -> Self {
        self.ends = Ends::With(action);
        self
    }
}

impl<T: Object> Table<OfStep<T>> {
    /// Runs all cases, each by itself: with what this makes of what there is in the case.
    ///
    /// # Panics
    ///
    /// If something is not as the cases say: as [`check`](Self::check).
    #[track_caller]
    pub fn run<R: SubReconciler<T>>(&self, make: impl Fn(&Given<'_>) -> R) {
        if let Err(faults) = self.check(make) {
            panic!("{faults}");
        }
    }

    /// Runs all cases, each by itself: with what this makes of what there is in the case.
    ///
    /// # Errors
    ///
    /// All that is not as the cases say, by their names, for people to read.
    pub fn check<R: SubReconciler<T>>(&self, make: impl Fn(&Given<'_>) -> R) -> Result<(), String> {
        self.check_each(|case| check(case, &make, &step))
    }
}

impl Table<OfKey> {
    /// Runs all cases, each by itself: with what this makes of what there is in the case.
    ///
    /// # Panics
    ///
    /// If something is not as the cases say: as [`check`](Self::check).
    #[track_caller]
    pub fn run<R: Reconciler<ObjectKey>>(&self, make: impl Fn(&Given<'_>) -> R) {
        if let Err(faults) = self.check(make) {
            panic!("{faults}");
        }
    }

    /// Runs all cases, each by itself: with what this makes of what there is in the case.
    ///
    /// # Errors
    ///
    /// All that is not as the cases say, by their names, for people to read.
    pub fn check<R: Reconciler<ObjectKey>>(&self, make: impl Fn(&Given<'_>) -> R) -> Result<(), String> {
        let run = |reconciler: &R, subject: &OfKey, given: &Given<'_>, _: &mut Vec<Fault>| {
            reconciler.reconcile(&context(given), &subject.0).map_err(Into::into)
        };
        self.check_each(|case| check(case, &make, &run))
    }
}

fn context(given: &Given<'_>) -> Context {
    Context::detached_with(given.clock.clock(), CancellationToken::new())
}

fn step<T: Object, R: SubReconciler<T>>(
    reconciler: &R,
    subject: &OfStep<T>,
    given: &Given<'_>,
    faults: &mut Vec<Fault>,
) -> Result<Flow, BoxError> {
    let mut resource = subject.resource.clone();
    let request = Request::new(&resource, given.config());
    for (name, value) in &subject.given {
        request.stash().put_boxed(name, Some((**value).stashed_clone()));
    }
    let result = reconciler.reconcile(&SubContext::new("test", &context(given), &request), &mut resource);
    let expected = subject.expected.as_ref().unwrap_or(&subject.resource);
    let (expected, actual) = comparable(&json_of(expected), &json_of(&resource));
    faults.extend(Fault::differs("resource", &pretty(&expected), &pretty(&actual)));
    subject.check_stash(request.stash(), faults);
    result
}

impl<T> OfStep<T> {
    fn check_stash(&self, stash: &Stash, faults: &mut Vec<Fault>) {
        let mut expected: BTreeMap<_, _> = self.given.iter().map(|(name, value)| (*name, Some(&**value))).collect();
        expected.extend(self.stashed.iter().map(|(name, value)| (*name, value.as_deref())));
        let actual: BTreeMap<_, _> = stash.snapshot().into_iter().collect();
        for (name, expected) in &expected {
            match (expected, actual.get(name)) {
                (Some(expected), Some(actual)) if expected.stashed_eq(&**actual) => {}
                (Some(expected), Some(actual)) => {
                    let text = |value: &dyn Stashed| format!("{value:#?} ({})", value.stashed_type_name());
                    let (one, other) = (text(*expected), text(&**actual));
                    let fault = Fault::differs(&format!("stashed {name:?}"), &one, &other);
                    // They may look the same.
                    faults.push(fault.unwrap_or_else(|| Fault::new(format!("stashed {name:?} differs"), one)));
                }
                (Some(expected), None) => {
                    faults.push(Fault::new(format!("missing in the stash: {name:?}"), format!("{expected:#?}")));
                }
                (None, _) => {}
            }
        }
        let unexpected = actual.iter().filter(|(name, _)| !matches!(expected.get(*name), Some(Some(_))));
        faults.extend(
            unexpected
                .map(|(name, value)| Fault::new(format!("unexpected in the stash: {name:?}"), format!("{value:#?}"))),
        );
    }
}

impl<T> fmt::Debug for OfStep<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfStep").field("given", &self.given).field("stashed", &self.stashed).finish_non_exhaustive()
    }
}
