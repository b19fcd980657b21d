//! The elector's thread: campaigns, and checks the term.
//!
//! # Invariants
//!
//! - A term is given up only after all work has ended that must not overlap with the work of the next leader, also if the term
//!   is lost. A component that does not end keeps the term.
//! - The token of a term is cancelled before its leadership is given back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::state::{ManagerInner, ManagerPhase};
use crate::base::cancel::OnCancel;
use crate::base::error::StartError;
use crate::base::group::{Handle, ThreadGroup, ThreadGroupKind};
use crate::base::running::Running;
use crate::base::task::{Next, Task};
use crate::base::thread::panic_message;
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;
use crate::manager::election::{Elector, Term};
use crate::run::context::Context;
use crate::run::error::BoxError;

impl ManagerInner {
    /// Starts a thread that campaigns and checks the term until `resign` is cancelled.
    pub(super) fn elect(self: &Arc<Self>) -> Result<Option<Running<()>>, StartError> {
        let Some(elector) = self.elector.clone() else { return Ok(None) };
        let group = ThreadGroup::new(ThreadGroupKind::Elector, format!("{}-elector", self.name), self.clock.clone(), 1);
        let (event, inner) = (AutoResetEvent::new(self.clock.clone()), Arc::clone(self));
        let woken = Arc::clone(&event);
        let leading = Leading {
            cx: Context::detached_with(self.clock.clone(), self.resign.clone()),
            wakes: vec![self.resign.on_cancel(move || woken.set())],
            event: Arc::clone(&event),
            inner,
            elector,
            term: None,
            lost: false,
        };
        let joiners = group.start_one(&self.options, leading, &event, None)?;
        let resign = self.resign.clone();
        let handle = Handle::new(group, joiners, move || resign.cancel());
        Ok(Some(Running::new((), handle, self.abort_grace)))
    }

    /// Begins to lead, unless the manager is stopping. Returns whether this process leads now.
    fn begins_to_lead(&self) -> bool {
        let mut state = self.state.lock();
        state.leading = !matches!(state.phase, ManagerPhase::Stopping | ManagerPhase::Ended);
        state.leading
    }
}

/// The task of the elector's thread.
struct Leading {
    inner: Arc<ManagerInner>,
    elector: Arc<dyn Elector>,
    /// Cancelled when the elector must resign.
    cx: Context,
    event: Arc<AutoResetEvent>,
    /// The callbacks that set the event. They are unregistered before the term is dropped, which gives the leadership back.
    wakes: Vec<OnCancel>,
    term: Option<Term>,
    lost: bool,
}

impl Leading {
    /// Campaigns. Returns whether this process leads now.
    fn begin(&mut self) -> bool {
        let Self { inner, elector, cx, event, wakes, term, .. } = self;
        let campaign = unless_it_panics(|| match elector.campaign(cx) {
            // A cancellation from elsewhere is a failure: the elector will never lead.
            Err(error) if error.is_cancelled() && cx.is_cancelled() => Ok(None),
            ended => Ok(ended.map(Some)?),
        });
        match campaign {
            Ok(won) => *term = won,
            Err(error) => inner.fail("elector", &Arc::new(error)),
        }
        let Some(term) = term.as_ref().filter(|_| inner.begins_to_lead()) else { return false };
        inner.signal.set();
        // A loss between two checks wakes this thread for a check.
        let woken = Arc::clone(event);
        wakes.push(term.lost().on_cancel(move || woken.set()));
        true
    }

    /// Checks the term. Returns the time until the next check.
    fn check(&mut self) -> Result<Duration, BoxError> {
        let Some(term) = &mut self.term else { return Ok(Duration::MAX) };
        unless_it_panics(|| {
            term.check()?;
            Ok(term.check_interval())
        })
    }
}

impl Task for Leading {
    fn step(&mut self, _now: Nanos) -> Next {
        if self.term.is_none() && !self.begin() {
            return Next::Finished;
        }
        if !self.lost && !self.cx.is_cancelled() {
            match self.check() {
                Ok(interval) => return Next::At(self.inner.clock.nanos().after(interval)),
                Err(error) => {
                    self.lost = true;
                    {
                        let mut state = self.inner.state.lock();
                        state.leading = false;
                        state.lost = true;
                    }
                    self.inner.fail("elector", &Arc::new(error));
                }
            }
        }
        if !self.cx.is_cancelled() {
            // Keeps the term until everything has ended. If the leadership is not really lost, no other process leads before
            // then.
            return Next::At(Nanos::NEVER);
        }
        self.inner.state.lock().leading = false;
        Next::Finished
    }
}

/// Converts a panic into an error.
fn unless_it_panics<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(code))
        .unwrap_or_else(|panic| Err(format!("it panicked: {}", panic_message(&*panic)).into()))
}
