//! Reads the user from a client's certificate.
//!
//! `webpki` finds the subject of a certificate, but does not read it. The subject is a DER value (X.690), a sequence of
//! sets of `SEQUENCE { type, value }` (RFC 5280, section 4.1.2.4), that TLS has already verified.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::access::UserInfo;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// The tags of `UTF8String`, `PrintableString` and `IA5String`.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// The object identifier of `commonName`, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// The object identifier of `organizationName`, 2.5.4.10.
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];

/// Returns the user of a certificate. The common name of its subject is the user's name, and its organizations are the
/// groups.
///
/// # Errors
///
/// Returns a message for the client unless the subject has exactly one common name.
pub(super) fn user_of(certificate: &CertificateDer<'_>) -> Result<UserInfo, &'static str> {
    let (mut names, groups) = names_of(certificate).ok_or("the subject of the client certificate cannot be read")?;
    match (names.pop(), names.pop()) {
        (Some(name), None) => Ok(UserInfo { name, groups }),
        (None, _) => Err("the client certificate names no user: its subject has no common name (CN)"),
        // Two names could be read as two users.
        _ => Err("the client certificate names several users: its subject has several common names (CN)"),
    }
}

/// Returns the common names and the organizations of a certificate's subject.
fn names_of(certificate: &CertificateDer<'_>) -> Option<(Vec<String>, Vec<String>)> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut subject = certificate.subject();
    let mut names = Vec::new();
    let mut groups = Vec::new();
    while !subject.is_empty() {
        let (mut attributes, after) = value_of(SET, subject)?;
        subject = after;
        while !attributes.is_empty() {
            let (attribute, after) = value_of(SEQUENCE, attributes)?;
            attributes = after;
            let (kind, value) = value_of(OBJECT_IDENTIFIER, attribute)?;
            if kind == COMMON_NAME {
                names.push(text(value)?);
            } else if kind == ORGANIZATION {
                groups.push(text(value)?);
            }
        }
    }
    Some((names, groups))
}

/// Reads a text without control characters.
fn text(bytes: &[u8]) -> Option<String> {
    let (tag, value, _) = element(bytes)?;
    let text = std::str::from_utf8(value).ok()?;
    let is_plain = TEXTS.contains(&tag) && !text.is_empty() && !text.contains(char::is_control);
    is_plain.then(|| text.to_owned())
}

/// Returns the content of the first element, which must have this tag, and the remaining bytes.
fn value_of(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, value, rest) = element(bytes)?;
    (found == tag).then_some((value, rest))
}

/// Returns the tag and the content of the first element, and the remaining bytes.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    // The attributes of a subject have tags of one byte.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        // The length has at most three bytes, which is more than TLS can transmit.
        let count = usize::from(first & 0x7f);
        if !(1..=3).contains(&count) || rest.len() < count {
            return None;
        }
        let (digits, after) = rest.split_at(count);
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        rest = after;
    }
    if length > rest.len() {
        return None;
    }
    let (value, rest) = rest.split_at(length);
    Some((tag, value, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VERSION: u8 = 0xa0;
    const BIT_STRING: u8 = 0x03;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match u8::try_from(content.len()) {
            Ok(length) if length < 0x80 => bytes.push(length),
            _ => {
                bytes.push(0x82);
                bytes.extend_from_slice(&u16::try_from(content.len()).unwrap().to_be_bytes());
            }
        }
        bytes.extend_from_slice(content);
        bytes
    }

    fn attribute(kind: [u8; 3], tag: u8, text: &[u8]) -> Vec<u8> {
        let content = [der(OBJECT_IDENTIFIER, &kind), der(tag, text)].concat();
        der(SET, &der(SEQUENCE, &content))
    }

    /// Returns the third version of a certificate, if `version` is true, or the first one.
    fn certificate(version: bool, subject: &[Vec<u8>]) -> CertificateDer<'static> {
        let mut fields = if version { der(VERSION, &der(2, &[2])) } else { Vec::new() };
        fields.extend(der(2, &[7]));
        let issuer = attribute(COMMON_NAME, 0x0c, b"the authority");
        for field in [&[][..], &issuer, &[]] {
            fields.extend(der(SEQUENCE, field));
        }
        fields.extend(der(SEQUENCE, &subject.concat()));
        fields.extend(der(SEQUENCE, &[0; 300]));
        der(SEQUENCE, &[der(SEQUENCE, &fields), der(SEQUENCE, &[]), der(BIT_STRING, &[0])].concat()).into()
    }

    #[test]
    fn the_subject_names_the_user_and_the_groups() {
        let subject = [
            attribute(ORGANIZATION, 0x13, b"admins"),
            attribute([0x55, 4, 6], 0x13, b"DE"),
            attribute(COMMON_NAME, 0x0c, "größe".as_bytes()),
            attribute(ORGANIZATION, 0x0c, b"night shift"),
        ];
        let expected = UserInfo::new("größe").group("admins").group("night shift");
        assert_eq!(user_of(&certificate(true, &subject)), Ok(expected));
        // TLS refuses it too.
        assert_eq!(user_of(&certificate(false, &subject)), Err("the subject of the client certificate cannot be read"));
    }

    #[test]
    fn subjects_that_are_not_clear_name_nobody() {
        let name = attribute(COMMON_NAME, 0x0c, b"ada");
        let (none, several, unreadable) = ("names no user", "names several users", "cannot be read");
        let subjects: [(&str, &[Vec<u8>]); 7] = [
            (none, &[]),
            (none, &[attribute(ORGANIZATION, 0x0c, b"admins")]),
            (several, &[name.clone(), name.clone()]),
            (unreadable, &[attribute(COMMON_NAME, 0x0c, b"")]),
            (unreadable, &[attribute(COMMON_NAME, 0x0c, b"ada\0")]),
            (unreadable, &[attribute(COMMON_NAME, 0x0c, b"\xff")]),
            // A text in UTF-16.
            (unreadable, &[attribute(COMMON_NAME, 0x1e, b"\0a")]),
        ];
        for (expected, subject) in subjects {
            let message = user_of(&certificate(true, subject)).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_cut_certificate_names_nobody() {
        let whole = certificate(true, &[attribute(COMMON_NAME, 0x0c, b"ada")]);
        assert!(user_of(&whole).is_ok());
        for length in 0..whole.len() {
            assert!(user_of(&whole[..length].into()).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            at in 0_usize..400, byte: u8, bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = user_of(&bytes.into());
            let mut whole = certificate(true, &[attribute(COMMON_NAME, 0x0c, b"ada")]).to_vec();
            let at = at % whole.len();
            whole[at] = byte;
            let _ = user_of(&whole.into());
        }
    }
}
