//! The elector's thread: tries to lead, then checks the term.
//!
//! # Invariants
//!
//! - A term ends only after all work that must not overlap with the next leader's. This also holds for a lost term. A
//!   component that does not end keeps the term.
//! - The token of a term is cancelled before its leadership is given back. After its cancellation the manager aborts at
//!   once, even if the elector's thread or a callback of the elector hangs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::state::ManagerInner;
use crate::base::cancel::{CancellationToken, OnCancel};
use crate::base::group::{ThreadGroup, ThreadGroupKind};
use crate::base::running::Running;
use crate::base::task::{Next, Task};
use crate::base::thread::unless_it_panics;
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;
use crate::manager::election::{Candidate, Term};
use crate::run::context::Context;
use crate::run::error::BoxError;

impl ManagerInner {
    /// Starts a thread that tries to lead and checks the term until it is stopped.
    pub(super) fn elect(self: &Arc<Self>) -> Result<Option<Running<()>>, BoxError> {
        let Some(elector) = self.settings.elector.clone() else { return Ok(None) };
        let (candidate, margin) = unless_it_panics(|| Ok((elector.candidate(), elector.stop_margin())))?;
        let name = format!("{}-elector", self.settings.name);
        let group = ThreadGroup::new(ThreadGroupKind::Elector, name, self.clock.clone(), 1);
        let (event, resign) = (AutoResetEvent::new(self.clock.clone()), CancellationToken::new());
        let leading = Leading {
            cx: Context::detached_with(self.clock.clone(), resign.clone()),
            wake: None,
            event: Arc::clone(&event),
            inner: Arc::clone(self),
            group: Arc::clone(&group),
            candidate,
            term: None,
            lost: false,
        };
        // A check of a term that runs out must not hang beyond its end.
        let watchdog = margin.map(|_| log_hanging_check(self.settings.name.clone()));
        let (own, options) = (Arc::clone(&group), &self.settings.pool.options);
        let handle = group.start_one(options, leading, event, watchdog, move || own.cancel_aside(&resign))?;
        Ok(Some(Running::new((), handle, self.settings.abort_grace)))
    }
}

/// Returns a function that logs a check that continues after the end of the term.
fn log_hanging_check(manager: String) -> Arc<dyn Fn() + Send + Sync> {
    Arc::new(move || {
        let manager = manager.as_str();
        log::error!(manager; "{manager}: the leadership is lost: its check does not return, and the term has run out");
    })
}

/// The task of the elector's thread.
struct Leading {
    inner: Arc<ManagerInner>,
    group: Arc<ThreadGroup>,
    candidate: Box<Candidate>,
    /// Cancelled when the elector must resign.
    cx: Context,
    event: Arc<AutoResetEvent>,
    /// The callback that sets the event at the end of the term. Unregistered before the term is dropped, which gives
    /// the leadership back.
    wake: Option<OnCancel>,
    term: Option<Term>,
    /// Whether a loss of the term was reported.
    lost: bool,
}

impl Leading {
    /// Tries to lead. Returns the time of the next try; `None` if this process leads now or never will.
    fn try_to_lead(&mut self) -> Option<Nanos> {
        let Self { inner, candidate, cx, .. } = self;
        let tried = unless_it_panics(|| match candidate(cx) {
            // A cancellation from elsewhere is a failure: the elector will never lead.
            Err(error) if error.is_cancelled() && cx.is_cancelled() => Ok(None),
            tried => Ok(tried.map(Some)?),
        });
        match tried {
            Ok(Some(ControlFlow::Continue(after))) => return Some(inner.clock.nanos().after(after)),
            Ok(Some(ControlFlow::Break(term))) => self.begin(term),
            Ok(None) => {}
            Err(error) => inner.fail("elector", error),
        }
        None
    }

    /// Begins to lead, unless the manager is stopping.
    fn begin(&mut self, term: Term) {
        let Self { inner, event, wake, .. } = self;
        {
            let mut state = inner.state.lock();
            if state.is_closed() {
                return;
            }
            state.term = Some(term.fence().clone());
        }
        inner.signal.set();
        // A loss between two checks, or while a check hangs, takes effect at once. It wakes this thread to report the
        // cause. Comes before the callbacks of the elector, which may block.
        let (woken, losing) = (Arc::clone(event), Arc::clone(inner));
        *wake = Some(term.lost().on_cancel_first(move || {
            losing.signal.set();
            woken.set();
        }));
        self.term = Some(term);
    }

    /// Checks the term. Returns the time until the next check.
    fn check(&mut self) -> Result<Duration, BoxError> {
        let Self { inner, group, term, .. } = self;
        let Some(term) = term else { return Ok(Duration::MAX) };
        // The watchdog ends the term in time if the check hangs.
        let remaining = term.fence().remaining();
        let _run = remaining.map(|left| group.begin_call(inner.clock.nanos().after(left), term.lost()));
        unless_it_panics(|| {
            term.check()?;
            Ok(term.check_interval())
        })
    }
}

impl Task for Leading {
    fn step(&mut self, _now: Nanos) -> Next {
        if self.term.is_none()
            && !self.cx.is_cancelled()
            && let Some(next) = self.try_to_lead()
        {
            return Next::At(next);
        }
        let Some(term) = &self.term else { return Next::Finished };
        // A loss is always reported.
        let (lost, lasts) = (term.lost().clone(), term.fence().lasts());
        if !self.lost && (!self.cx.is_cancelled() || !lasts) {
            match self.check() {
                Ok(interval) => return Next::At(self.inner.clock.nanos().after(interval)),
                Err(error) => {
                    self.lost = true;
                    lost.cancel();
                    self.inner.fail("elector", error);
                }
            }
        }
        // Keeps the term until everything has ended. If the leadership is not really lost, no other process leads
        // before then.
        if self.cx.is_cancelled() { Next::Finished } else { Next::At(Nanos::NEVER) }
    }
}
