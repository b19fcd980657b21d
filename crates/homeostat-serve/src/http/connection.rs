//! One connection: reads requests and sends replies until either side ends it.

use std::io;
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};

use super::counts::increment;
use super::date::http_date;
use super::head::{RequestHead, UnreadableRequest};
use super::memory::{BodyReservation, Overload, ReplyReservation};
use super::message::{PART, PartsBody, Reply, ReplyBody, ReplyStream, StreamBody};
use super::parser::RequestParser;
use super::parts::{GZIP_MEMORY, PartHead, PartSender, compresses};
use super::registry::{ConnectionPhase, ConnectionSlot};
use super::reply::{ReplyFrame, StreamWriter, full_reply, stream_head};
use super::request::IncomingRequest;
use super::service::{PeerInfo, RefusedRequest};
use super::shared::HttpShared;
use super::transport::ServerTransport;
use crate::access::UserInfo;
use homeostat::rt::{AutoResetEvent, Nanos, panic_message};

/// How many bytes one call reads.
const PIECE: usize = 8 << 10;

/// The next step of a connection after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterRequest {
    KeepOpen,
    /// The connection ends once the client has read the last reply.
    Linger,
    /// The connection has ended.
    Closed,
}

/// Serves a connection until it ends.
pub(super) fn serve_connection(shared: &HttpShared, slot: &ConnectionSlot) {
    slot.connection.activity.lock().since = Some(shared.clock.time_of_day());
    let socket = Arc::clone(&slot.connection.socket);
    let transport = ServerTransport::new(socket, shared.clock.clone());
    let parser = RequestParser::new(&shared.registry.limits);
    let end = shared.clock.nanos().after(shared.registry.limits.stream_life);
    let mut server = ConnectionServer { shared, slot, transport, parser, end, verb: NO_VERB, path: String::new() };
    let lingers = match server.run() {
        Ok(next) => next == AfterRequest::Linger,
        // TLS has already sent the reason. All other errors mean that the client has left or is too slow, or that the
        // server stops.
        Err(error) => error.kind() == io::ErrorKind::InvalidData,
    };
    if lingers {
        server.transport.finish();
        shared.idle.linger(Arc::clone(&slot.connection.socket));
    } else {
        // Other threads may keep the socket for a moment. Fails if the socket is already closed.
        let _ = slot.connection.socket.shutdown(Shutdown::Both);
    }
}

struct ConnectionServer<'a> {
    shared: &'a HttpShared,
    slot: &'a ConnectionSlot,
    transport: ServerTransport,
    parser: RequestParser,
    /// When the client must connect again, so that its certificate is checked again.
    end: Nanos,
    /// The verb of the current request, for the counts.
    verb: &'static str,
    /// The path of the current request, as sent.
    path: String,
}

/// The verb of an unreadable request.
const NO_VERB: &str = "other";

impl ConnectionServer<'_> {
    fn run(&mut self) -> io::Result<AfterRequest> {
        let limits = &self.shared.registry.limits;
        let mut wait = limits.head_time;
        let Some(peer) = self.begin()? else { return Ok(AfterRequest::Linger) };
        loop {
            let request = self.serve_request(&peer, wait);
            match request {
                Ok(AfterRequest::KeepOpen) => wait = limits.idle_time.min(self.end.since(self.shared.clock.nanos())),
                Ok(goes) => return Ok(goes),
                Err(RequestFailure::Ended(error)) => return Err(error),
                Err(RequestFailure::Refused(refusal)) => {
                    self.send(ReplyFrame::LAST, Reply::text(refusal.status, format!("{}\n", refusal.message)))?;
                    return Ok(AfterRequest::Linger);
                }
            }
        }
    }

    /// Starts TLS, if the server uses it. Returns `None` if the client speaks plain HTTP instead.
    fn begin(&mut self) -> io::Result<Option<PeerInfo>> {
        let connection = &self.slot.connection;
        let local = connection.socket.local_addr()?.ip().to_canonical();
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS changes it"))]
        let mut peer = PeerInfo { peer: connection.peer, local, is_tls: false, certificate: None };
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.shared.tls {
            let deadline = self.deadline(self.shared.registry.limits.head_time);
            self.enter(ConnectionPhase::Reads)?;
            if self.transport.first_byte(deadline)?.is_some_and(|byte| byte.is_ascii_uppercase()) {
                self.send(ReplyFrame::LAST, Reply::text(StatusCode::BAD_REQUEST, "the server speaks HTTPS\n"))?;
                return Ok(None);
            }
            let leaf = self.transport.handshake(tls.config(), deadline).inspect_err(|error| {
                increment(&self.shared.counts.failed_handshakes);
                // All other errors mean that the client has left or is too slow.
                if error.kind() == io::ErrorKind::InvalidData {
                    self.shared.service.log_handshake(peer.peer.ip(), error);
                }
            })?;
            peer.certificate = leaf.map(|leaf| super::certificate::user_of(&leaf));
            peer.is_tls = true;
        }
        Ok(Some(peer))
    }

    /// Reads and answers one request. Its first byte must arrive within `wait`.
    fn serve_request(&mut self, peer: &PeerInfo, wait: Duration) -> Result<AfterRequest, RequestFailure> {
        self.verb = NO_VERB;
        self.path.clear();
        let Some(head) = self.read_head(wait)? else { return Ok(AfterRequest::Closed) };
        self.verb = self.shared.service.verb(&head);
        self.path.push_str(&head.target.path);
        let mut frame = ReplyFrame::of(&head);
        frame.closes |= self.shared.registry.is_stopping();
        let user = match self.admit(&head, peer) {
            Ok(user) => user,
            Err(refusal) => {
                // The body of a refused request is not read.
                frame.closes |= head.has_body();
                self.pause(refusal.delay);
                return Ok(self.send(frame, refusal.reply)?);
            }
        };
        self.slot.connection.activity.lock().admit(&user.name, self.verb, &self.path);
        let (body, reservation) = match self.read_body(&head)? {
            Ok(read) => read,
            Err(overload) => {
                frame.closes = true;
                return Ok(self.send(frame, overloaded("bodies", overload))?);
            }
        };
        self.slot.connection.enter(ConnectionPhase::Handles);
        let reply = self.handle(head, body, user);
        drop(reservation);
        frame.closes |= self.shared.registry.is_stopping() || self.shared.clock.reached(self.end);
        Ok(self.send(frame, reply)?)
    }

    /// Reads a request head. Returns `None` if the client sends no more requests.
    fn read_head(&mut self, wait: Duration) -> Result<Option<RequestHead>, RequestFailure> {
        let head_time = self.shared.registry.limits.head_time;
        let mut is_empty = self.parser.is_empty();
        let mut deadline = self.deadline(if is_empty { wait } else { head_time });
        self.enter(ConnectionPhase::Reads)?;
        self.parser.shrink();
        loop {
            if let Some(head) = self.parser.head()? {
                return Ok(Some(head));
            }
            match self.read(deadline) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut && is_empty => return Ok(None),
                Err(error) => return Err(late(error, "the head of the request did not arrive in time")),
            }
            if is_empty {
                is_empty = false;
                deadline = self.deadline(head_time);
            }
        }
    }

    /// Reads a body, reserving memory as its bytes arrive. The inner error means that other bodies use too much
    /// memory.
    fn read_body(
        &mut self,
        head: &RequestHead,
    ) -> Result<Result<(Vec<u8>, BodyReservation), Overload>, RequestFailure> {
        let deadline = self.deadline(self.shared.registry.limits.body_time);
        let mut waits = head.expects_continue && head.has_body();
        let mut reservation = self.slot.reservation();
        loop {
            let body = self.parser.body()?;
            if let Err(overload) = reservation.grow_to(body.as_ref().map_or(self.parser.received(), Vec::len)) {
                return Ok(Err(overload));
            }
            if let Some(body) = body {
                self.parser.shrink();
                return Ok(Ok((body, reservation)));
            }
            if waits && self.parser.is_empty() {
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n", self.shared.registry.write_limits())?;
            }
            waits = false;
            match self.read(deadline) {
                Ok(0) => return Err(RequestFailure::Ended(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(late(error, "the body of the request did not arrive in time")),
            }
        }
    }

    fn read(&mut self, deadline: Nanos) -> io::Result<usize> {
        let mut bytes = [0; PIECE];
        let count = self.transport.read(&mut bytes, deadline)?;
        self.parser.feed(&bytes[..count]);
        Ok(count)
    }

    /// Waits for this time, or until the server stops.
    fn pause(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        self.slot.connection.enter(ConnectionPhase::Handles);
        let event = AutoResetEvent::new(self.shared.clock.clone());
        let waker = Arc::clone(&event);
        let _on_stop = self.shared.registry.stop.on_cancel(move || waker.set());
        event.wait_until(self.deadline(time));
    }

    fn admit(&self, head: &RequestHead, peer: &PeerInfo) -> Result<UserInfo, Box<RefusedRequest>> {
        let admit = || self.shared.service.admit(head, peer);
        catch_unwind(AssertUnwindSafe(admit)).unwrap_or_else(|panic| {
            self.shared.log_panic(&head.target.path, panic_message(&*panic));
            let reply = Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "the authorization panicked\n");
            Err(Box::new(RefusedRequest { reply, delay: Duration::ZERO }))
        })
    }

    fn handle(&self, head: RequestHead, body: Vec<u8>, user: UserInfo) -> Reply {
        let RequestHead { method, target, headers, .. } = head;
        let peer = self.slot.connection.peer;
        // The connection omits the body.
        let method = if method == Method::HEAD { Method::GET } else { method };
        let request = IncomingRequest {
            method,
            path: target.path,
            segments: target.segments,
            query: target.query,
            headers,
            body,
            user,
            peer,
            connection: self.slot.number,
        };
        match catch_unwind(AssertUnwindSafe(|| self.shared.service.answer(request))) {
            Ok(reply) => reply,
            Err(panic) => {
                self.shared.log_panic(&self.path, panic_message(&*panic));
                Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "the handler of this request panicked\n")
            }
        }
    }

    /// Sends a reply.
    fn send(&mut self, frame: ReplyFrame, reply: Reply) -> io::Result<AfterRequest> {
        let Reply { status, headers, body, holds, is_failed_check, .. } = reply;
        let mut memory = self.slot.reply_reservation();
        let size = match &body {
            ReplyBody::Full(bytes) => bytes.len(),
            _ => 0,
        };
        let compresses = holds + size > PART && !matches!(body, ReplyBody::Stream(_)) && compresses(frame, &headers);
        let needed = holds + size + if compresses { GZIP_MEMORY } else { 0 };
        match memory.hold(needed) {
            Err(overload) if frame.reads => {
                drop(body);
                return self.send(frame, overloaded("replies", overload));
            }
            // The write has been stored, so the client must learn about it.
            Err(_) => memory.hold_always(needed),
            Ok(()) => {}
        }
        match &body {
            // It may still be refused.
            ReplyBody::Stream(_) if !frame.head_only => {}
            _ => self.count(status, is_failed_check),
        }
        match body {
            ReplyBody::Full(body) if compresses => {
                self.send_parts(frame, status, headers, Box::new(move |out| out.write_all(&body)), memory)
            }
            ReplyBody::Parts(body) => self.send_parts(frame, status, headers, body, memory),
            ReplyBody::Full(body) => {
                let bytes = full_reply(status, &headers, &body, frame, &self.date());
                // Sending may take long and needs only one copy.
                drop(body);
                self.transport.write(&bytes, self.slot.begin_write())?;
                Ok(if frame.closes { AfterRequest::Linger } else { AfterRequest::KeepOpen })
            }
            ReplyBody::Stream(_) if frame.head_only => {
                // The length of the body is unknown.
                let frame = ReplyFrame { closes: true, ..frame };
                self.transport.write(&stream_head(status, &headers, frame, &self.date()), self.slot.begin_write())?;
                Ok(AfterRequest::Linger)
            }
            ReplyBody::Stream(body) => self.send_stream(frame, (status, is_failed_check), &headers, body, memory),
            ReplyBody::HangUp => Ok(AfterRequest::Closed),
        }
    }

    fn count(&self, status: StatusCode, is_failed_check: bool) {
        let counts = &self.shared.counts;
        if is_failed_check {
            increment(&counts.failed_checks);
        } else {
            counts.reply(self.verb, &self.path, status);
        }
    }

    /// Sends a body while it is created.
    fn send_parts(
        &mut self,
        frame: ReplyFrame,
        status: StatusCode,
        headers: HeaderMap,
        body: PartsBody,
        memory: ReplyReservation,
    ) -> io::Result<AfterRequest> {
        let reply = PartHead { status, headers, frame, date: self.date() };
        let shared = self.shared;
        let mut sender = PartSender::new(&mut self.transport, self.slot, &shared.registry, &shared.clock, reply);
        let written = catch_unwind(AssertUnwindSafe(|| body(&mut sender))).unwrap_or_else(|panic| {
            shared.log_panic("a list", panic_message(&*panic));
            Err(io::ErrorKind::Other.into())
        });
        // Release the memory before the client sees the end of the reply, so that its next request can use it.
        drop(memory);
        sender.finish(written)?;
        Ok(if frame.closes { AfterRequest::Linger } else { AfterRequest::KeepOpen })
    }

    fn send_stream(
        &mut self,
        frame: ReplyFrame,
        (status, is_failed_check): (StatusCode, bool),
        headers: &HeaderMap,
        body: StreamBody,
        mut memory: ReplyReservation,
    ) -> io::Result<AfterRequest> {
        let Some(_slot) = self.slot.open_stream() else {
            let refusal = Reply::failure(
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                "this client address has too many open streams: end some, or raise `streams_per_client`",
            );
            return self.send(frame, refusal.with_header("retry-after", "10"));
        };
        self.count(status, is_failed_check);
        let frame = ReplyFrame { closes: true, ..frame };
        let date = self.date();
        self.transport.write(&stream_head(status, headers, frame, &date), self.slot.begin_write())?;
        self.slot.connection.enter(ConnectionPhase::Handles);
        let shared = self.shared;
        let token = shared.registry.stop.child();
        // From here on, another thread discards the bytes that the client sends.
        self.parser.shrink();
        let life = shared.registry.limits.stream_life;
        let guard = shared.idle.watch(&self.slot.connection.socket, token.clone(), life);
        let slot = self.slot;
        let (transport, chunks) = (&mut self.transport, frame.chunks);
        let counts = &*shared.counts;
        let memory = &mut memory;
        let mut writer = StreamWriter { transport, slot, chunks, memory, counts, failed: false, refused: false };
        let result = catch_unwind(AssertUnwindSafe(|| body(&mut ReplyStream::new(&mut writer, &token))));
        writer.memory.release();
        let ended = match result {
            Ok(Ok(())) => writer.end(),
            Ok(Err(_)) if writer.refused => writer.end(),
            Ok(Err(error)) => Err(error),
            Err(panic) => {
                shared.log_panic("a stream", panic_message(&*panic));
                Err(io::ErrorKind::Other.into())
            }
        };
        drop(guard);
        ended.map(|()| AfterRequest::Linger)
    }

    /// Enters a phase in which the client must act. Fails if the server is stopping.
    fn enter(&self, phase: ConnectionPhase) -> io::Result<()> {
        self.slot.connection.enter(phase);
        if self.shared.registry.is_stopping() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn deadline(&self, time: Duration) -> Nanos {
        self.shared.clock.nanos().after(time)
    }

    fn date(&self) -> String {
        http_date(self.shared.clock.time_of_day())
    }
}

/// Returns the reply to a request if there is no memory for its body or its reply.
fn overloaded(parts: &str, overload: Overload) -> Reply {
    let (status, reason, of, all) = match overload {
        Overload::Server => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "", "all"),
        Overload::Client => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", " of this client address", "its"),
    };
    let message = format!("the {parts} of other requests{of} use {all} memory for {parts}");
    Reply::failure(status, reason, &message).with_header("retry-after", "1")
}

/// Why no request was read.
enum RequestFailure {
    Refused(UnreadableRequest),
    /// The connection has ended.
    Ended(io::Error),
}

impl From<UnreadableRequest> for RequestFailure {
    fn from(refusal: UnreadableRequest) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for RequestFailure {
    fn from(error: io::Error) -> Self {
        Self::Ended(error)
    }
}

/// Returns the reply to a client that is too slow.
fn late(error: io::Error, message: &'static str) -> RequestFailure {
    if error.kind() == io::ErrorKind::TimedOut {
        RequestFailure::Refused(UnreadableRequest::new(StatusCode::REQUEST_TIMEOUT, message))
    } else {
        RequestFailure::Ended(error)
    }
}
