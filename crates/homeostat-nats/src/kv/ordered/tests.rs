//! An ordered consumer against a model: a stream, its consumer, and a network that loses messages.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const HEARTBEAT: Duration = Duration::from_secs(5);

fn times() -> OrderedTimes {
    OrderedTimes {
        heartbeat: HEARTBEAT,
        answer: HEARTBEAT,
        marker_life: Duration::from_secs(900),
        backoff: Exponential::new(Duration::from_millis(100), Duration::from_secs(30)).jitter(0.0),
    }
}

fn facts(created: &str, first_seq: u64, last_seq: u64) -> StreamFacts {
    StreamFacts { created: created.to_owned(), first_seq, last_seq }
}

fn at(seconds: u64) -> Nanos {
    Nanos::ZERO.after(Duration::from_secs(seconds))
}

/// Confirms the wanted consumer.
fn confirm(state: &mut OrderedState, now: Nanos, position: u64, facts: &StreamFacts) -> OrderedStep {
    let OrderedStep::Create { serial, .. } = state.step(now, now, 0) else { panic!("no consumer is wanted") };
    state.created(serial, position, 0);
    assert_eq!(state.step(now, now, 0), OrderedStep::Inspect { serial });
    state.inspected(serial, facts, now);
    state.step(now, now, 0)
}

#[test]
fn a_gap_leads_to_a_consumer_after_the_last_position() {
    let mut state = OrderedState::new(StartAt::LastOfEach, "a", times());
    assert_eq!(confirm(&mut state, at(0), 0, &facts("a", 1, 9)), OrderedStep::Wait(at(12).after(HEARTBEAT / 10)));
    assert_eq!(state.message(1, 1, 3, at(1), 0), MessageAction::Deliver);
    assert_eq!(state.message(1, 1, 3, at(1), 0), MessageAction::Ignore, "a repetition");
    assert_eq!(state.message(9, 2, 4, at(1), 0), MessageAction::Ignore, "another consumer");
    assert_eq!(state.message(1, 3, 5, at(1), 0), MessageAction::Ignore, "number 2 is missing");
    assert_eq!(state.step(at(1), at(1), 0), OrderedStep::Wait(at(1).after(Duration::from_millis(100))));
    assert_eq!(state.step(at(2), at(2), 0), OrderedStep::Create { serial: 2, start: StartAt::After(3) });
    assert_eq!(state.message(2, 1, 4, at(2), 0), MessageAction::Hold, "the consumer is not confirmed");
}

#[test]
fn a_stuck_consumer_is_replaced_by_one_after_the_position() {
    let mut state = OrderedState::new(StartAt::LastOfEach, "a", times());
    confirm(&mut state, at(0), 0, &facts("a", 1, 9));
    assert_eq!(state.message(1, 1, 3, at(1), 0), MessageAction::Deliver);
    assert!(state.heartbeat(1, 1, 5, at(2), 0));
    state.stuck(9, at(2), 0);
    assert!(matches!(state.step(at(2), at(2), 0), OrderedStep::Wait(until) if until > at(3)), "another consumer");
    state.stuck(1, at(2), 0);
    assert_eq!(state.step(at(2), at(2), 0), OrderedStep::Wait(at(2).after(Duration::from_millis(100))));
    let OrderedStep::Wait(_) = confirm(&mut state, at(3), 5, &facts("a", 8, 9)) else {
        panic!("the stream begins later")
    };
    assert_eq!((state.serial(), state.starts_after()), (2, 5));
    // After a time without a consumer, it is gone.
    state.reconnected(at(4));
    assert!(matches!(confirm(&mut state, at(4), 5, &facts("a", 8, 9)), OrderedStep::Gone(_)));
}

/// A server can take a message from the stream, report that it has passed it, and send it later.
#[test]
fn a_position_ahead_of_the_messages_delays_none_of_them() {
    let mut state = OrderedState::new(StartAt::LastOfEach, "a", times());
    confirm(&mut state, at(0), 9, &facts("a", 1, 9));
    assert_eq!(state.message(1, 1, 9, at(1), 0), MessageAction::Deliver);
    state.heartbeat(1, 1, 12, at(1), 0);
    assert_eq!(state.message(1, 2, 12, at(1), 0), MessageAction::Deliver);
    assert_eq!(state.position(), Some((12, "a")));
}

/// Servers before version 2.11 start at the end of their copy if a consumer is to start beyond it.
#[test]
fn a_copy_that_lags_behind_repeats_nothing() {
    let mut state = OrderedState::new(StartAt::After(8), "a", times());
    confirm(&mut state, at(0), 0, &facts("a", 1, 9));
    assert_eq!(state.starts_after(), 8);
    assert_eq!(state.message(1, 1, 7, at(1), 0), MessageAction::Ignore);
    assert_eq!(state.message(1, 2, 8, at(1), 0), MessageAction::Ignore);
    assert_eq!(state.message(1, 3, 9, at(1), 0), MessageAction::Deliver);
    assert_eq!(state.position(), Some((9, "a")));
}

/// Servers before version 2.9.19 can send a message twice.
#[test]
fn a_message_that_comes_twice_is_delivered_once() {
    let mut state = OrderedState::new(StartAt::LastOfEach, "a", times());
    confirm(&mut state, at(0), 0, &facts("a", 1, 9));
    assert_eq!(state.message(1, 1, 9, at(1), 0), MessageAction::Deliver);
    assert_eq!(state.message(1, 2, 9, at(1), 0), MessageAction::Ignore);
    assert_eq!(state.message(1, 3, 10, at(1), 0), MessageAction::Deliver);
}

#[test]
fn missed_heartbeats_lead_to_new_consumers_ever_more_rarely() {
    let mut state = OrderedState::new(StartAt::All, "a", times());
    confirm(&mut state, at(0), 0, &facts("a", 1, 9));
    state.heartbeat(1, 0, 7, at(10), 0);
    assert_eq!(state.position(), Some((7, "a")), "a heartbeat shows the skipped sequences");
    let mut now = at(10);
    let mut created = Vec::new();
    for _ in 0..14 {
        match state.step(now, now.min(at(10)), 0) {
            OrderedStep::Wait(until) => now = until,
            OrderedStep::Create { serial, start } => {
                assert_eq!(start, StartAt::After(7));
                created.push(now.since(Nanos::ZERO).as_millis());
                state.refused(serial, now, 0);
            }
            step => panic!("{step:?}"),
        }
    }
    assert_eq!(created, [22_600, 22_800, 23_200, 24_000, 25_600, 28_800]);
}

/// Without the comparison, messages of the old stream would count as messages of the new one.
#[test]
fn a_stream_that_is_replaced_before_the_first_confirmation_is_gone() {
    let mut state = OrderedState::new(StartAt::All, "a", times());
    assert!(matches!(confirm(&mut state, at(0), 0, &facts("b", 1, 9)), OrderedStep::Gone(_)));
}

#[test]
fn a_heartbeat_shows_that_the_last_messages_are_missing() {
    let mut state = OrderedState::new(StartAt::All, "a", times());
    confirm(&mut state, at(0), 0, &facts("a", 1, 9));
    assert_eq!(state.message(1, 1, 1, at(1), 0), MessageAction::Deliver);
    state.heartbeat(1, 0, 9, at(1), 0);
    state.heartbeat(2, 5, 9, at(1), 0);
    assert_eq!(state.position(), Some((1, "a")), "old heartbeats, and those of other consumers, count for nothing");
    state.heartbeat(1, 3, 3, at(1), 0);
    assert_eq!(state.step(at(2), at(2), 0), OrderedStep::Create { serial: 2, start: StartAt::After(1) });
}

#[test]
fn a_reconnect_ends_the_backoff() {
    let mut state = OrderedState::new(StartAt::All, "a", times());
    let mut now = at(0);
    for serial in 1..=8 {
        assert!(matches!(state.step(now, now, 0), OrderedStep::Create { .. }));
        state.refused(serial, now, 0);
        let OrderedStep::Wait(until) = state.step(now, now, 0) else { panic!("no backoff") };
        now = until;
    }
    state.reconnected(now);
    assert_eq!(state.step(now, now, 0), OrderedStep::Create { serial: 9, start: StartAt::All });
    state.refused(9, now, 0);
    assert_eq!(state.step(now, now, 0), OrderedStep::Wait(now.after(Duration::from_millis(100))));
}

#[test]
fn possibly_missed_changes_are_reported() {
    let gone = |created: &str, first, last, seconds| {
        let mut state = OrderedState::new(StartAt::LastOfEach, "a", times());
        confirm(&mut state, at(0), 5, &facts("a", 1, 5));
        assert_eq!(state.message(1, 1, 8, at(1), 0), MessageAction::Deliver);
        state.reconnected(at(seconds));
        match confirm(&mut state, at(seconds), 0, &facts(created, first, last)) {
            OrderedStep::Gone(reason) => Some(reason),
            _ => None,
        }
    };
    assert_eq!(gone("a", 1, 8, 2), None);
    assert_eq!(gone("a", 9, 8, 2), None, "an empty stream that ends at the position");
    assert_eq!(gone("a", 9, 20, 901), None, "the limits");
    let text = |created, first, last, seconds| gone(created, first, last, seconds).unwrap();
    assert_eq!(text("b", 1, 20, 2), "its stream of a was replaced by one of b");
    assert_eq!(text("a", 1, 7, 2), "its stream ends at revision 7, before revision 8, which was read");
    assert_eq!(text("a", 10, 20, 2), "its stream begins at revision 10, but only revision 8 was read");
    let late = "its last complete state is 901s old, but delete markers are only sure to stay for 900s";
    assert_eq!(text("a", 1, 20, 902), late);
    let mut resumed = OrderedState::new(StartAt::After(3), "old", times());
    assert!(matches!(confirm(&mut resumed, at(0), 3, &facts("new", 1, 9)), OrderedStep::Gone(_)));
}

/// The reader has stalled and then reads an old message. Since that message, a marker may have been sent, lost and
/// removed.
#[test]
fn an_old_message_that_is_read_late_proves_nothing_about_the_time_since() {
    for (read_at, is_gone) in [(899, false), (902, true)] {
        let mut state = OrderedState::new(StartAt::LastOfEach, "a", times());
        confirm(&mut state, at(0), 5, &facts("a", 1, 5));
        assert_eq!(state.message(1, 1, 8, at(1), 0), MessageAction::Deliver);
        state.reconnected(at(read_at));
        let step = confirm(&mut state, at(read_at), 0, &facts("a", 1, 20));
        assert_eq!(matches!(step, OrderedStep::Gone(_)), is_gone, "{step:?}");
    }
    // A held message is older than the confirmation.
    let mut state = OrderedState::new(StartAt::LastOfEach, "a", times());
    confirm(&mut state, at(800), 5, &facts("a", 1, 5));
    assert_eq!(state.message(1, 1, 9, at(2), 0), MessageAction::Deliver);
    state.reconnected(at(1_600));
    let step = confirm(&mut state, at(1_600), 0, &facts("a", 1, 20));
    assert!(!matches!(step, OrderedStep::Gone(_)), "{step:?}");
}

#[test]
fn a_watch_that_has_read_nothing_begins_again() {
    let mut state = OrderedState::new(StartAt::LastOfEach, "a", times());
    confirm(&mut state, at(0), 0, &facts("a", 1, 0));
    state.reconnected(at(1));
    assert_eq!(state.step(at(1), at(1), 0), OrderedStep::Create { serial: 2, start: StartAt::LastOfEach });
    state.created(1, 99, 0);
    assert!(matches!(state.step(at(1), at(1), 0), OrderedStep::Wait(_)), "an old answer counts for nothing");
}

#[derive(Clone, Debug)]
enum Event {
    Append,
    /// Removes messages from the start of the stream.
    Trim(u64),
    /// Deletes the stream and creates another one that ends here.
    Recreate(u64),
    /// The network delivers the next packet.
    Deliver,
    /// The network loses the next packet.
    Lose,
    Heartbeat,
    /// All packets and the consumer are lost.
    Reconnect,
    /// The server loses the consumer silently.
    LoseConsumer,
    Elapse(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Append),
        1 => (1..4_u64).prop_map(Event::Trim),
        1 => (0..12_u64).prop_map(Event::Recreate),
        12 => Just(Event::Deliver),
        2 => Just(Event::Lose),
        2 => Just(Event::Heartbeat),
        1 => Just(Event::Reconnect),
        1 => Just(Event::LoseConsumer),
        3 => (0..20_u64).prop_map(Event::Elapse),
    ]
}

#[derive(Debug)]
enum Packet {
    Created { serial: u64, position: u64, pending: u64 },
    Facts { serial: u64, facts: StreamFacts },
    Message { serial: u64, number: u64, sequence: u64 },
    Heartbeat { serial: u64, number: u64, sequence: u64 },
}

/// A server with one stream and at most one consumer, and the network to the client.
struct World {
    created: u64,
    first: u64,
    last: u64,
    /// Serial, last number, last sequence.
    consumer: Option<(u64, u64, u64)>,
    network: VecDeque<Packet>,
    now: Nanos,
    arrived: Nanos,
    state: OrderedState,
    /// The stream and the sequence of each delivery.
    delivered: Vec<(u64, u64)>,
    /// The stream and the sequence of each removed message.
    trimmed: BTreeSet<(u64, u64)>,
    held: VecDeque<(u64, u64, u64)>,
    consumers: u64,
    gone: bool,
}

impl World {
    fn new() -> Self {
        Self {
            created: 0,
            first: 1,
            last: 0,
            consumer: None,
            network: VecDeque::new(),
            now: Nanos::ZERO,
            arrived: Nanos::ZERO,
            state: OrderedState::new(StartAt::All, "0", times()),
            delivered: Vec::new(),
            trimmed: BTreeSet::new(),
            held: VecDeque::new(),
            consumers: 0,
            gone: false,
        }
    }

    fn send_new(&mut self) {
        if let Some((serial, number, sequence)) = &mut self.consumer {
            for next in (*sequence + 1).max(self.first)..=self.last {
                *number += 1;
                self.network.push_back(Packet::Message { serial: *serial, number: *number, sequence: next });
            }
            *sequence = self.last.max(*sequence);
        }
    }

    fn step(&mut self) {
        for _ in 0..10 {
            match self.state.step(self.now, self.arrived, 0) {
                OrderedStep::Create { serial, start } => {
                    self.consumers += 1;
                    let position = if let StartAt::After(position) = start { position } else { self.first - 1 };
                    let pending = self.last.saturating_sub(position);
                    self.consumer = Some((serial, 0, position));
                    self.network.push_back(Packet::Created { serial, position, pending });
                    self.send_new();
                }
                OrderedStep::Inspect { serial } => {
                    let facts = facts(&self.created.to_string(), self.first, self.last);
                    self.network.push_back(Packet::Facts { serial, facts });
                }
                OrderedStep::Wait(_) => break,
                OrderedStep::Gone(_) => {
                    self.gone = true;
                    break;
                }
            }
        }
    }

    fn message(&mut self, serial: u64, number: u64, sequence: u64) {
        match self.state.message(serial, number, sequence, self.now, 0) {
            MessageAction::Deliver => self.delivered.push((self.created, sequence)),
            MessageAction::Hold => self.held.push_back((serial, number, sequence)),
            MessageAction::Ignore => {}
        }
    }

    fn deliver(&mut self) {
        let Some(packet) = self.network.pop_front() else { return };
        self.arrived = self.now;
        match packet {
            Packet::Created { serial, position, pending } => self.state.created(serial, position, pending),
            Packet::Facts { serial, facts } => {
                if self.state.inspected(serial, &facts, self.now).is_some() {
                    for (serial, number, sequence) in std::mem::take(&mut self.held) {
                        self.message(serial, number, sequence);
                    }
                }
            }
            Packet::Message { serial, number, sequence } => self.message(serial, number, sequence),
            Packet::Heartbeat { serial, number, sequence } => {
                if self.state.is_confirming() {
                    return;
                }
                self.state.heartbeat(serial, number, sequence, self.now, 0);
            }
        }
    }

    fn heartbeat(&mut self) {
        if let Some((serial, number, sequence)) = self.consumer {
            self.network.push_back(Packet::Heartbeat { serial, number, sequence });
        }
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Append => {
                self.last += 1;
                self.send_new();
            }
            Event::Trim(count) => {
                let end = (self.first + count).min(self.last + 1);
                self.trimmed.extend((self.first..end).map(|sequence| (self.created, sequence)));
                self.first = end;
            }
            Event::Recreate(last) => {
                (self.created, self.first, self.last) = (self.created + 1, 1, last);
                self.consumer = None;
            }
            Event::Deliver => self.deliver(),
            Event::Lose => drop(self.network.pop_front()),
            Event::Heartbeat => self.heartbeat(),
            Event::Reconnect => {
                self.network.clear();
                self.consumer = None;
                self.state.reconnected(self.now);
            }
            Event::LoseConsumer => self.consumer = None,
            Event::Elapse(seconds) => self.now = self.now.after(Duration::from_secs(seconds)),
        }
        if !self.gone {
            self.step();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The deliveries are complete and in order, or the watch is gone.
    #[test]
    fn nothing_is_lost_without_a_word(events in vec(event(), 0..150)) {
        let mut world = World::new();
        world.step();
        for event in &events {
            world.apply(event);
        }
        // The network works again. In each round, a heartbeat is sent, all packets arrive, and some time passes.
        for _ in 0..60 {
            world.heartbeat();
            while !world.network.is_empty() {
                world.apply(&Event::Deliver);
            }
            world.apply(&Event::Elapse(2));
        }
        prop_assert!(world.consumers <= 1 + u64::try_from(events.len()).unwrap(), "one consumer for each fault");
        let streams: BTreeSet<_> = world.delivered.iter().map(|(stream, _)| *stream).collect();
        let mut expected = None;
        for (stream, sequence) in &world.delivered {
            if let Some(expected) = expected {
                prop_assert!(*sequence >= expected, "in order, and once");
                for missing in expected..*sequence {
                    prop_assert!(world.trimmed.contains(&(*stream, missing)), "{} is missing", missing);
                }
            }
            expected = Some(sequence + 1);
        }
        if !world.gone {
            let last = world.delivered.last().map_or(0, |(_, sequence)| *sequence);
            for missing in (last + 1).max(world.first)..=world.last {
                prop_assert!(false, "{} was never delivered, and the watch is not gone", missing);
            }
            prop_assert!(streams.len() <= 1, "a watch reads one stream");
            let position = world.state.position().unwrap();
            prop_assert_eq!(position.1, world.created.to_string(), "the stream is the present one");
        }
    }
}
