//! The users of a server, with their tokens and passwords.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use crate::access::UserInfo;
use homeostat::base::StartError;

/// The users of a server.
#[derive(Clone, Default)]
pub(super) struct KnownUsers {
    tokens: Vec<(Vec<u8>, UserInfo)>,
    /// Name, colon and password, as HTTP sends them.
    passwords: Vec<(Vec<u8>, UserInfo)>,
}

/// The result of checking the header `Authorization`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientCredentials {
    /// The request has no credentials.
    Missing,
    /// The server does not accept the credentials.
    Wrong(&'static str),
    Of(UserInfo),
}

impl KnownUsers {
    pub(super) fn add_token(&mut self, token: String, user: UserInfo) {
        self.tokens.push((token.into_bytes(), user));
    }

    pub(super) fn add_password(&mut self, password: &str, user: UserInfo) {
        self.passwords.push((format!("{}:{password}", user.name).into_bytes(), user));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.passwords.is_empty()
    }

    pub(super) fn has_passwords(&self) -> bool {
        !self.passwords.is_empty()
    }

    /// Returns the first error in the settings.
    pub(super) fn fault(&self) -> Option<StartError> {
        let mut users = self.tokens.iter().chain(&self.passwords).map(|(_, user)| user);
        if users.any(|user| user.name.is_empty()) {
            return Some(StartError::setting("user", &"", "a name"));
        }
        // An empty secret is no secret. A token must fit into a header.
        let is_token = |token: &[u8]| !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
        if self.tokens.iter().any(|(token, _)| !is_token(token)) {
            return Some(StartError::setting("token", &HiddenSecret, "one or more printable ASCII characters"));
        }
        if self.passwords.iter().any(|(pair, user)| pair.len() == user.name.len() + 1 || user.name.contains(':')) {
            return Some(StartError::setting(
                "password",
                &HiddenSecret,
                "not empty, and its user's name must have no colon",
            ));
        }
        None
    }

    /// Checks the value of the header `Authorization`. `is_private` says whether nobody else can read the connection.
    pub(super) fn check(&self, authorization: Option<&str>, is_private: bool) -> ClientCredentials {
        let Some(authorization) = authorization else { return ClientCredentials::Missing };
        let (scheme, value) = authorization.split_once(' ').unwrap_or((authorization, ""));
        let value = value.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return find(&self.tokens, value.as_bytes(), "the token is wrong");
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return ClientCredentials::Wrong("the server supports only Bearer and Basic");
        }
        if !is_private {
            return ClientCredentials::Wrong("the server accepts passwords only on loopback and over TLS");
        }
        match STANDARD.decode(value) {
            Ok(pair) => find(&self.passwords, &pair, "the name or the password is wrong"),
            Err(_) => ClientCredentials::Wrong("the name and the password are not in base64"),
        }
    }
}

/// Compares a secret with all known secrets. The time reveals their lengths, but not which one is similar.
fn find(known: &[(Vec<u8>, UserInfo)], secret: &[u8], wrong: &'static str) -> ClientCredentials {
    let mut found = ClientCredentials::Wrong(wrong);
    for (expected, user) in known {
        if expected.ct_eq(secret).into() {
            found = ClientCredentials::Of(user.clone());
        }
    }
    found
}

/// A placeholder for a secret in messages.
struct HiddenSecret;

impl fmt::Debug for HiddenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

impl fmt::Debug for KnownUsers {
    /// Shows no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.tokens.iter().chain(&self.passwords).map(|(_, user)| &user.name);
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> KnownUsers {
        let mut users = KnownUsers::default();
        users.add_token("first".to_owned(), UserInfo::new("ada"));
        users.add_token("second".to_owned(), UserInfo::new("bob").group("admins"));
        users.add_password("open:sesame", UserInfo::new("eve"));
        users
    }

    #[test]
    fn tokens_and_passwords_name_their_users() {
        for (authorization, name) in
            [("Bearer first", "ada"), ("bearer  second", "bob"), ("Basic ZXZlOm9wZW46c2VzYW1l", "eve")]
        {
            let ClientCredentials::Of(user) = users().check(Some(authorization), true) else {
                panic!("{authorization}")
            };
            assert_eq!(user.name, name);
        }
    }

    #[test]
    fn other_credentials_are_wrong() {
        for authorization in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer firs",
            "Bearer first1",
            "Bearer FIRST",
            "Bearer first second",
            "first",
            "Basic",
            "Basic !",
            "Basic ZXZl",
            "Basic ZXZlOg==",
            "Digest first",
            "Bearer ada",
        ] {
            assert!(matches!(users().check(Some(authorization), true), ClientCredentials::Wrong(_)), "{authorization}");
        }
        assert_eq!(users().check(None, true), ClientCredentials::Missing);
    }

    #[test]
    fn passwords_are_refused_where_others_can_read_them() {
        assert!(matches!(users().check(Some("Basic ZXZlOm9wZW46c2VzYW1l"), false), ClientCredentials::Wrong(_)));
        assert!(matches!(users().check(Some("Bearer first"), false), ClientCredentials::Of(_)));
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(format!("{:?}", users()), r#"["ada", "bob", "eve"]"#);
    }
}
