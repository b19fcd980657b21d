//! One case of a table: its objects, its run, and the expected results.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

use super::client::TestClient;
use super::config::{ConfigCase, ConfigState, config_methods};
use super::difference::Mismatch;
use super::factory::Sample;
use super::reactor::Reactor;
use super::writes;
use homeostat::base::ManualClock;
use homeostat::rt::{Chain, panic_message};
use homeostat::run::BoxError;
use homeostat_objects::sub::{Config, ErrorClass};
use homeostat_objects::{DeleteOptions, EventType, FieldOwner, Kind, Object, Patch, PatchTarget, TrackRef};

/// The type of a case's run: [`StepSubject`](super::StepSubject), [`KeySubject`](super::KeySubject) or
/// [`AdmissionSubject`](super::AdmissionSubject).
pub trait Subject: sealed::Sealed {
    /// The result of a successful run.
    type Outcome: fmt::Debug + PartialEq;
}

pub(super) mod sealed {
    use crate::config::Give;

    pub trait Sealed {
        /// The resource, if the case has one. It is put into the client first.
        fn give(&self) -> Option<Give>;
    }
}

/// One case of a table: a [`SubReconcilerTestCase`](super::SubReconcilerTestCase), a
/// [`ReconcilerTestCase`](super::ReconcilerTestCase) or an [`AdmissionTestCase`](super::AdmissionTestCase).
///
/// Expectations are exact and in order. If a case expects nothing of some kind, nothing of that kind may happen. Calls
/// that the closures make before the run do not count.
///
/// # Examples
///
/// A run that fails, and a second run:
///
/// ```
/// use homeostat_objects::{DynamicObject, Kind, Verb};
/// use homeostat_objects::sub::{Flow, SubContext, SubResult};
/// use homeostat_testing::{Factory, Reactor, SubReconcilerTable, SubReconcilerTestCase};
///
/// const NODE: Kind = Kind::cluster("", "v1", "Node");
///
/// fn look(cx: &SubContext<'_>, _: &mut DynamicObject) -> SubResult {
///     cx.config().client().list(&NODE, &Default::default())?;
///     Ok(Flow::proceed())
/// }
///
/// let app = Factory::config_map("default", "app");
/// let again = SubReconcilerTestCase::new("once more", &app);
/// let case = SubReconcilerTestCase::new("the nodes cannot be listed", &app)
///     .reactor(Reactor::fail(Verb::List).kind(&NODE).once())
///     .expect_error("a reactor fails this call")
///     .then(again);
/// SubReconcilerTable::new([case]).run(|_given| look);
/// ```
#[must_use]
pub struct TestCase<S: Subject> {
    pub(super) name: String,
    pub(super) focus: bool,
    pub(super) subject: S,
    now: Option<SystemTime>,
    config: ConfigCase,
    configs: BTreeMap<String, ConfigCase>,
    metadata: BTreeMap<String, Box<dyn Any + Send + Sync>>,
    pub(super) ends: Ends<S::Outcome>,
    verify: Option<Verify<S::Outcome>>,
    prepare: Option<Hook>,
    clean_up: Option<Hook>,
    then: Vec<TestCase<S>>,
}

type Hook = Box<dyn Fn(&CaseContext<'_>) + Send + Sync>;
type Verify<O> = Box<dyn Fn(&Result<O, BoxError>) + Send + Sync>;
/// The description of the expected error, and the check.
type ErrorCheck = (String, Box<dyn Fn(&BoxError) -> bool + Send + Sync>);

/// How a run is expected to end.
pub(super) enum Ends<O> {
    With(O),
    Error(Vec<ErrorCheck>),
    Panic(String),
}

/// The context of a case, for the closures of the case and of its table.
///
/// # Examples
///
/// ```
/// use homeostat_objects::DynamicObject;
/// use homeostat_objects::sub::{Flow, SubContext, SubResult};
/// use homeostat_testing::{ConfigCase, Factory, SubReconcilerTable, SubReconcilerTestCase};
/// use std::time::Duration;
///
/// let app = Factory::config_map("default", "app");
/// let later = Duration::from_secs(60);
/// let case = SubReconcilerTestCase::new("asks for another run", &app)
///     .metadata("interval", later)
///     .config("remote", ConfigCase::new())
///     .expect_flow(Flow::requeue_after(later));
/// SubReconcilerTable::new([case]).run(|given| {
///     let (interval, remote) = (*given.metadata::<Duration>("interval").unwrap(), given.config_named("remote"));
///     move |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult {
///         let _ = remote.client(); // where the step would look
///         Ok(Flow::requeue_after(interval))
///     }
/// });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CaseContext<'a> {
    pub(super) name: &'a str,
    pub(super) clock: &'a ManualClock,
    metadata: &'a BTreeMap<String, Box<dyn Any + Send + Sync>>,
    states: &'a ConfigStates,
}

impl CaseContext<'_> {
    /// Returns the name of the case.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// Returns the config of the case.
    #[must_use]
    pub fn config(&self) -> Config {
        self.states[&None].config()
    }

    /// Returns the config that the case [added](TestCase::config) with this name.
    ///
    /// # Panics
    ///
    /// Panics if the case has no config of this name.
    #[must_use]
    pub fn config_named(&self, name: &str) -> Config {
        match self.states.get(&Some(name.to_owned())) {
            Some(state) => state.config(),
            None => panic!("the case {:?} has no config {name:?}", self.name),
        }
    }

    /// Returns the client of the config.
    #[must_use]
    pub fn client(&self) -> &TestClient {
        &self.states[&None].client
    }

    /// Returns the clock of the run and of all configs.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        self.clock
    }

    /// Returns the [metadata](TestCase::metadata) of this name, if it has this type.
    #[must_use]
    pub fn metadata<V: 'static>(&self, name: &str) -> Option<&V> {
        self.metadata.get(name)?.downcast_ref()
    }
}

impl<S: Subject> TestCase<S> {
    pub(super) fn with(name: impl Into<String>, subject: S, outcome: S::Outcome) -> Self {
        Self {
            name: name.into(),
            focus: false,
            subject,
            now: None,
            config: ConfigCase::new(),
            configs: BTreeMap::new(),
            metadata: BTreeMap::new(),
            ends: Ends::With(outcome),
            verify: None,
            prepare: None,
            clean_up: None,
            then: Vec::new(),
        }
    }

    /// Runs only this case and other cases in focus. The table then always fails, so that nobody leaves a focus in by
    /// mistake.
    pub fn focus(self) -> Self {
        Self { focus: true, ..self }
    }

    /// Sets the time of day of the run. Default: the beginning of 1970. The clock does not advance during the run.
    ///
    /// Before an [additional run](Self::then), the clock first advances to this time.
    pub fn now(self, now: impl Into<SystemTime>) -> Self {
        Self { now: Some(now.into()), ..self }
    }

    /// Adds a value for the closures, which [`CaseContext::metadata`] returns.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Any + Send + Sync) -> Self {
        self.metadata.insert(name.into(), Box::new(value));
        self
    }

    /// Adds another config, which [`CaseContext::config_named`] returns.
    pub fn config(mut self, name: impl Into<String>, config: ConfigCase) -> Self {
        self.configs.insert(name.into(), config);
        self
    }

    config_methods!(self => self.config);

    /// Expects the run to fail with this text in its error or in a source of the error. If several errors are expected,
    /// all must match.
    pub fn expect_error(self, text: impl Into<String>) -> Self {
        let text = text.into();
        let what = format!("an error with the text {text:?}");
        self.expect_error_that(what, move |error| Chain(&**error).to_string().contains(&text))
    }

    /// Expects the run to fail with an error of this class.
    pub fn expect_error_class(self, class: ErrorClass) -> Self {
        self.expect_error_that(format!("an error of the class {class:?}"), move |error| {
            ErrorClass::of(&**error) == class
        })
    }

    /// Expects the run to fail with an error for which `holds` returns true. `what` describes the error, such as
    /// `a conflict`.
    pub fn expect_error_that(
        mut self,
        what: impl Into<String>,
        holds: impl Fn(&BoxError) -> bool + Send + Sync + 'static,
    ) -> Self {
        let check: ErrorCheck = (what.into(), Box::new(holds));
        match &mut self.ends {
            Ends::Error(checks) => checks.push(check),
            other => *other = Ends::Error(vec![check]),
        }
        self
    }

    /// Expects the run to panic with this text in its message.
    pub fn expect_panic(self, text: impl Into<String>) -> Self {
        Self { ends: Ends::Panic(text.into()), ..self }
    }

    /// Calls `verify` with the result of the run, unless it panicked. A panic of `verify` fails the case.
    pub fn verify(self, verify: impl Fn(&Result<S::Outcome, BoxError>) + Send + Sync + 'static) -> Self {
        Self { verify: Some(Box::new(verify)), ..self }
    }

    /// Calls `prepare` before the run, with all given objects in place. A panic of `prepare` fails the case, and skips
    /// the run.
    pub fn prepare(self, prepare: impl Fn(&CaseContext<'_>) + Send + Sync + 'static) -> Self {
        Self { prepare: Some(Box::new(prepare)), ..self }
    }

    /// Calls `clean_up` at the end, even after a failure. A panic of `clean_up` fails the case.
    pub fn clean_up(self, clean_up: impl Fn(&CaseContext<'_>) + Send + Sync + 'static) -> Self {
        Self { clean_up: Some(Box::new(clean_up)), ..self }
    }

    /// Adds another run of the same reconciler, on the state that the previous run left.
    ///
    /// The objects of `next` replace objects with the same key, and its expectations cover only the new run. After an
    /// unexpected panic, the remaining runs are skipped. Focus on `next` has no effect.
    pub fn then(mut self, next: Self) -> Self {
        self.then.push(next);
        self
    }

    /// Returns the expectations of the config with this name, or of the case's own config.
    fn config_of(&self, name: Option<&String>) -> &ConfigCase {
        static NOTHING: ConfigCase = ConfigCase::new();
        match name {
            Some(name) => self.configs.get(name).unwrap_or(&NOTHING),
            None => &self.config,
        }
    }

    /// Returns all runs of the case, the case itself first.
    fn runs(&self) -> Vec<&Self> {
        std::iter::once(self).chain(self.then.iter().flat_map(Self::runs)).collect()
    }
}

impl<S: Subject> fmt::Debug for TestCase<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, focus, config, configs, .. } = self;
        f.debug_struct("TestCase")
            .field("name", name)
            .field("focus", focus)
            .field("config", config)
            .field("configs", configs)
            .finish_non_exhaustive()
    }
}

/// Runs a reconciler for a case, and adds the mismatches that only this type of run can see.
pub(super) type RunReconciler<'a, S, R> =
    &'a dyn Fn(&R, &S, &CaseContext<'_>, &mut Vec<Mismatch>) -> Result<<S as Subject>::Outcome, BoxError>;

/// Runs a case, and returns all mismatches.
pub(super) fn check<S: Subject, R>(
    case: &TestCase<S>,
    make: &dyn Fn(&CaseContext<'_>) -> R,
    call: RunReconciler<'_, S, R>,
) -> Vec<Mismatch> {
    let runs = case.runs();
    let mut world = World::new(&runs);
    let (mut mismatches, mut reconciler) = (Vec::new(), None);
    for (number, run) in runs.into_iter().enumerate() {
        let mut own = Vec::new();
        if number > 0 {
            own.extend(world.move_to(run.now));
        }
        world.give(run);
        let ready = caught("`prepare`", &mut own, || {
            let given = world.given(run);
            run.prepare.iter().for_each(|prepare| prepare(&given));
            &*reconciler.get_or_insert_with(|| make(&given))
        });
        let ended = ready.is_some_and(|reconciler| world.run(run, reconciler, call, &mut own));
        if let Some(clean_up) = &run.clean_up {
            caught("`clean_up`", &mut own, || clean_up(&world.given(run)));
        }
        let place = format!("then {:?}", run.name);
        mismatches.extend(own.into_iter().map(|mismatch| if number > 0 { mismatch.within(&place) } else { mismatch }));
        if !ended {
            break;
        }
    }
    mismatches
}

/// The state that the runs of a case share.
struct World {
    clock: ManualClock,
    /// The configs by name. The case's own config has no name.
    states: ConfigStates,
}

type ConfigStates = BTreeMap<Option<String>, ConfigState>;

impl World {
    fn new<S: Subject>(runs: &[&TestCase<S>]) -> Self {
        let clock = runs[0].now.map_or_else(ManualClock::new, ManualClock::at);
        let others = runs.iter().flat_map(|run| run.configs.keys()).map(|name| Some(name.clone()));
        let names: BTreeSet<_> = others.chain([None]).collect();
        let states = (0..).zip(names).map(|(number, name)| (name, ConfigState::new(&clock, number))).collect();
        Self { clock, states }
    }

    fn move_to(&self, time: Option<SystemTime>) -> Option<Mismatch> {
        match time?.duration_since(self.clock.clock().time_of_day()) {
            Ok(later) => {
                self.clock.advance(later);
                None
            }
            Err(_) => Some(Mismatch::new("the time of `now` is before the previous run", "")),
        }
    }

    fn give<S: Subject>(&mut self, case: &TestCase<S>) {
        let resource = case.subject.give();
        for (name, state) in &mut self.states {
            state.give(case.config_of(name.as_ref()), resource.as_ref().filter(|_| name.is_none()));
        }
    }

    fn given<'a, S: Subject>(&'a self, case: &'a TestCase<S>) -> CaseContext<'a> {
        CaseContext { name: &case.name, clock: &self.clock, metadata: &case.metadata, states: &self.states }
    }

    /// Returns whether further runs can follow.
    fn run<S: Subject, R>(
        &mut self,
        case: &TestCase<S>,
        reconciler: &R,
        call: RunReconciler<'_, S, R>,
        mismatches: &mut Vec<Mismatch>,
    ) -> bool {
        self.states.values_mut().for_each(ConfigState::begin);
        let mut seen = Vec::new();
        let run = || call(reconciler, &case.subject, &self.given(case), &mut seen);
        let ended = catch_unwind(AssertUnwindSafe(run));
        let end = ended.as_ref().map_err(|panic| panic_message(&**panic));
        let checked = caught("the check of the result", mismatches, || case.ends.check(&end));
        let goes_on = ended.is_ok() || matches!(checked, Some(None));
        mismatches.extend(checked.flatten());
        if let (Ok(result), Some(verify)) = (&ended, &case.verify) {
            caught("`verify`", mismatches, || verify(result));
        }
        mismatches.append(&mut seen);
        for (name, state) in &mut self.states {
            let own = state.check(case.config_of(name.as_ref())).into_iter();
            mismatches.extend(own.map(|mismatch| match name {
                Some(name) => mismatch.within(&format!("config {name:?}")),
                None => mismatch,
            }));
        }
        goes_on
    }
}

/// Calls a closure of the user. A panic in it is a mismatch.
fn caught<V>(what: &str, mismatches: &mut Vec<Mismatch>, call: impl FnOnce() -> V) -> Option<V> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| mismatches.push(Mismatch::new(format!("{what} panicked"), panic_message(&*panic))))
        .ok()
}

impl<O: fmt::Debug + PartialEq> Ends<O> {
    fn check(&self, ended: &Result<&Result<O, BoxError>, &str>) -> Option<Mismatch> {
        match (self, ended) {
            (Self::With(expected), Ok(Ok(actual))) if *expected == *actual => None,
            (Self::With(expected), Ok(Ok(actual))) => {
                Mismatch::differs("result", &format!("{expected:#?}"), &format!("{actual:#?}"))
            }
            (Self::Panic(text), Err(panic)) if panic.contains(text) => None,
            (Self::Panic(text), Err(panic)) => {
                Some(Mismatch::new(format!("expected a panic with the text {text:?}"), *panic))
            }
            (_, Err(panic)) => Some(Mismatch::new("the run panicked", *panic)),
            (Self::Error(checks), Ok(Err(error))) => {
                let wrong = checks.iter().filter(|(_, holds)| !holds(error)).map(|(what, _)| &**what);
                let wrong = wrong.collect::<Vec<_>>().join(" and ");
                let chain = Chain(&**error).to_string();
                (!wrong.is_empty()).then(|| Mismatch::new(format!("expected {wrong}"), chain))
            }
            (Self::Error(_), Ok(Ok(actual))) => Some(Mismatch::new("expected an error", format!("{actual:#?}"))),
            (Self::With(_), Ok(Err(error))) => Some(Mismatch::new("an unexpected error", Chain(&**error).to_string())),
            (Self::Panic(_), Ok(result)) => Some(Mismatch::new("expected a panic", format!("{result:#?}"))),
        }
    }
}
