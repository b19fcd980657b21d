//! Connects to an address: socket, `INFO`, TLS, `CONNECT`.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::{ClientConnection, StreamOwned};

use super::super::address::ServerAddress;
use super::super::error::NatsError;
use super::super::options::NatsOptions;
use super::super::protocol::{Frame, FrameParser};
use super::info::{ServerInfo, introduction};
use super::shared::LinkShared;
use super::tls;
use super::transport::{SocketCloser, Transport};
use homeostat::base::CancellationToken;
use homeostat::rt::Nanos;
use homeostat_net::{DeadlineStream, DialError, LookUpError, NameLookUps, dial};

/// A connection after the server has accepted its credentials.
pub(super) struct Established {
    pub(super) transport: Transport,
    pub(super) info: ServerInfo,
    /// Bytes that followed the handshake may already be in the parser.
    pub(super) parser: FrameParser,
    pub(super) is_tls: bool,
}

/// Connects to a server within the connect timeout. Passes a handle that closes the socket to `register`, which returns
/// false to give up.
pub(super) fn establish(
    shared: &LinkShared,
    address: &ServerAddress,
    register: impl Fn(SocketCloser) -> bool,
) -> Result<Established, NatsError> {
    let options = &shared.options;
    let deadline = options.clock.nanos().after(options.connect_timeout);
    let places = find(&shared.look_ups, &shared.closing, address, deadline)?;
    let register = |socket: &Arc<TcpStream>| {
        let closing = || NatsError::connect("the connection is being closed");
        register(SocketCloser::of(socket)).then_some(()).ok_or_else(closing)
    };
    let socket = dial(&places, &options.clock, deadline, register).map_err(|error| match error {
        DialError::NoAddress => NatsError::connect("the name has no addresses"),
        DialError::Failed(_, error) => NatsError::connect(error),
        DialError::Refused(closing) => closing,
    })?;
    let timed = DeadlineStream::new(Arc::clone(&socket), options.clock.clone(), deadline);
    let mut parser = FrameParser::with_limits(options.limits);
    let (info, tls) = greet(options, address, timed, &mut parser)?;
    let is_tls = tls.is_some();
    let transport = transport(socket, tls, options).map_err(NatsError::connect)?;
    Ok(Established { transport, info, parser, is_tls })
}

/// Returns the addresses of a server. Blocks until the system has found them, until `deadline`, or until `closing` is
/// cancelled.
fn find(
    look_ups: &NameLookUps,
    closing: &CancellationToken,
    address: &ServerAddress,
    deadline: Nanos,
) -> Result<Vec<SocketAddr>, NatsError> {
    look_ups.find(&address.host, address.port, deadline, Some(closing)).map_err(|error| {
        let reason = match error {
            LookUpError::Stopped => return NatsError::closed(),
            LookUpError::TimedOut => "the system does not answer within the connect timeout".to_owned(),
            LookUpError::Failed(error) => error.to_string(),
        };
        NatsError::connect(format!("the name cannot be resolved: {reason}"))
    })
}

fn transport(socket: Arc<TcpStream>, tls: Option<ClientConnection>, options: &NatsOptions) -> io::Result<Transport> {
    Transport::new(socket, tls, options.write_timeout)
}

fn greet(
    options: &NatsOptions,
    address: &ServerAddress,
    mut socket: DeadlineStream,
    parser: &mut FrameParser,
) -> Result<(ServerInfo, Option<ClientConnection>), NatsError> {
    if options.tls.first {
        let mut stream = secure(options, address, socket)?;
        let info = read_info(&mut stream, parser)?;
        introduce(options, address, &mut stream, parser, &info, true)?;
        return Ok((info, Some(stream.conn)));
    }
    let info = read_info(&mut socket, parser)?;
    let wanted = options.tls.required || address.tls;
    if wanted && !info.tls_required && !info.tls_available {
        return Err(NatsError::connect("TLS is required, but the server does not offer it"));
    }
    if !wanted && !info.tls_required {
        introduce(options, address, &mut socket, parser, &info, false)?;
        return Ok((info, None));
    }
    if parser.buffered() > 0 {
        // An attacker could insert frames before the TLS handshake, and they would appear to come from the server.
        return Err(NatsError::connect("the server sends bytes between INFO and TLS"));
    }
    let mut stream = secure(options, address, socket)?;
    introduce(options, address, &mut stream, parser, &info, true)?;
    Ok((info, Some(stream.conn)))
}

type Secured = StreamOwned<ClientConnection, DeadlineStream>;

fn secure(options: &NatsOptions, address: &ServerAddress, mut socket: DeadlineStream) -> Result<Secured, NatsError> {
    let mut session = tls::session(tls::config(&options.tls)?, address.certified_name())?;
    while session.is_handshaking() {
        session
            .complete_io(&mut socket)
            .map_err(|error| NatsError::connect(format!("the TLS handshake failed: {}", tls::described(&error))))?;
    }
    Ok(StreamOwned::new(session, socket))
}

/// Sends `CONNECT` and reads the server's verdict on it.
fn introduce(
    options: &NatsOptions,
    address: &ServerAddress,
    stream: &mut (impl Read + Write),
    parser: &mut FrameParser,
    info: &ServerInfo,
    is_tls: bool,
) -> Result<(), NatsError> {
    let mut bytes = Vec::new();
    Frame::Connect(introduction(options, address, info, is_tls)?).write(&mut bytes)?;
    Frame::Ping.write(&mut bytes)?;
    // A server that refuses closes the socket, perhaps before it has read everything. Its reason can still be read.
    let written = stream.write_all(&bytes).and_then(|()| stream.flush());
    loop {
        match read_frame(stream, parser) {
            Ok(Frame::Pong) => return Ok(()),
            Ok(Frame::Ok | Frame::Info(_)) => {}
            Ok(Frame::Ping) => {
                stream.write_all(b"PONG\r\n").and_then(|()| stream.flush()).map_err(NatsError::connect)?;
            }
            Ok(Frame::Err(reason)) => {
                let lower = reason.to_ascii_lowercase();
                return Err(if lower.contains("authorization") || lower.contains("authentication") {
                    NatsError::unauthorized(address, &reason)
                } else {
                    NatsError::connect(format!("the server reports {reason:?}"))
                });
            }
            Ok(_) => return Err(NatsError::connect("the server sends messages before it accepts CONNECT")),
            Err(error) => return Err(written.err().map_or(error, NatsError::connect)),
        }
    }
}

fn read_info(stream: &mut impl Read, parser: &mut FrameParser) -> Result<ServerInfo, NatsError> {
    match read_frame(stream, parser)? {
        Frame::Info(json) => ServerInfo::parse(&json),
        Frame::Err(reason) => Err(NatsError::connect(format!("the server reports {reason:?}"))),
        _ => Err(NatsError::connect("the server does not begin with INFO")),
    }
}

fn read_frame(stream: &mut impl Read, parser: &mut FrameParser) -> Result<Frame, NatsError> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(frame) = parser.next_frame()? {
            return Ok(frame);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(NatsError::connect("the server closes the connection in the handshake")),
            Ok(count) => parser.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // With TLS 1.3, a server refuses the client's certificate only after the handshake.
            Err(error) => return Err(NatsError::connect(tls::described(&error))),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use homeostat::ManualClock;

    use super::*;

    #[expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]
    fn address(text: &str) -> ServerAddress {
        ServerAddress::parse(text).unwrap()
    }

    #[test]
    fn a_look_up_that_hangs_ends_at_the_deadline_or_with_the_connection() {
        let (clock, closing) = (ManualClock::new(), CancellationToken::new());
        let look_ups = NameLookUps::with_resolver(clock.clock(), "resolver", |_, _| {
            loop {
                std::thread::park();
            }
        });
        let second = Duration::from_secs(1);
        let find = |deadline| find(&look_ups, &closing, &address("nats://slow:1"), deadline).unwrap_err();
        std::thread::scope(|scope| {
            let deadline = clock.clock().nanos().after(second);
            let waits = scope.spawn(move || find(deadline).to_string());
            clock.wait_for_sleepers(1);
            clock.advance(second);
            let text = "the name cannot be resolved: the system does not answer within the connect timeout";
            assert_eq!(waits.join().unwrap(), text);
            let waits = scope.spawn(move || find(Nanos::NEVER));
            clock.wait_for_sleepers(1);
            closing.cancel();
            assert!(waits.join().unwrap().is_closed());
        });
    }

    #[test]
    fn a_failed_look_up_reports_its_reason() {
        let ask = |_: &str, _| Err(io::Error::other("no such host"));
        let look_ups = NameLookUps::with_resolver(homeostat::Clock::system(), "resolver", ask);
        let error = find(&look_ups, &CancellationToken::new(), &address("nats://b:7"), Nanos::NEVER).unwrap_err();
        assert_eq!(error.to_string(), "the name cannot be resolved: no such host");
    }
}
