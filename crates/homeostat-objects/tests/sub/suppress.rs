//! `SuppressTransientErrors`: the cases of reconciler.io's `reconcilers/errors_test.go`. There, suppressed errors
//! bypass the retry policy, counters are not thread-safe, and removing old counters lists all objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, unbounded};
use homeostat::run::{Cancelled, FailedRun, Muted, Terminal};
use homeostat::{
    Action, BoxError, Context, Controller, Exponential, Manager, ManualClock, Reconciler, RequeueAfter, RetryPolicy,
    terminal,
};
use homeostat_objects::sub::{
    Always, Config, Failures, Flow, Request, ResourceReconciler, Sequence, SubContext, SubReconciler, SubResult,
    SuppressTransientErrors, quiet,
};
use homeostat_objects::{ClientError, Object};
use parking_lot::Mutex;

use crate::hooked_client::HookedClient;
use crate::support::{Thing, config, spy, things};
use crate::trail::{Returns, halts, leaves, on, seconds};
use crate::until::until;

/// The next results of the step, by object.
type Script = Arc<Mutex<BTreeMap<String, Returns>>>;

struct World {
    step: SuppressTransientErrors<Thing>,
    script: Script,
    spy: Arc<HookedClient>,
    clock: ManualClock,
    config: Config,
}

impl World {
    fn new() -> Self {
        Self::with(|step| step)
    }

    fn with(settings: fn(SuppressTransientErrors<Thing>) -> SuppressTransientErrors<Thing>) -> Self {
        let script = Script::default();
        let of = Arc::clone(&script);
        let step = move |cx: &SubContext<'_>, _: &mut Thing| -> SubResult {
            let result = of.lock().get(cx.key().name()).copied();
            result.unwrap_or(|| Err("an error".into()))()
        };
        let (clock, spy) = (ManualClock::new(), spy());
        let config = config(&spy).0.with_clock(clock.clock());
        Self { step: settings(SuppressTransientErrors::new(step)), script, spy, clock, config }
    }

    /// Runs once for this object. Returns `.` for a muted error, `!` for another error, and `-` for a success.
    fn run(&self, thing: &Thing) -> char {
        let request = Request::new(thing, self.config.clone());
        let cx = Context::detached();
        let result = self.step.reconcile(&SubContext::new("test", &cx, &request), &mut thing.clone());
        let skips = request.skips_status_update();
        match result {
            Ok(_) => '-',
            Err(error) if Muted::find(&*error).is_some() => {
                assert!(skips, "the status stays as it is");
                '.'
            }
            Err(_) => {
                assert!(!skips, "the status is written");
                '!'
            }
        }
    }

    fn runs(&self, things: &[&Thing]) -> String {
        things.iter().map(|thing| self.run(thing)).collect()
    }

    fn returns(&self, thing: &Thing, result: Returns) -> char {
        self.script.lock().insert(thing.metadata.name.clone(), result);
        let seen = self.run(thing);
        self.script.lock().remove(&thing.metadata.name);
        seen
    }

    /// The number of counters.
    fn counted(&self) -> String {
        let text = format!("{:?}", self.step);
        let (_, rest) = text.split_once("objects: ").unwrap();
        rest.chars().take_while(char::is_ascii_digit).collect()
    }

    fn created(&self, name: &str) -> Thing {
        things(&self.spy).create(&Thing::new(name)).unwrap()
    }
}

fn thing(name: &str, uid: &str, generation: i64) -> Thing {
    let mut thing = Thing::new(name);
    uid.clone_into(&mut thing.metadata.uid);
    thing.metadata.generation = generation;
    thing
}

#[test]
fn shows_errors_from_the_threshold_on() {
    let blue = &thing("blue", "1", 1);
    assert_eq!(World::new().runs(&[blue; 5]), "..!!!");
    assert_eq!(World::with(|step| step.threshold(5)).runs(&[blue; 7]), "....!!!");
    assert_eq!(World::with(|step| step.threshold(1)).runs(&[blue; 2]), "!!");
    assert_eq!(World::with(|step| step.threshold(0)).runs(&[blue; 2]), "!!");
}

#[test]
fn counts_each_object_separately() {
    let (blue, green) = (&thing("blue", "1", 1), &thing("green", "2", 1));
    assert_eq!(World::new().runs(&[blue, green, blue, green, blue, green, blue, green]), "....!!!!");
}

#[test]
fn restarts_for_another_generation_or_uid() {
    let of = |uid, generation| thing("blue", uid, generation);
    let world = World::new();
    let generations = [of("1", 1), of("1", 1), of("1", 2), of("1", 2), of("1", 3), of("1", 3), of("1", 3)];
    assert_eq!(world.runs(&generations.each_ref()), "......!");
    assert_eq!(world.runs(&[of("2", 3), of("2", 3), of("2", 3)].each_ref()), "..!");
    assert_eq!(world.counted(), "1");
}

#[test]
fn returns_other_results_and_resets_the_count() {
    let blue = &thing("blue", "1", 1);
    let others: [(Returns, char); 6] = [
        (on, '-'),
        (halts, '-'),
        (|| Ok(Flow::requeue_after(seconds(1))), '-'),
        (|| Err(terminal("permanent").into()), '!'),
        (|| Err(quiet("no image yet").into()), '!'),
        (|| Err(RequeueAfter::new(seconds(1), "it boots").into()), '!'),
    ];
    for (other, seen) in others {
        let world = World::new();
        assert_eq!(world.runs(&[blue, blue]), "..");
        assert_eq!((world.returns(blue, other), world.counted()), (seen, "0".to_owned()));
        assert_eq!(world.runs(&[blue, blue, blue]), "..!");
    }
}

#[test]
fn does_not_count_an_aborted_run() {
    let blue = &thing("blue", "1", 1);
    let world = World::new();
    let aborted: Returns = || Err(Cancelled::Aborted.into());
    let seen = [world.run(blue), world.returns(blue, aborted), world.returns(blue, aborted), world.run(blue)];
    assert_eq!((seen, world.run(blue)), (['.', '!', '!', '.'], '!'));
    let late: Returns = || Err(Cancelled::DeadlineExceeded.into());
    assert_eq!(World::new().returns(blue, late), '.');
}

const DAY: u64 = 24 * 60 * 60;

#[test]
fn forgets_objects_that_are_gone_after_a_day() {
    let world = World::new();
    let gone = world.created("gone");
    let other = world.created("other");
    let again = world.created("again");
    let stays = world.created("stays");
    assert_eq!(world.runs(&[&gone, &again, &stays, &stays]), "....");
    for name in [&gone, &again] {
        things(&world.spy).purge(&name.key()).unwrap();
    }
    world.created("again"); // a new object
    assert_eq!(world.counted(), "3");
    world.spy.reads();

    world.clock.advance(seconds(DAY - 1));
    assert_eq!((world.run(&other), world.counted()), ('.', "4".to_owned()));
    assert_eq!(world.spy.reads(), [""; 0], "no call to the client");
    world.clock.advance(seconds(1));
    assert_eq!((world.run(&other), world.counted()), ('.', "2".to_owned()));
    assert_eq!(world.spy.reads(), ["get Thing default/gone", "get Thing default/again"], "no more than two at a time");
    assert_eq!((world.run(&other), world.counted()), ('!', "2".to_owned()));
    assert_eq!(world.spy.reads(), ["get Thing default/stays"]);
    assert_eq!(world.run(&other), '!');
    assert_eq!(world.spy.reads(), [""; 0], "it has been heard of");
    assert_eq!(world.run(&stays), '!', "its count stands");
}

#[test]
fn keeps_counters_while_the_client_fails() {
    let world = World::new();
    let (gone, other) = (thing("gone", "1", 1), thing("other", "2", 1));
    assert_eq!(world.run(&gone), '.');
    world.clock.advance(seconds(DAY));
    world.spy.before(|_, object| Some(ClientError::transport(object.clone(), "the cable is out")));
    assert_eq!((world.run(&other), world.counted()), ('.', "2".to_owned()));
    world.spy.heal();
    assert_eq!((world.run(&other), world.counted()), ('.', "2".to_owned()), "asked again a day later");
    world.clock.advance(seconds(DAY));
    assert_eq!((world.run(&other), world.counted()), ('!', "1".to_owned()));
}

/// Regardless of the order, two errors of each object are muted.
#[test]
fn counters_are_safe_under_many_threads() {
    let world = &World::new();
    let things: Vec<_> = (0..16).map(|number| thing(&number.to_string(), &number.to_string(), 1)).collect();
    let things = &things;
    let seen = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || (0..4).map(|_| world.runs(&things.iter().collect::<Vec<_>>())).collect::<String>())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<String>()
    });
    let hidden = seen.chars().filter(|seen| *seen == '.').count();
    assert_eq!((seen.len(), hidden, world.counted()), (256, 32, "16".to_owned()));
}

/// A reconciler with a step that writes the status and fails.
fn reconciler(config: &Config) -> ResourceReconciler<Thing> {
    let tries = Mutex::new(0);
    let step = move |_: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        let mut tries = tries.lock();
        *tries += 1;
        thing.status.fields.insert("tries".to_owned(), tries.to_string());
        Err("an error".into())
    };
    ResourceReconciler::new("thing", config.clone(), SuppressTransientErrors::new(step))
}

#[test]
fn muted_errors_are_retried_without_status_and_event() {
    let spy = spy();
    let (config, events) = config(&spy);
    things(&spy).create(&Thing::new("web")).unwrap();
    let reconciler = reconciler(&config);
    let mut seen = String::new();
    for _ in 0..4 {
        spy.writes();
        let error = reconciler.reconcile(&Context::detached(), Thing::reference().key()).unwrap_err();
        assert_eq!(error.to_string(), "an error");
        writeln!(seen, "{} {:?}", error.is::<Muted>(), spy.writes()).unwrap();
    }
    let shown = "false [\"update_status Thing default/web\"]\n";
    assert_eq!(seen, format!("true []\ntrue []\n{shown}{shown}"));
    assert_eq!(things(&spy).get(Thing::reference().key()).unwrap().status.fields["tries"], "4");
    assert_eq!(crate::support::events(&events), ["Normal StatusUpdated Updated status"]);
}

/// A backoff that records whether it gets the error of the step.
struct Noting(Exponential, Sender<bool>);

impl<K> RetryPolicy<K> for Noting {
    fn decide(&self, failure: &FailedRun<'_, K>) -> Option<Duration> {
        let _ = self.1.send(failure.error.is::<io::Error>());
        self.0.decide(failure)
    }
}

#[test]
fn the_policy_of_the_controller_decides_the_delay() {
    let clock = ManualClock::new();
    let spy = spy();
    let (tried, reported) = unbounded();
    let step = move |cx: &SubContext<'_>, _: &mut Thing| -> SubResult {
        tried.send((cx.clock().now(), cx.attempt()))?;
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    };
    let steps = SuppressTransientErrors::new(step);
    let reconciler = ResourceReconciler::<Thing>::new("thing", config(&spy).0, steps);
    let manager = Manager::builder().clock(clock.clock()).build().unwrap();
    let sources = reconciler.setup(&manager).unwrap();
    let (noting, asked) = unbounded();
    let retry = Noting(Exponential::new(seconds(1), seconds(60)).jitter(0.0), noting);
    let controller = Controller::builder("thing", reconciler).sources(sources).retry(retry).clock(clock.clock());
    let controller = controller.build().unwrap();
    let handle = controller.handle();
    manager.add(controller).unwrap();
    let running = manager.start().unwrap();
    let start = clock.now();
    things(&spy).create(&Thing::new("web")).unwrap();
    let mut seen = Vec::new();
    for delay in [1, 2, 4] {
        let (at, attempt) = reported.recv_timeout(seconds(60)).unwrap();
        seen.push(((at - start).as_secs(), attempt));
        until("the retry is scheduled", || handle.queue().metrics().delayed > 0 && !handle.failing().is_empty());
        clock.advance(seconds(delay));
    }
    assert_eq!(seen, [(0, 1), (1, 2), (3, 3)]);
    assert_eq!(reported.recv_timeout(seconds(60)).unwrap().1, 4);
    manager.stop();
    running.join().unwrap();
    assert_eq!(asked.iter().collect::<Vec<_>>(), [true; 4]);
}

/// The result of a run with these steps. One of them fails for the first time.
fn ends(steps: impl SubReconciler<Thing> + 'static) -> Result<Action, BoxError> {
    let spy = spy();
    things(&spy).create(&Thing::new("web")).unwrap();
    let reconciler = ResourceReconciler::new("thing", config(&spy).0, steps);
    reconciler.reconcile(&Context::detached(), Thing::reference().key())
}

fn suppressed(result: Returns) -> SuppressTransientErrors<Thing> {
    SuppressTransientErrors::new(leaves("step", result))
}

#[test]
fn mutes_beside_quiet_errors_and_hides_no_other_error() {
    let fails: Returns = || Err("an error".into());
    let in_one: Returns = || Ok(Flow::requeue_after(seconds(1)));
    let is_muted = |ended: Result<Action, BoxError>, text: &str| {
        let error = ended.unwrap_err();
        assert_eq!(error.to_string(), text);
        assert!(Terminal::find(&*error).is_none() && RequeueAfter::find(&*error).is_none(), "it is retried");
        error.is::<Muted>()
    };
    let beside = |other: Returns| ends(Always::new().then(suppressed(fails)).then(leaves("other", other)));
    assert!(is_muted(ends(suppressed(fails)), "an error"));
    assert!(is_muted(ends(Sequence::new().then(leaves("asks", in_one)).then(suppressed(fails))), "an error"));
    assert!(is_muted(beside(|| Err(quiet("no image yet").into())), "an error; no image yet"));
    assert!(is_muted(ends(Always::new().then(suppressed(fails)).then(suppressed(fails))), "an error; an error"));
    assert!(!is_muted(beside(fails), "an error; an error"));
    assert!(!is_muted(beside(|| Err(terminal("it is broken").into())), "an error; it is broken"));
    assert!(!is_muted(
        beside(|| Err(RequeueAfter::new(seconds(1), "boots").into())),
        "an error; requeue after 1s: boots"
    ));

    let aborted = beside(|| Err(Cancelled::Aborted.into())).unwrap_err();
    assert_eq!(Failures::find(&*aborted), Some(&Cancelled::Aborted));
    assert!(aborted.is::<Cancelled>(), "the controller knows it");
    let within =
        Always::new().then(leaves("fails", fails)).then(leaves("late", || Err(Cancelled::DeadlineExceeded.into())));
    let within = ends(SuppressTransientErrors::new(within)).unwrap_err();
    assert!(within.is::<Muted>());
    assert_eq!(Failures::find(&*within), Some(&Cancelled::DeadlineExceeded));
}
