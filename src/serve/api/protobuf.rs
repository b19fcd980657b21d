//! Reads the few messages that clients send only as protocol buffers.

/// The first bytes of a message of Kubernetes.
const MAGIC: &[u8] = b"k8s\0";

/// A message: its fields with a length, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WireMessage<'a>(Vec<(u64, &'a [u8])>);

impl<'a> WireMessage<'a> {
    /// Reads the envelope of a message of Kubernetes. Returns the kind and the message inside.
    pub(super) fn of_kubernetes(bytes: &'a [u8]) -> Option<(&'a str, Self)> {
        let envelope = Self::read(bytes.strip_prefix(MAGIC)?)?;
        Some((envelope.message(1)?.text(2), Self::read(envelope.bytes(2)?)?))
    }

    fn read(mut rest: &'a [u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let tag = number(&mut rest)?;
            let length = match tag & 7 {
                0 => {
                    number(&mut rest)?;
                    continue;
                }
                1 => 8,
                2 => usize::try_from(number(&mut rest)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let value;
            (value, rest) = rest.split_at_checked(length)?;
            if tag & 7 == 2 {
                fields.push((tag >> 3, value));
            }
        }
        Some(Self(fields))
    }

    fn bytes(&self, number: u64) -> Option<&'a [u8]> {
        self.0.iter().rfind(|(known, _)| *known == number).map(|(_, bytes)| *bytes)
    }

    /// Returns the message in a field; `None` if it is missing or malformed.
    pub(super) fn message(&self, number: u64) -> Option<Self> {
        Self::read(self.bytes(number)?)
    }

    /// Returns the text in a field; empty if it is missing.
    pub(super) fn text(&self, number: u64) -> &'a str {
        self.bytes(number).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// Reads a number of variable length.
fn number(rest: &mut &[u8]) -> Option<u64> {
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

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    #[test]
    fn the_envelope_has_a_kind_and_a_message() {
        let inner = [field(1, b"ns"), vec![0x18, 0x96, 0x01], vec![0x25, 1, 2, 3, 4], field(2, b"get")].concat();
        let spec = field(2, &field(1, &inner));
        let kind = [field(1, b"authorization.k8s.io/v1"), field(2, b"SelfSubjectAccessReview")].concat();
        let text = [MAGIC, &field(1, &kind), &field(2, &spec)].concat();
        let (kind, message) = WireMessage::of_kubernetes(&text).unwrap();
        assert_eq!(kind, "SelfSubjectAccessReview");
        let attributes = message.message(2).unwrap().message(1).unwrap();
        assert_eq!((attributes.text(1), attributes.text(2), attributes.text(7)), ("ns", "get", ""));
        for end in 0..text.len() {
            // No prefix makes the reader panic.
            let _ = WireMessage::of_kubernetes(&text[..end]);
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        for text in
            [&b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], b"k8s\0\x0b", b"k8s\0\x0a\x05ab", b"{}"]
        {
            assert_eq!(WireMessage::of_kubernetes(text), None, "{text:?}");
        }
    }
}
