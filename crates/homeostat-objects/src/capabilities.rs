//! The optional abilities of clients.

/// The optional abilities of clients.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Capabilities, Client, MemoryClient};
///
/// assert_eq!(MemoryClient::new().capabilities(), Capabilities::all());
/// assert_eq!(MemoryClient::builder().cascade(false).build().capabilities(), Capabilities::all().cascading(false));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each ability is independent of the others")]
pub struct Capabilities {
    /// Whether dependents are deleted after their owners, see [`Propagation`](super::Propagation).
    pub cascading: bool,
    /// Whether the server can select by any field, not only by `metadata.name`, `metadata.namespace` and fields that
    /// the kind declares. If not, the client selects. Then a [watch](super::Client::watch) that begins at a version may
    /// deliver the deletion of an object that the query did not select before.
    pub field_selectors: bool,
    /// Whether [`DeleteOptions::purge`](super::DeleteOptions::purge) removes objects at once. If not, that option is
    /// [invalid](crate::ClientErrorKind::Invalid).
    pub purge: bool,
    /// Whether lists are cheap and streams never stall, because there is no network. If not, an
    /// [`ObjectWatch`](super::ObjectWatch) begins with a stream instead of a list, and reopens streams that are silent
    /// for too long.
    pub local: bool,
}

impl Capabilities {
    /// Returns the capabilities of the embedded clients.
    #[must_use]
    pub const fn all() -> Self {
        Self { cascading: true, field_selectors: true, purge: true, local: true }
    }

    /// Sets whether dependents are deleted after their owners.
    #[must_use]
    pub const fn cascading(self, cascading: bool) -> Self {
        Self { cascading, ..self }
    }

    /// Sets whether the server selects by any field.
    #[must_use]
    pub const fn field_selectors(self, field_selectors: bool) -> Self {
        Self { field_selectors, ..self }
    }

    /// Sets whether objects with finalizers can be removed at once.
    #[must_use]
    pub const fn purge(self, purge: bool) -> Self {
        Self { purge, ..self }
    }

    /// Sets whether lists are cheap and streams never stall.
    #[must_use]
    pub const fn local(self, local: bool) -> Self {
        Self { local, ..self }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::all()
    }
}
