//! The packed form of JSON: one text that holds a whole object and is read in place. Plain values.
//!
//! A packed value begins with a header of ASCII characters:
//!
//! | first byte | value | after it |
//! |---|---|---|
//! | 0 to 63 | a string of this many bytes | the string |
//! | `s` | a string | its length, the string |
//! | `n`, `t`, `f` | null, true, false | |
//! | `u` | an integer that is not negative | the integer |
//! | `i` | a negative integer | the integer with all bits inverted |
//! | `d` | a float | its bits, the last byte first, because round numbers end with zeros |
//! | `N` | any other number, which only exists with `arbitrary_precision` of `serde_json` | its length, its digits |
//! | `a` | an array | its length in bytes, its items |
//! | `o` | an object | its length in bytes, its fields: the length of the name, the name, the value |
//!
//! Integers and lengths are written in digits of six bits, the lowest first. All digits but the last have 64 added.
//!
//! # Invariants
//!
//! - A packed value is valid UTF-8, and each string in it is a slice of the text. A reader checks only the borders of a
//!   string, in constant time, and needs no `unsafe`.
//! - A reader skips a value without looking into it.
//! - Fields keep the order that they had in the [`Value`]. Fields that were read from text are sorted by name.
//! - Only reading texts (`read`), reading into types (`de`) and [`Serialize`] recurse. All other code accepts values of
//!   any depth.

mod buffers;
mod de;
mod read;
#[cfg(test)]
mod tests;
mod write;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Number, Value};

pub use self::buffers::ReadBuffers;
pub(super) use self::read::read_object;
pub(super) use self::write::pack;

/// Shorter strings have a header of one byte.
const SHORT: u8 = 64;
const STRING: u8 = b's';
const NULL: u8 = b'n';
const TRUE: u8 = b't';
const FALSE: u8 = b'f';
const UNSIGNED: u8 = b'u';
const NEGATIVE: u8 = b'i';
const FLOAT: u8 = b'd';
const DIGITS: u8 = b'N';
const ARRAY: u8 = b'a';
const OBJECT: u8 = b'o';

/// A packed value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed<'a>(&'a str);

/// The content of a packed value.
pub(super) enum PackedNode<'a> {
    Null,
    Bool(bool),
    Number(Number),
    String(&'a str),
    Array(ItemIter<'a>),
    Object(FieldIter<'a>),
}

/// The items of an array.
#[derive(Clone, Default)]
pub(super) struct ItemIter<'a>(&'a str);

/// The names and values of an object's fields.
#[derive(Clone, Default)]
pub(super) struct FieldIter<'a>(&'a str);

/// Reads an integer at the beginning of a text. Returns the rest of the text too.
#[inline]
fn integer(text: &str) -> Option<(u64, &str)> {
    match *text.as_bytes().first()? {
        digit @ 0..SHORT => Some((u64::from(digit), text.get(1..)?)),
        _ => long_integer(text),
    }
}

/// Reads an integer of several digits.
fn long_integer(text: &str) -> Option<(u64, &str)> {
    let mut value = 0;
    for (at, byte) in text.bytes().enumerate().take(11) {
        value |= u64::from(byte % SHORT) << (6 * at);
        if byte < SHORT {
            return Some((value, text.get(at + 1..)?));
        }
    }
    None
}

/// Splits a string with a length prefix off the beginning of a text.
fn string(text: &str) -> Option<(&str, &str)> {
    let (length, rest) = integer(text)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// Splits a value off the beginning of a text.
fn value(text: &str) -> Option<(Packed<'_>, &str)> {
    let length = match *text.as_bytes().first()? {
        short @ 0..SHORT => usize::from(short) + 1,
        NULL | TRUE | FALSE => 1,
        UNSIGNED | NEGATIVE | FLOAT => text.len() - integer(text.get(1..)?)?.1.len(),
        _ => {
            let (length, rest) = integer(text.get(1..)?)?;
            text.len() - rest.len() + usize::try_from(length).ok()?
        }
    };
    text.split_at_checked(length).map(|(value, rest)| (Packed(value), rest))
}

impl<'a> Iterator for ItemIter<'a> {
    type Item = Packed<'a>;

    fn next(&mut self) -> Option<Packed<'a>> {
        let (item, rest) = value(self.0)?;
        self.0 = rest;
        Some(item)
    }
}

impl<'a> Iterator for FieldIter<'a> {
    type Item = (&'a str, Packed<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = string(self.0)?;
        let (value, rest) = value(rest)?;
        self.0 = rest;
        Some((name, value))
    }
}

impl<'a> Packed<'a> {
    /// Returns the value in a text that [`pack`] has made.
    pub(super) fn new(text: &'a str) -> Self {
        Self(text)
    }

    pub(super) fn node(self) -> PackedNode<'a> {
        // A text that is not a packed value counts as null.
        self.read().unwrap_or(PackedNode::Null)
    }

    fn read(self) -> Option<PackedNode<'a>> {
        let (first, rest) = (*self.0.as_bytes().first()?, self.0.get(1..)?);
        Some(match first {
            0..SHORT => PackedNode::String(rest),
            STRING => PackedNode::String(integer(rest)?.1),
            TRUE => PackedNode::Bool(true),
            FALSE => PackedNode::Bool(false),
            UNSIGNED => PackedNode::Number(integer(rest)?.0.into()),
            NEGATIVE => PackedNode::Number(i64::from_le_bytes((!integer(rest)?.0).to_le_bytes()).into()),
            FLOAT => PackedNode::Number(Number::from_f64(f64::from_bits(integer(rest)?.0.swap_bytes()))?),
            DIGITS => PackedNode::Number(serde_json::from_str(integer(rest)?.1).ok()?),
            ARRAY => PackedNode::Array(ItemIter(integer(rest)?.1)),
            OBJECT => PackedNode::Object(FieldIter(integer(rest)?.1)),
            _ => return None,
        })
    }

    /// Returns the string; `None` for any other value.
    pub(super) fn as_str(self) -> Option<&'a str> {
        if let PackedNode::String(text) = self.node() { Some(text) } else { None }
    }

    /// Returns the number; `None` for any other value.
    pub(super) fn number(self) -> Option<Number> {
        if let PackedNode::Number(number) = self.node() { Some(number) } else { None }
    }

    /// Returns the items of an array. Any other value has none.
    pub(super) fn items(self) -> ItemIter<'a> {
        if let PackedNode::Array(items) = self.node() { items } else { ItemIter::default() }
    }

    /// Returns the fields of an object. Any other value has none.
    pub(super) fn fields(self) -> FieldIter<'a> {
        if let PackedNode::Object(fields) = self.node() { fields } else { FieldIter::default() }
    }

    pub(super) fn get(self, name: &str) -> Option<Self> {
        self.fields().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Does the same as [`Value::pointer`].
    pub(super) fn pointer(self, pointer: &str) -> Option<Self> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |value, step| match value.node() {
            PackedNode::Object(_) if step.contains('~') => value.get(&step.replace("~1", "/").replace("~0", "~")),
            PackedNode::Object(_) => value.get(step),
            PackedNode::Array(mut items) => items.nth(index(step)?),
            _ => None,
        })
    }

    /// Returns a copy as a [`Value`].
    pub(super) fn to_value(self) -> Value {
        /// An unfinished array or object, its remaining content, and the name of the next field.
        enum Unfinished<'a> {
            Array(Vec<Value>, ItemIter<'a>),
            Object(Map<String, Value>, FieldIter<'a>, &'a str),
        }

        let mut open: Vec<Unfinished<'a>> = Vec::new();
        let mut next = self;
        loop {
            let mut done = match next.node() {
                PackedNode::Null => Value::Null,
                PackedNode::Bool(bool) => Value::Bool(bool),
                PackedNode::Number(number) => Value::Number(number),
                PackedNode::String(text) => Value::String(text.to_owned()),
                PackedNode::Array(mut items) => match items.next() {
                    Some(first) => {
                        next = first;
                        open.push(Unfinished::Array(Vec::new(), items));
                        continue;
                    }
                    None => Value::Array(Vec::new()),
                },
                PackedNode::Object(mut fields) => match fields.next() {
                    Some((name, first)) => {
                        next = first;
                        open.push(Unfinished::Object(Map::new(), fields, name));
                        continue;
                    }
                    None => Value::Object(Map::new()),
                },
            };
            // Put the value into the array or object around it, until one has more content.
            loop {
                done = match open.pop() {
                    None => return done,
                    Some(Unfinished::Array(mut array, mut items)) => {
                        array.push(done);
                        if let Some(item) = items.next() {
                            next = item;
                            open.push(Unfinished::Array(array, items));
                            break;
                        }
                        Value::Array(array)
                    }
                    Some(Unfinished::Object(mut object, mut fields, name)) => {
                        object.insert(name.to_owned(), done);
                        if let Some((name, field)) = fields.next() {
                            next = field;
                            open.push(Unfinished::Object(object, fields, name));
                            break;
                        }
                        Value::Object(object)
                    }
                };
            }
        }
    }
}

/// Returns the index that a step of a JSON pointer names. RFC 6901 allows only one notation.
fn index(step: &str) -> Option<usize> {
    let is_other_form = step.starts_with('+') || (step.starts_with('0') && step.len() > 1);
    if is_other_form { None } else { step.parse().ok() }
}

impl Serialize for Packed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.node() {
            PackedNode::Null => serializer.serialize_unit(),
            PackedNode::Bool(bool) => serializer.serialize_bool(bool),
            PackedNode::Number(number) => number.serialize(serializer),
            PackedNode::String(text) => serializer.serialize_str(text),
            PackedNode::Array(items) => {
                let mut array = serializer.serialize_seq(Some(items.clone().count()))?;
                for item in items {
                    array.serialize_element(&item)?;
                }
                array.end()
            }
            PackedNode::Object(fields) => {
                let mut object = serializer.serialize_map(Some(fields.clone().count()))?;
                for (name, value) in fields {
                    object.serialize_entry(name, &value)?;
                }
                object.end()
            }
        }
    }
}
