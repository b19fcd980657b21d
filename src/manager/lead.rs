//! The thread of a manager's elector: it campaigns, and looks after the term.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::state::{ManagerInner, ManagerPhase};
use crate::base::cancel::OnCancel;
use crate::base::error::StartError;
use crate::base::group::{Handle, ThreadGroup, ThreadGroupKind};
use crate::base::task::{Next, Task};
use crate::base::thread::{panic_message, shielded};
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;
use crate::manager::election::{Elector, Term};
use crate::run::context::Context;
use crate::run::error::BoxError;

/// How the log names the drop of a term, which is user code.
const RESIGNING: &str = "an elector that resigns";

impl ManagerInner {
    /// Campaigns on a thread of its own, and looks after the term, until it is to resign.
    pub(super) fn elect(self: &Arc<Self>) -> Result<Option<Handle>, StartError> {
        let Some(elector) = self.elector.clone() else { return Ok(None) };
        let crew = ThreadGroup::new(ThreadGroupKind::Elector, format!("{}-elector", self.name), self.clock.clone(), 1);
        let (signal, inner) = (AutoResetEvent::new(self.clock.clone()), Arc::clone(self));
        let woken = Arc::clone(&signal);
        let leading = Leading {
            cx: Context::detached_with(self.clock.clone(), self.resign.clone()),
            wakes: vec![self.resign.on_cancel(move || woken.set())],
            signal: Arc::clone(&signal),
            inner,
            elector,
            term: None,
            lost: false,
        };
        let joiners = crew.start_one(&self.options, leading, &signal, None)?;
        let resign = self.resign.clone();
        Ok(Some(Handle::new(crew, joiners, Box::new(move || resign.cancel()), self.abort_grace)))
    }

    /// Who is stopping does not begin to lead.
    fn begins_to_lead(&self) -> bool {
        let mut state = self.state.lock();
        state.leading = !matches!(state.phase, ManagerPhase::Stopping | ManagerPhase::Ended);
        state.leading
    }
}

/// What the thread of an elector does.
struct Leading {
    inner: Arc<ManagerInner>,
    elector: Arc<dyn Elector>,
    /// Cancelled when it is to resign.
    cx: Context,
    signal: Arc<AutoResetEvent>,
    /// Set the signal.
    wakes: Vec<OnCancel>,
    term: Option<Term>,
    lost: bool,
}

impl Leading {
    /// Campaigns. Returns whether it leads now.
    fn begin(&mut self) -> bool {
        let Self { inner, elector, cx, signal, wakes, term, .. } = self;
        let campaign = unless_it_panics(|| match elector.campaign(cx) {
            // An elector that has been told to stop by somebody else will not lead either.
            Err(error) if error.is_cancelled() && cx.is_cancelled() => Ok(None),
            ended => Ok(ended.map(Some)?),
        });
        match campaign {
            Ok(won) => *term = won,
            Err(error) => inner.fail("elector", &Arc::new(error)),
        }
        let Some(term) = term.as_ref().filter(|_| inner.begins_to_lead()) else { return false };
        inner.signal.set();
        // Who hears of a loss between two checks has it checked.
        let woken = Arc::clone(signal);
        wakes.push(term.lost().on_cancel(move || woken.set()));
        true
    }

    /// Checks the term. Returns how long until the next check.
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
            // If it is not lost after all, nobody else leads before everything has ended.
            return Next::At(Nanos::NEVER);
        }
        self.inner.state.lock().leading = false;
        Next::Finished
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.wakes.clear();
        shielded(RESIGNING, || drop(self.term.take()));
    }
}

/// A panic is an error.
fn unless_it_panics<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|panic| {
        let error = format!("it panicked: {}", panic_message(&*panic));
        shielded("the drop of a panic", || drop(panic));
        Err(error.into())
    })
}
