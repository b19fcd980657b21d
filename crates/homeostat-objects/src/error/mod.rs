//! The errors of clients. Each error names its object.

mod parts;
#[cfg(all(test, not(loom)))]
mod tests;

use std::error::Error;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

pub use self::parts::{Cause, FieldConflict, ObjectRef};
use homeostat::rt::{Echo, find};
use homeostat::run::RetryAfter;

/// The longest delay that a server can ask for.
const MOST_RETRY_AFTER: Duration = Duration::from_secs(600);

/// An error of a [`Client`](super::Client).
///
/// After a [`Transport`](Self::Transport) error, the write may have happened. After any other error, nothing was
/// written.
///
/// A reconciler can return any of them. All except a [conflict](Self::Conflict) count as failures and are retried with
/// backoff: permissions can be granted, kinds can be installed, and an invalid object can be corrected. After
/// [`TooManyRequests`](Self::TooManyRequests) the retry also waits for the delay that the server asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The object does not exist.
    #[non_exhaustive]
    NotFound {
        /// The object.
        object: ObjectRef,
    },
    /// An object with this name already exists.
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
        /// How the object differs from the expected state.
        reason: String,
        /// The fields that other owners have applied; empty for other conflicts.
        fields: Vec<FieldConflict>,
    },
    /// The request is invalid. The same request fails again.
    #[non_exhaustive]
    Invalid {
        /// The object.
        object: ObjectRef,
        /// The rules that the request breaks: at least one.
        causes: Vec<Cause>,
    },
    /// The server refuses this call: the user lacks permission, or a quota, a policy or the state of the namespace
    /// forbids it.
    #[non_exhaustive]
    Forbidden {
        /// The object.
        object: ObjectRef,
        /// The reason that the server gives.
        reason: String,
    },
    /// The server does not accept the credentials of the client.
    #[non_exhaustive]
    Unauthorized {
        /// The object.
        object: ObjectRef,
        /// The reason that the server gives.
        reason: String,
    },
    /// The server is overloaded, and asks for a later retry.
    #[non_exhaustive]
    TooManyRequests {
        /// The object.
        object: ObjectRef,
        /// The delay that the server asks for, see [`ClientError::retry_after`].
        retry_after: Option<RetryAfter>,
        /// The reason that the server gives.
        reason: String,
    },
    /// The server has no objects of this kind, for example because its definition is not installed.
    #[non_exhaustive]
    KindNotServed {
        /// The object.
        object: ObjectRef,
        /// The reason that the server gives.
        reason: String,
    },
    /// A watch or list cannot continue from its version. List again from the start.
    #[non_exhaustive]
    Gone {
        /// The watched or listed kind, without a name.
        object: ObjectRef,
        /// The version.
        version: String,
        /// Whether the server has not reached the version: it lags, or its storage was restored or replaced.
        is_ahead: bool,
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
        Self::Conflict { object, reason: reason.into(), fields: Vec::new() }
    }

    /// Converts [`NotFound`](Self::NotFound) to a conflict, for a write of an object as it was read: the next run reads
    /// again.
    pub(crate) fn conflict_if_gone(self) -> Self {
        match self {
            Self::NotFound { object } => Self::conflict(object, "it was removed after it was read"),
            other => other,
        }
    }

    /// Converts [`AlreadyExists`](Self::AlreadyExists) to a conflict, for an object that did not exist when it was
    /// read.
    pub(crate) fn conflict_if_made(self) -> Self {
        match self {
            Self::AlreadyExists { object } => Self::conflict(object, "somebody created it after it was read"),
            other => other,
        }
    }

    /// Returns a [`Conflict`](Self::Conflict) error about fields that other owners have applied.
    #[must_use]
    pub fn field_conflicts(object: ObjectRef, fields: Vec<FieldConflict>) -> Self {
        let mut reason = String::new();
        for FieldConflict { field, owner } in &fields {
            let separator = if reason.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(reason, "{separator}{owner:?} has applied another value to {field}");
        }
        Self::Conflict { object, reason, fields }
    }

    /// Returns a [`Gone`](Self::Gone) error for a version that is too old or unknown.
    #[must_use]
    pub fn gone(object: ObjectRef, version: impl Into<String>) -> Self {
        Self::Gone { object, version: version.into(), is_ahead: false }
    }

    /// Returns a [`Gone`](Self::Gone) error for a version that the server has not reached.
    #[must_use]
    pub fn ahead(object: ObjectRef, version: impl Into<String>) -> Self {
        Self::Gone { object, version: version.into(), is_ahead: true }
    }

    /// Returns an [`Invalid`](Self::Invalid) error.
    #[must_use]
    pub fn invalid(
        object: ObjectRef,
        field: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
    ) -> Self {
        Self::with_causes(object, vec![Cause::new(field, value, rule)])
    }

    /// Returns an [`Invalid`](Self::Invalid) error with several causes.
    #[must_use]
    pub fn with_causes(object: ObjectRef, causes: Vec<Cause>) -> Self {
        Self::Invalid { object, causes }
    }

    /// Returns a [`Forbidden`](Self::Forbidden) error.
    #[must_use]
    pub fn forbidden(object: ObjectRef, reason: impl Into<String>) -> Self {
        Self::Forbidden { object, reason: reason.into() }
    }

    /// Returns an [`Unauthorized`](Self::Unauthorized) error.
    #[must_use]
    pub fn unauthorized(object: ObjectRef, reason: impl Into<String>) -> Self {
        Self::Unauthorized { object, reason: reason.into() }
    }

    /// Returns a [`TooManyRequests`](Self::TooManyRequests) error, with the delay that the server asks for. The delay
    /// counts up to ten minutes, so that a wrong answer of a proxy does not stop a controller for a day.
    #[must_use]
    pub fn too_many_requests(object: ObjectRef, retry_after: Option<Duration>, reason: impl Into<String>) -> Self {
        let retry_after = retry_after.map(|delay| RetryAfter::new(delay.min(MOST_RETRY_AFTER)));
        Self::TooManyRequests { object, retry_after, reason: reason.into() }
    }

    /// Returns a [`KindNotServed`](Self::KindNotServed) error.
    #[must_use]
    pub fn kind_not_served(object: ObjectRef, reason: impl Into<String>) -> Self {
        Self::KindNotServed { object, reason: reason.into() }
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
            | Self::Forbidden { object, .. }
            | Self::Unauthorized { object, .. }
            | Self::TooManyRequests { object, .. }
            | Self::KindNotServed { object, .. }
            | Self::Gone { object, .. }
            | Self::Transport { object, .. } => object,
        }
    }

    /// Returns the causes of an [`Invalid`](Self::Invalid) error; empty for other errors.
    #[must_use]
    pub fn causes(&self) -> &[Cause] {
        match self {
            Self::Invalid { causes, .. } => causes,
            _ => &[],
        }
    }

    /// Returns the delay before a retry that an overloaded server asks for: at most ten minutes.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { retry_after, .. } => retry_after.as_ref().map(RetryAfter::delay),
            _ => None,
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

    /// Returns whether it is [`Forbidden`](Self::Forbidden).
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden { .. })
    }

    /// Returns whether it is [`Unauthorized`](Self::Unauthorized).
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Unauthorized { .. })
    }

    /// Returns whether it is [`TooManyRequests`](Self::TooManyRequests).
    #[must_use]
    pub fn is_too_many_requests(&self) -> bool {
        matches!(self, Self::TooManyRequests { .. })
    }

    /// Returns whether it is [`KindNotServed`](Self::KindNotServed).
    #[must_use]
    pub fn is_kind_not_served(&self) -> bool {
        matches!(self, Self::KindNotServed { .. })
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
            Self::Invalid { causes, .. } => {
                write!(f, "{object} is invalid")?;
                for (number, cause) in causes.iter().enumerate() {
                    write!(f, "{} {cause}", if number == 0 { ":" } else { ";" })?;
                }
                Ok(())
            }
            Self::Forbidden { reason, .. } => write!(f, "{object} is forbidden: {reason}"),
            Self::Unauthorized { reason, .. } => {
                write!(
                    f,
                    "{object}: not logged in: {reason} (check whether the credentials are missing, wrong or expired)"
                )
            }
            Self::TooManyRequests { reason, retry_after, .. } => {
                write!(f, "{object}: the server has too many requests: {reason}")?;
                retry_after.as_ref().map_or(Ok(()), |after| write!(f, " ({after})"))
            }
            Self::KindNotServed { reason, .. } => {
                let kind = object.kind();
                write!(
                    f,
                    "{object}: the server does not serve {kind}: {reason} (install the definition of the kind, or check its group, \
                     version and plural)"
                )
            }
            Self::Gone { version, is_ahead: false, .. } => {
                write!(f, "{object}: version {version} is too old or unknown: list again")
            }
            Self::Gone { version, is_ahead: true, .. } => write!(
                f,
                "{object}: the server has not reached version {version}: it lags behind, or its storage was restored or replaced; list again"
            ),
            Self::Transport { source, .. } => write!(f, "{object}: {source}"),
        }
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Transport { source, .. } => source.source(),
            Self::Conflict { .. } => Some(&CONFLICT),
            Self::TooManyRequests { retry_after, .. } => retry_after.as_ref().map(|after| after as _),
            _ => None,
        }
    }
}

/// Marks a [conflict](ClientError::Conflict) in the sources of an error, so that it is found even if a wrapper hides
/// the [`ClientError`].
#[derive(Debug)]
struct Conflicting;

impl fmt::Display for Conflicting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object has changed since it was read")
    }
}

impl Error for Conflicting {}

static CONFLICT: Echo = Echo::fixed(&Conflicting, "read the object again and retry");

/// How many successive runs of a key may end with a conflict. The next conflict counts as a failure, so that somebody
/// notices it.
pub(crate) const LASTING_CONFLICT: u32 = 5;

/// Returns whether the error or one of its sources is a [conflict](ClientError::Conflict).
pub(crate) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    find::<Conflicting>(error).is_some()
}

/// Converts an expected error to `None`: the object is missing, or already exists.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Client, ClientError, DeleteOptions, Ignore, Kind, ObjectKey};
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
