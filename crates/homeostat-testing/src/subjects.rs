//! The two kinds of cases: a sub-reconciler with its resource, and a reconciler with a key.

use std::collections::BTreeMap;
use std::fmt;

use super::case::{CaseContext, Ends, Subject, TestCase, check, sealed};
use super::client::json_of;
use super::config::{Give, give};
use super::difference::{Mismatch, pretty};
use super::factory::{Sample, whole};
use super::table::Table;
use super::writes::comparable;
use homeostat::base::CancellationToken;
use homeostat::run::{Action, BoxError, Context, Reconciler};
use homeostat_objects::sub::{Flow, Request, Stash, StashKey, Stashed, SubContext, SubReconciler};
use homeostat_objects::{Object, ObjectKey};

/// A case for a sub-reconciler: one run for one resource.
///
/// # Examples
///
/// See [the module](super).
pub type SubReconcilerTestCase<T> = TestCase<StepSubject<T>>;

/// A table of cases for a sub-reconciler.
pub type SubReconcilerTable<T> = Table<StepSubject<T>>;

/// A case for a whole reconciler: one run for one key.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{DynamicObject, Kind, Object, ObjectKey};
/// use homeostat_objects::sub::{Flow, ResourceReconciler, SubContext, SubResult};
/// use homeostat_testing::{Factory, ReconcilerTable, ReconcilerTestCase};
/// use homeostat_objects::EventType;
/// use serde_json::json;
///
/// const APP: Kind = Kind::namespaced("example.com", "v1", "App");
///
/// fn step(_cx: &SubContext<'_>, app: &mut DynamicObject) -> SubResult {
///     app.fields_mut().insert("status".to_owned(), json!({"ready": true}));
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
pub type ReconcilerTestCase = TestCase<KeySubject>;

/// A table of cases for a whole reconciler.
pub type ReconcilerTable = Table<KeySubject>;

/// The run of a sub-reconciler for a resource.
pub struct StepSubject<T> {
    resource: T,
    expected: Option<T>,
    given: Vec<(&'static str, Box<dyn Stashed>)>,
    /// `None` means that the stash must not have the key.
    stashed: Vec<(&'static str, Option<Box<dyn Stashed>>)>,
}

/// The run of a reconciler for a key.
#[derive(Debug)]
pub struct KeySubject(ObjectKey);

impl<T: Object> sealed::Sealed for StepSubject<T> {
    fn give(&self) -> Option<Give> {
        Some(give(&self.resource))
    }
}

impl<T: Object> Subject for StepSubject<T> {
    type Outcome = Flow;
}

impl sealed::Sealed for KeySubject {
    fn give(&self) -> Option<Give> {
        None
    }
}

impl Subject for KeySubject {
    type Outcome = Action;
}

impl<T: Object> TestCase<StepSubject<T>> {
    /// Creates a case for a resource. The clients have the resource, and the sub-reconciler gets it.
    ///
    /// Missing metadata is filled in, as [`Factory::created`](super::Factory::created) does. By default the case
    /// expects that the resource and the stash do not change, and that the result is [`Flow::proceed`].
    pub fn new(name: impl Into<String>, resource: &impl Sample<Object = T>) -> Self {
        let resource = whole(resource.sample(), 0);
        Self::with(
            name,
            StepSubject { resource, expected: None, given: Vec::new(), stashed: Vec::new() },
            Flow::proceed(),
        )
    }

    /// Puts a value into the stash before the run. By default the case expects it to stay there.
    pub fn given_stashed<V: Stashed>(mut self, key: StashKey<V>, value: V) -> Self {
        self.subject.given.push((key.name(), Box::new(value)));
        self
    }

    /// Expects the resource to be this after the run.
    ///
    /// The `resourceVersion` is not compared. Fields that a client sets, and the times of conditions, are compared only
    /// if the expected resource has them. Conditions are compared by type, in any order.
    pub fn expect_resource(mut self, resource: &impl Sample<Object = T>) -> Self {
        self.subject.expected = Some(resource.sample());
        self
    }

    /// Expects this value in the stash after the run.
    pub fn expect_stashed<V: Stashed>(mut self, key: StashKey<V>, value: V) -> Self {
        self.subject.stashed.push((key.name(), Some(Box::new(value))));
        self
    }

    /// Expects the stash to have no value for this key after the run.
    pub fn expect_unstashed<V>(mut self, key: StashKey<V>) -> Self {
        self.subject.stashed.push((key.name(), None));
        self
    }

    /// Expects the run to return this flow.
    pub fn expect_flow(mut self, flow: Flow) -> Self {
        self.ends = Ends::With(flow);
        self
    }
}

impl TestCase<KeySubject> {
    /// Creates a case for the key of an object, which does not have to exist. By default the case expects
    /// [`Action::await_change`].
    pub fn new(name: impl Into<String>, object: &impl Sample) -> Self {
        Self::with(name, KeySubject(object.sample().key()), Action::await_change())
    }

    /// Expects the run to return this action.
    pub fn expect_action(mut self, action: Action) -> Self {
        self.ends = Ends::With(action);
        self
    }
}

impl<T: Object> Table<StepSubject<T>> {
    /// Runs all cases, each with a new client, clock and reconciler. `make` returns the reconciler.
    ///
    /// # Panics
    ///
    /// Panics with the report of [`check`](Self::check) if a case fails.
    #[track_caller]
    pub fn run<R: SubReconciler<T>>(&self, make: impl Fn(&CaseContext<'_>) -> R) {
        if let Err(mismatches) = self.check(make) {
            panic!("{mismatches}");
        }
    }

    /// Runs all cases, each with a new client, clock and reconciler. `make` returns the reconciler.
    ///
    /// # Errors
    ///
    /// Returns a report of all mismatches, by case.
    pub fn check<R: SubReconciler<T>>(&self, make: impl Fn(&CaseContext<'_>) -> R) -> Result<(), String> {
        self.check_each(|case| check(case, &make, &step))
    }
}

impl Table<KeySubject> {
    /// Runs all cases, each with a new client, clock and reconciler. `make` returns the reconciler.
    ///
    /// # Panics
    ///
    /// Panics with the report of [`check`](Self::check) if a case fails.
    #[track_caller]
    pub fn run<R: Reconciler<ObjectKey>>(&self, make: impl Fn(&CaseContext<'_>) -> R) {
        if let Err(mismatches) = self.check(make) {
            panic!("{mismatches}");
        }
    }

    /// Runs all cases, each with a new client, clock and reconciler. `make` returns the reconciler.
    ///
    /// # Errors
    ///
    /// Returns a report of all mismatches, by case.
    pub fn check<R: Reconciler<ObjectKey>>(&self, make: impl Fn(&CaseContext<'_>) -> R) -> Result<(), String> {
        let run = |reconciler: &R, subject: &KeySubject, given: &CaseContext<'_>, _: &mut Vec<Mismatch>| {
            reconciler.reconcile(&context(given), &subject.0).map_err(Into::into)
        };
        self.check_each(|case| check(case, &make, &run))
    }
}

fn context(given: &CaseContext<'_>) -> Context {
    Context::detached_with(given.clock.clock(), CancellationToken::new())
}

fn step<T: Object, R: SubReconciler<T>>(
    reconciler: &R,
    subject: &StepSubject<T>,
    given: &CaseContext<'_>,
    mismatches: &mut Vec<Mismatch>,
) -> Result<Flow, BoxError> {
    let mut resource = subject.resource.clone();
    let request = Request::new(&resource, given.config());
    request.stash().restore(subject.given.iter().map(|(name, value)| (*name, (**value).stashed_clone())));
    let result = reconciler.reconcile(&SubContext::new("test", &context(given), &request), &mut resource);
    let expected = subject.expected.as_ref().unwrap_or(&subject.resource);
    let (expected, actual) = comparable(&json_of(expected), &json_of(&resource));
    mismatches.extend(Mismatch::differs("resource", &pretty(&expected), &pretty(&actual)));
    subject.check_stash(request.stash(), mismatches);
    result
}

impl<T> StepSubject<T> {
    fn check_stash(&self, stash: &Stash, mismatches: &mut Vec<Mismatch>) {
        let mut expected: BTreeMap<_, _> = self.given.iter().map(|(name, value)| (*name, Some(&**value))).collect();
        expected.extend(self.stashed.iter().map(|(name, value)| (*name, value.as_deref())));
        let actual: BTreeMap<_, _> = stash.snapshot().into_iter().collect();
        for (name, expected) in &expected {
            match (expected, actual.get(name)) {
                (Some(expected), Some(actual)) if expected.stashed_eq(&**actual) => {}
                (Some(expected), Some(actual)) => {
                    let text = |value: &dyn Stashed| format!("{value:#?} ({})", value.stashed_type_name());
                    let (one, other) = (text(*expected), text(&**actual));
                    let mismatch = Mismatch::differs(&format!("stashed {name:?}"), &one, &other);
                    // They may look the same.
                    mismatches
                        .push(mismatch.unwrap_or_else(|| Mismatch::new(format!("stashed {name:?} differs"), one)));
                }
                (Some(expected), None) => {
                    mismatches.push(Mismatch::new(format!("missing in the stash: {name:?}"), format!("{expected:#?}")));
                }
                (None, _) => {}
            }
        }
        let unexpected = actual.iter().filter(|(name, _)| !matches!(expected.get(*name), Some(Some(_))));
        mismatches.extend(
            unexpected.map(|(name, value)| {
                Mismatch::new(format!("unexpected in the stash: {name:?}"), format!("{value:#?}"))
            }),
        );
    }
}

impl<T> fmt::Debug for StepSubject<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepSubject")
            .field("given", &self.given)
            .field("stashed", &self.stashed)
            .finish_non_exhaustive()
    }
}
