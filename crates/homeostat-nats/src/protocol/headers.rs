//! The headers of a message.

use std::borrow::Cow;

/// The first line of each header block.
const VERSION: &[u8] = b"NATS/1.0";

/// The headers of a message, and the status that a server may put before them.
///
/// Names are case-sensitive. A name may occur more than once.
///
/// # Examples
///
/// ```
/// use homeostat_nats::NatsHeaders;
///
/// let mut headers = NatsHeaders::new();
/// headers.insert("KV-Operation", "DEL");
/// assert_eq!(headers.get("KV-Operation"), Some("DEL"));
/// assert_eq!(headers.get("kv-operation"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsHeaders {
    status: Option<(u16, String)>,
    fields: Vec<(String, String)>,
}

impl NatsHeaders {
    /// Creates headers without fields.
    #[must_use]
    pub const fn new() -> Self {
        Self { status: None, fields: Vec::new() }
    }

    /// Creates the headers of a server's status message, such as 503 for a request without a subscriber.
    #[must_use]
    pub fn with_status(code: u16, description: impl Into<String>) -> Self {
        Self { status: Some((code, description.into())), fields: Vec::new() }
    }

    /// Adds a field, and keeps other fields with this name.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.fields.push((name.into(), value.into()));
    }

    /// Returns the first value with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Returns the fields in order, as names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the status code of a server's message. `None` for ordinary messages.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.status.as_ref().map(|(code, _)| *code)
    }

    /// Returns the status text of a server's message. Empty for ordinary messages.
    #[must_use]
    pub fn description(&self) -> &str {
        self.status.as_ref().map_or("", |(_, description)| description)
    }

    /// Returns whether there are neither fields nor a status.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.status.is_none() && self.fields.is_empty()
    }

    /// Returns the first name or value that cannot be written, with the rule it breaks.
    pub(crate) fn fault(&self) -> Option<(&str, &'static str)> {
        let no_line_end = |text: &str| !text.contains(['\r', '\n']);
        if let Some((code, description)) = &self.status {
            if !(100..1_000).contains(code) {
                return Some((description, "the text of a status code with three digits"));
            }
            if !no_line_end(description) {
                return Some((description, "a status text without line ends"));
            }
        }
        self.iter().find_map(|(name, value)| {
            if name.is_empty() || name.bytes().any(|byte| byte == b':' || !byte.is_ascii_graphic()) {
                Some((name, "a header name of visible ASCII characters without a colon"))
            } else {
                (!no_line_end(value)).then_some((value, "a header value without line ends"))
            }
        })
    }

    /// Returns the size of the header block in bytes. Zero without headers.
    pub(crate) fn block_len(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let space = usize::from(!self.description().is_empty());
        let status = self.status.as_ref().map_or(0, |(_, description)| 4 + space + description.len());
        let fields: usize = self.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        VERSION.len() + status + 2 + fields + 2
    }

    /// Appends the header block.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(VERSION);
        if let Some((code, description)) = &self.status {
            out.extend_from_slice(format!(" {code}").as_bytes());
            if !description.is_empty() {
                out.push(b' ');
                out.extend_from_slice(description.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
        for (name, value) in self.iter() {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Reads a header block. Skips lines that are not headers.
    ///
    /// Servers do not check the header blocks of publishers. If a malformed block were an error, one publisher could
    /// disconnect all subscribers.
    pub(crate) fn parse(block: &[u8]) -> Self {
        let mut lines = block.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let Some(status) = lines.next().and_then(|line| line.strip_prefix(VERSION)) else { return Self::default() };
        let fields = lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').filter(|colon| *colon > 0)?;
            Some((text(&line[..colon]).into_owned(), text(line[colon + 1..].trim_ascii()).into_owned()))
        });
        Self { status: parse_status(status.trim_ascii()), fields: fields.collect() }
    }
}

fn parse_status(line: &[u8]) -> Option<(u16, String)> {
    let (code, description) = line.split_at_checked(3)?;
    let code = code.iter().all(u8::is_ascii_digit).then(|| text(code).parse().ok())??;
    Some((code, text(description.trim_ascii()).into_owned()))
}

/// Returns bytes of unknown origin as text.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    // This is faster than searching for invalid parts first.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}
