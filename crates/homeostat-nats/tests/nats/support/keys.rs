//! The keys and tokens of operators, accounts and users.

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

/// A key pair with its role.
pub(crate) struct Keys {
    role: u8,
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

impl Keys {
    pub(crate) fn operator() -> Self {
        Self::new(14 << 3)
    }

    pub(crate) fn account() -> Self {
        Self::new(0)
    }

    pub(crate) fn user() -> Self {
        Self::new(20 << 3)
    }

    fn new(role: u8) -> Self {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).unwrap();
        Self { role, seed, pair: Ed25519KeyPair::from_seed_unchecked(&seed).unwrap() }
    }

    pub(crate) fn public(&self) -> String {
        encode(&[&[self.role][..], self.pair.public_key().as_ref()].concat())
    }

    pub(crate) fn seed(&self) -> String {
        let prefix = [18 << 3 | self.role >> 5, (self.role & 31) << 3];
        encode(&[&prefix[..], &self.seed].concat())
    }

    /// Returns a token about `subject`, signed with this key.
    pub(crate) fn token(&self, name: &str, subject: &Self, claims: &Value) -> String {
        let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
        let body = json!({
            "jti": name, "iat": 1_700_000_000, "iss": self.public(), "name": name, "sub": subject.public(),
            "nats": claims,
        });
        let text = format!("{}.{}", base64(header.to_string().as_bytes()), base64(body.to_string().as_bytes()));
        format!("{text}.{}", base64(self.pair.sign(text.as_bytes()).as_ref()))
    }

    pub(crate) fn account_claims() -> Value {
        let limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        });
        json!({"limits": limits, "type": "account", "version": 2})
    }

    pub(crate) fn user_claims() -> Value {
        json!({"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2})
    }
}

/// Returns the content of a credentials file.
pub(crate) fn credentials(token: &str, seed: &str) -> String {
    format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\nKeep it secret.\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

fn base64(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}

fn encode(bytes: &[u8]) -> String {
    let mut crc = 0_u16;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    BASE32_NOPAD.encode(&[bytes, &crc.to_le_bytes()].concat())
}
