//! Protocol buffer messages as numbered fields. Plain values.

/// The wire type of a field with a length.
const WITH_LENGTH: u64 = 2;

/// A message that was read. It has its fields in order, each with its tag, which combines the number and the wire
/// type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WireMessage<'a>(Vec<(u64, &'a [u8])>);

impl<'a> WireMessage<'a> {
    /// Parses a message. `None` if it is malformed.
    pub(super) fn read(mut rest: &'a [u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let tag = number(&mut rest)?;
            let length = match tag & 7 {
                0 => {
                    let mut after = rest;
                    number(&mut after)?;
                    rest.len() - after.len()
                }
                1 => 8,
                WITH_LENGTH => usize::try_from(number(&mut rest)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let value;
            (value, rest) = rest.split_at_checked(length)?;
            fields.push((tag, value));
        }
        Some(Self(fields))
    }

    /// Returns the fields in order: the number, whether the value is a varint, and the bytes.
    pub(super) fn fields(&self) -> impl Iterator<Item = (u64, bool, &'a [u8])> + '_ {
        self.0.iter().map(|(tag, bytes)| (tag >> 3, tag.is_multiple_of(8), *bytes))
    }

    /// Returns the bytes of a field with a length, or `None` if it is missing.
    pub(super) fn bytes(&self, number: u64) -> Option<&'a [u8]> {
        self.0.iter().rfind(|(tag, _)| *tag == (number << 3) | WITH_LENGTH).map(|(_, bytes)| *bytes)
    }

    /// Returns the text in a field. Empty if it is missing.
    pub(super) fn text(&self, number: u64) -> &'a str {
        self.bytes(number).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// Returns the number in a field. Zero if it is missing.
    pub(super) fn number(&self, field: u64) -> i64 {
        let value = self.0.iter().rfind(|(tag, _)| *tag == field << 3);
        value.and_then(|(_, bytes)| number(&mut &**bytes)).unwrap_or_default().cast_signed()
    }
}

/// Reads a varint.
pub(super) fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..10 {
        let (first, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(first & 0x7f).checked_shl(7 * at)?;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A message that is being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct WireBuffer(Vec<u8>);

impl WireBuffer {
    fn push(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    /// Adds a field with these bytes.
    pub(crate) fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.push(field << 3 | WITH_LENGTH);
        self.push(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a field with a text, unless the text is empty.
    pub(crate) fn text(self, field: u64, text: &str) -> Self {
        if text.is_empty() { self } else { self.bytes(field, text.as_bytes()) }
    }

    /// Adds a field with a message.
    pub(crate) fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Adds a field with a number.
    pub(crate) fn number(mut self, field: u64, value: i64) -> Self {
        self.push(field << 3);
        self.push(value.cast_unsigned());
        self
    }

    /// Returns the bytes of the message.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
