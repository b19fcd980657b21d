//! Managers: objects, watches, controllers, owners and dependents, leadership.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use homeostat::manager::{Candidate, Leadership, Term};
use homeostat::{
    Action, BoxError, Clock, Context, Controller, Elector, Exponential, Health, Manager, Running, Subscriber, WorkQueue,
};
use homeostat_objects::{
    Api, ClientError, DeleteOptions, Ignore, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectStream, ObjectWatch,
    PollEvents, PrimaryContext, PrimaryController, PrimaryReconciler, Query, Secondary, owner_keys, set_controller,
};
use homeostat_testing::{SimulatedTurn, Simulation};

use super::{CHILD, MINUTE, Notes, Outcome, SECOND};
use crate::hooked_client::HookedClient;

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Team {
    metadata: ObjectMeta,
    size: usize,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Member {
    metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
}

homeostat_objects::object!(Team, namespaced, "example.com", "v1");
homeostat_objects::object!(Member, namespaced, "example.com", "v1", kind: "Member", status: String);

const RESYNC: Duration = Duration::from_secs(600);

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn team(name: &str, size: usize) -> Team {
    Team { metadata: ObjectMeta::new("default", name), size }
}

/// A controller of teams, which creates members, and a controller of members, which notes greetings.
struct World<'a> {
    sim: &'a Simulation,
    notes: Notes,
    teams: Api<Team>,
    members: Api<Member>,
    manager: Manager,
}

impl<'a> World<'a> {
    fn new(sim: &'a Simulation) -> Self {
        let client = Arc::new(MemoryClient::builder().clock(sim.clock()).build());
        let manager = Manager::builder().clock(sim.clock()).build().unwrap();
        let (teams, members) = (Api::new(Arc::clone(&client) as _), Api::new(client as _));
        Self { sim, notes: Notes::new(sim), teams, members, manager }
    }

    fn start(&self) -> Running<Manager> {
        let clock = self.sim.clock();
        let watch = |name: &str| {
            self.manager.watch(name, || ObjectWatch::new(self.members.clone()).clock(clock.clone()).start())
        };
        let members = watch("members").unwrap();
        let teams = ObjectWatch::new(self.teams.clone()).clock(clock.clone());
        let teams = self.manager.watch("teams", || teams.start()).unwrap();
        let of_teams = Controller::builder("team", self.team())
            .watch(&teams, |event| event.key().cloned())
            .subscribe(&members, |queue| {
                Subscriber::to_owner(queue, |_key, member: &Member| owner_keys(&member.metadata, &Team::KIND))
            })
            .resync(RESYNC)
            .clock(clock.clone());
        let of_members = Controller::builder("member", self.member())
            .watch(&members, |event| event.key().cloned())
            .clock(clock.clone());
        self.manager.add(of_teams.build().unwrap()).unwrap();
        self.manager.add(of_members.build().unwrap()).unwrap();
        self.manager.start().unwrap()
    }

    fn team(&self) -> impl Fn(&Context, &ObjectKey) -> Outcome + Send + Sync + use<> {
        let (teams, members, notes) = (self.teams.clone(), self.members.clone(), self.notes.clone());
        move |_cx, key| {
            notes.add(format!("team {}", key.name()));
            let Some(team) = teams.get(key).ignore_not_found()? else { return Ok(Action::await_change()) };
            for number in 0..team.size {
                let metadata = ObjectMeta::new("default", format!("{}-{number}", key.name()));
                if members.get(&metadata.key()).ignore_not_found()?.is_none() {
                    let mut member = Member { metadata, status: None };
                    set_controller(&team, &mut member)?;
                    members.create(&member)?;
                }
            }
            Ok(Action::await_change())
        }
    }

    fn member(&self) -> impl Fn(&Context, &ObjectKey) -> Outcome + Send + Sync + use<> {
        let (members, notes) = (self.members.clone(), self.notes.clone());
        move |_cx, key| {
            notes.add(format!("member {}", key.name()));
            if let Some(member) = members.get(key).ignore_not_found()?.filter(|member| member.status.is_none()) {
                members.update_status(&Member { status: Some("hello".to_owned()), ..member })?;
            }
            Ok(Action::await_change())
        }
    }

    /// Returns the names of the members with a status.
    fn greeting(&self) -> Vec<String> {
        let all = self.members.list(&Query::all()).unwrap().items;
        all.iter().filter(|member| member.status.is_some()).map(|member| member.metadata.name.clone()).collect()
    }
}

/// Returns the greetings and the trace of one hour.
fn an_hour(seed: u64) -> (Vec<(Duration, String)>, Vec<SimulatedTurn>) {
    let sim = Simulation::new(seed);
    let world = World::new(&sim);
    world.teams.create(&team("red", 2)).unwrap();
    let running = world.start();
    sim.run_until(SECOND, || world.greeting() == ["red-0", "red-1"]);
    world.teams.create(&team("blue", 1)).unwrap();
    world.members.delete(&key("red-1"), &DeleteOptions::default()).unwrap();
    sim.run_until(SECOND, || world.greeting() == ["blue-0", "red-0", "red-1"]);
    assert_eq!(sim.elapsed(), Duration::ZERO);
    assert!(world.manager.ready().is_ok(), "{:?}", Health::reasons(&world.manager.ready()));
    world.teams.delete(&key("red"), &DeleteOptions::default()).unwrap();
    sim.run_until(SECOND, || world.greeting() == ["blue-0"]);

    sim.run_until_idle();
    let before = world.notes.all().len();
    sim.run_for(6 * RESYNC);
    let resynced = world.notes.all()[before..].to_vec();
    // Both watches resync the team at the same time, so it runs once or twice.
    let times: BTreeSet<_> = resynced.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, (1..=6).map(|n| n * RESYNC).collect());
    assert!(resynced.iter().all(|(_, what)| what == "team blue"), "{resynced:?}");

    world.manager.stop();
    running.join().unwrap();
    assert_eq!(sim.elapsed(), 6 * RESYNC);
    let steps = sim.turns();
    sim.run_for(6 * RESYNC);
    assert_eq!(sim.turns(), steps, "nothing remains");
    (world.notes.all(), sim.trace())
}

#[test]
fn a_manager_converges_resyncs_and_stops() {
    for seed in 0..30 {
        an_hour(seed);
    }
}

#[test]
fn an_hour_of_a_manager_is_the_same_for_the_same_seed() {
    for seed in 0..5 {
        let [one, other] = [an_hour(seed), an_hour(seed)];
        assert_eq!(one.0, other.0, "seed {seed}");
        assert_eq!(one.1, other.1, "seed {seed}");
    }
    let orders: BTreeSet<_> = (0..10).map(|seed| an_hour(seed).0).collect();
    assert!(orders.len() >= 5, "{}", orders.len());
}

/// The seed also decides uids and generated names.
#[test]
fn uids_come_from_the_seed() {
    let uid = |seed| {
        let sim = Simulation::new(seed);
        let made = World::new(&sim).teams.create(&team("red", 0)).unwrap();
        (made.metadata.uid, made.metadata.creation_timestamp)
    };
    assert_eq!(uid(1), uid(1));
    assert_ne!(uid(1).0, uid(2).0);
}

#[test]
fn a_simulation_begins_at_the_time_of_day_that_it_is_given() {
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let sim = Simulation::at(1, noon);
    sim.run_for(MINUTE);
    let made = World::new(&sim).teams.create(&team("red", 0)).unwrap();
    assert_eq!(made.metadata.creation_timestamp.map(SystemTime::from), Some(noon + MINUTE));
}

/// The lists of the client fail four times, and its streams end after one event.
#[test]
fn a_watch_of_objects_waits_for_its_client_on_simulated_time() {
    struct Short(ObjectStream, bool);

    impl Iterator for Short {
        type Item = <ObjectStream as Iterator>::Item;

        fn next(&mut self) -> Option<Self::Item> {
            unreachable!("nobody waits in a simulation")
        }
    }

    impl PollEvents for Short {
        fn poll(&mut self) -> Poll<Option<Self::Item>> {
            if self.1 {
                return Poll::Ready(None);
            }
            let notice = self.0.poll();
            self.1 = notice.is_ready();
            notice
        }
    }

    let sim = Simulation::new(1);
    let (notes, failures) = (Notes::new(&sim), AtomicUsize::new(0));
    let listed = notes.clone();
    let list = move || {
        listed.add("list");
        if failures.fetch_add(1, SeqCst) < 4 { Err("the line is cut") } else { Ok(()) }
    };
    let client = client_whose_lists(list);
    client.on_stream(|_, stream| Ok(ObjectStream::polled(Short(stream, false))));
    let within = client.inner.clone();
    let backoff = Exponential::new(SECOND, MINUTE).jitter(0.0);
    let watch = ObjectWatch::new(Api::<Team>::new(client)).backoff(backoff).clock(sim.clock()).start().unwrap();
    let queue = WorkQueue::builder().clock(sim.clock()).build();
    let subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    sim.run_for(MINUTE);
    assert_eq!(notes.times(), [0, 1, 3, 7, 15].map(Duration::from_secs));
    let teams = Api::<Team>::new(Arc::new(within));
    for name in ["red", "blue", "green"] {
        teams.create(&team(name, 1)).unwrap();
        sim.run_until_idle();
        assert_eq!(*queue.dequeue().unwrap(), key(name));
    }
    assert_eq!((notes.all().len(), sim.elapsed()), (5, MINUTE), "it continued where it had stopped");
    watch.shutdown(Duration::MAX).unwrap();
    drop(subscription);
    assert_eq!(sim.elapsed(), MINUTE);
}

/// The manager runs on the caller's thread, as without a simulation.
#[test]
fn a_manager_is_run_until_it_is_stopped() {
    let sim = Simulation::new(1);
    let manager = Manager::builder().clock(sim.clock()).build().unwrap();
    let own = manager.clone();
    let stop = move |cx: &Context, _key: &&str| -> Outcome {
        cx.sleep(MINUTE)?;
        own.stop();
        Ok(Action::await_change())
    };
    let controller = Controller::builder("vm", stop).clock(sim.clock()).build().unwrap();
    controller.handle().enqueue("vm-1");
    manager.add(controller).unwrap();
    manager.run(&homeostat::CancellationToken::new()).unwrap();
    assert_eq!(sim.elapsed(), MINUTE);
}

/// An elector that grants leadership after a time, for a time.
struct Late {
    after: Duration,
    checks: usize,
}

struct Lasting(usize);

impl Elector for Late {
    fn candidate(&self) -> Box<Candidate> {
        let (mut wait, checks) = (Some(self.after), self.checks);
        Box::new(move |_: &Context| {
            let late = || ControlFlow::Break(Term::new("late", Lasting(checks)));
            Ok(wait.take().map_or_else(late, ControlFlow::Continue))
        })
    }
}

impl Leadership for Lasting {
    fn check(&mut self) -> Result<(), BoxError> {
        self.0 = self.0.checked_sub(1).ok_or("another one leads")?;
        Ok(())
    }

    fn check_interval(&self) -> Duration {
        10 * SECOND
    }
}

/// An elector without rivals.
struct Unopposed;

impl Elector for Unopposed {
    fn candidate(&self) -> Box<Candidate> {
        Box::new(|_: &Context| Ok(ControlFlow::Break(Term::new("always", ()))))
    }
}

fn led(sim: &Simulation, elector: impl Elector + 'static) -> (Manager, Notes) {
    let notes = Notes::new(sim);
    let manager = Manager::builder().clock(sim.clock()).elector(elector).build().unwrap();
    let again = |_cx: &Context, _key| Ok(Action::requeue_after(7 * SECOND));
    let controller = Controller::builder("vm", notes.run(again)).clock(sim.clock()).build().unwrap();
    controller.handle().enqueue("vm-1");
    manager.add(controller).unwrap();
    (manager, notes)
}

#[test]
fn controllers_run_once_their_manager_leads() {
    Simulation::seeds(0..20, |sim| {
        let (manager, notes) = led(sim, Unopposed);
        let running = manager.start().unwrap();
        assert!(!manager.is_leading());
        sim.run_for(10 * SECOND);
        assert!(manager.is_leading());
        assert_eq!(notes.times(), [0, 7].map(Duration::from_secs));
        manager.stop();
        running.join().unwrap();
        assert_eq!(sim.elapsed(), 10 * SECOND);
    });
}

#[test]
fn a_manager_wins_the_leadership_late_and_loses_it() {
    Simulation::seeds(0..20, |sim| {
        let (manager, notes) = led(sim, Late { after: MINUTE, checks: 2 });
        let error = manager.start().unwrap().join().unwrap_err();
        assert_eq!(error.component(), Some("elector"));
        // Leadership is checked at the start, after ten seconds, and after twenty.
        assert_eq!(sim.elapsed(), MINUTE + 20 * SECOND);
        assert_eq!(notes.times(), [60, 67, 74].map(Duration::from_secs));
    });
}

/// Creates the members of a team.
struct Roster(Secondary<Member>);

impl PrimaryReconciler<Team> for Roster {
    fn sync(&self, cx: &PrimaryContext<'_>, team: &Team) -> Result<Action, BoxError> {
        let metadata = |number| ObjectMeta::new("default", format!("{}-{number}", team.metadata.name));
        let ensured =
            (0..team.size).map(|number| self.0.ensure(cx, team, Member { metadata: metadata(number), status: None }));
        let keep = ensured.map(|ensured| Ok(ensured?.object().metadata.key())).collect::<Result<Vec<_>, BoxError>>()?;
        self.0.prune(cx, team, keep)?;
        Ok(Action::await_change())
    }
}

/// Checks that primaries end with exactly their desired secondaries, in any order.
fn primaries(sim: &Simulation) -> Vec<SimulatedTurn> {
    let world = World::new(sim);
    let roster = Roster(Secondary::new(world.members.clone()));
    let secondary = Secondary::new(world.members.clone());
    let controller = PrimaryController::new("team", world.teams.clone(), roster).secondary(&secondary).resync(RESYNC);
    controller.add_to(&world.manager).unwrap();
    let there = || {
        let all = world.members.list(&Query::all()).unwrap().items;
        all.iter().map(|member| member.metadata.name.clone()).collect::<Vec<_>>()
    };
    let running = world.manager.start().unwrap();
    let red = world.teams.create(&team("red", 3)).unwrap();
    world.teams.create(&team("blue", 1)).unwrap();
    sim.run_until(MINUTE, || there() == ["blue-0", "red-0", "red-1", "red-2"]);
    world.members.delete(&key("blue-0"), &DeleteOptions::default()).unwrap();
    let red = world.teams.get(&red.metadata.key()).unwrap();
    world.teams.update(&Team { size: 1, ..red }).unwrap();
    sim.run_until(MINUTE, || there() == ["blue-0", "red-0"]);
    world.teams.delete(&key("red"), &DeleteOptions::default()).unwrap();
    sim.run_until(MINUTE, || there() == ["blue-0"]);
    world.manager.stop();
    running.join().unwrap();
    sim.trace()
}

#[test]
fn primaries_converge_in_any_order() {
    Simulation::seeds(0..30, |sim| assert_eq!(primaries(sim), primaries(&Simulation::new(sim.seed()))));
}

/// The hash tables and the addresses of a process have no effect.
#[test]
fn a_trace_is_the_same_in_another_process() {
    let own = primaries(&Simulation::new(3)).into_iter().chain(an_hour(3).1);
    let own: Vec<_> = own.map(|turn| format!("turn {turn}")).collect();
    if std::env::var_os(CHILD).is_some() {
        // The test harness may have begun a line.
        println!();
        return own.iter().for_each(|turn| println!("{turn}"));
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "simulation::manager::a_trace_is_the_same_in_another_process", "--nocapture"])
        .env(CHILD, "1");
    let report = String::from_utf8(child.output().unwrap().stdout).unwrap();
    let other: Vec<_> = report.lines().filter(|line| line.starts_with("turn ")).collect();
    assert_eq!(other, own);
}

/// A stream that calls a function before each poll.
struct Before(ObjectStream, Box<dyn Fn() + Send>);

impl Iterator for Before {
    type Item = <ObjectStream as Iterator>::Item;

    fn next(&mut self) -> Option<Self::Item> {
        unreachable!("nobody waits in a simulation")
    }
}

impl PollEvents for Before {
    fn poll(&mut self) -> Poll<Option<Self::Item>> {
        (self.1)();
        self.0.poll()
    }
}

/// Returns a client that calls `list` before each list. If `list` returns an error, the list fails with it.
fn client_whose_lists(mut list: impl FnMut() -> Result<(), &'static str> + Send + 'static) -> Arc<HookedClient> {
    let client = HookedClient::new(MemoryClient::new());
    client.before(move |verb, object| {
        let error = if verb == "list" { list().err()? } else { return None };
        Some(ClientError::transport(object.clone(), error))
    });
    client
}

/// Returns when a client was asked for lists. Its streams call `act` once, after an object exists.
fn lists_with_streams_that(sim: &Simulation, act: impl Fn(&Clock) + Clone + Send + Sync + 'static) -> Vec<Duration> {
    let (notes, clock) = (Notes::new(sim), sim.clock());
    let (listed, armed) = (notes.clone(), Arc::new(AtomicBool::new(false)));
    let list = move || {
        listed.add("list");
        Ok(())
    };
    let acts = Arc::clone(&armed);
    let client = client_whose_lists(list);
    client.on_stream(move |_, stream| {
        let (act, clock, acts) = (act.clone(), clock.clone(), Arc::clone(&acts));
        let before = move || {
            if acts.swap(false, SeqCst) {
                act(&clock);
            }
        };
        Ok(ObjectStream::polled(Before(stream, Box::new(before))))
    });
    let within = client.inner.clone();
    let backoff = Exponential::new(SECOND, MINUTE).jitter(0.0);
    let watch = ObjectWatch::new(Api::<Team>::new(client)).backoff(backoff).clock(sim.clock()).start().unwrap();
    sim.run_for(SECOND);
    armed.store(true, SeqCst);
    Api::<Team>::new(Arc::new(within)).create(&team("red", 1)).unwrap();
    sim.run_for(MINUTE);
    assert!(watch.watch().store().get(&key("red")).is_some());
    watch.shutdown(Duration::MAX).unwrap();
    notes.times()
}

/// The objects are listed again. No other component is affected, as without a simulation.
#[test]
fn a_stream_that_panics_is_started_again() {
    assert_eq!(
        lists_with_streams_that(&Simulation::new(1), |_| panic!("out of line")),
        [0, 2].map(Duration::from_secs)
    );
}

/// The stream is polled without a lock.
#[test]
fn a_stream_may_use_the_clock() {
    let uses = |clock: &Clock| {
        let queue = WorkQueue::<ObjectKey>::builder().clock(clock.clone()).build();
        assert!(queue.dequeue_timeout(SECOND).is_err());
    };
    let sim = Simulation::new(1);
    assert_eq!(lists_with_streams_that(&sim, uses), [Duration::ZERO]);
}

/// Objects of two clients have different uids, even with the same seed.
#[test]
fn clients_of_one_simulation_make_different_uids() {
    let sim = Simulation::new(1);
    let made = [(); 2].map(|()| World::new(&sim).teams.create(&team("red", 0)).unwrap().metadata.uid);
    assert_ne!(made[0], made[1]);
}

/// The backoff starts after the slow list has failed.
#[test]
fn a_slow_client_gets_the_whole_backoff() {
    let sim = Simulation::new(1);
    let notes = Notes::new(&sim);
    let (listed, never) = (notes.clone(), WorkQueue::<ObjectKey>::builder().clock(sim.clock()).build());
    let list = move || {
        listed.add("list");
        let _ = never.dequeue_timeout(10 * SECOND);
        Err("the line is cut")
    };
    let client = client_whose_lists(list);
    let backoff = Exponential::new(SECOND, MINUTE).jitter(0.0);
    let watch = ObjectWatch::new(Api::<Team>::new(client)).backoff(backoff).clock(sim.clock()).start().unwrap();
    sim.run_for(30 * SECOND);
    assert_eq!(notes.times(), [0, 11, 23].map(Duration::from_secs));
    watch.shutdown(Duration::MAX).unwrap();
}

#[test]
fn a_run_does_not_wake_the_driver_of_a_manager() {
    let sim = Simulation::new(3);
    let manager = Manager::builder().clock(sim.clock()).build().unwrap();
    let names: Vec<_> = (0..100).map(|number| format!("controller-{number}")).collect();
    for name in &names {
        let reconcile = |_: &Context, _: &u32| Ok::<_, BoxError>(Action::await_change());
        manager.add(Controller::builder(name, reconcile).clock(sim.clock()).build().unwrap()).unwrap();
    }
    let running = manager.start().unwrap();
    sim.run_until_idle();
    let before = sim.turns();
    for key in 0..10_u32 {
        for name in &names {
            manager.enqueue(name, key).unwrap();
        }
        sim.run_until_idle();
    }
    let turns = sim.trace().split_off(usize::try_from(before).unwrap());
    let runs = turns.iter().filter(|turn| turn.what.is_some()).count();
    let of_driver = turns.iter().filter(|turn| turn.task == "manager-driver").count();
    assert_eq!((runs, of_driver), (1000, 0));
    manager.stop();
    running.join().unwrap();
}
