//! The head of a request: request line and headers.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use super::limits::MOST_HEADERS;
use super::target::{RequestTarget, parse_target};

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) target: RequestTarget,
    pub(crate) headers: HeaderMap,
    /// The requested host and port in lower case. Only HTTP/1.0 clients may omit them.
    pub(crate) host: Option<String>,
    pub(crate) framing: BodyFraming,
    /// Whether the client speaks HTTP/1.0, which has no chunks.
    pub(crate) is_old: bool,
    /// Whether this is the client's last request on the connection.
    pub(crate) is_last: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
}

/// How the end of a request's body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// After this many bytes.
    Length(usize),
    Chunked,
}

/// Why a request cannot be read. The connection ends after the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadableRequest {
    pub(crate) status: StatusCode,
    pub(crate) message: &'static str,
}

impl UnreadableRequest {
    pub(crate) fn new(status: StatusCode, message: &'static str) -> Self {
        Self { status, message }
    }

    pub(super) fn bad(message: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl RequestHead {
    /// Returns whether a body follows.
    pub(crate) fn has_body(&self) -> bool {
        self.framing != BodyFraming::Length(0)
    }

    /// Returns the value of a header. `None` unless it is text and occurs exactly once.
    pub(crate) fn single(&self, name: &HeaderName) -> Option<&str> {
        single(&self.headers, name).ok().flatten()
    }
}

/// Parses a complete head, including the empty line at its end.
pub(super) fn parse_head(bytes: &[u8], most_body: usize) -> Result<RequestHead, UnreadableRequest> {
    let lone_feed = bytes.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || bytes[at - 1] != b'\r'));
    if lone_feed {
        return Err(UnreadableRequest::bad("a line does not end with CR LF"));
    }
    let mut parsed_headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut parsed_headers);
    let bytes = &*with_known_version(bytes);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err(UnreadableRequest::bad("the head is not complete")),
        Err(error) => return Err(refusal_of(error)),
    }
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
    let method = method.map_err(|_| UnreadableRequest::bad("the method is invalid"))?;
    if matches!(method, Method::CONNECT | Method::TRACE) {
        return Err(UnreadableRequest::new(StatusCode::METHOD_NOT_ALLOWED, "the server is not a proxy"));
    }
    let target = parse_target(parsed.path.unwrap_or_default()).map_err(UnreadableRequest::bad)?;
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    for header in &*parsed.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let name = name.map_err(|_| UnreadableRequest::bad("the name of a header is invalid"))?;
        let value = HeaderValue::from_bytes(header.value);
        let value = value.map_err(|_| UnreadableRequest::bad("the value of a header is invalid"))?;
        headers.append(name, value);
    }
    let is_old = parsed.version == Some(0);
    let sent_host = single(&headers, &header::HOST)?.map(str::to_ascii_lowercase);
    if sent_host.is_none() && !is_old {
        return Err(UnreadableRequest::bad("the request has no Host"));
    }
    let closes = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let closes = closes.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("close"));
    let expects_continue = match single(&headers, &header::EXPECT)? {
        None => false,
        Some(value) if value.eq_ignore_ascii_case("100-continue") => !is_old,
        Some(_) => {
            return Err(UnreadableRequest::new(
                StatusCode::EXPECTATION_FAILED,
                "the server supports only the expectation 100-continue",
            ));
        }
    };
    let framing = framing(&headers, is_old, most_body)?;
    if framing != BodyFraming::Length(0) && matches!(method, Method::GET | Method::HEAD) {
        return Err(UnreadableRequest::bad("a GET or HEAD request must not have a body"));
    }
    let host = target.authority.clone().or(sent_host);
    Ok(RequestHead { method, host, framing, is_old, is_last: is_old || closes, expects_continue, target, headers })
}

/// Replaces a later version 1.x by 1.1 in the head. A server must answer such a request with its own version.
fn with_known_version(head: &[u8]) -> Cow<'_, [u8]> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    if let [before @ .., b'2'..=b'9'] = line
        && before.ends_with(b" HTTP/1.")
    {
        let mut head = head.to_vec();
        head[before.len()] = b'1';
        return Cow::Owned(head);
    }
    Cow::Borrowed(head)
}

fn refusal_of(error: httparse::Error) -> UnreadableRequest {
    match error {
        httparse::Error::TooManyHeaders => too_large("the request has too many headers"),
        httparse::Error::Version => {
            UnreadableRequest::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "the server speaks HTTP/1.1")
        }
        _ => UnreadableRequest::bad("the request is not HTTP/1.1"),
    }
}

pub(super) fn too_large(message: &'static str) -> UnreadableRequest {
    UnreadableRequest::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message)
}

pub(super) fn body_too_large() -> UnreadableRequest {
    UnreadableRequest::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large")
}

/// Returns the value of a header that must not occur more than once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, UnreadableRequest> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(UnreadableRequest::bad("a header that may occur once occurs twice"));
    }
    value.to_str().map(Some).map_err(|_| UnreadableRequest::bad("the value of a header is not text"))
}

/// Decides how the body ends. Refuses ambiguous lengths, which would permit request smuggling.
fn framing(headers: &HeaderMap, is_old: bool, most: usize) -> Result<BodyFraming, UnreadableRequest> {
    let length = single(headers, &header::CONTENT_LENGTH)?;
    let coding = single(headers, &header::TRANSFER_ENCODING)?;
    match (length, coding) {
        (None, None) => Ok(BodyFraming::Length(0)),
        (Some(_), Some(_)) => Err(UnreadableRequest::bad("the request has both Content-Length and Transfer-Encoding")),
        (None, Some(_)) if is_old => Err(UnreadableRequest::bad("HTTP/1.0 has no Transfer-Encoding")),
        (None, Some(coding)) if coding.eq_ignore_ascii_case("chunked") => Ok(BodyFraming::Chunked),
        (None, Some(_)) => {
            Err(UnreadableRequest::new(StatusCode::NOT_IMPLEMENTED, "the server supports only chunked bodies"))
        }
        (Some(length), None) => {
            if length.is_empty() || length.len() > 18 || !length.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(UnreadableRequest::bad("Content-Length is not a number"));
            }
            let length = length.parse().map_err(|_| body_too_large())?;
            if length > most { Err(body_too_large()) } else { Ok(BodyFraming::Length(length)) }
        }
    }
}
