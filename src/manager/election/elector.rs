//! The traits of leader election. This module starts no thread: a campaign blocks its caller, and the term's owner
//! checks it.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use super::error::ElectorError;
use crate::base::cancel::CancellationToken;
use crate::base::process::OwnerProcess;
use crate::run::context::Context;
use crate::run::error::{BoxError, Chain};
use crate::run::fence::Fence;

/// Elects one leader among several processes.
///
/// The crate `homeostat-host` has `FileElector` for several processes on one machine, and `homeostat-objects` has
/// `LeaseElector` for several machines. To write another one, for example on a row of a database, implement a
/// [`Candidate`] that returns a [`Term`], and a [`Leadership`] that checks and renews it.
///
/// # Examples
///
/// A row that the leader must renew, and that another process may take over 15 seconds after a renewal:
///
/// ```
/// use homeostat::manager::{Candidate, ElectorError, Leadership, Term};
/// use homeostat::run::{Fence, TermLimit};
/// use homeostat::{BoxError, Clock, Context, Elector};
/// use std::ops::ControlFlow;
/// use std::sync::{Arc, Mutex};
/// use std::time::{Duration, Instant};
///
/// /// Stands in for a row of a database, which compares and writes it in one transaction.
/// #[derive(Default)]
/// struct Row {
///     leader: Option<&'static str>,
///     /// Rises with each leader.
///     number: u64,
/// }
///
/// /// Work ends 3 seconds before another process may lead.
/// const MARGIN: Duration = Duration::from_secs(3);
/// const TERM: Duration = Duration::from_secs(15 - 3);
///
/// struct RowElector {
///     me: &'static str,
///     row: Arc<Mutex<Row>>,
/// }
///
/// impl Elector for RowElector {
///     fn candidate(&self) -> Box<Candidate> {
///         let (me, shared) = (self.me, self.row.clone());
///         Box::new(move |cx: &Context| {
///             let clock = cx.clock().clone();
///             let sent = clock.now(); // before the call: its answer may come late
///             let mut row = shared.lock().map_err(|_| ElectorError::new("the database is gone"))?;
///             if row.leader.is_some_and(|leader| leader != me) {
///                 return Ok(ControlFlow::Continue(Duration::from_secs(2))); // a real one also compares the time
///             }
///             row.leader = Some(me);
///             row.number += 1;
///             let limit = Arc::new(RowLimit { clock, end: Mutex::new(sent + TERM) });
///             let leadership = RowLock { me, row: shared.clone(), limit: limit.clone() };
///             Ok(ControlFlow::Break(Term::fenced("row", Fence::limited(row.number, limit), leadership)))
///         })
///     }
///
///     fn stop_margin(&self) -> Option<Duration> {
///         Some(MARGIN)
///     }
/// }
///
/// /// The end of the term, which each renewal moves.
/// struct RowLimit {
///     clock: Clock,
///     end: Mutex<Instant>,
/// }
///
/// impl TermLimit for RowLimit {
///     fn remaining(&self) -> Option<Duration> {
///         Some(self.end.lock().unwrap().saturating_duration_since(self.clock.now()))
///     }
/// }
///
/// struct RowLock {
///     me: &'static str,
///     row: Arc<Mutex<Row>>,
///     limit: Arc<RowLimit>,
/// }
///
/// impl Leadership for RowLock {
///     fn check(&mut self) -> Result<(), BoxError> {
///         let sent = self.limit.clock.now();
///         match self.row.lock().unwrap().leader {
///             Some(leader) if leader == self.me => {} // a real one also writes the time of the renewal
///             leader => return Err(format!("the row now names {leader:?}").into()),
///         }
///         *self.limit.end.lock().unwrap() = sent + TERM;
///         Ok(())
///     }
///
///     fn check_interval(&self) -> Duration {
///         Duration::from_secs(3) // several tries in a term
///     }
/// }
///
/// impl Drop for RowLock {
///     fn drop(&mut self) {
///         // Another process may have taken the row.
///         self.row.lock().unwrap().leader.take_if(|leader| *leader == self.me);
///     }
/// }
///
/// let row = Arc::<Mutex<Row>>::default();
/// let elector = RowElector { me: "node-1", row: row.clone() };
/// let mut term = elector.campaign(&Context::detached())?;
/// assert!(term.check().is_ok());
/// assert_eq!(term.fence().number(), Some(1));
/// assert!(term.fence().remaining() <= Some(TERM));
///
/// row.lock().unwrap().leader = Some("node-2"); // The row was not renewed in time.
/// let lost = term.check().unwrap_err();
/// assert!(term.lost().is_cancelled());
/// assert_eq!(lost.to_string(), "the leadership of row is lost");
/// drop(term);
/// assert_eq!(row.lock().unwrap().leader, Some("node-2"));
/// # Ok::<_, ElectorError>(())
/// ```
#[doc(alias = "lease")]
#[doc(alias = "leader election")]
pub trait Elector: Send + Sync {
    /// Creates a candidate. Each is separate: it also waits for a term that this process already holds.
    fn candidate(&self) -> Box<Candidate>;

    /// Blocks until this process leads, and returns its term.
    ///
    /// Cancellation or the deadline of `cx` ends it early. The deadline follows the clock of `cx`.
    ///
    /// # Errors
    ///
    /// Returns [`ElectorError`] if `cx` is cancelled ([`ElectorError::is_cancelled`]) or if the election fails.
    fn campaign(&self, cx: &Context) -> Result<Term, ElectorError> {
        let mut candidate = self.candidate();
        loop {
            cx.check()?;
            match candidate(cx)? {
                ControlFlow::Break(term) => return Ok(term),
                ControlFlow::Continue(after) => cx.sleep(after)?,
            }
        }
    }

    /// Returns the last known leader, for status pages. It may be outdated. Default: unknown.
    fn leader(&self) -> Option<Holder> {
        None
    }

    /// Returns the time from the loss of a term until another process may lead. `None` if terms do not run out.
    ///
    /// With [terms that end by themselves](Term::fenced), the manager needs this time: only then it watches a check
    /// that hangs. Work must end within this time, so the manager refuses an [abort
    /// grace](super::super::ManagerBuilder::abort_grace) beyond it. Default: `None`.
    fn stop_margin(&self) -> Option<Duration> {
        None
    }

    /// Returns the longest time that one call of a candidate or a term may take. A stop of the manager waits for the
    /// elector's thread at least twice as long: for a call that is under way, and for the one that gives the leadership
    /// back. A candidate that blocks until it is cancelled may return [`Duration::MAX`]. Default: zero.
    fn longest_call(&self) -> Duration {
        Duration::ZERO
    }
}

/// A process that wants to lead, from [`Elector::candidate`].
///
/// The function tries to lead, without waiting for the end of another leader's term. It returns the term of this
/// process, or the time after which to try again: another process leads, or the election could not be asked. An error
/// means that the election has failed, and ends the candidacy.
///
/// A candidate of your own may block until its context is cancelled, but then it cannot run in a simulation.
pub type Candidate = dyn FnMut(&Context) -> Result<ControlFlow<Term, Duration>, ElectorError> + Send;

/// The lock or lease behind a [`Term`]. Dropping it resigns, unless the leadership was lost.
///
/// In a process that was forked from the leader, a term calls only [`drop_copy`](Self::drop_copy).
pub trait Leadership: Send {
    /// Checks that the leadership still holds, and renews it if necessary.
    ///
    /// An error means that the leadership is lost, and ends the checks. This call must not block for longer than the
    /// leadership is sure to last: a loss is not noticed meanwhile.
    ///
    /// # Errors
    ///
    /// Returns the reason for the loss. If the check itself fails, the leadership counts as lost.
    fn check(&mut self) -> Result<(), BoxError>;

    /// Returns the time from one check to the next. Default: 1 s.
    fn check_interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Drops the copy of a forked process, without resigning: the parent still leads. Default: leaks the copy.
    ///
    /// Override this to close files. A lock of the system may belong to the open file, so that unlocking the copy would
    /// unlock the file of the parent.
    fn drop_copy(self: Box<Self>) {
        std::mem::forget(self);
    }
}

/// The leadership of a process without rivals, which cannot be lost.
impl Leadership for () {
    fn check(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    fn check_interval(&self) -> Duration {
        Duration::MAX
    }
}

/// A period of leadership, until it is dropped or [lost](Self::lost).
///
/// Dropping a term resigns: it cancels [`lost`](Self::lost), then gives the leadership back. End all work that must not
/// overlap with the next leader's before the drop. A panic that unwinds through the term also resigns.
///
/// In a process that was forked from the leader without `exec`, the copy of a term is worth nothing: its check fails,
/// and its drop gives nothing back. The parent still leads. Fork before the campaign, or only to call `exec`.
///
/// A term does not check itself. Call [`check`](Self::check) every [`check_interval`](Self::check_interval): otherwise
/// a loss goes unnoticed.
///
/// # Examples
///
/// ```
/// use homeostat::{CancellationToken, Clock, Context};
/// use homeostat::manager::Term;
///
/// let stop = CancellationToken::new();
/// let mut term = Term::new("always", ()); // an elector returns one from its `campaign`
///
/// let work = Context::detached_with(Clock::system(), term.lost().child());
/// while !stop.is_cancelled() && term.check().is_ok() {
///     // … a piece of work that ends early with `work`, or a sleep of `term.check_interval()`.
///     # assert!(!work.is_cancelled());
///     # stop.cancel();
/// }
/// drop(term);
/// assert!(work.is_cancelled());
/// ```
#[must_use = "dropping the term resigns"]
pub struct Term {
    elector: String,
    /// Its token is the token of the term.
    fence: Fence,
    /// Dropped after [`Term::drop`] has cancelled the token. `None` in a forked process that drops its copy.
    leadership: Option<Box<dyn Leadership>>,
    owner: OwnerProcess,
}

/// Why a term is lost that was not renewed in time.
pub(crate) const RAN_OUT: &str = "it was not renewed in time";

impl Term {
    /// Begins a term that does not run out. `elector` is its name in log lines and errors.
    ///
    /// If an elector learns of a loss outside a [check](Leadership::check), it cancels a clone of [`lost`](Self::lost).
    pub fn new(elector: impl Into<String>, leadership: impl Leadership + 'static) -> Self {
        Self::fenced(elector, Fence::unlimited(None), leadership)
    }

    /// Begins a term with a fencing number, or one that ends by itself, or both: see [`Fence`].
    ///
    /// Move the [limit](crate::run::TermLimit) of the fence at each renewal. The term is lost when its time is over.
    /// The [example](Elector#examples) of the trait shows this.
    pub fn fenced(elector: impl Into<String>, fence: Fence, leadership: impl Leadership + 'static) -> Self {
        let elector = elector.into();
        log::info!(elector:%; "{elector}: elected");
        Self { elector, fence, leadership: Some(Box::new(leadership)), owner: OwnerProcess::current() }
    }

    /// Returns the limit and the fencing number of the term.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Returns the token that is cancelled when the leadership ends.
    ///
    /// A failed check cancels it. A drop of the term also cancels it, before the leadership is given back. Let
    /// dependent work use a [child](CancellationToken::child) token: a cancellation of this token ends the term.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        self.fence.ended()
    }

    /// Returns the time from one check to the next. [`Duration::MAX`] if this term cannot be lost.
    #[must_use]
    pub fn check_interval(&self) -> Duration {
        self.leadership.as_ref().map_or(Duration::MAX, |leadership| leadership.check_interval())
    }

    /// Checks that the leadership still holds. On a loss, cancels [`lost`](Self::lost) and runs its callbacks before it
    /// returns.
    ///
    /// # Errors
    ///
    /// Returns [`ElectorError`] ([`is_lost`](ElectorError::is_lost)) from the first failed check on, and in a process
    /// that was forked from the leader.
    pub fn check(&mut self) -> Result<(), ElectorError> {
        if self.lost().is_cancelled() {
            return Err(ElectorError::lost(&self.elector, "its token is cancelled".into()));
        }
        let leadership = self.leadership.as_mut();
        let checked = self.owner.check().map_err(BoxError::from);
        let checked = checked.and_then(|()| leadership.map_or(Ok(()), |leadership| leadership.check()));
        checked.and_then(|()| self.fence.check().map_err(|_| RAN_OUT.into())).map_err(|cause| {
            // First of all: work must not continue without leadership.
            self.lost().cancel();
            let (elector, shown) = (self.elector.as_str(), Chain(&*cause));
            log::error!(elector, error:% = shown; "{elector}: the leadership is lost: {shown}");
            ElectorError::lost(&self.elector, cause)
        })
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            if let Some(copy) = self.leadership.take() {
                copy.drop_copy();
            }
        } else if !self.lost().is_cancelled() {
            let elector = self.elector.as_str();
            log::info!(elector; "{elector}: resigning");
            self.lost().cancel();
        }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("elector", &self.elector)
            .field("lost", &self.lost().is_cancelled())
            .finish_non_exhaustive()
    }
}

/// The leader according to an election, from [`Elector::leader`]. For status pages, not for
/// decisions. Displays as name and process id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The name of the leader's elector, or the identity in a lease.
    pub name: Option<String>,
    /// The leader's process id, as the leader sees it. Outside its container, the id may be different. `None` for a
    /// lease.
    pub pid: Option<u32>,
    /// The time of the election, by the leader's wall clock.
    pub since: Option<SystemTime>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("somebody unknown"))?;
        self.pid.map_or(Ok(()), |pid| write!(f, " (pid {pid})"))
    }
}
