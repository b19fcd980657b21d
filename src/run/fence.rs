//! Fences: the work of a leader checks its fence before each write.
//!
//! # Invariants
//!
//! - A term that has ended never begins again: the token is cancelled before a check reports the end.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::Cancelled;
use crate::base::cancel::CancellationToken;
use crate::base::process::OwnerProcess;

/// The right of a leader to write, from [`Context::fence`](crate::Context::fence).
///
/// Check it before each write that must not overlap with another leader's. A process may be paused between the check
/// and the write. If a late write would be harmful, write the [number](Self::number) too, and let the store refuse
/// lower numbers.
///
/// # Examples
///
/// ```
/// use homeostat::Context;
///
/// let fence = Context::detached().fence()?; // no election: always allowed
/// assert_eq!(fence.number(), None);
/// fence.check()?;
/// # Ok::<_, homeostat::run::Cancelled>(())
/// ```
#[derive(Clone)]
pub struct Fence {
    number: Option<u64>,
    term: Arc<FencedTerm>,
}

struct FencedTerm {
    limit: Option<Arc<dyn TermLimit>>,
    ended: CancellationToken,
    owner: OwnerProcess,
}

/// The time limit of a term that ends unless its elector renews it. The [example](crate::Elector#examples) of an
/// elector has one.
pub trait TermLimit: Any + Send + Sync {
    /// Returns for how long work may still begin. Zero once the limit has passed, `None` without a limit.
    ///
    /// Called before each run and each fenced write, so it must be quick. A limit that has passed must not move again.
    fn remaining(&self) -> Option<Duration>;
}

impl Fence {
    /// Creates the fence of a term without a limit. `number` is the fencing number, which must be greater than the
    /// numbers of all earlier leaders, or `None`.
    #[must_use]
    pub fn unlimited(number: impl Into<Option<u64>>) -> Self {
        Self::new(number.into(), None)
    }

    /// Creates the fence of a term that ends by itself, for [`Term::fenced`](crate::manager::Term::fenced).
    ///
    /// Choose a limit that is earlier, by the [stop margin](crate::Elector::stop_margin), than the moment at which
    /// another process may lead.
    #[must_use]
    pub fn limited(number: impl Into<Option<u64>>, limit: Arc<dyn TermLimit>) -> Self {
        Self::new(number.into(), Some(limit))
    }

    fn new(number: Option<u64>, limit: Option<Arc<dyn TermLimit>>) -> Self {
        let (ended, owner) = (CancellationToken::new(), OwnerProcess::current());
        Self { number, term: Arc::new(FencedTerm { limit, ended, owner }) }
    }

    /// Returns a fence of the same term with another number.
    #[must_use]
    pub fn numbered(&self, number: u64) -> Self {
        Self { number: Some(number), term: Arc::clone(&self.term) }
    }

    /// Returns the fencing number of the term. Each later leader has a greater one.
    ///
    /// `None` without an election, and if the elector has no numbers, such as a lock file.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Checks that the term is still running. Ends the term if its limit has passed.
    ///
    /// # Errors
    ///
    /// Returns [`Cancelled::TermEnded`] if the leadership was lost or given back, and in a process that was forked from
    /// the leader.
    #[inline]
    pub fn check(&self) -> Result<(), Cancelled> {
        let has_run_out = self.has_run_out();
        if has_run_out {
            self.term.ended.cancel();
        }
        if has_run_out || self.term.ended.is_cancelled() || !self.term.owner.is_current() {
            return Err(Cancelled::TermEnded);
        }
        Ok(())
    }

    /// Returns for how long work may still begin, unless the term is extended. `None` if it has no limit.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.term.limit.as_ref().and_then(|limit| limit.remaining())
    }

    /// Returns the limit of the term, if it is of this type.
    #[must_use]
    pub fn limit<L: TermLimit>(&self) -> Option<&L> {
        let limit: &dyn Any = &**self.term.limit.as_ref()?;
        limit.downcast_ref()
    }

    /// Returns whether the term is still running. Unlike [`check`](Self::check), cancels no token, so this can be
    /// called under a lock.
    #[must_use]
    pub fn lasts(&self) -> bool {
        !self.term.ended.is_cancelled() && !self.has_run_out()
    }

    fn has_run_out(&self) -> bool {
        self.remaining().is_some_and(|remaining| remaining.is_zero())
    }

    /// Returns the token that is cancelled when the term ends. A cancellation of this token ends the term.
    #[must_use]
    pub fn ended(&self) -> &CancellationToken {
        &self.term.ended
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("number", &self.number)
            .field("remaining", &self.remaining())
            .field("ended", &self.term.ended.is_cancelled())
            .finish_non_exhaustive()
    }
}
