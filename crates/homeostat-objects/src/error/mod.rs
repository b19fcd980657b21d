//! The errors of clients. Each error names its object.

mod parts;
#[cfg(all(test, not(loom)))]
mod tests;

use std::error::Error;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

pub use self::parts::{Cause, FieldConflict, ObjectRef};
use homeostat::rt::{Echo, debug_with_causes, find};
use homeostat::run::RetryAfter;

/// The longest delay that a server can ask for.
const MOST_RETRY_AFTER: Duration = Duration::from_secs(600);

/// An error of a [`Client`](super::Client): its [kind](Self::kind), its [object](Self::object), and for some kinds the
/// [reason](Self::reason) that the server gives, or a [source](Error::source).
///
/// The text does not include the source. [`Chain`](homeostat::rt::Chain) and `{error:?}` show both.
///
/// After a [`Transport`](ClientErrorKind::Transport) error, the write may have happened. After any other error, nothing
/// was written.
///
/// A reconciler can return any of them. All except a [conflict](ClientErrorKind::Conflict) count as failures and are
/// retried with backoff: permissions can be granted, kinds can be installed, and an invalid object can be corrected.
/// After [`TooManyRequests`](ClientErrorKind::TooManyRequests) the retry also waits for the delay that the server asks
/// for.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Client, ClientError, ClientErrorKind, Kind, ObjectKey};
///
/// /// Returns whether the object exists, or `None` if this program may not read it.
/// fn exists(client: &dyn Client, kind: &Kind, key: &ObjectKey) -> Result<Option<bool>, ClientError> {
///     match client.get(kind, key) {
///         Ok(_) => Ok(Some(true)),
///         Err(error) => match error.kind() {
///             ClientErrorKind::NotFound => Ok(Some(false)),
///             ClientErrorKind::Forbidden => Ok(None),
///             _ => Err(error),
///         },
///     }
/// }
/// ```
#[derive(Clone)]
pub struct ClientError(Box<ClientErrorParts>);

#[derive(Clone)]
struct ClientErrorParts {
    object: ObjectRef,
    kind: ClientErrorKind,
    /// Empty if the kind says everything.
    reason: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The kind of a [`ClientError`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// The object does not exist.
    NotFound,
    /// An object with this name already exists.
    AlreadyExists,
    /// The object is not in the expected state, and the [reason](ClientError::reason) says how. Read it again and
    /// retry.
    #[non_exhaustive]
    Conflict {
        /// The fields that other owners have applied; empty for other conflicts.
        fields: Vec<FieldConflict>,
    },
    /// The request is invalid. The same request fails again.
    #[non_exhaustive]
    Invalid {
        /// The rules that the request breaks: at least one.
        causes: Vec<Cause>,
    },
    /// The server refuses this call: the user lacks permission, or a quota, a policy or the state of the namespace
    /// forbids it.
    Forbidden,
    /// The server does not accept the credentials of the client.
    Unauthorized,
    /// The server is overloaded, and asks for a later retry.
    #[non_exhaustive]
    TooManyRequests {
        /// The delay that the server asks for: at most ten minutes.
        retry_after: Option<Duration>,
    },
    /// The server has no objects of this kind, for example because its definition is not installed.
    KindNotServed,
    /// A watch or list cannot continue from its version. List again from the start. The object of the error has no
    /// name.
    #[non_exhaustive]
    Gone {
        /// The version.
        version: String,
        /// Whether the server has not reached the version: it lags, or its storage was restored or replaced.
        is_ahead: bool,
    },
    /// The client cannot be reached, or cannot store the change. The source is the cause. It is unknown whether
    /// anything was written.
    Transport,
}

impl ClientError {
    fn new(object: ObjectRef, kind: ClientErrorKind, reason: impl Into<String>) -> Self {
        Self(Box::new(ClientErrorParts { object, kind, reason: reason.into(), source: None }))
    }

    fn caused_by(mut self, source: Option<Arc<dyn Error + Send + Sync>>) -> Self {
        self.0.source = source;
        self
    }

    /// Returns a [`NotFound`](ClientErrorKind::NotFound) error.
    #[must_use]
    pub fn not_found(object: ObjectRef) -> Self {
        Self::new(object, ClientErrorKind::NotFound, "")
    }

    /// Returns an [`AlreadyExists`](ClientErrorKind::AlreadyExists) error.
    #[must_use]
    pub fn already_exists(object: ObjectRef) -> Self {
        Self::new(object, ClientErrorKind::AlreadyExists, "")
    }

    /// Returns a [`Conflict`](ClientErrorKind::Conflict) error.
    #[must_use]
    pub fn conflict(object: ObjectRef, reason: impl Into<String>) -> Self {
        Self::new(object, ClientErrorKind::Conflict { fields: Vec::new() }, reason)
    }

    /// Converts [`NotFound`](ClientErrorKind::NotFound) to a conflict, for a write of an object as it was read: the
    /// next run reads again.
    pub(crate) fn conflict_if_gone(self) -> Self {
        if self.is_not_found() { Self::conflict(self.0.object, "it was removed after it was read") } else { self }
    }

    /// Converts [`AlreadyExists`](ClientErrorKind::AlreadyExists) to a conflict, for an object that did not exist when
    /// it was read.
    pub(crate) fn conflict_if_made(self) -> Self {
        if self.is_already_exists() {
            Self::conflict(self.0.object, "somebody created it after it was read")
        } else {
            self
        }
    }

    /// Returns a [`Conflict`](ClientErrorKind::Conflict) error about fields that other owners have applied.
    #[must_use]
    pub fn field_conflicts(object: ObjectRef, fields: Vec<FieldConflict>) -> Self {
        let mut reason = String::new();
        for FieldConflict { field, owner } in &fields {
            let separator = if reason.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(reason, "{separator}{owner:?} has applied another value to {field}");
        }
        Self::new(object, ClientErrorKind::Conflict { fields }, reason)
    }

    /// Returns a [`Gone`](ClientErrorKind::Gone) error for a version that is too old or unknown.
    #[must_use]
    pub fn gone(object: ObjectRef, version: impl Into<String>) -> Self {
        Self::new(object, ClientErrorKind::Gone { version: version.into(), is_ahead: false }, "")
    }

    /// Returns a [`Gone`](ClientErrorKind::Gone) error for a version that the server has not reached.
    #[must_use]
    pub fn ahead(object: ObjectRef, version: impl Into<String>) -> Self {
        Self::new(object, ClientErrorKind::Gone { version: version.into(), is_ahead: true }, "")
    }

    /// Returns an [`Invalid`](ClientErrorKind::Invalid) error.
    #[must_use]
    pub fn invalid(
        object: ObjectRef,
        field: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
    ) -> Self {
        Self::with_causes(object, vec![Cause::new(field, value, rule)])
    }

    /// Returns an [`Invalid`](ClientErrorKind::Invalid) error with several causes.
    #[must_use]
    pub fn with_causes(object: ObjectRef, causes: Vec<Cause>) -> Self {
        Self::new(object, ClientErrorKind::Invalid { causes }, "")
    }

    /// Returns a [`Forbidden`](ClientErrorKind::Forbidden) error.
    #[must_use]
    pub fn forbidden(object: ObjectRef, reason: impl Into<String>) -> Self {
        Self::new(object, ClientErrorKind::Forbidden, reason)
    }

    /// Returns an [`Unauthorized`](ClientErrorKind::Unauthorized) error.
    #[must_use]
    pub fn unauthorized(object: ObjectRef, reason: impl Into<String>) -> Self {
        Self::new(object, ClientErrorKind::Unauthorized, reason)
    }

    /// Returns a [`TooManyRequests`](ClientErrorKind::TooManyRequests) error, with the delay that the server asks for.
    /// The delay counts up to ten minutes, so that a wrong answer of a proxy does not stop a controller for a day.
    #[must_use]
    pub fn too_many_requests(object: ObjectRef, retry_after: Option<Duration>, reason: impl Into<String>) -> Self {
        let retry_after = retry_after.map(|delay| delay.min(MOST_RETRY_AFTER));
        let source = retry_after.map(|delay| Arc::new(RetryAfter::new(delay)) as _);
        Self::new(object, ClientErrorKind::TooManyRequests { retry_after }, reason).caused_by(source)
    }

    /// Returns a [`KindNotServed`](ClientErrorKind::KindNotServed) error.
    #[must_use]
    pub fn kind_not_served(object: ObjectRef, reason: impl Into<String>) -> Self {
        Self::new(object, ClientErrorKind::KindNotServed, reason)
    }

    /// Returns a [`Transport`](ClientErrorKind::Transport) error.
    #[must_use]
    pub fn transport(object: ObjectRef, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(object, ClientErrorKind::Transport, "").caused_by(Some(source.into().into()))
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &ClientErrorKind {
        &self.0.kind
    }

    /// Returns the object that the error is about.
    #[must_use]
    pub fn object(&self) -> &ObjectRef {
        &self.0.object
    }

    /// Returns the reason that the server gives, or how the object differs from the expected state. Empty if the error
    /// has none.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns the causes of an [`Invalid`](ClientErrorKind::Invalid) error; empty for other errors.
    #[must_use]
    pub fn causes(&self) -> &[Cause] {
        match self.kind() {
            ClientErrorKind::Invalid { causes } => causes,
            _ => &[],
        }
    }

    /// Returns whether it is [`NotFound`](ClientErrorKind::NotFound).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind(), ClientErrorKind::NotFound)
    }

    /// Returns whether it is [`AlreadyExists`](ClientErrorKind::AlreadyExists).
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self.kind(), ClientErrorKind::AlreadyExists)
    }

    /// Returns whether it is [`Conflict`](ClientErrorKind::Conflict).
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.kind(), ClientErrorKind::Conflict { .. })
    }

    /// Returns whether it is [`Invalid`](ClientErrorKind::Invalid).
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(self.kind(), ClientErrorKind::Invalid { .. })
    }

    /// Returns whether it is [`Gone`](ClientErrorKind::Gone).
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.kind(), ClientErrorKind::Gone { .. })
    }

    /// Returns whether it is [`Transport`](ClientErrorKind::Transport).
    #[must_use]
    pub fn is_transport(&self) -> bool {
        matches!(self.kind(), ClientErrorKind::Transport)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ClientErrorKind as Of;
        let (object, reason) = (self.object(), self.reason());
        match self.kind() {
            Of::NotFound => write!(f, "{object} is not found"),
            Of::AlreadyExists => write!(f, "{object} already exists"),
            Of::Conflict { .. } => write!(f, "{object}: conflict: {reason}"),
            Of::Invalid { causes } => {
                write!(f, "{object} is invalid")?;
                for (number, cause) in causes.iter().enumerate() {
                    write!(f, "{} {cause}", if number == 0 { ":" } else { ";" })?;
                }
                Ok(())
            }
            Of::Forbidden => write!(f, "{object} is forbidden: {reason}"),
            Of::Unauthorized => write!(
                f,
                "{object}: not logged in: {reason} (check whether the credentials are missing, wrong or expired)"
            ),
            Of::TooManyRequests { retry_after } => {
                write!(f, "{object}: the server has too many requests: {reason}")?;
                retry_after.map_or(Ok(()), |delay| write!(f, " ({})", RetryAfter::new(delay)))
            }
            Of::KindNotServed => {
                let kind = object.kind();
                write!(f, "{object}: the server does not serve {kind}: {reason} ")?;
                f.write_str(if kind.group() == "apiextensions.k8s.io" {
                    "(the server accepts no definitions: let its program serve the kind)"
                } else {
                    "(install the definition of the kind, or let the program of the server serve it, or check its group, version and \
                     plural)"
                })
            }
            Of::Gone { version, is_ahead: false } => {
                write!(f, "{object}: version {version} is too old or unknown: list again")
            }
            Of::Gone { version, is_ahead: true } => write!(
                f,
                "{object}: the server has not reached version {version}: it lags behind, or its storage was restored or replaced; list again"
            ),
            Of::Transport => write!(f, "{object}: the call failed"),
        }
    }
}

debug_with_causes!(ClientError);

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if self.is_conflict() { Some(&CONFLICT) } else { self.0.source.as_ref().map(|source| &**source as _) }
    }
}

/// Marks a [conflict](ClientErrorKind::Conflict) in the sources of an error, so that it is found even if a wrapper
/// hides the [`ClientError`].
struct Conflicting;

impl fmt::Display for Conflicting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the object has changed since it was read")
    }
}

debug_with_causes!(Conflicting);

impl Error for Conflicting {}

static CONFLICT: Echo = Echo::fixed(&Conflicting, "read the object again and retry");

/// How many successive runs of a key may end with a conflict. The next conflict counts as a failure, so that somebody
/// notices it.
pub(crate) const LASTING_CONFLICT: u32 = 5;

/// Returns whether the error or one of its sources is a [conflict](ClientErrorKind::Conflict).
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
    /// Returns `None` instead of [`NotFound`](ClientErrorKind::NotFound).
    ///
    /// # Errors
    ///
    /// All other errors.
    fn ignore_not_found(self) -> Result<Option<T>, ClientError>;

    /// Returns `None` instead of [`AlreadyExists`](ClientErrorKind::AlreadyExists).
    ///
    /// # Errors
    ///
    /// All other errors.
    fn ignore_already_exists(self) -> Result<Option<T>, ClientError>;
}

impl<T> Ignore<T> for Result<T, ClientError> {
    fn ignore_not_found(self) -> Result<Option<T>, ClientError> {
        match self {
            Err(error) if error.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    fn ignore_already_exists(self) -> Result<Option<T>, ClientError> {
        match self {
            Err(error) if error.is_already_exists() => Ok(None),
            other => other.map(Some),
        }
    }
}
