//! The thread of a manager's elector: it campaigns, and looks after the term.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Inner, Phase};
use crate::crew::{Crew, Handle};
use crate::elector::{Elector, Term};
use crate::error::StartError;
use crate::reconcile::context::Context;
use crate::reconcile::error::BoxError;
use crate::thread::{panic_message, shielded};

/// How the log names the drop of a term, which is user code.
const RESIGNING: &str = "an elector that resigns";

impl Inner {
    /// Campaigns on a thread of its own, and looks after the term, until it is to resign.
    pub(super) fn elect(self: &Arc<Self>) -> Result<Option<Handle>, StartError> {
        let Some(elector) = self.elector.clone() else { return Ok(None) };
        let crew = Crew::new(format!("{}-elector", self.name), self.clock.clone(), 1, |_| {});
        let inner = Arc::clone(self);
        let joiners = crew.start_one(&self.options, move || inner.lead(&*elector), None)?;
        let resign = self.resign.clone();
        Ok(Some(Handle::new(crew, joiners, Box::new(move || resign.cancel()), self.abort_grace)))
    }

    fn lead(&self, elector: &dyn Elector) {
        let cx = Context::detached_with(self.clock.clone(), self.resign.clone());
        let campaign = unless_it_panics(|| match elector.campaign(&cx) {
            // An elector that has been told to stop by somebody else will not lead either.
            Err(error) if error.is_cancelled() && cx.is_cancelled() => Ok(None),
            ended => Ok(ended.map(Some)?),
        });
        let mut term = match campaign {
            Ok(Some(term)) => term,
            Ok(None) => return,
            Err(error) => return self.fail("elector", &Arc::new(error)),
        };
        if self.begins_to_lead() {
            self.signal.set();
            if let Err(error) = unless_it_panics(|| look_after(&mut term, &cx)) {
                {
                    let mut state = self.state.lock();
                    state.leading = false;
                    state.lost = true;
                }
                self.fail("elector", &Arc::new(error));
                // If it is not lost after all, nobody else leads before everything has ended.
                cx.token().wait();
            }
            self.state.lock().leading = false;
        }
        shielded(RESIGNING, || drop(term));
    }

    /// Who is stopping does not begin to lead.
    fn begins_to_lead(&self) -> bool {
        let mut state = self.state.lock();
        state.leading = !matches!(state.phase, Phase::Stopping | Phase::Ended);
        state.leading
    }
}

/// Checks the term until it is to be given back, or is lost.
fn look_after(term: &mut Term, cx: &Context) -> Result<(), BoxError> {
    // Who hears of a loss between two checks ends the nap.
    let awake = cx.token().child();
    let nap = Context::detached_with(cx.clock().clone(), awake.clone());
    let _lost = term.lost().on_cancel(move || awake.cancel());
    while !cx.is_cancelled() {
        term.check()?;
        let _ = nap.sleep(term.check_interval());
    }
    Ok(())
}

/// A panic is an error.
fn unless_it_panics<T>(code: impl FnOnce() -> Result<T, BoxError>) -> Result<T, BoxError> {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|panic| {
        let error = format!("it panicked: {}", panic_message(&*panic));
        shielded("the drop of a panic", || drop(panic));
        Err(error.into())
    })
}
