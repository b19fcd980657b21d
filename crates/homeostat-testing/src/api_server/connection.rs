//! One connection: reads requests and sends answers until either side ends it.

use std::io;
use std::net::TcpStream;

use super::answer::{ServerAnswer, Source, Step};
use super::request::{self, NoRequest, ServerRequest};
use super::response::Body;
use super::shared::ServerShared;
use super::store::{StoredAnswer, reply};
use super::watching::send_events;
use super::wire::{wait, while_open};
use homeostat::base::CancellationToken;

/// Serves a connection until it ends.
pub(super) fn serve(server: &ServerShared, stream: &TcpStream, number: usize) {
    let mut buffer = Vec::new();
    loop {
        let (request, answer) = match request::read(stream, &mut buffer) {
            Ok(request) => {
                let request = ServerRequest { connection: number, ..request };
                let answer = server.answer_for(&request);
                (request, answer)
            }
            Err(NoRequest::Closed) => return,
            Err(NoRequest::Refused(status)) => {
                let refusal = ServerAnswer::error(status, "BadRequest", "the server refuses the request").cut();
                (ServerRequest::default(), refusal)
            }
        };
        if !answer_request(server, stream, &request, &answer).is_ok_and(|goes_on| goes_on) {
            return;
        }
    }
}

/// Sends an answer. Returns whether the connection can take another request.
fn answer_request(
    server: &ServerShared,
    stream: &TcpStream,
    request: &ServerRequest,
    answer: &ServerAnswer,
) -> io::Result<bool> {
    let last = request.is_last();
    match &answer.source {
        Source::HangUp => Ok(false),
        Source::Script(status, steps) => {
            let texts: Option<Vec<_>> = steps.iter().map(Step::text).collect();
            let mut body = Body::begin(stream, *status, answer, last || texts.is_none())?;
            if let Some(texts) = texts {
                texts.into_iter().try_for_each(|text| body.send(text))?;
                body.end()?;
                return Ok(!last);
            }
            while_open(stream, None, |closed| send_steps(body, steps, closed))?;
            Ok(false)
        }
        Source::Stored => match reply(server, request) {
            StoredAnswer::Json(status, json) => {
                let mut body = Body::begin(stream, status, answer, last)?;
                body.send(json.to_string().as_bytes())?;
                body.end()?;
                Ok(!last)
            }
            StoredAnswer::Text(status, text) => {
                let answer = answer.clone().header("Content-Type", "text/plain");
                let mut body = Body::begin(stream, status, &answer, last)?;
                body.send(text.as_bytes())?;
                body.end()?;
                Ok(!last)
            }
            StoredAnswer::Watch(watch) => {
                let body = Body::begin(stream, 200, answer, true)?;
                let bookmarks = answer.bookmarks;
                while_open(stream, watch.timeout, |closed| {
                    send_events(&server.client, body, &watch, bookmarks, closed)
                })?;
                Ok(false)
            }
        },
    }
}

fn send_steps(mut body: Body<'_>, steps: &[Step], closed: &CancellationToken) -> io::Result<()> {
    for step in steps {
        match step {
            Step::Text(text) => body.send(text)?,
            Step::Wait(go_on) => wait(go_on, closed)?,
            Step::Stall => {
                closed.wait();
                return Ok(());
            }
            Step::Cut => return Ok(()),
            Step::Repeat(text) => loop {
                body.send(text)?;
            },
        }
    }
    body.end()
}
