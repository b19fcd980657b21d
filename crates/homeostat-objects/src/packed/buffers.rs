//! The buffers in which a reader builds the packed form of an object.
//!
//! The text is built from beginning to end. The header of an array or object is inserted before its content once its
//! length is known.

use serde_json::Number;

use super::write::{Digits, encode};
use super::{DIGITS, OBJECT, SHORT, STRING};

/// The buffers of [`SharedObject::read`](crate::SharedObject::read). Reuse them for many objects, to save
/// allocations.
#[derive(Debug, Default)]
pub struct ReadBuffers {
    /// The packed values so far.
    pub(super) text: String,
    /// The fields so far of all unfinished objects. The fields of inner objects are last.
    pub(super) fields: Vec<FieldPlace>,
    /// The fields of one object while they are sorted.
    sorted: String,
}

/// The place of a field in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldPlace {
    /// The beginning of the field: the length of its name.
    pub(super) begin: usize,
    /// The beginning of the name.
    pub(super) name: usize,
    /// The beginning of the value.
    pub(super) value: usize,
    pub(super) end: usize,
}

impl FieldPlace {
    pub(super) fn name(self, text: &str) -> &[u8] {
        &text.as_bytes()[self.name..self.value]
    }
}

impl ReadBuffers {
    /// Frees memory above this number of bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.text.shrink_to(bytes);
        self.sorted.shrink_to(bytes);
        self.fields.shrink_to(bytes / size_of::<FieldPlace>());
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.text.push(char::from(byte));
    }

    fn integer(&mut self, integer: u64) {
        self.text.push_str(text(&Digits::of(integer)));
    }

    /// Writes a string with its length before it.
    pub(super) fn name(&mut self, name: &str) {
        match u8::try_from(name.len()) {
            Ok(length @ 0..SHORT) => self.byte(length),
            _ => self.integer(name.len() as u64),
        }
        self.text.push_str(name);
    }

    pub(super) fn string(&mut self, string: &str) {
        if string.len() >= usize::from(SHORT) {
            self.byte(STRING);
        }
        self.name(string);
    }

    pub(super) fn number(&mut self, number: &Number) {
        if let Some((tag, integer)) = encode(number) {
            self.byte(tag);
            self.integer(integer);
        } else {
            self.byte(DIGITS);
            self.name(&number.to_string());
        }
    }

    /// Inserts the header of an array or object before its content, which begins at `start`.
    pub(super) fn header(&mut self, tag: u8, start: usize) {
        let length = (self.text.len() - start) as u64;
        self.text.insert_str(start, text(&Digits::after(tag, length)));
    }

    /// Ends an object that begins at `start`. Its fields begin at number `first`.
    pub(super) fn end_object(&mut self, start: usize, first: usize, is_sorted: bool) {
        if !is_sorted {
            self.sort(start, first);
        }
        self.fields.truncate(first);
        self.header(OBJECT, start);
    }

    /// Sorts the fields of an object. If several fields have the same name, keeps the last.
    fn sort(&mut self, start: usize, first: usize) {
        let Self { text, fields, sorted } = self;
        let fields = &mut fields[first..];
        fields.sort_by(|one, other| one.name(text).cmp(other.name(text)));
        sorted.clear();
        for field in fields.chunk_by(|one, next| one.name(text) == next.name(text)).filter_map(<[_]>::last) {
            sorted.push_str(&text[field.begin..field.end]);
        }
        text.truncate(start);
        text.push_str(sorted);
    }
}

fn text(digits: &Digits) -> &str {
    str::from_utf8(digits.bytes()).unwrap_or_default()
}
