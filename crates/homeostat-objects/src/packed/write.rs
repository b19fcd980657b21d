//! Packs values, and writes packed values as JSON text.

use std::fmt::{self, Write};
use std::sync::Arc;

use serde_json::{Number, Value};

use super::{
    ARRAY, DIGITS, FALSE, FLOAT, FieldIter, ItemIter, NEGATIVE, NULL, OBJECT, Packed, PackedNode, SHORT, STRING, TRUE,
    UNSIGNED,
};

/// Packs a value.
///
/// It writes from the end to the beginning: the length of an array or object precedes its content, but is known only
/// after it.
pub(crate) fn pack(json: &Value) -> Arc<str> {
    /// A part that is not written yet.
    enum Part<'a> {
        Value(&'a Value),
        Name(&'a str),
        /// The header of an array or object that ends at this position.
        Header(u8, usize),
    }

    let mut writer = BackwardWriter { bytes: vec![0; 1_024], begin: 1_024 };
    let mut parts = vec![Part::Value(json)];
    while let Some(part) = parts.pop() {
        match part {
            Part::Value(Value::Null) => writer.byte(NULL),
            Part::Value(Value::Bool(bool)) => writer.byte(if *bool { TRUE } else { FALSE }),
            Part::Value(Value::Number(number)) => writer.number(number),
            Part::Value(Value::String(text)) => {
                writer.string(text);
                if text.len() >= usize::from(SHORT) {
                    writer.byte(STRING);
                }
            }
            Part::Value(Value::Array(items)) => {
                parts.push(Part::Header(ARRAY, writer.len()));
                parts.extend(items.iter().map(Part::Value));
            }
            Part::Value(Value::Object(fields)) => {
                parts.push(Part::Header(OBJECT, writer.len()));
                parts.extend(fields.iter().flat_map(|(name, value)| [Part::Name(name), Part::Value(value)]));
            }
            Part::Name(name) => writer.string(name),
            Part::Header(tag, end) => {
                let length = (writer.len() - end) as u64;
                writer.put(Digits::after(tag, length).bytes());
            }
        }
    }
    // The text is valid: its strings are, and all else is ASCII.
    str::from_utf8(&writer.bytes[writer.begin..]).unwrap_or_default().into()
}

/// A text that is written from its end.
struct BackwardWriter {
    /// The text occupies the end of these bytes.
    bytes: Vec<u8>,
    /// The index at which the text begins.
    begin: usize,
}

impl BackwardWriter {
    fn len(&self) -> usize {
        self.bytes.len() - self.begin
    }

    /// Writes bytes in front of the others.
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.begin < bytes.len() {
            self.grow(bytes.len());
        }
        let end = self.begin;
        self.begin -= bytes.len();
        self.bytes[self.begin..end].copy_from_slice(bytes);
    }

    /// Makes space for at least this many bytes.
    #[cold]
    fn grow(&mut self, more: usize) {
        let mut larger = vec![0; 2 * self.bytes.len() + more];
        let begin = larger.len() - self.len();
        larger[begin..].copy_from_slice(&self.bytes[self.begin..]);
        (self.bytes, self.begin) = (larger, begin);
    }

    fn byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }

    #[inline]
    fn integer(&mut self, integer: u64) {
        match u8::try_from(integer) {
            Ok(digit @ 0..SHORT) => self.byte(digit),
            _ => self.put(Digits::of(integer).bytes()),
        }
    }

    /// Writes a string with its length before it.
    #[inline]
    fn string(&mut self, text: &str) {
        self.put(text.as_bytes());
        self.integer(text.len() as u64);
    }

    fn number(&mut self, number: &Number) {
        if let Some((tag, integer)) = encode(number) {
            self.integer(integer);
            self.byte(tag);
        } else {
            self.string(&number.to_string());
            self.byte(DIGITS);
        }
    }
}

/// The digits of an integer, the lowest first, and the byte before them, if any.
pub(super) struct Digits {
    bytes: [u8; 12],
    count: usize,
}

impl Digits {
    pub(super) fn of(integer: u64) -> Self {
        Self { bytes: [0; 12], count: 0 }.and(integer)
    }

    /// Puts a byte before the digits.
    pub(super) fn after(tag: u8, integer: u64) -> Self {
        let mut bytes = [0; 12];
        bytes[0] = tag;
        Self { bytes, count: 1 }.and(integer)
    }

    fn and(mut self, mut integer: u64) -> Self {
        loop {
            let digit = integer.to_le_bytes()[0] % SHORT;
            integer /= u64::from(SHORT);
            self.bytes[self.count] = if integer > 0 { digit + SHORT } else { digit };
            self.count += 1;
            if integer == 0 {
                return self;
            }
        }
    }

    /// Returns the bytes. They are ASCII.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

/// Returns the first byte of a number and the integer after it; `None` if it is written as digits.
pub(super) fn encode(number: &Number) -> Option<(u8, u64)> {
    if let Some(unsigned) = number.as_u64() {
        Some((UNSIGNED, unsigned))
    } else if let Some(negative) = number.as_i64() {
        Some((NEGATIVE, !u64::from_le_bytes(negative.to_le_bytes())))
    } else {
        let float = number.as_f64().filter(|float| Number::from_f64(*float).as_ref() == Some(number))?;
        Some((FLOAT, float.to_bits().swap_bytes()))
    }
}

/// Writes JSON without spaces.
impl fmt::Display for Packed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Much faster than passing each part to the formatter.
        let mut text = String::with_capacity(self.0.len() + self.0.len() / 2);
        write_json(*self, &mut text)?;
        f.write_str(&text)
    }
}

fn write_json(value: Packed<'_>, out: &mut String) -> fmt::Result {
    enum Rest<'a> {
        Array(ItemIter<'a>),
        Object(FieldIter<'a>),
    }

    let mut open = Vec::new();
    let mut next = Some(value);
    loop {
        let mut is_first = false;
        if let Some(value) = next {
            match value.node() {
                PackedNode::Null => out.push_str("null"),
                PackedNode::Bool(bool) => out.push_str(if bool { "true" } else { "false" }),
                PackedNode::Number(number) => write!(out, "{number}")?,
                PackedNode::String(text) => quote(text, out)?,
                PackedNode::Array(items) => {
                    out.push('[');
                    open.push(Rest::Array(items));
                    is_first = true;
                }
                PackedNode::Object(fields) => {
                    out.push('{');
                    open.push(Rest::Object(fields));
                    is_first = true;
                }
            }
        }
        let (end, more) = match open.last_mut() {
            None => return Ok(()),
            Some(Rest::Array(items)) => (']', items.next().map(|item| (None, item))),
            Some(Rest::Object(fields)) => ('}', fields.next().map(|(name, value)| (Some(name), value))),
        };
        next = more.map(|(_, value)| value);
        let Some((name, _)) = more else {
            out.push(end);
            open.pop();
            continue;
        };
        if !is_first {
            out.push(',');
        }
        if let Some(name) = name {
            quote(name, out)?;
            out.push(':');
        }
    }
}

/// Writes a string as JSON.
fn quote(text: &str, out: &mut String) -> fmt::Result {
    // Checking all bytes takes less time than stopping at the first match.
    let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if text.bytes().fold(false, |found, byte| found | is_special(byte)) {
        out.push_str(&serde_json::to_string(text).map_err(|_| fmt::Error)?);
        return Ok(());
    }
    out.push('"');
    out.push_str(text);
    out.push('"');
    Ok(())
}
