//! Tests of round trips, arbitrary divisions of the input, and hostile input.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn subject() -> impl Strategy<Value = String> {
    vec("[a-zA-Z0-9_$*>-]{1,8}", 1..4).prop_map(|parts| parts.join("."))
}

fn headers() -> impl Strategy<Value = NatsHeaders> {
    let value = "([!-~äß]([ -~]{0,12}[!-~])?)?";
    let status = proptest::option::of((100_u16..1_000, "([A-Za-z]([ a-z]{0,12}[a-z])?)?"));
    (status, vec(("[A-Za-z-]{1,12}", value), 0..4)).prop_map(|(status, fields)| {
        let mut headers =
            status.map_or_else(NatsHeaders::new, |(code, description)| NatsHeaders::with_status(code, description));
        for (name, value) in fields {
            headers.insert(name, value);
        }
        headers
    })
}

fn message() -> impl Strategy<Value = NatsMessage> {
    (subject(), proptest::option::of(subject()), headers(), vec(any::<u8>(), 0..200))
        .prop_map(|(subject, reply, headers, payload)| NatsMessage { subject, reply, headers, payload })
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        "[ -~ä]{0,40}".prop_map(|text| Frame::Info(format!("{{{text}}}"))),
        "[ -~ä]{0,40}".prop_map(|text| Frame::Connect(format!("{{{text}}}"))),
        Just(Frame::Ping),
        Just(Frame::Pong),
        Just(Frame::Ok),
        "[ -~]{0,40}".prop_map(Frame::Err),
        message().prop_map(Frame::Publish),
        (any::<u64>(), message()).prop_map(|(sid, message)| Frame::Message { sid, message }),
        (subject(), proptest::option::of("[a-z]{1,8}"), any::<u64>())
            .prop_map(|(subject, group, sid)| Frame::Subscribe { subject, group, sid }),
        (any::<u64>(), proptest::option::of(any::<u64>())).prop_map(|(sid, max)| Frame::Unsubscribe { sid, max }),
    ]
}

/// Reads all frames from these pieces.
fn read<'a>(limits: FrameLimits, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<ProtocolError>) {
    let (mut parser, mut frames) = (FrameParser::with_limits(limits), Vec::new());
    for piece in pieces {
        parser.push(piece);
        loop {
            match parser.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(parser.next_frame(), Err(error.clone()), "an error stays");
                    assert_eq!(parser.buffered(), 0, "a failed parser keeps no bytes");
                    return (frames, Some(error));
                }
            }
        }
    }
    (frames, None)
}

fn divide<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect()
}

proptest! {
    #[test]
    fn written_frames_are_read_again_in_any_division(
        frames in vec(frame(), 0..8),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        prop_assert_eq!(read(FrameLimits::default(), divide(&bytes, &cuts)), (frames.clone(), None));
        prop_assert_eq!(read(FrameLimits::default(), bytes.chunks(1)), (frames, None));
    }

    /// Damaged input gives the same frames and the same kind of error, however it is divided. It never panics.
    #[test]
    fn damaged_input_gives_the_same_result_in_any_division(
        frames in vec(frame(), 1..6),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let limits = FrameLimits { line: 80, headers: 100, payload: 250 };
        let (whole, error) = read(limits, [&bytes[..]]);
        for (read, divided_error) in [read(limits, divide(&bytes, &cuts)), read(limits, bytes.chunks(1))] {
            prop_assert_eq!(&read, &whole);
            prop_assert_eq!(divided_error.is_some(), error.is_some());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_never_fill_the_memory(bytes in vec(any::<u8>(), 0..400)) {
        let limits = FrameLimits { line: 40, headers: 50, payload: 100 };
        let mut parser = FrameParser::with_limits(limits);
        for byte in bytes.chunks(1) {
            parser.push(byte);
            while let Ok(Some(_)) = parser.next_frame() {}
            prop_assert!(parser.buffered() <= 102);
        }
    }

    #[test]
    fn texts_that_would_end_a_line_are_not_written(
        mut message in message(),
        place in 0..4,
        at in any::<prop::sample::Index>(),
        end in prop::sample::select(vec!['\r', '\n']),
    ) {
        let break_line = |text: &mut String| {
            let places: Vec<_> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            text.insert(*at.get(&places), end);
        };
        let (mut name, mut value) = ("Name".to_owned(), "value".to_owned());
        match place {
            0 => break_line(&mut message.subject),
            1 => break_line(message.reply.get_or_insert_default()),
            2 => break_line(&mut name),
            _ => break_line(&mut value),
        }
        message.headers.insert(name, value);
        let mut out = b"before".to_vec();
        prop_assert!(Frame::Publish(message).write(&mut out).is_err());
        prop_assert_eq!(out, b"before");
    }
}

#[test]
fn each_kind_of_malformed_input_is_refused() {
    let limits = FrameLimits { line: 64, headers: 100, payload: 1_000 };
    let long = "x".repeat(66);
    let cases: [(&str, &str); 21] = [
        ("HTTP/1.1 200 OK\r\n", "unknown verb \"HTTP/1.1\""),
        ("\r\n", "unknown verb \"\""),
        ("PING\n", "a frame does not end with CR LF"),
        ("\n", "a frame does not end with CR LF"),
        ("PING now\r\n", "malformed arguments of PING: \"now\""),
        ("INFO\r\n", "malformed arguments of INFO: \"\""),
        ("INFO nothing\r\n", "malformed arguments of INFO: \"nothing\""),
        ("MSG a 1\r\n", "malformed arguments of MSG: \"a 1\""),
        ("MSG a 1 b c 5\r\n", "malformed arguments of MSG: \"a 1 b c 5\""),
        ("MSG a -1 5\r\n", "malformed arguments of MSG: \"a -1 5\""),
        ("MSG a +1 5\r\n", "malformed arguments of MSG: \"a +1 5\""),
        ("MSG a 1 5x\r\n", "malformed arguments of MSG: \"a 1 5x\""),
        ("MSG a 1 99999999999999999999999\r\n", "malformed arguments of MSG: \"a 1 99999999999999999999999\""),
        ("MSG a 1 1001\r\n", "a payload of 1001 bytes exceeds the limit of 1000 bytes"),
        ("HMSG a 1 101 200\r\n", "a header block of 101 bytes exceeds the limit of 100 bytes"),
        ("HMSG a 1 20 10\r\n", "malformed arguments of HMSG: \"a 1 20 10\""),
        ("MSG a 1 2\r\nabc\r\n", "a frame does not end with CR LF"),
        ("MSG a 1 2\r\nab\rx", "a frame does not end with CR LF"),
        ("SUB a\r\n", "malformed arguments of SUB: \"a\""),
        ("UNSUB\r\n", "malformed arguments of UNSUB: \"\""),
        (&long, "a line of 66 bytes exceeds the limit of 64 bytes"),
    ];
    for (input, expected) in cases {
        let (frames, error) = read(limits, [input.as_bytes()]);
        assert!(frames.is_empty(), "{input:?}: {frames:?}");
        assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(expected), "{input:?}");
    }
}

#[test]
fn verbs_have_any_case_and_words_any_space() {
    let (frames, error) = read(FrameLimits::default(), [&b"ping\r\nmsg\ta  1\t\tb 0\r\n\r\n-err Oops\r\n"[..]]);
    assert_eq!(error, None);
    let message = NatsMessage { subject: "a".into(), reply: Some("b".into()), ..NatsMessage::default() };
    assert_eq!(frames, [Frame::Ping, Frame::Message { sid: 1, message }, Frame::Err("Oops".into())]);
}

/// Publishers can send any bytes as headers. Subscribers must keep their connection.
#[test]
fn malformed_headers_of_publishers_do_not_fail() {
    for (block, expected) in [
        ("", ""),
        ("HTTP/1.1\r\nA: b\r\n\r\n", ""),
        ("NATS/1.0\r\nno colon\r\n: no name\r\nA:b\r\n\r\n", "A=b"),
        ("NATS/1.0\r\nA:  b c \r\nA: d", "A=b c,A=d"),
        ("NATS/1.0 4x4\r\nA: b\r\n\r\n", "A=b"),
        ("NATS/1.0 40", ""),
    ] {
        let headers = NatsHeaders::parse(block.as_bytes());
        let fields: Vec<_> = headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!((fields.join(",").as_str(), headers.status()), (expected, None), "{block:?}");
    }
    assert_eq!(NatsHeaders::parse(b"NATS/1.0\r\nA: \xff\r\n\r\n").get("A"), Some("\u{fffd}"));
    let status = NatsHeaders::parse(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 3\r\n\r\n");
    assert_eq!((status.status(), status.description()), (Some(100), "Idle Heartbeat"));
    assert_eq!(status.get("Nats-Last-Consumer"), Some("3"));
}
