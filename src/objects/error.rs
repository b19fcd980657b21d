//! The errors of clients. Each names its object.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::key::ObjectKey;
use super::kind::Kind;
use crate::run::error::{Echo, find};

/// The kind and key of an object, for messages: `Deployment default/web`. Cloning it copies no text.
///
/// Without a name it stands for all objects of the kind, or of the kind in the namespace.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectRef(Arc<(Kind, ObjectKey)>);

impl ObjectRef {
    /// Returns a reference to the object of this kind and key.
    #[must_use]
    pub fn new(kind: &Kind, key: &ObjectKey) -> Self {
        Self(Arc::new((kind.clone(), key.clone())))
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.0.0
    }

    /// Returns the namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.0.1
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        match (self.key().namespace(), self.key().name()) {
            ("", "") => Ok(()),
            (namespace, "") => write!(f, " {namespace}/"),
            _ => write!(f, " {}", self.key()),
        }
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error of a [`Client`](super::Client).
///
/// Except for [`Transport`](Self::Transport), the call has written nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The object does not exist.
    #[non_exhaustive]
    NotFound {
        /// The object.
        object: ObjectRef,
    },
    /// An object with this name exists already.
    #[non_exhaustive]
    AlreadyExists {
        /// The object.
        object: ObjectRef,
    },
    /// The object is not in the expected state. Read it again and retry.
    #[non_exhaustive]
    Conflict {
        /// The object.
        object: ObjectRef,
        /// The difference.
        reason: String,
    },
    /// The request is invalid. Retrying is of no use.
    #[non_exhaustive]
    Invalid {
        /// The object.
        object: ObjectRef,
        /// The path of the invalid field, such as `metadata.name`; empty for the whole object.
        field: String,
        /// The invalid value.
        value: String,
        /// The rule that the value breaks.
        rule: String,
    },
    /// The version of a watch or list is too old. List again from the start.
    #[non_exhaustive]
    Gone {
        /// The watched or listed kind, without a name.
        object: ObjectRef,
        /// The version.
        version: String,
    },
    /// The client cannot be reached, or cannot store the change. It is unknown whether anything was written.
    #[non_exhaustive]
    Transport {
        /// The object.
        object: ObjectRef,
        /// The cause.
        source: Arc<dyn Error + Send + Sync>,
    },
}

impl ClientError {
    /// Returns a [`NotFound`](Self::NotFound) error.
    #[must_use]
    pub fn not_found(object: ObjectRef) -> Self {
        Self::NotFound { object }
    }

    /// Returns an [`AlreadyExists`](Self::AlreadyExists) error.
    #[must_use]
    pub fn already_exists(object: ObjectRef) -> Self {
        Self::AlreadyExists { object }
    }

    /// Returns a [`Conflict`](Self::Conflict) error.
    #[must_use]
    pub fn conflict(object: ObjectRef, reason: impl Into<String>) -> Self {
        Self::Conflict { object, reason: reason.into() }
    }

    /// Returns a [`Gone`](Self::Gone) error.
    #[must_use]
    pub fn gone(object: ObjectRef, version: impl Into<String>) -> Self {
        Self::Gone { object, version: version.into() }
    }

    /// Returns an [`Invalid`](Self::Invalid) error.
    #[must_use]
    pub fn invalid(
        object: ObjectRef,
        field: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
    ) -> Self {
        Self::Invalid { object, field: field.into(), value: value.into(), rule: rule.into() }
    }

    /// Returns a [`Transport`](Self::Transport) error.
    #[must_use]
    pub fn transport(object: ObjectRef, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Transport { object, source: source.into().into() }
    }

    /// Returns the object that the error is about.
    #[must_use]
    pub fn object(&self) -> &ObjectRef {
        match self {
            Self::NotFound { object }
            | Self::AlreadyExists { object }
            | Self::Conflict { object, .. }
            | Self::Invalid { object, .. }
            | Self::Gone { object, .. }
            | Self::Transport { object, .. } => object,
        }
    }

    /// Returns whether it is [`NotFound`](Self::NotFound).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Returns whether it is [`AlreadyExists`](Self::AlreadyExists).
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::AlreadyExists { .. })
    }

    /// Returns whether it is [`Conflict`](Self::Conflict).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Returns whether it is [`Invalid`](Self::Invalid).
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid { .. })
    }

    /// Returns whether it is [`Gone`](Self::Gone).
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    /// Returns whether it is [`Transport`](Self::Transport).
    #[must_use]
    pub fn is_transport(&self) -> bool {
        matches!(self, Self::Transport { .. })
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object();
        match self {
            Self::NotFound { .. } => write!(f, "{object} is not found"),
            Self::AlreadyExists { .. } => write!(f, "{object} already exists"),
            Self::Conflict { reason, .. } => write!(f, "{object}: conflict: {reason}"),
            Self::Invalid { field, rule, .. } if field.is_empty() => write!(f, "{object} is invalid: {rule}"),
            Self::Invalid { field, value, rule, .. } => {
                write!(f, "{object} is invalid: {field} is {value:?}, but {rule}")
            }
            Self::Gone { version, .. } => {
                write!(f, "{object}: version {version} is too old to continue from: list again")
            }
            Self::Transport { source, .. } => write!(f, "{object}: {source}"),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Transport { source, .. } => source.source(),
            Self::Conflict { .. } => Some(&CONFLICT),
            _ => None,
        }
    }
}

/// Marks a [conflict](ClientError::Conflict) in the sources of an error, so that it is found even if a wrapper hides the
/// [`ClientError`].
#[derive(Debug)]
struct Conflicting;

impl fmt::Display for Conflicting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object has changed since it was read")
    }
}

impl Error for Conflicting {}

static CONFLICT: Echo = Echo::fixed(&Conflicting, "read the object again and retry");

/// The number of successive runs of a key that may end with a conflict. The next conflict counts as a failure, so that somebody
/// notices it.
pub(crate) const LASTING_CONFLICT: u32 = 5;

/// Returns whether the error or one of its sources is a [conflict](ClientError::Conflict).
pub(crate) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    find::<Conflicting>(error).is_some()
}

/// Turns an expected error into `None`: an object that is missing or exists already.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Client, ClientError, DeleteOptions, Ignore, Kind, ObjectKey};
///
/// fn remove(client: &dyn Client, kind: &Kind, key: &ObjectKey) -> Result<(), ClientError> {
///     client.delete(kind, key, &DeleteOptions::default()).ignore_not_found()?;
///     Ok(())
/// }
/// ```
pub trait Ignore<T> {
    /// Returns `None` instead of [`ClientError::NotFound`].
    ///
    /// # Errors
    ///
    /// All other errors.
    fn ignore_not_found(self) -> Result<Option<T>, ClientError>;

    /// Returns `None` instead of [`ClientError::AlreadyExists`].
    ///
    /// # Errors
    ///
    /// All other errors.
    fn ignore_already_exists(self) -> Result<Option<T>, ClientError>;
}

impl<T> Ignore<T> for Result<T, ClientError> {
    fn ignore_not_found(self) -> Result<Option<T>, ClientError> {
        match self {
            Err(ClientError::NotFound { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    fn ignore_already_exists(self) -> Result<Option<T>, ClientError> {
        match self {
            Err(ClientError::AlreadyExists { .. }) => Ok(None),
            other => other.map(Some),
        }
    }
}
