//! Seeds of `nkeys` and credentials files.
//!
//! A seed is base32 of two prefix bytes, 32 bytes of an ed25519 seed and a CRC-16 (XMODEM), as nats-io/nkeys
//! describes.

use std::fmt;
use std::fs;
use std::path::Path;

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use ring::signature::{Ed25519KeyPair, KeyPair};

use super::error::NatsError;

/// The first prefix byte of a seed. The second one starts with the role, such as a user.
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;

/// The key pair of a user.
pub(super) struct UserKey(Ed25519KeyPair);

impl UserKey {
    /// Parses a seed such as `SUAC…`. Errors do not contain the text.
    pub(super) fn from_seed(option: &str, seed: &str) -> Result<Self, NatsError> {
        let fault = |rule: &str| Err(NatsError::invalid(option, Hidden, rule));
        let Ok(bytes) = BASE32_NOPAD.decode(seed.trim_start_matches('\u{feff}').trim().as_bytes()) else {
            return fault("a seed in base32, such as SUAC…");
        };
        let Some((body, checksum)) = bytes.split_last_chunk::<2>() else {
            return fault("a seed of 58 characters");
        };
        if crc16(body) != u16::from_le_bytes(*checksum) {
            return fault("a seed without typing errors: its checksum is wrong");
        }
        let [prefix, role, key @ ..] = body else { return fault("a seed of 58 characters") };
        if prefix & 0xf8 != SEED {
            return fault("a seed, which begins with an S, not a public key");
        }
        if (prefix & 7) << 5 | role >> 3 != USER {
            return fault("the seed of a user, which begins with SU");
        }
        match Ed25519KeyPair::from_seed_unchecked(key) {
            Ok(pair) => Ok(Self(pair)),
            Err(_) => fault("a seed of 58 characters"),
        }
    }

    /// Returns the public key as text, such as `UAFH…`.
    pub(super) fn public(&self) -> String {
        let mut bytes = vec![USER];
        bytes.extend_from_slice(self.0.public_key().as_ref());
        bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
        BASE32_NOPAD.encode(&bytes)
    }

    /// Signs a server's challenge.
    pub(super) fn sign(&self, nonce: &str) -> String {
        BASE64URL_NOPAD.encode(self.0.sign(nonce.as_bytes()).as_ref())
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserKey({})", self.public())
    }
}

/// A placeholder for a secret in an error.
struct Hidden;

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The contents of a credentials file.
#[derive(Debug)]
pub(super) struct FileCredentials {
    pub(super) jwt: String,
    pub(super) key: UserKey,
}

/// Reads a credentials file, which has a JWT and a seed, each between lines of dashes.
pub(super) fn read_credentials(path: &Path) -> Result<FileCredentials, NatsError> {
    let fault = |rule: String| NatsError::invalid("credentials file", path, rule);
    let bytes = fs::read(path).map_err(|error| fault(format!("a readable file: {error}")))?;
    let text = decode(&bytes).ok_or_else(|| fault("a file in UTF-8 or UTF-16".to_owned()))?;
    let section = |name: &str| {
        let mut lines = text.lines().map(str::trim);
        lines.find(|line| line.starts_with("---") && line.contains("BEGIN") && line.contains(name))?;
        let body: String = lines.take_while(|line| !line.starts_with("---")).collect();
        (!body.is_empty()).then_some(body)
    };
    let missing = |name| fault(format!("a file with a section \"-----BEGIN {name}-----\""));
    let jwt = section("NATS USER JWT").ok_or_else(|| missing("NATS USER JWT"))?;
    let seed = section("USER NKEY SEED").ok_or_else(|| missing("USER NKEY SEED"))?;
    let option = format!("the seed in credentials file {}", path.display());
    Ok(FileCredentials { jwt, key: UserKey::from_seed(&option, &seed)? })
}

/// Reads a text file in UTF-8 or UTF-16. Editors on Windows begin both with a byte order mark.
fn decode(bytes: &[u8]) -> Option<String> {
    let units = |read: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes[2..].as_chunks::<2>();
        let units = pairs.iter().map(|pair| read(*pair)).collect::<Vec<_>>();
        String::from_utf16(&units).ok().filter(|_| rest.is_empty())
    };
    match bytes {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, text @ ..] | text => String::from_utf8(text.to_vec()).ok(),
    }
}

/// CRC-16 with the polynomial 0x1021 and the initial value 0 (XMODEM).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The check value that catalogues of CRCs publish for XMODEM.
    #[test]
    fn the_checksum_is_crc_16_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    /// Seed and public key come from the configuration files of nats.rs (`async-nats/tests/configs`, Apache-2.0).
    #[test]
    fn a_seed_has_the_public_key_that_servers_know() {
        let seed = "SUACH75SWCM5D2JMJM6EKLR2WDARVGZT4QC6LX3AGHSWOMVAKERABBBRWM";
        let key = UserKey::from_seed("nkey", seed).unwrap();
        assert_eq!(key.public(), "UAFHG6FUD2UU4SDFVAFUL5LDFO2XM4WYM76UNXTPJYJK7EEMYRBHT2VE");
        assert!(!format!("{key:?}").contains("SUAC"));
        // A signature of 64 bytes in base64.
        assert_eq!(key.sign("nonce").len(), 86);
    }

    #[test]
    fn texts_have_any_byte_order_mark() {
        let with_mark = |units: fn(u16) -> [u8; 2]| "\u{feff}é\n".encode_utf16().flat_map(units).collect::<Vec<_>>();
        let texts = ["é\n".into(), "\u{feff}é\n".into(), with_mark(u16::to_le_bytes), with_mark(u16::to_be_bytes)];
        for bytes in texts {
            assert_eq!(decode(&bytes).as_deref(), Some("é\n"), "{bytes:?}");
        }
        for bytes in [&b"\xff\xfea"[..], b"\xfe\xff\xd8\0", b"\xff", b"a\xff"] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn malformed_seeds_are_refused_without_their_text() {
        let cases = [
            ("", "a seed of 58 characters"),
            ("SU", "a seed of 58 characters"),
            ("not base32!", "a seed in base32, such as SUAC…"),
            ("SUACH75SWCM5D2JMJM6EKLR2WDARVGZT4QC6LX3AGHSWOMVAKERABBBAWM", "its checksum is wrong"),
            ("UAFHG6FUD2UU4SDFVAFUL5LDFO2XM4WYM76UNXTPJYJK7EEMYRBHT2VE", "begins with an S, not a public key"),
        ];
        for (seed, rule) in cases {
            let error = UserKey::from_seed("nkey", seed).unwrap_err();
            assert!(error.is_invalid());
            let text = error.to_string();
            assert!(text.starts_with("nkey is (hidden), but must be a seed"), "{text}");
            assert!(text.contains(rule), "{text}");
        }
        let mut account = vec![SEED, 0];
        account.extend([7; 32]);
        account.extend(crc16(&account).to_le_bytes());
        let text = UserKey::from_seed("nkey", &BASE32_NOPAD.encode(&account)).unwrap_err().to_string();
        assert_eq!(text, "nkey is (hidden), but must be the seed of a user, which begins with SU");
    }
}
