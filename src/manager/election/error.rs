//! The errors of a campaign and of a term.

use std::error::Error;
use std::fmt;

use crate::run::error::{BoxError, Cancelled};

/// The error of a [campaign](crate::Elector::campaign) or a [term](crate::manager::Term::check).
///
/// The campaign was cancelled, the election failed, or the leadership was lost.
///
/// # Examples
///
/// ```
/// use homeostat::manager::Term;
///
/// let mut term = Term::new("row", ());
/// assert!(term.check().is_ok());
/// term.lost().cancel();
/// let error = term.check().unwrap_err();
/// assert!(error.is_lost() && !error.is_cancelled());
/// assert_eq!(error.to_string(), "the leadership of row is lost"); // the source says why
/// ```
pub struct ElectorError(ElectorCause);

enum ElectorCause {
    Cancelled(Cancelled),
    Lost { elector: String, cause: BoxError },
    Other(BoxError),
}

impl ElectorError {
    /// Wraps the error of a custom elector. For [`Cancelled`] use `?`.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(ElectorCause::Other(error.into()))
    }

    pub(super) fn lost(elector: &str, cause: BoxError) -> Self {
        Self(ElectorCause::Lost { elector: elector.to_owned(), cause })
    }

    /// Returns whether this process led, and has lost the leadership. The source is the cause.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.0, ElectorCause::Lost { .. })
    }

    /// Returns whether the campaign was cancelled. In that case nothing is wrong.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, ElectorCause::Cancelled(_))
    }
}

impl From<Cancelled> for ElectorError {
    fn from(cancelled: Cancelled) -> Self {
        Self(ElectorCause::Cancelled(cancelled))
    }
}

impl fmt::Display for ElectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ElectorCause::Cancelled(_) => f.write_str("the campaign was cancelled"),
            ElectorCause::Lost { elector, .. } => write!(f, "the leadership of {elector} is lost"),
            ElectorCause::Other(error) => error.fmt(f),
        }
    }
}

impl Error for ElectorError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            ElectorCause::Cancelled(cancelled) => Some(cancelled),
            ElectorCause::Lost { cause, .. } => Some(&**cause),
            ElectorCause::Other(error) => error.source(),
        }
    }
}

crate::base::chain::debug_with_causes!(ElectorError);
