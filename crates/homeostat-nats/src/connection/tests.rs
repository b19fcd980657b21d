//! The state of a connection against a model of a server.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::error::{NatsError, NatsErrorKind};
use super::super::protocol::{Frame, FrameParser, NatsHeaders, NatsMessage};
use super::state::{Blocked, LinkPhase, LinkState, MOST_ASKED, Notice, Outgoing};

static NO_HEADERS: NatsHeaders = NatsHeaders::new();

fn outgoing(subject: &str) -> Outgoing<'_> {
    Outgoing { subject, reply: None, headers: &NO_HEADERS, payload: b"x" }
}

fn message(subject: &str, reply: Option<String>) -> NatsMessage {
    NatsMessage { subject: subject.to_owned(), reply, headers: NatsHeaders::new(), payload: b"x".to_vec() }
}

/// A step of the test: a call by the program, or an event in the network.
#[derive(Clone, Debug)]
enum Event {
    Publish(u8),
    Request(u8),
    Forget(prop::sample::Index),
    Subscribe(u8),
    Unsubscribe(prop::sample::Index),
    Flush,
    KeepAlive,
    /// The server reads the written bytes and answers this many pending frames.
    Serve(usize),
    Connect,
    Disconnect,
    Close,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..4_u8).prop_map(Event::Publish),
        4 => (0..4_u8).prop_map(Event::Request),
        1 => any::<prop::sample::Index>().prop_map(Event::Forget),
        3 => (0..4_u8).prop_map(Event::Subscribe),
        2 => any::<prop::sample::Index>().prop_map(Event::Unsubscribe),
        2 => Just(Event::Flush),
        1 => Just(Event::KeepAlive),
        6 => (0..10_usize).prop_map(Event::Serve),
        4 => Just(Event::Connect),
        2 => Just(Event::Disconnect),
        1 => Just(Event::Close),
    ]
}

/// A server that echoes publications to subscribers, and answers requests and pings.
#[derive(Default)]
struct Server {
    parser: FrameParser,
    subscriptions: BTreeMap<u64, String>,
    answers: Vec<Frame>,
}

impl Server {
    #[expect(clippy::unwrap_used, clippy::expect_used, reason = "a client that breaks the protocol fails the test")]
    fn read(&mut self, bytes: &[u8]) {
        self.parser.push(bytes);
        while let Some(frame) = self.parser.next_frame().unwrap() {
            match frame {
                Frame::Subscribe { subject, sid, .. } => {
                    assert!(self.subscriptions.insert(sid, subject).is_none(), "a number is used once a connection");
                }
                Frame::Unsubscribe { sid, .. } => {
                    assert!(self.subscriptions.remove(&sid).is_some(), "only known numbers end");
                }
                Frame::Publish(NatsMessage { subject, reply: Some(reply), .. }) => {
                    let inbox = self.subscriptions.get(&1).expect("the inbox is subscribed before the first request");
                    assert!(reply.starts_with(inbox.trim_end_matches('*')));
                    self.answers.push(Frame::Message { sid: 1, message: message(&reply, Some(subject)) });
                }
                Frame::Publish(publication) => {
                    let to = self.subscriptions.iter().filter(|(_, subject)| **subject == publication.subject);
                    let told = to.map(|(sid, _)| Frame::Message { sid: *sid, message: publication.clone() });
                    self.answers.extend(told.collect::<Vec<_>>());
                }
                Frame::Ping => self.answers.push(Frame::Pong),
                other => panic!("a client does not send {other:?}"),
            }
        }
    }
}

/// The waiting receivers by number.
#[derive(Default)]
struct World {
    next: u32,
    subscriptions: BTreeMap<u32, (u64, String)>,
    requests: BTreeMap<u32, u64>,
    flushes: BTreeSet<u32>,
}

impl World {
    fn receiver(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Checks that each notice is expected, and removes the calls that have ended.
    fn take(&mut self, notices: Vec<Notice<u32>>) {
        for notice in notices {
            match notice {
                Notice::Message(to, received) => match self.subscriptions.get(&to) {
                    Some((_, subject)) => assert_eq!(&received.subject, subject),
                    None => assert!(self.requests.remove(&to).is_some(), "{to} gets an answer once"),
                },
                Notice::Flushed(to) => assert!(self.flushes.remove(&to), "{to} is flushed once"),
                Notice::Restored(to, _) => assert!(self.subscriptions.contains_key(&to)),
                Notice::Ended(to, error) => {
                    let known = self.requests.remove(&to).is_some()
                        || self.flushes.remove(&to)
                        || (error.is_closed() && self.subscriptions.remove(&to).is_some());
                    assert!(known, "{to} ends once: {error}");
                }
                Notice::Refused(error) => panic!("the server refuses nothing: {error}"),
            }
        }
    }
}

proptest! {
    /// Each request and flush ends exactly once, and the server reads only complete, valid frames.
    #[test]
    fn calls_end_once_and_servers_see_valid_frames(events in vec(event(), 0..60)) {
        let mut state = LinkState::new("_INBOX.me", 10_000);
        let (mut world, mut server) = (World::default(), None::<Server>);
        let mut closed = false;
        for event in events {
            let mut notices = Vec::new();
            let is_open = server.is_some() && !closed;
            let expected = |result: &Result<(), Blocked>| match result {
                Ok(()) => is_open,
                Err(Blocked::NotNow) => !is_open && !closed,
                Err(Blocked::Failed(error)) => closed && error.is_closed(),
            };
            match event {
                Event::Publish(subject) => {
                    let result = state.publish(outgoing(&format!("s{subject}")));
                    prop_assert!(expected(&result), "{:?}", result);
                }
                Event::Request(subject) => {
                    let receiver = world.receiver();
                    let result = state.request(outgoing(&format!("r{subject}")), receiver).map(|number| {
                        world.requests.insert(receiver, number);
                    });
                    prop_assert!(expected(&result), "{:?}", result);
                }
                Event::Forget(at) if !world.requests.is_empty() => {
                    let receiver = *at.get(&world.requests.keys().copied().collect::<Vec<_>>());
                    state.forget(world.requests.remove(&receiver).unwrap());
                }
                Event::Subscribe(subject) => {
                    let (receiver, subject) = (world.receiver(), format!("s{subject}"));
                    match state.subscribe(&subject, None, receiver) {
                        Ok(sid) => drop(world.subscriptions.insert(receiver, (sid, subject))),
                        Err(error) => prop_assert!(closed && error.is_closed()),
                    }
                }
                Event::Unsubscribe(at) if !world.subscriptions.is_empty() => {
                    let receiver = *at.get(&world.subscriptions.keys().copied().collect::<Vec<_>>());
                    state.unsubscribe(world.subscriptions.remove(&receiver).unwrap().0);
                }
                Event::Flush => {
                    let receiver = world.receiver();
                    let result = state.flush(receiver);
                    prop_assert!(expected(&result), "{:?}", result);
                    if result.is_ok() {
                        world.flushes.insert(receiver);
                    }
                }
                Event::KeepAlive => {
                    let _ = state.keep_alive(1_000);
                }
                Event::Serve(count) => {
                    if let Some(server) = &mut server {
                        let mut bytes = Vec::new();
                        state.take_output(&mut bytes);
                        server.read(&bytes);
                        let count = count.min(server.answers.len());
                        for frame in server.answers.drain(..count) {
                            state.received(frame, &mut notices).unwrap();
                        }
                    }
                }
                Event::Connect if server.is_none() && !closed => {
                    state.connected("one", 1_000, &mut notices);
                    server = Some(Server::default());
                }
                Event::Disconnect if is_open => {
                    state.disconnected("cut", &mut notices);
                    server = None;
                    world.take(std::mem::take(&mut notices));
                    prop_assert!(world.requests.is_empty() && world.flushes.is_empty(), "every call has ended");
                }
                Event::Close => {
                    state.close(&NatsError::closed(), &mut notices);
                    (closed, server) = (true, None);
                    world.take(std::mem::take(&mut notices));
                    prop_assert!(world.requests.is_empty() && world.flushes.is_empty());
                    prop_assert!(world.subscriptions.is_empty());
                }
                _ => {}
            }
            world.take(notices);
            prop_assert_eq!(state.requests(), world.requests.len());
            prop_assert_eq!(state.subscriptions(), world.subscriptions.len());
        }
        // A server that reads everything knows exactly the program's subscriptions.
        if let Some(mut server) = server {
            let mut bytes = Vec::new();
            state.take_output(&mut bytes);
            server.read(&bytes);
            let known: BTreeMap<_, _> = server.subscriptions.into_iter().filter(|(sid, _)| *sid != 1).collect();
            prop_assert_eq!(known, world.subscriptions.into_values().collect::<BTreeMap<_, _>>());
        }
    }
}

fn connected() -> LinkState<&'static str> {
    let mut state = LinkState::new("_INBOX.me", 1_000);
    state.connected("one", 100, &mut Vec::new());
    state
}

fn received(state: &mut LinkState<&'static str>, frame: Frame) -> Result<Vec<String>, String> {
    let mut notices = Vec::new();
    state.received(frame, &mut notices)?;
    let shown = notices.into_iter().map(|notice| match notice {
        Notice::Message(to, message) => format!("{to}: {}", message.subject),
        Notice::Flushed(to) => format!("{to}: flushed"),
        Notice::Restored(to, _) => format!("{to}: restored"),
        Notice::Ended(to, error) => format!("{to}: {error}"),
        Notice::Refused(error) => error.to_string(),
    });
    Ok(shown.collect())
}

#[test]
fn an_unheard_request_fails_with_its_subject() {
    let mut state = connected();
    let number = state.request(outgoing("a.b"), "caller").unwrap();
    let headers = NatsHeaders::with_status(503, "");
    let subject = format!("_INBOX.me.{number}");
    let answer = NatsMessage { subject, headers, ..NatsMessage::default() };
    let notices = received(&mut state, Frame::Message { sid: 1, message: answer.clone() }).unwrap();
    assert_eq!(notices, ["caller: nobody listens on subject \"a.b\""]);
    assert_eq!(
        received(&mut state, Frame::Message { sid: 1, message: answer }),
        Ok(vec![]),
        "a second answer is ignored"
    );
}

#[test]
fn a_refused_subject_ends_its_calls_and_no_others() {
    let mut state = connected();
    state.request(outgoing("secret"), "refused").unwrap();
    state.request(outgoing("open"), "other").unwrap();
    state.subscribe("hidden.>", None, "reader").unwrap();
    state.subscribe("seen.>", None, "other reader").unwrap();
    let publish = Frame::Err("Permissions Violation for Publish to \"secret\"".into());
    let subscribe = Frame::Err("Permissions Violation for Subscription to \"hidden.>\"".into());
    let text = "the server refuses a subject: Permissions Violation for";
    assert_eq!(received(&mut state, publish), Ok(vec![format!("refused: {text} Publish to \"secret\"")]));
    assert_eq!(received(&mut state, subscribe), Ok(vec![format!("reader: {text} Subscription to \"hidden.>\"")]));
    assert_eq!((state.requests(), state.subscriptions()), (1, 1));
}

#[test]
fn a_subject_that_names_a_subscription_is_refused_as_a_publication() {
    let mut state = connected();
    state.request(outgoing("core.Subscription"), "caller").unwrap();
    let refused = Frame::Err("Permissions Violation for Publish to \"core.Subscription\"".into());
    let text = "the server refuses a subject: Permissions Violation for Publish to \"core.Subscription\"";
    assert_eq!(received(&mut state, refused), Ok(vec![format!("caller: {text}")]));
}

#[test]
fn a_refused_publication_is_answered_to_the_subscription_of_its_reply() {
    let mut state = connected();
    state.subscribe("_INBOX.w.a.*", None, "watch").unwrap();
    state.ask(Outgoing { reply: Some("_INBOX.w.a.c1"), ..outgoing("create") }).unwrap();
    state.ask(Outgoing { reply: Some("_INBOX.w.a.i1"), ..outgoing("info") }).unwrap();
    let refusal = |subject| format!("Permissions Violation for Publish to \"{subject}\"");
    let refused = |state: &mut _, subject| received(state, Frame::Err(refusal(subject))).unwrap();
    assert_eq!(refused(&mut state, "create"), ["watch: _INBOX.w.a.c1"]);
    let unknown = |subject| [format!("the server refuses a subject: {}", refusal(subject))];
    assert_eq!(refused(&mut state, "create"), unknown("create"), "each publication is answered once");
    assert_eq!(refused(&mut state, "other"), unknown("other"));
    for _ in 0..MOST_ASKED {
        state.ask(Outgoing { reply: Some("_INBOX.w.a.d1"), ..outgoing("delete") }).unwrap();
        state.take_output(&mut Vec::new());
    }
    assert_eq!(refused(&mut state, "info"), unknown("info"), "the oldest ones are forgotten");
    assert_eq!(refused(&mut state, "delete").len(), MOST_ASKED);
}

#[test]
fn a_refused_inbox_fails_all_requests_until_the_next_connection() {
    let mut state = connected();
    state.request(outgoing("a"), "first").unwrap();
    let text = "Permissions Violation for Subscription to \"_INBOX.me.*\"";
    let shown = format!("the server refuses a subject: {text}");
    let notices = received(&mut state, Frame::Err(text.into()));
    assert_eq!(notices, Ok(vec![format!("first: {shown}"), shown.clone()]));
    let Err(Blocked::Failed(error)) = state.request(outgoing("a"), "second") else { panic!("not refused") };
    assert!(error.kind() == NatsErrorKind::PermissionsViolation && error.to_string() == shown, "{error}");
    state.disconnected("cut", &mut Vec::new());
    assert!(matches!(state.request(outgoing("a"), "third"), Err(Blocked::NotNow)));
    state.connected("one", 100, &mut Vec::new());
    state.request(outgoing("a"), "fourth").unwrap();
}

#[test]
fn other_errors_and_frames_of_clients_end_the_connection() {
    for (frame, reason) in [
        (Frame::Err("Stale Connection".into()), "the server reports \"Stale Connection\""),
        (Frame::Err("Maximum Payload Violation".into()), "the server reports \"Maximum Payload Violation\""),
        (Frame::Pong, "the server answers a ping that was not sent"),
        (Frame::Connect("{}".into()), "the server sends a frame of a client: CONNECT"),
        (Frame::Publish(message("a", None)), "the server sends a frame of a client: PUB"),
    ] {
        assert_eq!(received(&mut connected(), frame), Err(reason.to_owned()));
    }
}

#[test]
fn unanswered_pings_end_the_connection() {
    let mut state = connected();
    assert_eq!((state.keep_alive(2), state.keep_alive(2)), (Ok(()), Ok(())));
    assert_eq!(state.keep_alive(2), Err("2 pings have no answer".to_owned()));
    received(&mut state, Frame::Pong).unwrap();
    assert_eq!(state.keep_alive(2), Ok(()));
    state.connected("two", 100, &mut Vec::new());
    assert_eq!((state.keep_alive(1), state.keep_alive(1).is_err()), (Ok(()), true));
}

#[test]
fn large_messages_are_refused_with_both_sizes_and_a_full_buffer_blocks() {
    let mut state = connected();
    let headers = NatsHeaders::new();
    let error = state.publish(Outgoing { subject: "a", reply: None, headers: &headers, payload: &[0; 101] });
    let Err(Blocked::Failed(error)) = error else { panic!("not refused") };
    assert_eq!(error.kind(), NatsErrorKind::TooLarge);
    let text = "the message for subject \"a\" has 101 bytes, but max_payload of the server allows 100 bytes";
    assert_eq!(error.to_string(), text);
    let mut sent = 0;
    while state.publish(Outgoing { subject: "a", reply: None, headers: &headers, payload: &[0; 100] }).is_ok() {
        sent += 1;
    }
    assert!((8..=10).contains(&sent), "{sent} messages fit into 1000 bytes");
    state.take_output(&mut Vec::new());
    state.publish(outgoing("a")).unwrap();
    assert!(matches!(state.phase(), LinkPhase::Connected));
}
