//! A client's credentials, and the user that it impersonates.

use std::collections::BTreeMap;
use std::path::PathBuf;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::FileOrInline;
use super::exec::ExecPlugin;
use super::secret::Secret;

/// The credentials that a client sends with each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Credentials {
    #[default]
    None,
    Token(Secret<String>),
    /// A file with a token, which may be replaced at any time. `first` is used until the file can be read.
    TokenFile {
        path: PathBuf,
        first: Option<Secret<String>>,
    },
    Password {
        user: String,
        password: Secret<String>,
    },
    Exec(ExecPlugin),
}

/// A client certificate and its key in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) certificate: FileOrInline<Vec<u8>>,
    pub(crate) key: FileOrInline<Secret<Vec<u8>>>,
}

/// The user that a client acts as. The client's own user needs the permission to impersonate.
///
/// # Examples
///
/// ```
/// use homeostat_kubernetes::Impersonation;
///
/// let auditor = Impersonation::new("auditor").group("viewers").extra("reason", "yearly audit");
/// # let _ = auditor;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Impersonation {
    /// The name of the user.
    pub user: String,
    /// The uid of the user.
    pub uid: Option<String>,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Further attributes of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Impersonation {
    /// Acts as this user.
    #[must_use]
    pub fn new(user: impl Into<String>) -> Self {
        Self { user: user.into(), ..Self::default() }
    }

    /// Acts as a member of this group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// Adds a value to a further attribute of the user.
    #[must_use]
    pub fn extra(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.entry(name.into()).or_default().push(value.into());
        self
    }

    /// Returns the impersonation headers. Characters that a header name cannot have are percent-encoded, and the
    /// server decodes them.
    pub(crate) fn headers(&self) -> Vec<(String, String)> {
        let user = ("Impersonate-User".to_owned(), self.user.clone());
        let uid = self.uid.iter().map(|uid| ("Impersonate-Uid".to_owned(), uid.clone()));
        let groups = self.groups.iter().map(|group| ("Impersonate-Group".to_owned(), group.clone()));
        let extra = self.extra.iter().flat_map(|(name, values)| {
            let name = format!("Impersonate-Extra-{}", utf8_percent_encode(name, NOT_IN_NAMES));
            values.iter().map(move |value| (name.clone(), value.clone()))
        });
        std::iter::once(user).chain(uid).chain(groups).chain(extra).collect()
    }
}

/// The characters to encode in a header name: those that RFC 9110 does not allow in a token, and the percent sign.
const NOT_IN_NAMES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impersonation_headers_are_encoded_as_the_server_decodes_them() {
        let mut acts_as =
            Impersonation::new("jane").group("a").group("b").extra("example.com/team %", "x").extra("k", "y");
        acts_as.uid = Some("u-1".to_owned());
        let headers = acts_as.headers();
        let seen: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("Impersonate-User", "jane"),
            ("Impersonate-Uid", "u-1"),
            ("Impersonate-Group", "a"),
            ("Impersonate-Group", "b"),
            ("Impersonate-Extra-example.com%2Fteam%20%25", "x"),
            ("Impersonate-Extra-k", "y"),
        ];
        assert_eq!(seen, expected);
    }
}
