//! The traits of leader election. This module starts no thread: a campaign blocks its caller, and the term's owner checks it.

use std::fmt;
use std::time::Duration;

use super::error::{ElectorError, LeadershipLost};
use crate::base::cancel::CancellationToken;
use crate::run::context::Context;
use crate::run::error::{BoxError, Chain};

/// Elects one leader among several processes.
///
/// The crate has two electors: [`AlwaysLeader`] for a single process, and [`FileElector`](crate::FileElector) for several
/// processes on one machine. To write another one, for example on a database lease, implement a campaign that returns a [`Term`],
/// and a [`Leadership`] that checks and renews the lease.
///
/// # Examples
///
/// A lease that must be renewed, and that another process takes over:
///
/// ```
/// use homeostat::{BoxError, Context, Elector};
/// use homeostat::manager::{ElectorError, Leadership, Term};
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// /// Stands in for a row of a database: who has the lease.
/// type Row = Arc<Mutex<Option<&'static str>>>;
///
/// struct LeaseElector {
///     me: &'static str,
///     row: Row,
/// }
///
/// impl Elector for LeaseElector {
///     fn campaign(&self, cx: &Context) -> Result<Term, ElectorError> {
///         loop {
///             cx.check()?;
///             let owner = *self.row.lock().map_err(|_| ElectorError::new("the database is gone"))?.get_or_insert(self.me);
///             if owner == self.me {
///                 return Ok(Term::new("lease", Lease { me: self.me, row: self.row.clone() }));
///             }
///             cx.sleep(Duration::from_secs(2))?; // ends early when the campaign is cancelled
///         }
///     }
/// }
///
/// struct Lease {
///     me: &'static str,
///     row: Row,
/// }
///
/// impl Leadership for Lease {
///     fn check(&mut self) -> Result<(), BoxError> {
///         match *self.row.lock().unwrap() {
///             Some(owner) if owner == self.me => Ok(()), // here a real one renews it
///             owner => Err(format!("the lease is now with {owner:?}").into()),
///         }
///     }
///
///     fn check_interval(&self) -> Duration {
///         Duration::from_secs(5) // well below the length of the lease
///     }
/// }
///
/// impl Drop for Lease {
///     fn drop(&mut self) {
///         // Only one's own: it may have been lost.
///         self.row.lock().unwrap().take_if(|owner| *owner == self.me);
///     }
/// }
///
/// let row = Row::default();
/// let elector = LeaseElector { me: "node-1", row: row.clone() };
/// let mut term = elector.campaign(&Context::detached())?;
/// assert!(term.check().is_ok());
///
/// *row.lock().unwrap() = Some("node-2"); // It was not renewed in time.
/// let lost = term.check().unwrap_err();
/// assert!(term.lost().is_cancelled());
/// assert_eq!(lost.to_string(), "the leadership of lease is lost");
/// drop(term);
/// assert_eq!(*row.lock().unwrap(), Some("node-2"));
/// # Ok::<_, ElectorError>(())
/// ```
#[doc(alias = "lease")]
#[doc(alias = "leader election")]
pub trait Elector: Send + Sync {
    /// Blocks until this process leads, and returns its term.
    ///
    /// Cancellation or the deadline of `cx` ends it early. The deadline follows the clock of `cx`. Each call is a separate
    /// candidate: it also waits for a term that this process already holds.
    ///
    /// # Errors
    ///
    /// Returns [`ElectorError`] if `cx` is cancelled ([`ElectorError::is_cancelled`]) or if the election fails.
    fn campaign(&self, cx: &Context) -> Result<Term, ElectorError>;
}

/// The lock or lease behind a [`Term`]. Dropping it resigns, unless the leadership was lost.
pub trait Leadership: Send {
    /// Checks that the leadership still holds, and renews it if necessary.
    ///
    /// An error means that the leadership is lost, and ends the checks. This call must not block for longer than the leadership
    /// is sure to last: a loss is not noticed meanwhile.
    ///
    /// # Errors
    ///
    /// Returns the reason for the loss. If the check itself fails, the leadership counts as lost.
    fn check(&mut self) -> Result<(), BoxError>;

    /// Returns the time from one check to the next. Default: 1 s.
    fn check_interval(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// A period of leadership, until it is dropped or [lost](Self::lost).
///
/// Dropping a term resigns: it cancels [`lost`](Self::lost), then gives the leadership back. End all work that must not overlap
/// with the next leader's before the drop. A panic that unwinds through the term also resigns.
///
/// A term does not check itself. Call [`check`](Self::check) every [`check_interval`](Self::check_interval): otherwise a loss
/// goes unnoticed.
///
/// # Examples
///
/// ```
/// use homeostat::{CancellationToken, Clock, Context, Elector};
/// use homeostat::manager::{AlwaysLeader, ElectorError};
///
/// let stop = CancellationToken::new();
/// let cx = Context::detached_with(Clock::system(), stop.clone());
/// let mut term = AlwaysLeader.campaign(&cx)?;
///
/// let work = Context::detached_with(Clock::system(), term.lost().child());
/// while !stop.is_cancelled() && term.check().is_ok() {
///     // … a piece of work that ends early with `work`, or a sleep of `term.check_interval()`.
///     # assert!(!work.is_cancelled());
///     # stop.cancel();
/// }
/// drop(term);
/// assert!(work.is_cancelled());
/// # Ok::<_, ElectorError>(())
/// ```
#[must_use = "dropping the term resigns"]
pub struct Term {
    elector: String,
    lost: CancellationToken,
    /// Dropped after [`Term::drop`] has cancelled `lost`.
    leadership: Box<dyn Leadership>,
}

impl Term {
    /// Begins a term. `elector` is its name in log lines and errors.
    ///
    /// If an elector learns of a loss outside a [check](Leadership::check), it cancels a clone of [`lost`](Self::lost).
    pub fn new(elector: impl Into<String>, leadership: impl Leadership + 'static) -> Self {
        let elector = elector.into();
        log::info!(elector:%; "{elector}: elected");
        Self { elector, lost: CancellationToken::new(), leadership: Box::new(leadership) }
    }

    /// Returns the token that is cancelled when the leadership ends.
    ///
    /// A failed check cancels it. A drop of the term also cancels it, before the leadership is given back. Let dependent work use a
    /// [child](CancellationToken::child) token: a cancellation of this token ends the term.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Returns the time from one check to the next. [`Duration::MAX`] if this term cannot be lost.
    #[must_use]
    pub fn check_interval(&self) -> Duration {
        self.leadership.check_interval()
    }

    /// Checks that the leadership still holds. On a loss, cancels [`lost`](Self::lost) and runs its callbacks before it returns.
    ///
    /// # Errors
    ///
    /// Returns [`LeadershipLost`] from the first failed check on.
    pub fn check(&mut self) -> Result<(), LeadershipLost> {
        if self.lost.is_cancelled() {
            return Err(LeadershipLost::new(&self.elector, "its token is cancelled".into()));
        }
        self.leadership.check().map_err(|cause| {
            // First of all: work must not continue without leadership.
            self.lost.cancel();
            let (elector, shown) = (self.elector.as_str(), Chain(&*cause));
            log::error!(elector, error:% = shown; "{elector}: the leadership is lost: {shown}");
            LeadershipLost::new(&self.elector, cause)
        })
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        if !self.lost.is_cancelled() {
            let elector = self.elector.as_str();
            log::info!(elector; "{elector}: resigning");
            self.lost.cancel();
        }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("elector", &self.elector)
            .field("lost", &self.lost.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// The elector of a single process. It leads at once, until it resigns.
///
/// # Examples
///
/// ```
/// use homeostat::{Context, Elector};
/// use homeostat::manager::{AlwaysLeader, ElectorError};
///
/// let mut term = AlwaysLeader.campaign(&Context::detached())?;
/// assert!(term.check().is_ok());
/// # Ok::<_, ElectorError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlwaysLeader;

impl Elector for AlwaysLeader {
    fn campaign(&self, cx: &Context) -> Result<Term, ElectorError> {
        struct Unopposed;

        impl Leadership for Unopposed {
            fn check(&mut self) -> Result<(), BoxError> {
                Ok(())
            }

            fn check_interval(&self) -> Duration {
                Duration::MAX
            }
        }

        cx.check()?;
        Ok(Term::new("always", Unopposed))
    }
}
