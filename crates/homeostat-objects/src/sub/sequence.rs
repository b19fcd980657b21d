//! Several steps as one.

use std::fmt;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{Failures, SubResult};
use super::setup::Setup;
use homeostat::run::BoxError;

/// Runs several steps in order until one fails or halts.
///
/// Their delays are [combined](super::Flow::and), and a later failure does not cancel them.
///
/// # Examples
///
/// ```
/// use homeostat_objects::DynamicObject;
/// use homeostat_objects::sub::{Flow, Sequence, SubContext, SubResult};
///
/// let halts = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { Ok(Flow::halt()) };
/// let never = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { unreachable!() };
/// let steps = Sequence::new().then(halts).then(never);
/// # let _ = steps;
/// ```
#[must_use]
pub struct Sequence<T>(Vec<Box<dyn SubReconciler<T>>>);

/// Runs several steps in order. A failure does not stop the others.
///
/// Their delays are [combined](super::Flow::and), and their errors are reported together as [`Failures`]. If one fails
/// or halts, the steps after the `Always` are skipped.
///
/// # Examples
///
/// ```
/// use homeostat_objects::DynamicObject;
/// use homeostat_objects::sub::{Always, Flow, SubContext, SubResult};
///
/// let fails = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { Err("out of luck".into()) };
/// let cleans_up = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { Ok(Flow::proceed()) };
/// let steps = Always::new().then(fails).then(cleans_up);
/// # let _ = steps;
/// ```
#[must_use]
pub struct Always<T>(Vec<Box<dyn SubReconciler<T>>>);

macro_rules! steps {
    ($steps:ident, $go_on:expr) => {
        impl<T> $steps<T> {
            /// Creates a sequence without steps.
            pub fn new() -> Self {
                Self(Vec::new())
            }

            /// Adds a step at the end.
            pub fn then(mut self, step: impl SubReconciler<T> + 'static) -> Self {
                self.0.push(Box::new(step));
                self
            }
        }

        impl<T> Default for $steps<T> {
            fn default() -> Self {
                Self::new()
            }
        }

        impl<T> SubReconciler<T> for $steps<T> {
            fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
                self.0.iter().try_for_each(|step| step.setup(setup))
            }

            fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
                let (mut together, mut halted) = (Failures::default(), false);
                for step in &self.0 {
                    halted |= together.add(step.reconcile(cx, resource));
                    if halted && !$go_on {
                        break;
                    }
                }
                together.into_result(halted)
            }
        }

        impl<T> fmt::Debug for $steps<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($steps)).field("steps", &self.0.len()).finish()
            }
        }
    };
}

steps!(Sequence, false);
steps!(Always, true);
