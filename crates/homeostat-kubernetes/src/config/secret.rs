//! Texts and bytes that never appear in logs.

use std::fmt;

/// A secret. Its `Debug` output hides the content.
#[derive(Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret<T>(T);

impl<T> Secret<T> {
    pub(crate) fn new(content: T) -> Self {
        Self(content)
    }

    /// Returns the content, for a server or the TLS library.
    pub(crate) fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
