//! One case of a table: what there is, what is run, and what is to come of it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

use super::client::TestClient;
use super::config::{ConfigCase, Stage, config_methods};
use super::difference::Fault;
use super::factory::Sample;
use super::reactor::Reactor;
use super::writes;
use crate::base::clock::ManualClock;
use crate::base::thread::panic_message;
use crate::objects::{DeleteOptions, EventType, FieldOwner, Kind, Object, Patch, PatchTarget, TrackRef};
use crate::run::error::{BoxError, Chain};
use crate::sub::{Config, ErrorClass};

/// What a case is about: [`OfStep`](super::OfStep) or [`OfKey`](super::OfKey).
pub trait Subject: sealed::Sealed {
    /// What a run returns that does not fail.
    type Outcome: fmt::Debug + PartialEq;
}

pub(super) mod sealed {
    use crate::testing::config::Give;

    pub trait Sealed {
        /// What is there before anything else: the resource.
        fn give(&self) -> Option<Give>;
    }
}

/// One case of a table: a [`SubReconcilerTestCase`](super::SubReconcilerTestCase) or a [`ReconcilerTestCase`](super::ReconcilerTestCase).
///
/// What is expected is exact and in order: of all that a case says nothing of it says that it does not happen. What the
/// closures of a case and of its table do before the run is not looked at.
///
/// # Examples
///
/// One that fails at first, and is run again:
///
/// ```
/// use homeostat::objects::{DynamicObject, Kind};
/// use homeostat::sub::{Flow, SubContext, SubResult};
/// use homeostat::testing::{Factory, Reactor, SubReconcilerTable, SubReconcilerTestCase, Verb};
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

type Hook = Box<dyn Fn(&Given<'_>) + Send + Sync>;
type Verify<O> = Box<dyn Fn(&Result<O, BoxError>) + Send + Sync>;
/// What it is to be, and whether it is.
type ErrorCheck = (String, Box<dyn Fn(&BoxError) -> bool + Send + Sync>);

/// How the run is to end.
pub(super) enum Ends<O> {
    With(O),
    Error(Vec<ErrorCheck>),
    Panic(String),
}

/// What the closures of a case and of its table are given: what there is in this case.
///
/// # Examples
///
/// ```
/// use homeostat::objects::DynamicObject;
/// use homeostat::sub::{Flow, SubContext, SubResult};
/// use homeostat::testing::{ConfigCase, Factory, SubReconcilerTable, SubReconcilerTestCase};
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
pub struct Given<'a> {
    pub(super) name: &'a str,
    pub(super) clock: &'a ManualClock,
    metadata: &'a BTreeMap<String, Box<dyn Any + Send + Sync>>,
    stages: &'a Stages,
}

impl Given<'_> {
    /// The name of the case.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name
    }

    /// What to work with.
    #[must_use]
    pub fn config(&self) -> Config {
        self.stages[&None].config()
    }

    /// The config that the case has [added](TestCase::config) by this name.
    ///
    /// # Panics
    ///
    /// If it has added none.
    #[must_use]
    pub fn config_named(&self, name: &str) -> Config {
        match self.stages.get(&Some(name.to_owned())) {
            Some(stage) => stage.config(),
            None => panic!("the case {:?} has no config {name:?}", self.name),
        }
    }

    /// The client of the config.
    #[must_use]
    pub fn client(&self) -> &TestClient {
        &self.stages[&None].client
    }

    /// The clock of all configs, and of the run.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        self.clock
    }

    /// What the case [says](TestCase::metadata) under this name, if it says something of this type.
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

    /// Only this case is run, and others that are in focus. The table fails then, for none is to be forgotten so.
    pub fn focus(self) -> Self {
        Self { focus: true, ..self }
    }

    /// The time of day when it begins. Default: the beginning of 1970. The clock stands still. Of an
    /// [additional run](Self::then), the time to which the clock is moved on.
    pub fn now(self, now: impl Into<SystemTime>) -> Self {
        Self { now: Some(now.into()), ..self }
    }

    /// Something for the closures: see [`Given::metadata`].
    pub fn metadata(mut self, name: impl Into<String>, value: impl Any + Send + Sync) -> Self {
        self.metadata.insert(name.into(), Box::new(value));
        self
    }

    /// Another config, by its name: see [`Given::config_named`].
    pub fn config(mut self, name: impl Into<String>, config: ConfigCase) -> Self {
        self.configs.insert(name.into(), config);
        self
    }

    config_methods!(self => self.config);

    /// The run fails, with an error in whose text, or in that of one of its sources, this stands. Of several expectations of an error
    /// all must hold.
    pub fn expect_error(self, text: impl Into<String>) -> Self {
        let text = text.into();
        let what = format!("{text:?} in it");
        self.expect_error_that(what, move |error| Chain(&**error).to_string().contains(&text))
    }

    /// The run fails, with an error of this class.
    pub fn expect_error_class(self, class: ErrorClass) -> Self {
        self.expect_error_that(format!("of the class {class:?}"), move |error| ErrorClass::of(&**error) == class)
    }

    /// The run fails, with an error of which this holds. The text says what it is to be: `a conflict`.
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

    /// The run panics, with a message in which this stands.
    pub fn expect_panic(self, text: impl Into<String>) -> Self {
        Self { ends: Ends::Panic(text.into()), ..self }
    }

    /// Called with what the run has returned, if it has returned. A panic fails the case.
    pub fn verify(self, verify: impl Fn(&Result<S::Outcome, BoxError>) + Send + Sync + 'static) -> Self {
        Self { verify: Some(Box::new(verify)), ..self }
    }

    /// Called first, once everything is there that is given. A panic fails the case, and nothing is run.
    pub fn prepare(self, prepare: impl Fn(&Given<'_>) + Send + Sync + 'static) -> Self {
        Self { prepare: Some(Box::new(prepare)), ..self }
    }

    /// Called last, whatever has happened. A panic fails the case.
    pub fn clean_up(self, clean_up: impl Fn(&Given<'_>) + Send + Sync + 'static) -> Self {
        Self { clean_up: Some(Box::new(clean_up)), ..self }
    }

    /// Then another run of the same reconciler, on all that the run before has left: what this case gives is put over that, and what it
    /// expects has happened since. It is not in focus by itself. Behind a panic that is not expected nothing is run.
    pub fn then(mut self, next: Self) -> Self {
        self.then.push(next);
        self
    }

    /// What it says of the config of this name, or of its own.
    fn config_of(&self, name: Option<&String>) -> &ConfigCase {
        static NOTHING: ConfigCase = ConfigCase::new();
        match name {
            Some(name) => self.configs.get(name).unwrap_or(&NOTHING),
            None => &self.config,
        }
    }

    /// All runs of the case: itself, and those behind it.
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

/// What the run of a reconciler is, for all subjects: it adds the faults that only it can see.
pub(super) type Call<'a, S, R> =
    &'a dyn Fn(&R, &S, &Given<'_>, &mut Vec<Fault>) -> Result<<S as Subject>::Outcome, BoxError>;

/// All that is not as the case says.
pub(super) fn check<S: Subject, R>(
    case: &TestCase<S>,
    make: &dyn Fn(&Given<'_>) -> R,
    call: Call<'_, S, R>,
) -> Vec<Fault> {
    let runs = case.runs();
    let mut world = World::new(&runs);
    let (mut faults, mut reconciler) = (Vec::new(), None);
    for (number, run) in runs.into_iter().enumerate() {
        let mut own = Vec::new();
        if number > 0 {
            own.extend(world.move_to(run.now));
        }
        world.give(run);
        let ready = caught("its preparation", &mut own, || {
            let given = world.given(run);
            run.prepare.iter().for_each(|prepare| prepare(&given));
            &*reconciler.get_or_insert_with(|| make(&given))
        });
        let ended = ready.is_some_and(|reconciler| world.run(run, reconciler, call, &mut own));
        if let Some(clean_up) = &run.clean_up {
            caught("its cleaning up", &mut own, || clean_up(&world.given(run)));
        }
        let place = format!("then {:?}", run.name);
        faults.extend(own.into_iter().map(|fault| if number > 0 { fault.within(&place) } else { fault }));
        if !ended {
            break;
        }
    }
    faults
}

/// What the runs of a case have in common.
struct World {
    clock: ManualClock,
    /// By the names of the configs; the one without a name is the case's own.
    stages: Stages,
}

type Stages = BTreeMap<Option<String>, Stage>;

impl World {
    fn new<S: Subject>(runs: &[&TestCase<S>]) -> Self {
        let clock = runs[0].now.map_or_else(ManualClock::new, ManualClock::at);
        let others = runs.iter().flat_map(|run| run.configs.keys()).map(|name| Some(name.clone()));
        let names: BTreeSet<_> = others.chain([None]).collect();
        let stages = (0..).zip(names).map(|(number, name)| (name, Stage::new(&clock, number))).collect();
        Self { clock, stages }
    }

    fn move_to(&self, time: Option<SystemTime>) -> Option<Fault> {
        match time?.duration_since(self.clock.clock().time_of_day()) {
            Ok(later) => {
                self.clock.advance(later);
                None
            }
            Err(_) => Some(Fault::new("its time is before that of the run before it", "")),
        }
    }

    fn give<S: Subject>(&mut self, case: &TestCase<S>) {
        let resource = case.subject.give();
        for (name, stage) in &mut self.stages {
            stage.give(case.config_of(name.as_ref()), resource.as_ref().filter(|_| name.is_none()));
        }
    }

    fn given<'a, S: Subject>(&'a self, case: &'a TestCase<S>) -> Given<'a> {
        Given { name: &case.name, clock: &self.clock, metadata: &case.metadata, stages: &self.stages }
    }

    /// Returns whether there is something to go on with.
    fn run<S: Subject, R>(
        &mut self,
        case: &TestCase<S>,
        reconciler: &R,
        call: Call<'_, S, R>,
        faults: &mut Vec<Fault>,
    ) -> bool {
        self.stages.values_mut().for_each(Stage::begin);
        let mut seen = Vec::new();
        let run = || call(reconciler, &case.subject, &self.given(case), &mut seen);
        let ended = catch_unwind(AssertUnwindSafe(run));
        let end = ended.as_ref().map_err(|panic| panic_message(&**panic));
        let checked = caught("the check of its end", faults, || case.ends.check(&end));
        let goes_on = ended.is_ok() || matches!(checked, Some(None));
        faults.extend(checked.flatten());
        if let (Ok(result), Some(verify)) = (&ended, &case.verify) {
            caught("its verification", faults, || verify(result));
        }
        faults.append(&mut seen);
        for (name, stage) in &mut self.stages {
            let own = stage.check(case.config_of(name.as_ref())).into_iter();
            faults.extend(own.map(|fault| match name {
                Some(name) => fault.within(&format!("config {name:?}")),
                None => fault,
            }));
        }
        goes_on
    }
}

/// What comes of a closure of the user's; nothing, if it panics: that is a fault.
fn caught<V>(what: &str, faults: &mut Vec<Fault>, call: impl FnOnce() -> V) -> Option<V> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| faults.push(Fault::new(format!("{what} panicked"), panic_message(&*panic))))
        .ok()
}

impl<O: fmt::Debug + PartialEq> Ends<O> {
    fn check(&self, ended: &Result<&Result<O, BoxError>, &str>) -> Option<Fault> {
        match (self, ended) {
            (Self::With(expected), Ok(Ok(actual))) if *expected == *actual => None,
            (Self::With(expected), Ok(Ok(actual))) => {
                Fault::differs("result", &format!("{expected:#?}"), &format!("{actual:#?}"))
            }
            (Self::Panic(text), Err(panic)) if panic.contains(text) => None,
            (Self::Panic(text), Err(panic)) => Some(Fault::new(format!("the panic has no {text:?} in it"), *panic)),
            (_, Err(panic)) => Some(Fault::new("the run panicked", *panic)),
            (Self::Error(checks), Ok(Err(error))) => {
                let wrong = checks.iter().filter(|(_, holds)| !holds(error)).map(|(what, _)| &**what);
                let wrong = wrong.collect::<Vec<_>>().join(", nor ");
                let chain = Chain(&**error).to_string();
                (!wrong.is_empty()).then(|| Fault::new(format!("the error is not {wrong}"), chain))
            }
            (Self::Error(_), Ok(Ok(actual))) => {
                Some(Fault::new("no error, where one is expected", format!("{actual:#?}")))
            }
            (Self::With(_), Ok(Err(error))) => Some(Fault::new("an unexpected error", Chain(&**error).to_string())),
            (Self::Panic(_), Ok(result)) => Some(Fault::new("no panic, where one is expected", format!("{result:#?}"))),
        }
    }
}
