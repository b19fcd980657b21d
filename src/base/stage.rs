//! Where the bodies of threads are played in turns: all of a program on one thread, in an order that a seed decides.
//!
//! A held clock has a stage or has none. Where it has one, whoever would start a thread hands over the body's turns instead
//! ([`Player`]), and whoever would sleep has a turn of another one played meanwhile, or the clock moved on to when the next is
//! due: the one that is played is out of the list, so turns nest. That is all: what is played is the shipped code.
//!
//! The stage's lock is not held while players are asked when they are due, nor while they play: no other one is taken under it but
//! the clock's.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, ThreadId, panicking};

use crate::base::backoff::Draws;
use crate::base::clock::{Clock, ManualClock, Scheduler};
use crate::base::error::NotSimulated;
use crate::base::sync::Mutex;
use crate::base::thread::{Body, Cue, Joiner, Played, Player, ThreadOptions, log_panic, shielded};
use crate::base::time::Nanos;

/// How many turns are remembered.
const TRACE: usize = 100_000;

/// How many of the last turns are named where something goes on without end.
const LAST: usize = 1_000;

/// Starts `body` on a thread of its own, or has its turns played, as it is with `clock`.
///
/// # Errors
///
/// What the operating system says when it gives no thread; or [`NotSimulated`].
pub(crate) fn start(options: &ThreadOptions, clock: &Clock, name: String, body: impl Body) -> io::Result<Joiner> {
    let Some((clock, scheduler)) = clock.scheduler() else {
        return options.spawn(name, move || body.run());
    };
    let player = body.into_player().ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, NotSimulated))?;
    Arc::clone(scheduler).enter(&clock, name, player)
}

/// Has a simulation play `player`.
///
/// # Errors
///
/// If the clock has no scheduler, or its simulation is over.
pub(crate) fn start_player(clock: &Clock, name: String, player: Box<dyn Player>) -> io::Result<Joiner> {
    let (clock, scheduler) = clock.scheduler().ok_or_else(|| io::Error::other("there is no simulation"))?;
    Arc::clone(scheduler).enter(&clock, name, player)
}

impl Clock {
    /// A stream of random numbers of its own.
    pub(crate) fn draws(&self) -> Draws {
        self.scheduler().map_or_else(Draws::random, |(_, scheduler)| scheduler.draws())
    }

    /// The seed of all that is left to chance on this clock, if it has one.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.scheduler().map(|(_, scheduler)| scheduler.seed())
    }

    /// Puts in order what came out of a hash table in any: where there is a seed, the seed decides.
    pub(crate) fn arrange<T, K: Hash + ?Sized>(&self, items: &mut [T], key: impl Fn(&T) -> &K) {
        if let Some(seed) = self.seed() {
            items.sort_by_cached_key(|item| {
                let mut hasher = DefaultHasher::new();
                seed.hash(&mut hasher);
                key(item).hash(&mut hasher);
                hasher.finish()
            });
        }
    }
}

pub(crate) struct Stage {
    seed: u64,
    /// The one thread that has turns played.
    home: ThreadId,
    state: Mutex<State>,
}

struct State {
    draws: Draws,
    /// By number, in the order in which they came.
    slots: BTreeMap<u64, Slot>,
    entered: u64,
    /// Whose turn it is, those that wait for it beneath; each with how often it has waited.
    playing: Vec<(u64, u64)>,
    /// How often who is beneath all of these has waited.
    waited: u64,
    /// The time of the last turn, and how many there were at that time.
    instant: Nanos,
    turns: u64,
    /// The most turns at one time.
    most: u64,
    /// How many turns there were.
    steps: u64,
    trace: VecDeque<Step>,
    /// Why it does not go on.
    given_up: Option<String>,
    closed: bool,
}

struct Slot {
    name: Arc<str>,
    /// `None` while it is its turn.
    player: Option<Box<dyn Player>>,
}

/// A turn: when, whose, and what it was about.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) at: Nanos,
    pub(crate) name: Arc<str>,
    pub(crate) what: Option<String>,
}

/// What comes next.
enum Move {
    Play(u64, Box<dyn Player>),
    /// Nothing is due before this time.
    Wait(Nanos),
}

impl Stage {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let state = State {
            draws: Draws::new(seed),
            slots: BTreeMap::new(),
            entered: 0,
            playing: Vec::new(),
            waited: 0,
            instant: Nanos::ZERO,
            turns: 0,
            most: 100_000,
            steps: 0,
            trace: VecDeque::new(),
            given_up: None,
            closed: false,
        };
        Arc::new(Self { seed, home: thread::current().id(), state: Mutex::new(state) })
    }

    /// Has what goes by this clock played here.
    pub(crate) fn set_up(self: &Arc<Self>, clock: ManualClock) -> ManualClock {
        clock.set_scheduler(Arc::clone(self) as Arc<dyn Scheduler>);
        clock
    }

    /// How many turns a wait may last.
    pub(crate) fn longest_wait(&self) -> u64 {
        self.state.lock().longest_wait()
    }

    pub(crate) fn set_most(&self, turns: u64) {
        self.state.lock().most = turns;
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    pub(crate) fn trace(&self) -> Vec<Step> {
        self.state.lock().trace.iter().cloned().collect()
    }

    /// Whether a turn is being played.
    pub(crate) fn is_playing(&self) -> bool {
        !self.state.lock().playing.is_empty()
    }

    /// Who stands beneath all turns has not waited yet.
    pub(crate) fn begin(&self) {
        self.state.lock().waited = 0;
    }

    /// Has a turn played, or the clock moved on to the next time that something is due, if that is no later than `end`. Returns
    /// whether it has.
    pub(crate) fn step(&self, clock: &ManualClock, end: Nanos) -> bool {
        self.check();
        let next = self.next(clock);
        match next {
            Move::Play(number, player) => self.play(clock, number, player),
            Move::Wait(at) if at <= end && at != Nanos::NEVER => clock.advance_to(at),
            Move::Wait(_) => return false,
        }
        if !self.is_playing() {
            // What a turn has given up has been caught with its panic.
            self.check();
        }
        true
    }

    /// Nothing goes on after this: what is left is dropped.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        while self.drop_one() {}
    }

    /// Panics if it does not go on.
    fn check(&self) {
        assert!(
            thread::current().id() == self.home,
            "a simulation goes on on the thread that has made it, and on no other"
        );
        let given_up = self.state.lock().given_up();
        if let Some(why) = given_up.filter(|_| !panicking()) {
            panic!("{why}");
        }
    }

    /// Nothing goes on after this, and whoever waits is told why.
    pub(crate) fn give_up(&self, clock: &ManualClock, why: &str) -> ! {
        let why = self.fail(clock, why);
        panic!("{why}");
    }

    /// Nothing goes on after this. Returns why.
    fn fail(&self, clock: &ManualClock, why: &str) -> String {
        let mut state = self.state.lock();
        let why = format!("{why}{}", state.show(clock.nanos(), self.seed));
        state.given_up.get_or_insert(why);
        state.given_up().unwrap_or_default()
    }

    /// Who is due, and when the next one is. Not under the lock: a stream that is looked at may be a client's own.
    fn ask(&self, clock: &ManualClock) -> (Vec<u64>, Nanos) {
        let mut slots = std::mem::take(&mut self.state.lock().slots);
        let (now, mut due, mut next) = (clock.nanos(), Vec::new(), Nanos::NEVER);
        for (number, slot) in &mut slots {
            if let Some(player) = &mut slot.player {
                match player.due() {
                    time if time <= now => due.push(*number),
                    time => next = next.min(time),
                }
            }
        }
        let mut state = self.state.lock();
        // Those that have come meanwhile.
        slots.append(&mut state.slots);
        state.slots = slots;
        (due, next.min(clock.alarm()))
    }

    fn next(&self, clock: &ManualClock) -> Move {
        let (due, next) = self.ask(clock);
        let mut state = self.state.lock();
        let now = clock.nanos();
        let Some(number) = state.choose(&due) else { return Move::Wait(next) };
        if state.instant != now {
            (state.instant, state.turns) = (now, 0);
        }
        state.turns += 1;
        if state.turns > state.most {
            drop(state);
            self.give_up(
                clock,
                "the simulation does not come to rest: time stands still, and there is always something to do",
            );
        }
        let slot = state.slots.get_mut(&number).and_then(|slot| Some((Arc::clone(&slot.name), slot.player.take()?)));
        let Some((name, player)) = slot else { return Move::Wait(next) };
        state.steps += 1;
        state.trace.push_back(Step { at: now, name, what: None });
        if state.trace.len() > TRACE {
            state.trace.pop_front();
        }
        state.playing.push((number, 0));
        Move::Play(number, player)
    }

    fn play(&self, clock: &ManualClock, number: u64, mut player: Box<dyn Player>) {
        let (step, draw) = {
            let mut state = self.state.lock();
            (state.steps, state.draws.next())
        };
        let say = |what: String| self.state.lock().note(step, what);
        let cue = Cue { now: clock.nanos(), draw, say: &say };
        let turn = catch_unwind(AssertUnwindSafe(|| player.play(&cue)));
        let mut player = Some(player);
        let slot = {
            let mut state = self.state.lock();
            state.playing.pop();
            match state.slots.get_mut(&number) {
                Some(slot) if matches!(turn, Ok(true)) => {
                    slot.player = player.take();
                    None
                }
                _ => state.slots.remove(&number),
            }
        };
        if let (Err(panic), Some(slot)) = (turn, &slot) {
            shielded("the report of a panic", || log_panic(&slot.name, &*panic));
            shielded("the drop of a panic", || drop(panic));
        }
        shielded("the end of a thread", || drop(player));
    }

    /// Drops one of those that are left.
    fn drop_one(&self) -> bool {
        let slot = self.state.lock().slots.pop_first();
        let some = slot.is_some();
        shielded("the end of a thread", || drop(slot));
        some
    }
}

impl Scheduler for Stage {
    fn enter(self: Arc<Self>, clock: &ManualClock, name: String, player: Box<dyn Player>) -> io::Result<Joiner> {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return Err(io::Error::other("the simulation is over"));
        }
        let number = state.entered;
        state.entered += 1;
        state.slots.insert(number, Slot { name: name.as_str().into(), player: Some(player) });
        drop(state);
        Ok(Joiner::of_played(name, Ticket { stage: self, clock: clock.clone(), number }))
    }

    fn pass(&self, clock: &ManualClock) {
        if panicking() && !self.is_playing() {
            // Who made the simulation fails, and drops what runs in it: that is not to run on for as long as it unwinds.
            self.state.lock().closed = true;
        }
        if self.state.lock().closed && self.drop_one() {
            return;
        }
        let goes_on = self.state.lock().wait();
        if !goes_on {
            self.give_up(
                clock,
                "a wait in a simulation does not end: time goes on, and what it waits for does not come",
            );
        }
        if !self.step(clock, Nanos::NEVER) {
            self.give_up(clock, "a wait in a simulation does not end: nothing is due, now or later");
        }
    }

    fn draws(&self) -> Draws {
        Draws::new(self.state.lock().draws.next())
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

impl State {
    /// One of these, by chance.
    fn choose(&mut self, due: &[u64]) -> Option<u64> {
        let many = u64::try_from(due.len()).ok().filter(|many| *many > 0)?;
        let at = usize::try_from(self.draws.next() % many).ok()?;
        due.get(at).copied()
    }

    /// Why it does not go on. Once that is said to who stands beneath all turns, those that are left are dropped.
    fn given_up(&mut self) -> Option<String> {
        let why = self.given_up.clone()?;
        self.closed |= self.playing.is_empty();
        Some(why)
    }

    fn note(&mut self, step: u64, what: String) {
        let back = usize::try_from(self.steps - step).unwrap_or(usize::MAX);
        let at = self.trace.len().checked_sub(1).and_then(|last| last.checked_sub(back));
        if let Some(step) = at.and_then(|at| self.trace.get_mut(at)) {
            step.what = Some(what);
        }
    }

    /// Whoever is on top waits once more. Returns whether it has not done so too often.
    fn wait(&mut self) -> bool {
        let waited = self.playing.last_mut().map_or(&mut self.waited, |(_, waited)| waited);
        *waited += 1;
        let waited = *waited;
        waited <= self.longest_wait()
    }

    fn longest_wait(&self) -> u64 {
        self.most.saturating_mul(10)
    }

    /// How things stand, for a failure.
    fn show(&mut self, now: Nanos, seed: u64) -> String {
        let mut text = format!(" (after {:?}", now.since(Nanos::ZERO));
        let mut often = BTreeMap::<&str, usize>::new();
        for step in self.trace.iter().rev().take(LAST) {
            *often.entry(&step.name).or_default() += 1;
        }
        let mut often: Vec<_> = often.into_iter().collect();
        often.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let named = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let last = named(often.into_iter().map(|(name, count)| format!("{name} ({count})")).collect());
        let waiting = self.playing.iter().filter_map(|(number, _)| self.slots.get(number));
        let waiting = named(waiting.map(|slot| slot.name.to_string()).collect());
        let _ = write!(text, "; in the midst of a turn: {waiting}; of the last turns: {last}; seed {seed})");
        text
    }
}

/// How a player is joined.
struct Ticket {
    stage: Arc<Stage>,
    clock: ManualClock,
    number: u64,
}

impl Played for Ticket {
    fn is_current(&self) -> bool {
        self.stage.state.lock().playing.last().is_some_and(|(number, _)| *number == self.number)
    }

    fn join(&self) {
        loop {
            let (there, beneath) = {
                let state = self.stage.state.lock();
                let beneath = state.playing.iter().any(|(number, _)| *number == self.number);
                (state.slots.contains_key(&self.number), beneath)
            };
            if !there {
                return;
            }
            if beneath {
                let why = "a wait in a simulation does not end: it is for a turn that waits for this one";
                if panicking() {
                    // A second panic would end the process. The next turn says it.
                    self.stage.fail(&self.clock, why);
                    return;
                }
                self.stage.give_up(&self.clock, why);
            }
            self.stage.pass(&self.clock);
        }
    }
}
