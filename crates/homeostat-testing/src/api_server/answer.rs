//! Scripted answers.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use homeostat::base::CancellationToken;
use homeostat_serve::{IncomingRequest, Reply, ReplyStream};

/// An answer of an [`ApiServer`](super::ApiServer): status, headers, and a body in steps.
///
/// The server sends a body that only has texts at once. Otherwise it sends each step immediately, as a separate chunk,
/// and the connection ends after the last step.
///
/// # Examples
///
/// A watch that delivers an object, waits, and ends in the middle of a line:
///
/// ```
/// use homeostat::CancellationToken;
/// use homeostat_testing::ServerAnswer;
/// use serde_json::json;
///
/// let go_on = CancellationToken::new();
/// let answer = ServerAnswer::new(200)
///     .event("ADDED", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}))
///     .wait(&go_on)
///     .text(r#"{"type": "MODIFIED", "obj"#)
///     .cut();
/// # let _ = answer;
/// ```
#[derive(Clone, Debug)]
#[must_use = "an answer does nothing until a rule gives it"]
pub struct ServerAnswer {
    source: Source,
    headers: Vec<(String, String)>,
    gzip: bool,
    /// The number of body bytes after which the connection is cut.
    most: Option<usize>,
    bookmarks: bool,
}

const JSON: &str = "application/json";

/// Where an answer is taken from.
#[derive(Clone, Debug)]
enum Source {
    /// The objects of the server.
    Stored,
    /// A status and a body.
    Script(u16, Vec<Step>),
    /// The connection ends without an answer.
    HangUp,
}

/// A step of a body.
#[derive(Clone, Debug)]
enum Step {
    Text(Vec<u8>),
    Wait(CancellationToken),
    Stall,
    Cut,
    Repeat(Vec<u8>),
}

impl Step {
    /// Returns the text of a step that only sends text.
    fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl ServerAnswer {
    /// Returns an answer with this status and an empty body. The content type is JSON.
    pub fn new(status: u16) -> Self {
        Self::of(Source::Script(status, Vec::new()))
    }

    /// Returns an answer with this status and body.
    #[expect(clippy::needless_pass_by_value, reason = "most are made in the call")]
    pub fn json(status: u16, body: Value) -> Self {
        Self::new(status).text(body.to_string())
    }

    /// Returns an answer with a `Status` that reports an error: its code, its reason (`Expired`) and its message.
    pub fn error(code: u16, reason: &str, message: &str) -> Self {
        Self::json(code, error_status(code, reason, message))
    }

    /// Returns the answer that the server would give without rules. Steps that are added to it have no effect.
    pub fn stored() -> Self {
        Self::of(Source::Stored)
    }

    /// Returns an answer that [closes the connection](Reply::hang_up) instead of sending anything.
    pub fn hang_up() -> Self {
        Self::of(Source::HangUp)
    }

    fn of(source: Source) -> Self {
        Self { source, headers: Vec::new(), gzip: false, most: None, bookmarks: true }
    }

    /// Sets a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Compresses the body. Each step is a separate gzip member.
    pub fn gzip(self) -> Self {
        Self { gzip: true, ..self }.header("Content-Encoding", "gzip")
    }

    /// Cuts the connection after this many bytes of the (uncompressed) body.
    pub fn cut_after(self, bytes: usize) -> Self {
        Self { most: Some(bytes), ..self }
    }

    /// Omits the bookmarks of a [stored](Self::stored) watch, including the one that ends its initial events.
    pub fn without_bookmarks(self) -> Self {
        Self { bookmarks: false, ..self }
    }

    /// Sends this text.
    pub fn text(self, text: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Text(text.into()))
    }

    /// Sends a JSON value and a line feed.
    #[expect(clippy::needless_pass_by_value, reason = "most are made in the call")]
    pub fn line(self, value: Value) -> Self {
        self.text(format!("{value}\n"))
    }

    /// Sends an event of a watch: its type (for example `ADDED`) and its object.
    #[expect(clippy::needless_pass_by_value, reason = "most are made in the call")]
    pub fn event(self, kind: &str, object: Value) -> Self {
        self.line(json!({"type": kind, "object": object}))
    }

    /// Sends an `ERROR` event of a watch: its code (for example 410), its reason (`Expired`) and its message.
    pub fn error_event(self, code: u16, reason: &str, message: &str) -> Self {
        self.event("ERROR", error_status(code, reason, message))
    }

    /// Waits until this token is cancelled.
    ///
    /// The wait and the connection end early if the client closes the connection or the server stops.
    pub fn wait(self, go_on: &CancellationToken) -> Self {
        self.step(Step::Wait(go_on.clone()))
    }

    /// Sends nothing more, but keeps the connection open until the client closes it or the server stops.
    pub fn stall(self) -> Self {
        self.step(Step::Stall)
    }

    /// Cuts the connection, without ending the body.
    pub fn cut(self) -> Self {
        self.step(Step::Cut)
    }

    /// Sends this text repeatedly until the client closes the connection or the server stops.
    pub fn repeat(self, text: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Repeat(text.into()))
    }

    /// Returns the reply to a request. `stored` answers from the objects of the server.
    pub(super) fn reply(self, request: &IncomingRequest, stored: impl FnOnce(&IncomingRequest) -> Reply) -> Reply {
        let reply = match self.source {
            Source::HangUp => return Reply::hang_up(),
            Source::Stored if self.bookmarks => stored(request),
            Source::Stored => stored(&request.without_parameter("allowWatchBookmarks")),
            Source::Script(status, steps) => match steps.iter().map(Step::text).collect::<Option<Vec<_>>>() {
                Some(texts) => Reply::empty(status).with_body(JSON, texts.concat()),
                None => Reply::empty(status).with_stream(JSON, |out| send_steps(steps, out)),
            },
        };
        let (gzip, mut left) = (self.gzip, self.most);
        let reply = self.headers.iter().fold(reply, |reply, (name, value)| reply.with_header(name, value));
        if !gzip && left.is_none() {
            return reply;
        }
        reply.with_filter(move |part, out| {
            let kept = &part[..part.len().min(left.unwrap_or(usize::MAX))];
            out.send(&if gzip { compressed(kept)? } else { kept.to_vec() })?;
            match &mut left {
                Some(left) if *left == kept.len() => Err(io::ErrorKind::ConnectionAborted.into()),
                Some(left) => {
                    *left -= kept.len();
                    Ok(())
                }
                None => Ok(()),
            }
        })
    }

    fn step(mut self, step: Step) -> Self {
        if let Source::Script(_, steps) = &mut self.source {
            steps.push(step);
        }
        self
    }
}

/// Sends the steps of a body. An error breaks it off.
fn send_steps(steps: Vec<Step>, out: &mut ReplyStream<'_>) -> io::Result<()> {
    let cut = || Err(io::ErrorKind::ConnectionAborted.into());
    for step in steps {
        match step {
            Step::Text(text) => out.send(&text)?,
            Step::Wait(go_on) => {
                let either = CancellationToken::new();
                let (one, other) = (either.clone(), either.clone());
                let registered = (go_on.on_cancel(move || one.cancel()), out.gone().on_cancel(move || other.cancel()));
                either.wait();
                drop(registered);
                if !go_on.is_cancelled() {
                    return cut();
                }
            }
            Step::Stall => {
                out.gone().wait();
                return cut();
            }
            Step::Cut => return cut(),
            Step::Repeat(text) => loop {
                out.send(&text)?;
            },
        }
    }
    Ok(())
}

fn compressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Returns a `Status` that reports an error.
fn error_status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}
