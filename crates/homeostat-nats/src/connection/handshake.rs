//! Connects to an address: socket, `INFO`, TLS, `CONNECT`.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use rustls::{ClientConnection, StreamOwned};

use super::super::address::ServerAddress;
use super::super::error::{NatsError, NatsErrorKind};
use super::super::options::NatsOptions;
use super::super::protocol::{Frame, FrameParser};
use super::info::{ServerInfo, introduction};
use super::look_up::NameLookUps;
use super::tls;
use super::transport::{SocketCloser, TimedSocket, Transport, dial};

/// A connection after the server has accepted its credentials.
pub(super) struct Established {
    pub(super) transport: Transport,
    pub(super) info: ServerInfo,
    /// Bytes that followed the handshake may already be in the parser.
    pub(super) parser: FrameParser,
    pub(super) is_tls: bool,
}

/// Connects to a server within the connect timeout. Passes a handle that closes the socket to `register`.
pub(super) fn establish(
    options: &NatsOptions,
    address: &ServerAddress,
    look_ups: &NameLookUps,
    register: impl Fn(SocketCloser) -> bool,
) -> Result<Established, NatsError> {
    let deadline = options.clock.nanos().after(options.connect_timeout);
    let places = look_ups.find(address, deadline)?;
    let socket = dial(&places, &options.clock, deadline, register)?;
    let timed = TimedSocket { socket: &socket, clock: &options.clock, deadline };
    let mut parser = FrameParser::with_limits(options.limits);
    let (info, tls) = greet(options, address, timed, &mut parser)?;
    let is_tls = tls.is_some();
    let transport = transport(socket, tls, options).map_err(NatsError::connect)?;
    Ok(Established { transport, info, parser, is_tls })
}

fn transport(socket: TcpStream, tls: Option<ClientConnection>, options: &NatsOptions) -> io::Result<Transport> {
    Transport::new(socket, tls, options.write_timeout)
}

fn greet(
    options: &NatsOptions,
    address: &ServerAddress,
    mut socket: TimedSocket<'_>,
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

type Secured<'a> = StreamOwned<ClientConnection, TimedSocket<'a>>;

fn secure<'a>(
    options: &NatsOptions,
    address: &ServerAddress,
    mut socket: TimedSocket<'a>,
) -> Result<Secured<'a>, NatsError> {
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
                    NatsError::new(NatsErrorKind::Unauthorized { server: address.to_string(), reason })
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
