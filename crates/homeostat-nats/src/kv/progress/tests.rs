//! The progress of a watch, against a model of a bucket with wrong counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const ANSWER: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(5);
const NEVER: ProgressStep = ProgressStep::Wait(Nanos::NEVER);

fn extent(last_seq: u64) -> BucketExtent {
    BucketExtent { messages: 3, first_seq: 1, last_seq }
}

/// Returns the progress of a watch. Its bucket ends at this revision.
fn progress(end_at_start: u64, has_one_copy: bool) -> WatchProgress {
    WatchProgress::new(extent(end_at_start), has_one_copy, ProgressTimes { answer: ANSWER, interval: None })
}

fn at(seconds: u64) -> Nanos {
    Nanos::ZERO.after(Duration::from_secs(seconds))
}

#[test]
fn the_count_of_a_quiet_bucket_needs_no_question() {
    let mut quiet = progress(7, true);
    assert_eq!(quiet.step(0, at(0)), NEVER, "no consumer is confirmed");
    quiet.confirmed(2, extent(7));
    quiet.delivered(3, 1);
    assert_eq!(quiet.step(3, at(0)), NEVER);
    quiet.delivered(5, 0);
    assert_eq!([quiet.step(5, at(0)), quiet.step(5, at(0))], [ProgressStep::Synced, NEVER]);
    let mut empty = progress(0, true);
    empty.confirmed(0, extent(0));
    assert_eq!(empty.step(0, at(0)), ProgressStep::Synced);
    assert_eq!(progress(9, true).without_start().step(0, at(0)), ProgressStep::Synced);
}

#[test]
fn other_counts_lead_to_a_question() {
    let ask = ProgressStep::Ask { number: 1 };
    let mut copies = progress(7, false);
    copies.confirmed(0, extent(7));
    assert_eq!(copies.step(0, at(0)), ask, "the copy of the consumer may lag behind");
    let mut busy = progress(7, true);
    busy.confirmed(1, extent(8));
    busy.delivered(7, 0);
    assert_eq!(busy.step(7, at(0)), ask, "a write came before the count, or after it");
    for removed in [BucketExtent { messages: 2, ..extent(7) }, BucketExtent { first_seq: 2, ..extent(7) }] {
        let mut expired = progress(7, true);
        expired.confirmed(1, removed);
        expired.delivered(3, 0);
        assert_eq!(expired.step(3, at(0)), ask, "the count may lack an entry: {removed:?}");
    }
    let mut changed = progress(7, true);
    changed.confirmed(1, extent(7));
    changed.delivered(8, 5);
    assert_eq!(changed.step(8, at(0)), ask, "a message of the start was replaced");
    let mut purged = progress(7, true);
    purged.confirmed(3, extent(7));
    purged.delivered(2, 2);
    assert_eq!(purged.step(2, at(0)), NEVER);
    purged.idle(7);
    assert_eq!(purged.step(7, at(0)), ask, "the last messages were removed");
}

#[test]
fn a_heartbeat_before_the_end_of_the_start_shows_a_stuck_consumer() {
    let mut progress = progress(7, true);
    progress.confirmed(1, extent(7));
    assert!(progress.is_stuck(6) && !progress.is_stuck(7));
    progress.delivered(7, 0);
    assert_eq!(progress.step(7, at(0)), ProgressStep::Synced);
    assert!(!progress.is_stuck(6), "the start was delivered");
}

#[test]
fn questions_are_repeated() {
    let mut progress = progress(7, false);
    progress.confirmed(0, extent(7));
    assert_eq!(progress.step(0, at(0)), ProgressStep::Ask { number: 1 });
    assert_eq!(progress.step(0, at(1)), ProgressStep::Wait(at(2)));
    assert_eq!(progress.step(0, at(2)), ProgressStep::Ask { number: 2 }, "the answer was lost");
    progress.answered(1, 0);
    progress.unheard(1, at(2));
    assert_eq!(progress.step(0, at(2)), ProgressStep::Wait(at(4)), "an old answer counts for nothing");
    progress.unheard(2, at(2));
    assert_eq!(progress.step(0, at(2)), ProgressStep::Wait(at(2).after(PAUSE)));
    assert_eq!(progress.step(0, at(3)), ProgressStep::Ask { number: 3 });
    progress.answered(3, 9);
    assert_eq!(progress.step(8, at(9)), NEVER, "revision 9 must come, or a heartbeat after it");
    assert_eq!(progress.step(9, at(9)), ProgressStep::Ask { number: 4 });
    progress.answered(4, 9);
    assert_eq!((progress.step(9, at(9)), progress.caught_up()), (ProgressStep::Synced, 9));
}

#[test]
fn writes_that_never_pause_do_not_delay_the_end_for_ever() {
    let mut progress = progress(7, true);
    progress.confirmed(0, extent(8));
    let mut position = 0;
    for number in 1..=u64::from(MOST_ANSWERS) {
        assert_eq!(progress.step(position, at(0)), ProgressStep::Ask { number });
        position += 1;
        progress.answered(number, position);
    }
    assert_eq!((progress.step(position, at(0)), progress.caught_up()), (ProgressStep::Synced, 0));
}

#[test]
fn unanswered_questions_do_not_end_the_start() {
    let mut progress = progress(7, true);
    progress.confirmed(0, extent(8));
    let most = u64::from(MOST_ANSWERS);
    for number in 1..=most {
        assert_eq!(progress.step(0, at(number)), ProgressStep::Ask { number });
        progress.unheard(number, at(number));
    }
    assert_eq!(progress.step(0, at(most + 1)), ProgressStep::Ask { number: most + 1 });
    progress.answered(most + 1, 9);
    assert_eq!(progress.step(10, at(most + 1)), ProgressStep::Ask { number: most + 2 }, "revision 9 was replaced");
    progress.answered(most + 2, 10);
    assert_eq!(progress.step(10, at(most + 1)), ProgressStep::Synced);
}

#[test]
fn a_watch_learns_from_time_to_time_that_it_is_complete() {
    let mut progress = progress(0, true);
    progress.times.interval = Some(INTERVAL);
    progress.confirmed(0, extent(0));
    assert_eq!(progress.step(0, at(0)), ProgressStep::Synced);
    assert_eq!(progress.step(0, at(0)), NEVER, "nothing has come");
    progress.delivered(1, 0);
    assert_eq!(progress.step(1, at(1)), ProgressStep::Ask { number: 1 });
    progress.delivered(2, 0);
    progress.answered(1, 2);
    assert_eq!((progress.step(2, at(2)), progress.caught_up()), (NEVER, 0), "revision 2 came after the question");
    assert_eq!(progress.step(2, at(6)), ProgressStep::Ask { number: 2 });
    progress.answered(2, 2);
    assert_eq!((progress.step(2, at(6)), progress.caught_up()), (NEVER, 2));
    progress.idle(4);
    assert_eq!((progress.step(4, at(60)), progress.caught_up()), (NEVER, 4), "a heartbeat shows it too");
}

#[derive(Clone, Debug)]
enum Event {
    /// Writes a key. The bucket first removes the key's previous entry.
    Write(u64),
    /// The server sends the next message, with a count that may be wrong.
    Send(u64),
    /// The server reads the next question.
    Answer,
    /// The next packet arrives.
    Arrive,
}

fn event() -> impl Strategy<Value = Event> {
    let send = prop_oneof![Just(0), 0..9_u64].prop_map(Event::Send);
    prop_oneof![4 => (0..5_u64).prop_map(Event::Write), 4 => send, 2 => Just(Event::Answer), 5 => Just(Event::Arrive)]
}

enum Packet {
    Message { key: u64, sequence: u64, pending: u64 },
    Heartbeat { sequence: u64 },
    Answer { number: u64, last: u64 },
}

/// The watch, its consumer, and a bucket that keeps one entry of each key.
struct World {
    entries: BTreeMap<u64, u64>,
    last: u64,
    sent: u64,
    questions: VecDeque<u64>,
    network: VecDeque<Packet>,
    progress: WatchProgress,
    position: u64,
    delivered: BTreeSet<u64>,
    synced: bool,
}

impl World {
    fn write(&mut self, key: u64) {
        self.last += 1;
        self.entries.retain(|_, other| *other != key);
        self.entries.insert(self.last, key);
    }

    fn send(&mut self, pending: u64) {
        let next = self.entries.range(self.sent + 1..).next().map(|(sequence, key)| (*sequence, *key));
        let packet = if let Some((sequence, key)) = next {
            self.sent = sequence;
            Packet::Message { key, sequence, pending }
        } else {
            self.sent = self.last;
            Packet::Heartbeat { sequence: self.last }
        };
        self.network.push_back(packet);
    }

    fn answer(&mut self) {
        let last = self.entries.last_key_value().map_or(0, |(sequence, _)| *sequence);
        self.network.extend(self.questions.pop_front().map(|number| Packet::Answer { number, last }));
    }

    fn arrive(&mut self) {
        match self.network.pop_front() {
            Some(Packet::Message { key, sequence, pending }) => {
                self.position = sequence;
                self.delivered.insert(key);
                self.progress.delivered(sequence, pending);
            }
            Some(Packet::Heartbeat { sequence }) => {
                self.position = sequence;
                self.progress.idle(sequence);
            }
            Some(Packet::Answer { number, last }) => self.progress.answered(number, last),
            None => {}
        }
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Write(key) => self.write(key),
            Event::Send(pending) => self.send(pending),
            Event::Answer => self.answer(),
            Event::Arrive => self.arrive(),
        }
        match self.progress.step(self.position, at(0)) {
            ProgressStep::Ask { number } => self.questions.push_back(number),
            ProgressStep::Synced => self.synced = true,
            ProgressStep::Wait(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// With any counts, a start ends and includes all keys.
    #[test]
    fn a_start_has_all_keys(before in vec(0..5_u64, 0..3), events in vec(event(), 0..100)) {
        let mut world = World {
            entries: (1..=5).map(|sequence| (sequence, sequence - 1)).collect(),
            last: 5,
            sent: 0,
            questions: VecDeque::new(),
            network: VecDeque::new(),
            progress: progress(5, true),
            position: 0,
            delivered: BTreeSet::new(),
            synced: false,
        };
        for key in before {
                world.write(key);
            }
        world.progress.confirmed(5, extent(world.last));
        // From here on, the bucket does not change.
        let rest = [Event::Send(1), Event::Answer, Event::Arrive, Event::Arrive].into_iter().cycle().take(600);
        for event in events.into_iter().chain(rest) {
            world.apply(&event);
            if world.synced && world.progress.answers < MOST_ANSWERS {
                prop_assert_eq!(world.delivered.len(), 5);
            }
        }
        prop_assert!(world.synced);
    }
}
