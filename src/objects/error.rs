//! What can go wrong between a program and its objects. Each error names the object.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::key::ObjectKey;
use super::kind::Kind;
use crate::run::error::{Echo, find};

/// The kind and the key of an object, for people to read: `Deployment default/web`. Without a name, if all objects of a kind (in a
/// namespace) are meant. Cloning it copies no text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectRef(Arc<(Kind, ObjectKey)>);

impl ObjectRef {
    /// The object of this kind and key.
    #[must_use]
    pub fn new(kind: &Kind, key: &ObjectKey) -> Self {
        Self(Arc::new((kind.clone(), key.clone())))
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.0.0
    }

    /// Its namespace and name.
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

/// Why a call of a [`Client`](super::Client) did not do what was asked. Nothing has been written then, but for
/// [`Transport`](Self::Transport).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no such object.
    NotFound {
        /// Which.
        object: ObjectRef,
    },
    /// There is an object of this name.
    AlreadyExists {
        /// Which.
        object: ObjectRef,
    },
    /// The object is not as the caller thought: to be read again, and tried again.
    Conflict {
        /// Which.
        object: ObjectRef,
        /// What is different.
        reason: String,
    },
    /// What was asked for makes no sense: trying again is of no use.
    Invalid {
        /// Which.
        object: ObjectRef,
        /// The path of the field: `metadata.name`. Empty if it is all of it.
        field: String,
        /// What it holds.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// The version to watch or to list from is too old: list again, from the start.
    Gone {
        /// What was watched.
        object: ObjectRef,
        /// The version.
        version: String,
    },
    /// The objects cannot be reached, or not be stored. Whether something has been written is not known.
    Transport {
        /// Which.
        object: ObjectRef,
        /// What happened.
        source: Arc<dyn Error + Send + Sync>,
    },
}

impl ClientError {
    /// An [`Invalid`](Self::Invalid).
    #[must_use]
    pub fn invalid(
        object: ObjectRef,
        field: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
    ) -> Self {
        Self::Invalid { object, field: field.into(), value: value.into(), rule: rule.into() }
    }

    /// A [`Transport`](Self::Transport).
    #[must_use]
    pub fn transport(object: ObjectRef, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Transport { object, source: source.into().into() }
    }

    /// The object it is about.
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

    /// Whether it is [`NotFound`](Self::NotFound).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether it is [`AlreadyExists`](Self::AlreadyExists).
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::AlreadyExists { .. })
    }

    /// Whether it is [`Conflict`](Self::Conflict).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether it is [`Invalid`](Self::Invalid).
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid { .. })
    }

    /// Whether it is [`Gone`](Self::Gone).
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    /// Whether it is [`Transport`](Self::Transport).
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
            Self::Gone { version, .. } => write!(f, "{object}: version {version} is too old to go on from"),
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

/// Marks a [conflict](ClientError::Conflict) in the sources of an error, also where a wrapper hides the [`ClientError`] itself.
#[derive(Debug)]
struct Conflicting;

impl fmt::Display for Conflicting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object has changed since it was read")
    }
}

impl Error for Conflicting {}

static CONFLICT: Echo = Echo::fixed(&Conflicting, "read the object again and retry");

/// How many runs of a key in a row may end with a conflict before the next one is a failure: the conflict lasts, and somebody should
/// see it.
pub(crate) const LASTING_CONFLICT: u32 = 5;

/// Whether the error or one of its sources is a [conflict](ClientError::Conflict).
pub(crate) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    find::<Conflicting>(error).is_some()
}

/// What was there already, or is not there any more, is no error to who wanted just that.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Client, ClientError, Ignore, Kind, ObjectKey};
///
/// fn remove(client: &dyn Client, kind: &Kind, key: &ObjectKey) -> Result<(), ClientError> {
///     client.delete(kind, key, &Default::default()).ignore_not_found()?;
///     Ok(())
/// }
/// ```
pub trait Ignore<T> {
    /// `None` instead of [`ClientError::NotFound`].
    ///
    /// # Errors
    ///
    /// All others.
    fn ignore_not_found(self) -> Result<Option<T>, ClientError>;

    /// `None` instead of [`ClientError::AlreadyExists`].
    ///
    /// # Errors
    ///
    /// All others.
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
