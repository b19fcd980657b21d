//! What comes before and after all steps of a run.

use super::flow::{Flow, SubResult, both};
use crate::objects::ObjectKey;
use crate::run::context::Context;

pub(super) type Before = Box<dyn Fn(&Context, &ObjectKey) -> SubResult + Send + Sync>;
pub(super) type After = Box<dyn Fn(&Context, &ObjectKey, SubResult) -> SubResult + Send + Sync>;

#[derive(Default)]
pub(super) struct Around {
    pub(super) before: Option<Before>,
    pub(super) after: Option<After>,
}

impl Around {
    /// What is before, then `run`, unless that failed or halted; and then what is after.
    pub(super) fn run(&self, cx: &Context, key: &ObjectKey, run: impl FnOnce() -> SubResult) -> SubResult {
        let before = self.before.as_ref().map_or(Ok(Flow::proceed()), |before| before(cx, key));
        let result = match before {
            Ok(flow) if !flow.is_halted() => both(before, run()),
            other => other,
        };
        match &self.after {
            Some(after) => after(cx, key, result),
            None => result,
        }
    }
}
