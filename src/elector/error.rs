//! Why a campaign ended without a term, and why a term ended before its time.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::reconcile::error::{BoxError, Cancelled};

/// Why a [campaign](crate::Elector::campaign) ended without a term: it was told to stop, or it cannot be led.
///
/// # Examples
///
/// ```
/// use homeostat::{Context, Elector, FileElector};
///
/// let error = FileElector::new("/no/such/place/leader.lock").campaign(&Context::detached()).unwrap_err();
/// assert!(!error.is_cancelled());
/// # #[cfg(unix)]
/// assert_eq!(error.to_string(), "cannot open /no/such/place/leader.lock: its directory does not exist");
/// ```
#[derive(Debug)]
pub struct ElectorError(Cause);

#[derive(Debug)]
enum Cause {
    Cancelled(Cancelled),
    File { doing: &'static str, path: PathBuf, source: io::Error },
    Other(BoxError),
}

impl ElectorError {
    /// What an elector of one's own failed with. For [`Cancelled`] use `?`.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(Cause::Other(error.into()))
    }

    pub(super) fn file(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self(Cause::File { doing, path: path.to_owned(), source })
    }

    /// Nothing is wrong: the campaign was told to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Cause::Cancelled(_))
    }
}

impl From<Cancelled> for ElectorError {
    fn from(cancelled: Cancelled) -> Self {
        Self(Cause::Cancelled(cancelled))
    }
}

impl fmt::Display for ElectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::Cancelled(_) => f.write_str("the campaign was told to stop"),
            Cause::File { doing, path, source } => {
                write!(f, "cannot {doing} {}: ", path.display())?;
                // In terms of a lock file; the source has the system's own words.
                match source.kind() {
                    ErrorKind::NotFound => f.write_str("its directory does not exist"),
                    ErrorKind::NotADirectory => f.write_str("what should be its directory is a file"),
                    ErrorKind::IsADirectory => f.write_str("there is a directory in its place"),
                    ErrorKind::InvalidInput if *doing == REGULAR => f.write_str("it is not a regular file"),
                    ErrorKind::Unsupported => f.write_str("there are no file locks here"),
                    kind => kind.fmt(f),
                }
            }
            Cause::Other(error) => error.fmt(f),
        }
    }
}

/// What cannot be done with a pipe or a device.
pub(super) const REGULAR: &str = "use";

impl Error for ElectorError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Cause::Cancelled(cancelled) => Some(cancelled),
            Cause::File { source, .. } => Some(source),
            Cause::Other(error) => error.source(),
        }
    }
}

/// A term ended before it was given up; the source says why. What [`Term::check`](crate::Term::check) returns.
#[derive(Debug)]
pub struct LeadershipLost {
    elector: String,
    cause: BoxError,
}

impl LeadershipLost {
    pub(super) fn new(elector: &str, cause: BoxError) -> Self {
        Self { elector: elector.to_owned(), cause }
    }

    /// The name of the elector.
    #[must_use]
    pub fn elector(&self) -> &str {
        &self.elector
    }
}

impl fmt::Display for LeadershipLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the leadership of {} is lost", self.elector)
    }
}

impl Error for LeadershipLost {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}
