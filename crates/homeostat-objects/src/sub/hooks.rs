//! The hooks before and after the steps of a run.

use super::flow::{Flow, SubResult, both};
use crate::ObjectKey;
use homeostat::run::Context;

type BeforeRun = Box<dyn Fn(&Context, &ObjectKey) -> SubResult + Send + Sync>;
type AfterRun = Box<dyn Fn(&Context, &ObjectKey, SubResult) -> SubResult + Send + Sync>;

#[derive(Default)]
pub(super) struct StepHooks {
    pub(super) before: Option<BeforeRun>,
    pub(super) after: Option<AfterRun>,
}

impl StepHooks {
    /// Calls the first hook, then `run` unless the hook failed or halted, then the second hook.
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

/// The builder methods that set the hooks, for a builder with a field `hooks`.
macro_rules! hook_settings {
    ($reconciler:ident) => {
        impl<T: Object> $reconciler<T> {
            /// Calls `before` first in each run. If it fails or halts, the run only calls [`after`](Self::after) and
            /// ends.
            pub fn before(
                mut self,
                before: impl Fn(&Context, &ObjectKey) -> SubResult + Send + Sync + 'static,
            ) -> Self {
                self.hooks.before = Some(Box::new(before));
                self
            }

            /// Calls `after` last in each run, with the result so far. Its result is the result of the run.
            pub fn after(
                mut self,
                after: impl Fn(&Context, &ObjectKey, SubResult) -> SubResult + Send + Sync + 'static,
            ) -> Self {
                self.hooks.after = Some(Box::new(after));
                self
            }
        }
    };
}
pub(super) use hook_settings;
