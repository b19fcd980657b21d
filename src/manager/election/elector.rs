//! The traits of leader election. Nothing here starts a thread: a campaign blocks its caller, and the holder of a term checks it.

use std::fmt;
use std::time::Duration;

use super::error::{ElectorError, LeadershipLost};
use crate::base::cancel::CancellationToken;
use crate::run::context::Context;
use crate::run::error::{BoxError, Chain};

/// Decides who leads, of all that ask.
///
/// The crate has two: [`AlwaysLeader`], for a process that is alone, and [`FileElector`](crate::FileElector), for several on
/// one machine. An elector of one's own, on a lease in a database for example, is a campaign that ends with a
/// [`Term`], and a [`Leadership`] that looks after what the term stands on.
///
/// # Examples
///
/// A lease that has to be renewed, and that is lost to somebody else:
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
///             cx.sleep(Duration::from_secs(2))?; // ends early when the campaign is told to stop
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
    /// Blocks until this process leads, and returns its term. What ends it early is the cancellation or the deadline of
    /// `cx`, by whose clock it waits; nothing else wakes it.
    ///
    /// Each call is a candidate of its own: with a term still held it waits for that one to end, like any other.
    ///
    /// # Errors
    ///
    /// If `cx` is cancelled ([`ElectorError::is_cancelled`]), or there is no way to lead.
    fn campaign(&self, cx: &Context) -> Result<Term, ElectorError>;
}

/// What a [`Term`] stands on: a lock, a lease. Dropping it gives the leadership back, if it has not been lost.
pub trait Leadership: Send {
    /// Looks whether the leadership is still there, and renews it where that is needed. An error is its loss: then it is not
    /// called again.
    ///
    /// It must not hang for longer than the leadership is sure to last: as long as it runs, nobody hears of a loss.
    ///
    /// # Errors
    ///
    /// Why the leadership is lost. What cannot be looked at counts as lost.
    fn check(&mut self) -> Result<(), BoxError>;

    /// How long after a check the next one should come. Default: 1 s.
    fn check_interval(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// Leadership, from an election until this is dropped or until it is [lost](Self::lost).
///
/// Dropping it resigns: [`lost`](Self::lost) is cancelled first, so whatever goes by that token has been told to stop, and then
/// the leadership is given back. Work that must not overlap with the next leader's has to end before the drop. A panic
/// that unwinds through the term resigns as well.
///
/// A term looks after itself only when it is asked to: somebody calls [`check`](Self::check) every
/// [`check_interval`](Self::check_interval). Until then a loss is not known.
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
    tenure: Box<dyn Leadership>,
}

impl Term {
    /// A term that has just begun. `elector` names it in log lines and errors.
    ///
    /// An elector that hears of a loss by itself, instead of finding it in a [check](Leadership::check), cancels a clone of
    /// [`lost`](Self::lost).
    pub fn new(elector: impl Into<String>, tenure: impl Leadership + 'static) -> Self {
        let elector = elector.into();
        log::info!(elector:%; "{elector}: elected");
        Self { elector, lost: CancellationToken::new(), tenure: Box::new(tenure) }
    }

    /// Cancelled once the leadership is over: when a check finds it lost, and when the term is dropped, before the
    /// leadership is given back. What must stop with the leadership hangs on a [child](CancellationToken::child) of it:
    /// whoever cancels the token itself ends the term.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// How long after a check the next one should come; [`Duration::MAX`] if this term cannot be lost.
    #[must_use]
    pub fn check_interval(&self) -> Duration {
        self.tenure.check_interval()
    }

    /// Looks whether the leadership is still there. If it is not, [`lost`](Self::lost) is cancelled before this returns, and
    /// its callbacks have run.
    ///
    /// # Errors
    ///
    /// [`LeadershipLost`], from the check that finds it on.
    pub fn check(&mut self) -> Result<(), LeadershipLost> {
        if self.lost.is_cancelled() {
            return Err(LeadershipLost::new(&self.elector, "its token is cancelled".into()));
        }
        self.tenure.check().map_err(|cause| {
            // Before anything else: work goes on without leadership.
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

/// The elector of a process that is alone: it leads at once, and for as long as it likes.
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
