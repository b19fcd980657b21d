//! Records all requests and runs, and checks that the right runs follow.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use homeostat::{Clock, Enqueue, EnqueueOutcome, Priority, Reasons, Shutdown};

use super::{MICROSECOND, Queue, THREADS};

/// Keys that get all requests except `cancel`. A run must follow each request for one.
const SERVED: u32 = 1000;
/// Keys that are cancelled too. They must not run twice at once.
const CANCELLED: u32 = 100;
/// Keys with one request at a time: the next request comes after the start of the run for the last one, often before
/// its end. Exactly one run follows each request, and not early. A lost rerun is never repeated.
const EXACT: u32 = 64;

/// The record of a key.
#[derive(Default)]
struct Key {
    running: AtomicBool,
    /// The number of the last request before its call.
    asked: AtomicUsize,
    /// The number of the last admitted request.
    admitted: AtomicUsize,
    /// The value of `asked` when the last run started.
    served: AtomicUsize,
    /// The earliest time of the next run, in nanoseconds since the checker was made. Zero: no bound; for an exact key,
    /// no run.
    not_before: AtomicU64,
}

impl Answers {
    /// Checks that requests met keys in every state.
    pub(crate) fn assert_all(&self) {
        assert!(self.exact_reruns.load(SeqCst) > 0, "no exact key was asked for during its run");
        for (answer, count) in ANSWERS.iter().zip(&self.given) {
            assert!(count.load(SeqCst) > 0, "no request was {answer}");
        }
    }
}

/// Whether only its requests decide when such a key runs.
pub(crate) fn is_exact(key: u32) -> bool {
    key >= SERVED + CANCELLED
}

pub(crate) struct Checker<'a> {
    keys: Vec<Key>,
    origin: Instant,
    closing: AtomicBool,
    answers: &'a Answers,
}

/// The number of each outcome, over all rounds of a test.
#[derive(Default)]
pub(crate) struct Answers {
    /// In the order of [`ANSWERS`].
    given: [AtomicUsize; ANSWERS.len()],
    exact_reruns: AtomicUsize,
}

/// All outcomes of an open queue.
const ANSWERS: [EnqueueOutcome; 6] = [
    EnqueueOutcome::Queued,
    EnqueueOutcome::Merged,
    EnqueueOutcome::Scheduled,
    EnqueueOutcome::Held,
    EnqueueOutcome::Rerun,
    EnqueueOutcome::Ignored,
];

impl<'a> Checker<'a> {
    pub(crate) fn new(answers: &'a Answers) -> Self {
        Self {
            keys: (0..SERVED + CANCELLED + EXACT).map(|_| Key::default()).collect(),
            origin: Clock::system().now(),
            closing: AtomicBool::new(false),
            answers,
        }
    }

    fn nanos(&self, queue: &Queue) -> u64 {
        whole(queue.clock().now().duration_since(self.origin))
    }

    /// From now on delays and cool-downs may end early.
    pub(crate) fn closing(&self) {
        self.closing.store(true, SeqCst);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// Makes a random request. Returns `None` if the key allows no request.
    pub(crate) fn request(&self, queue: &Queue, producer: u32, random: &mut Random) -> Option<EnqueueOutcome> {
        match random.below(10) {
            0 => {
                let key = SERVED + random.below(CANCELLED);
                if random.below(3) == 0 {
                    let _ = queue.cancel(&key);
                    return None;
                }
                Some(self.ask(queue, key, random))
            }
            1..4 => self.ask_exact(queue, producer, random),
            _ => {
                // Half of the requests go to a few keys, so that many meet their key while it runs.
                let among = if random.below(2) == 0 { 16 } else { SERVED };
                Some(self.ask(queue, random.below(among), random))
            }
        }
    }

    fn ask(&self, queue: &Queue, key: u32, random: &mut Random) -> EnqueueOutcome {
        let known = &self.keys[key as usize];
        let delay = random.below(300) * MICROSECOND;
        let number = known.asked.fetch_add(1, SeqCst) + 1;
        let levels = [Priority::High, Priority::Normal, Priority::Low];
        let view = queue.at(levels[random.below(3) as usize]).because(Reasons::EVENT);
        let outcome = match random.below(8) {
            0 => view.enqueue_if_absent(key),
            1 => view.enqueue_now(key),
            2 => view.enqueue_after(key, delay),
            3 => view.reschedule(key, delay),
            4 => view.enqueue_debounced(key, delay, 2 * delay),
            _ => view.enqueue(key),
        };
        if let Some(answer) = ANSWERS.iter().position(|answer| *answer == outcome) {
            self.answers.given[answer].fetch_add(1, SeqCst);
        }
        if !matches!(outcome, EnqueueOutcome::Closed | EnqueueOutcome::Ignored) {
            known.admitted.fetch_max(number, SeqCst);
        }
        outcome
    }

    fn ask_exact(&self, queue: &Queue, producer: u32, random: &mut Random) -> Option<EnqueueOutcome> {
        let key = SERVED + CANCELLED + producer + THREADS * random.below(EXACT / THREADS);
        let known = &self.keys[key as usize];
        if known.not_before.load(SeqCst) != 0 {
            return None;
        }
        let delay = random.below(2) * random.below(2000) * MICROSECOND;
        let due = self.nanos(queue) + whole(delay);
        let number = known.asked.fetch_add(1, SeqCst) + 1;
        known.not_before.store(due, SeqCst);
        // Without a delay this is `enqueue`.
        let outcome = queue.enqueue_after(key, delay);
        match outcome {
            EnqueueOutcome::Queued | EnqueueOutcome::Scheduled | EnqueueOutcome::Rerun => {
                known.admitted.fetch_max(number, SeqCst);
                self.answers.exact_reruns.fetch_add(usize::from(outcome == EnqueueOutcome::Rerun), SeqCst);
            }
            EnqueueOutcome::Closed => {}
            other => panic!("an exact key was {other}"),
        }
        Some(outcome)
    }

    /// Records the start of a run.
    pub(crate) fn start(&self, queue: &Queue, key: u32) -> Running<'_> {
        let known = &self.keys[key as usize];
        let now = self.nanos(queue);
        assert!(!known.running.swap(true, SeqCst), "two claims of key {key} at once");
        let not_before = known.not_before.swap(0, SeqCst);
        assert!(now >= not_before || self.closing.load(SeqCst), "key {key} runs {} ns early", not_before - now);
        assert!(!is_exact(key) || not_before > 0, "a request for key {key} was served twice");
        known.served.store(known.asked.load(SeqCst), SeqCst);
        Running { checker: self, key }
    }

    /// Whether no run is current.
    pub(crate) fn all_ended(&self) -> bool {
        self.keys.iter().all(|known| !known.running.load(SeqCst))
    }

    /// Checks the end: a run has followed every admitted request, or `dropped` names its key. A shutdown that runs all
    /// known keys drops none.
    pub(crate) fn settle(&self, mode: Shutdown, dropped: impl Iterator<Item = u32>) {
        let mut reported = vec![false; self.keys.len()];
        if mode > Shutdown::RunDelayedNow {
            dropped.for_each(|key| reported[key as usize] = true);
        }
        for (key, known) in (0..).zip(&self.keys) {
            let (admitted, served) = (known.admitted.load(SeqCst), known.served.load(SeqCst));
            let cancelled = (SERVED..SERVED + CANCELLED).contains(&key);
            assert!(
                served >= admitted || reported[key as usize] || cancelled,
                "request {admitted} of key {key} was followed by no run: the last one began after request {served}",
            );
        }
    }
}

/// A current run. Dropping it ends it; this must come before the end of its claim.
pub(crate) struct Running<'a> {
    checker: &'a Checker<'a>,
    key: u32,
}

impl Running<'_> {
    pub(crate) fn end_with_cool_down(self, queue: &Queue, delay: Duration) {
        let until = self.checker.nanos(queue) + whole(delay);
        self.checker.keys[self.key as usize].not_before.store(until, SeqCst);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.checker.keys[self.key as usize].running.store(false, SeqCst);
    }
}

fn whole(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

/// Numbers that look random and are the same for the same seed (`SplitMix64`).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u32) -> Self {
        Self(seed.into())
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 32) as u32 % bound
    }
}
