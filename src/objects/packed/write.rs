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
/// It writes from the end to the beginning: the length of an array or object stands before its content, and is known after it.
pub(in crate::objects) fn pack(json: &Value) -> Arc<str> {
    /// A part that is not written yet.
    enum Part<'a> {
        Value(&'a Value),
        Name(&'a str),
        /// The header of an array or object that ends at this position.
        Header(u8, usize),
    }

    let mut writer = Backwards(Vec::with_capacity(1_024));
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
                parts.push(Part::Header(ARRAY, writer.0.len()));
                parts.extend(items.iter().map(Part::Value));
            }
            Part::Value(Value::Object(fields)) => {
                parts.push(Part::Header(OBJECT, writer.0.len()));
                parts.extend(fields.iter().flat_map(|(name, value)| [Part::Name(name), Part::Value(value)]));
            }
            Part::Name(name) => writer.string(name),
            Part::Header(tag, end) => {
                writer.integer((writer.0.len() - end) as u64);
                writer.byte(tag);
            }
        }
    }
    writer.0.reverse();
    // The text is valid: its strings are, and all else is ASCII.
    String::from_utf8(writer.0).unwrap_or_default().into()
}

/// A text that is written from its end on.
struct Backwards(Vec<u8>);

impl Backwards {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn integer(&mut self, mut integer: u64) {
        let (mut digits, mut count) = ([0; 11], 0);
        loop {
            let digit = integer.to_le_bytes()[0] % SHORT;
            integer /= u64::from(SHORT);
            digits[count] = if integer > 0 { digit + SHORT } else { digit };
            count += 1;
            if integer == 0 {
                break;
            }
        }
        self.0.extend(digits[..count].iter().rev());
    }

    /// Writes a string with its length before it.
    fn string(&mut self, text: &str) {
        self.0.extend(text.bytes().rev());
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
        enum Rest<'a> {
            Array(ItemIter<'a>),
            Object(FieldIter<'a>),
        }

        let mut open = Vec::new();
        let mut next = Some(*self);
        loop {
            let mut is_first = false;
            if let Some(value) = next {
                match value.node() {
                    PackedNode::Null => f.write_str("null")?,
                    PackedNode::Bool(bool) => write!(f, "{bool}")?,
                    PackedNode::Number(number) => write!(f, "{number}")?,
                    PackedNode::String(text) => quoted(f, text)?,
                    PackedNode::Array(items) => {
                        f.write_char('[')?;
                        open.push(Rest::Array(items));
                        is_first = true;
                    }
                    PackedNode::Object(fields) => {
                        f.write_char('{')?;
                        open.push(Rest::Object(fields));
                        is_first = true;
                    }
                }
            }
            let comma = if is_first { "" } else { "," };
            let (end, more) = match open.last_mut() {
                None => return Ok(()),
                Some(Rest::Array(items)) => (']', items.next().map(|item| (None, item))),
                Some(Rest::Object(fields)) => ('}', fields.next().map(|(name, value)| (Some(name), value))),
            };
            next = more.map(|(_, value)| value);
            match more {
                None => {
                    f.write_char(end)?;
                    open.pop();
                }
                Some((None, _)) => f.write_str(comma)?,
                Some((Some(name), _)) => {
                    f.write_str(comma)?;
                    quoted(f, name)?;
                    f.write_char(':')?;
                }
            }
        }
    }
}

/// Writes a string as JSON.
fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    if text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        return f.write_str(&serde_json::to_string(text).map_err(|_| fmt::Error)?);
    }
    f.write_char('"')?;
    f.write_str(text)?;
    f.write_char('"')
}
