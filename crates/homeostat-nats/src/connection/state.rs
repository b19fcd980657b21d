//! The state of a connection as a plain value: subscriptions, requests, pings and outbound bytes.
//!
//! `S` identifies the receiver of messages: a mailbox in a connection, a name in a test.
//!
//! # Invariants
//!
//! - `out` holds only bytes for the current connection. A new connection starts with the subscriptions.
//! - A request or flush ends exactly once: by its answer, by the end of the connection, or by its caller.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::super::error::NatsError;
use super::super::protocol::{
    Frame, NatsHeaders, NatsMessage, check_subject, write_publish, write_subscribe, write_unsubscribe,
};

/// The subscription number that receives the answers to all requests.
const INBOX: u64 = 1;

/// The status of an answer made on this side because the server refused the subject of the publication.
pub(crate) const REFUSED: u16 = 403;
/// How many publications with a reply subject are remembered.
pub(super) const MOST_ASKED: usize = 256;

/// The phase of a connection.
#[derive(Clone, Debug)]
pub(super) enum LinkPhase {
    Connecting,
    Connected,
    Closed(NatsError),
}

/// The state of a connection.
#[derive(Debug)]
pub(super) struct LinkState<S> {
    phase: LinkPhase,
    /// The current or last server.
    server: String,
    max_payload: usize,
    out: Vec<u8>,
    out_limit: usize,
    subscriptions: BTreeMap<u64, Registered<S>>,
    next_sid: u64,
    /// The prefix of the subject of answers. The number of the request follows.
    inbox: String,
    /// The server's refusal of that subject on the current connection. Without that subject, no request can be
    /// answered.
    inbox_refused: Option<NatsError>,
    requests: HashMap<u64, PendingRequest<S>>,
    next_request: u64,
    /// Subject and reply of the last publications that expect an answer on a subscription of this connection.
    asked: VecDeque<(String, String)>,
    /// The receivers of the outstanding pongs, in order. `None` for a ping of the connection itself.
    pongs: VecDeque<Option<S>>,
    pings_out: u32,
    connects: u64,
}

#[derive(Debug)]
struct Registered<S> {
    subject: String,
    group: Option<String>,
    receiver: S,
}

#[derive(Debug)]
struct PendingRequest<S> {
    subject: String,
    receiver: S,
}

/// A message or an end for a receiver.
#[derive(Debug)]
pub(super) enum Notice<S> {
    /// A message for a subscription, or the answer to a request.
    Message(S, NatsMessage),
    /// A flush has succeeded.
    Flushed(S),
    /// A subscription was restored on the connection with this number. Messages may have been missed.
    Restored(S, u64),
    /// A subscription, request or flush has ended.
    Ended(S, NatsError),
    /// The server refused a subject or subscription that belongs to no known call.
    Refused(NatsError),
}

/// The parts of a publication or request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) subject: &'a str,
    pub(super) reply: Option<&'a str>,
    pub(super) headers: &'a NatsHeaders,
    pub(super) payload: &'a [u8],
}

/// Why a call cannot proceed.
#[derive(Debug)]
pub(super) enum Blocked {
    /// The connection is down or the outbound buffer is full. Try again later.
    NotNow,
    Failed(NatsError),
}

impl From<NatsError> for Blocked {
    fn from(error: NatsError) -> Self {
        Self::Failed(error)
    }
}

impl<S: Clone> LinkState<S> {
    /// Creates the state. `inbox` must be a subject that no other client uses.
    pub(super) fn new(inbox: &str, out_limit: usize) -> Self {
        Self {
            phase: LinkPhase::Connecting,
            server: String::new(),
            max_payload: usize::MAX,
            out: Vec::new(),
            out_limit,
            subscriptions: BTreeMap::new(),
            next_sid: INBOX + 1,
            inbox: format!("{inbox}."),
            inbox_refused: None,
            requests: HashMap::new(),
            next_request: 0,
            asked: VecDeque::new(),
            pongs: VecDeque::new(),
            pings_out: 0,
            connects: 0,
        }
    }

    pub(super) fn phase(&self) -> &LinkPhase {
        &self.phase
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, LinkPhase::Closed(_))
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn max_payload(&self) -> usize {
        self.max_payload
    }

    pub(super) fn connects(&self) -> u64 {
        self.connects
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Starts a new connection by restoring all subscriptions.
    pub(super) fn connected(&mut self, server: &str, max_payload: usize, notices: &mut Vec<Notice<S>>) {
        if self.is_closed() {
            return;
        }
        self.phase = LinkPhase::Connected;
        server.clone_into(&mut self.server);
        self.max_payload = max_payload;
        self.pings_out = 0;
        self.connects += 1;
        self.inbox_refused = None;
        self.asked.clear();
        self.out.clear();
        // Registration has already checked the subjects.
        let _ = write_subscribe(&mut self.out, &format!("{}*", self.inbox), None, INBOX);
        for (sid, Registered { subject, group, receiver }) in &self.subscriptions {
            let _ = write_subscribe(&mut self.out, subject, group.as_deref(), *sid);
            notices.push(Notice::Restored(receiver.clone(), self.connects));
        }
    }

    /// Ends a connection. All requests and flushes fail, because their answers cannot arrive.
    pub(super) fn disconnected(&mut self, reason: &str, notices: &mut Vec<Notice<S>>) {
        if self.is_closed() {
            return;
        }
        self.phase = LinkPhase::Connecting;
        self.fail_pending(&NatsError::disconnected(&self.server, reason), notices);
    }

    /// Ends everything. Later calls do nothing.
    pub(super) fn close(&mut self, error: &NatsError, notices: &mut Vec<Notice<S>>) {
        if self.is_closed() {
            return;
        }
        self.phase = LinkPhase::Closed(error.clone());
        self.fail_pending(error, notices);
        let subscriptions = std::mem::take(&mut self.subscriptions).into_values();
        notices.extend(subscriptions.map(|registered| Notice::Ended(registered.receiver, error.clone())));
    }

    fn fail_pending(&mut self, error: &NatsError, notices: &mut Vec<Notice<S>>) {
        self.out.clear();
        let requests = self.requests.drain().map(|(_, request)| request.receiver);
        let flushes = self.pongs.drain(..).flatten();
        notices.extend(requests.chain(flushes).map(|receiver| Notice::Ended(receiver, error.clone())));
    }

    /// Handles a frame from the server.
    ///
    /// # Errors
    ///
    /// Returns the reason if the connection must end.
    pub(super) fn received(&mut self, frame: Frame, notices: &mut Vec<Notice<S>>) -> Result<(), String> {
        match frame {
            Frame::Message { sid: INBOX, message } => self.answered(message, notices),
            Frame::Message { sid, message } => {
                // The server may still send messages for a subscription that has just ended.
                let registered = self.subscriptions.get(&sid);
                notices.extend(registered.map(|registered| Notice::Message(registered.receiver.clone(), message)));
            }
            Frame::Ping => self.out.extend_from_slice(b"PONG\r\n"),
            Frame::Pong => {
                let Some(receiver) = self.pongs.pop_front() else {
                    return Err("the server answers a ping that was not sent".to_owned());
                };
                self.pings_out = 0;
                notices.extend(receiver.map(Notice::Flushed));
            }
            Frame::Ok | Frame::Info(_) => {}
            Frame::Err(text) => return self.refused(&text, notices),
            other => return Err(format!("the server sends a frame of a client: {}", verb(&other))),
        }
        Ok(())
    }

    fn answered(&mut self, message: NatsMessage, notices: &mut Vec<Notice<S>>) {
        let number = message.subject.strip_prefix(&self.inbox).and_then(|number| number.parse().ok());
        let Some(request) = number.and_then(|number: u64| self.requests.remove(&number)) else { return };
        notices.push(if message.headers.status() == Some(503) && message.payload.is_empty() {
            Notice::Ended(request.receiver, NatsError::no_responders(&request.subject))
        } else {
            Notice::Message(request.receiver, message)
        });
    }

    /// Handles an error from the server. Only a refusal of a single subject or subscription leaves the connection
    /// open.
    fn refused(&mut self, text: &str, notices: &mut Vec<Notice<S>>) -> Result<(), String> {
        let lower = text.to_ascii_lowercase();
        if lower.starts_with("maximum subscriptions exceeded") {
            // The server keeps the connection. On a new one, all subscriptions would be restored and refused again.
            notices.push(Notice::Refused(NatsError::connect(format!("the server reports {text:?}"))));
            return Ok(());
        }
        if !lower.starts_with("permissions violation") && !lower.starts_with("invalid subject") {
            return Err(format!("the server reports {text:?}"));
        }
        let subject = text.split('"').nth(1).unwrap_or_default().to_owned();
        let error = NatsError::permissions_violation(text);
        // The subject is text from the server and may contain anything.
        if lower.starts_with("permissions violation for subscription") {
            if subject == format!("{}*", self.inbox) {
                self.inbox_refused = Some(error.clone());
                let requests = self.requests.drain().map(|(_, request)| request.receiver);
                notices.extend(requests.map(|receiver| Notice::Ended(receiver, error.clone())));
                notices.push(Notice::Refused(error));
                return Ok(());
            }
            let refused: Vec<_> = self.sids(|registered| registered.subject == subject);
            for registered in refused.iter().filter_map(|sid| self.subscriptions.remove(sid)) {
                notices.push(Notice::Ended(registered.receiver, error.clone()));
            }
        } else {
            let refused: Vec<_> =
                self.requests.iter().filter(|(_, request)| request.subject == subject).map(|(at, _)| *at).collect();
            let before = notices.len();
            for request in refused.iter().filter_map(|at| self.requests.remove(at)) {
                notices.push(Notice::Ended(request.receiver, error.clone()));
            }
            self.answer_asked(&subject, text, notices);
            if notices.len() == before {
                notices.push(Notice::Refused(error));
            }
        }
        Ok(())
    }

    /// Answers the publications to this subject that expect an answer, with [`REFUSED`] and the server's text.
    fn answer_asked(&mut self, subject: &str, text: &str, notices: &mut Vec<Notice<S>>) {
        let asked = std::mem::take(&mut self.asked);
        let (refused, others): (VecDeque<_>, _) = asked.into_iter().partition(|(asked, _)| asked == subject);
        self.asked = others;
        for (_, reply) in refused {
            // The replies of one subscription differ only in their last part.
            let all = reply.rsplit_once('.').map(|(rest, _)| format!("{rest}.*"));
            let found = self.subscriptions.values().find(|registered| Some(&registered.subject) == all.as_ref());
            let (headers, payload) = (NatsHeaders::with_status(REFUSED, ""), text.as_bytes().to_vec());
            let answer = NatsMessage { subject: reply, reply: None, headers, payload };
            notices.extend(found.map(|registered| Notice::Message(registered.receiver.clone(), answer)));
        }
    }

    fn sids(&self, accepts: impl Fn(&Registered<S>) -> bool) -> Vec<u64> {
        self.subscriptions.iter().filter(|(_, registered)| accepts(registered)).map(|(sid, _)| *sid).collect()
    }

    /// Checks that the connection is up and the outbound buffer has room.
    fn check_open(&self) -> Result<(), Blocked> {
        match &self.phase {
            LinkPhase::Closed(error) => Err(Blocked::Failed(error.clone())),
            LinkPhase::Connected if self.out.len() < self.out_limit => Ok(()),
            _ => Err(Blocked::NotNow),
        }
    }

    /// Appends a publication.
    pub(super) fn publish(&mut self, message: Outgoing<'_>) -> Result<(), Blocked> {
        self.check_open()?;
        let Outgoing { subject, reply, headers, payload } = message;
        let size = payload.len().saturating_add(headers.block_len());
        if size > self.max_payload {
            let what = format!("the message for subject {subject:?}");
            let of = "max_payload of the server";
            return Err(Blocked::Failed(NatsError::too_large(&what, size, self.max_payload, of)));
        }
        Ok(write_publish(&mut self.out, subject, reply, headers, payload).map_err(NatsError::from)?)
    }

    /// Appends a publication. Its answers go to a subscription of this connection. If the server refuses the subject,
    /// that subscription receives an answer with the status [`REFUSED`].
    pub(super) fn ask(&mut self, message: Outgoing<'_>) -> Result<(), Blocked> {
        self.publish(message)?;
        if let Some(reply) = message.reply {
            if self.asked.len() == MOST_ASKED {
                self.asked.pop_front();
            }
            self.asked.push_back((message.subject.to_owned(), reply.to_owned()));
        }
        Ok(())
    }

    /// Appends a request, and returns its number.
    pub(super) fn request(&mut self, message: Outgoing<'_>, receiver: S) -> Result<u64, Blocked> {
        if let Some(error) = self.inbox_refused.as_ref().filter(|_| matches!(self.phase, LinkPhase::Connected)) {
            return Err(Blocked::Failed(error.clone()));
        }
        let number = self.next_request;
        let reply = format!("{}{number}", self.inbox);
        self.publish(Outgoing { reply: Some(&reply), ..message })?;
        self.next_request += 1;
        self.requests.insert(number, PendingRequest { subject: message.subject.to_owned(), receiver });
        Ok(number)
    }

    /// Abandons a request. A late answer is ignored.
    pub(super) fn forget(&mut self, number: u64) {
        self.requests.remove(&number);
    }

    /// Adds a subscription, and returns its number. If the connection is down, the next connection subscribes.
    pub(super) fn subscribe(&mut self, subject: &str, group: Option<&str>, receiver: S) -> Result<u64, NatsError> {
        if let LinkPhase::Closed(error) = &self.phase {
            return Err(error.clone());
        }
        check_subject(subject)?;
        group.map_or(Ok(()), check_subject)?;
        let sid = self.next_sid;
        self.next_sid += 1;
        if matches!(self.phase, LinkPhase::Connected) {
            write_subscribe(&mut self.out, subject, group, sid)?;
        }
        let (subject, group) = (subject.to_owned(), group.map(str::to_owned));
        self.subscriptions.insert(sid, Registered { subject, group, receiver });
        Ok(sid)
    }

    /// Ends a subscription. Does nothing if it has already ended.
    pub(super) fn unsubscribe(&mut self, sid: u64) {
        if self.subscriptions.remove(&sid).is_some() && matches!(self.phase, LinkPhase::Connected) {
            write_unsubscribe(&mut self.out, sid, None);
        }
    }

    /// Appends a ping for a flush. `receiver` learns of the pong.
    pub(super) fn flush(&mut self, receiver: S) -> Result<(), Blocked> {
        self.check_open()?;
        self.out.extend_from_slice(b"PING\r\n");
        self.pongs.push_back(Some(receiver));
        Ok(())
    }

    /// Appends a ping of the connection itself.
    ///
    /// # Errors
    ///
    /// Returns the reason to end this connection if `most` pings are unanswered.
    pub(super) fn keep_alive(&mut self, most: u32) -> Result<(), String> {
        if !matches!(self.phase, LinkPhase::Connected) {
            return Ok(());
        }
        if self.pings_out >= most {
            return Err(format!("{} pings have no answer", self.pings_out));
        }
        self.pings_out += 1;
        self.out.extend_from_slice(b"PING\r\n");
        self.pongs.push_back(None);
        Ok(())
    }

    /// Returns whether bytes are waiting to be written.
    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Takes the outbound bytes, and leaves an empty buffer in their place.
    pub(super) fn take_output(&mut self, empty: &mut Vec<u8>) {
        debug_assert!(empty.is_empty(), "the bytes of the last call are written");
        std::mem::swap(&mut self.out, empty);
    }
}

fn verb(frame: &Frame) -> &'static str {
    match frame {
        Frame::Connect(_) => "CONNECT",
        Frame::Publish(_) => "PUB",
        Frame::Subscribe { .. } => "SUB",
        Frame::Unsubscribe { .. } => "UNSUB",
        _ => "another",
    }
}
