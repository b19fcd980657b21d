//! Sub-reconcilers: business logic in small steps, each of which can be tested alone.
//!
//! A [`SubReconciler`] is one step of a run. It gets the object, changes its status or its children, and returns
//! whether the next step runs. Steps nest. A [`ResourceReconciler`] runs the outermost step: it is a
//! [`Reconciler`](homeostat::Reconciler) for a [`Controller`](homeostat::Controller).
//!
//! The design and the names come from [reconciler.io](https://reconciler.io) for Go:
//!
//! | step | purpose |
//! |---|---|
//! | [`ResourceReconciler`] | reads an object, calls the steps, writes the status |
//! | [`AggregateReconciler`] | keeps one object that is built from others |
//! | [`SyncReconciler`] | custom code |
//! | [`ChildReconciler`] | keeps one child object |
//! | [`ChildSetReconciler`] | keeps a set of child objects |
//! | [`ExternalReconciler`] | keeps a resource outside all clients (not in reconciler.io) |
//! | [`Sequence`] | several steps until one fails or halts |
//! | [`Always`] | several steps, even after a failure |
//! | [`IfThen`] | one of two steps |
//! | [`While`], [`ForEach`] | runs a step several times |
//! | [`TryCatch`] | handles the errors of a step, and always runs a last step |
//! | [`Advice`] | code before, around and after a step |
//! | [`WithFinalizer`] | keeps the object until a step has cleaned up |
//! | [`WithConfig`] | another client or tracker for a step |
//! | [`CastResource`] | a step for another type |
//! | [`OverrideSetup`] | another set-up for a step |
//! | [`SuppressTransientErrors`] | mutes errors until they persist |
//!
//! The other terms:
//!
//! | reconciler.io | here |
//! |---|---|
//! | `SubReconciler.SetupWithManager` | [`SubReconciler::setup`] with a [`Setup`] |
//! | `reconcile.Result`, `ErrHaltSubReconcilers` | [`Flow`] |
//! | `ErrQuiet`, `ErrDurable` | [`quiet`], [`terminal`](homeostat::terminal); see [`ErrorClass`] |
//! | `ErrSkipStatusUpdate` | [`SubContext::skip_status_update`] |
//! | `StashValue`, `RetrieveValue` | [`Stash`], [`SubContext::stashed`] |
//! | `Config`, `RetrieveConfig`, `RetrieveOriginalConfig` | [`Config`], [`SubContext::config`], [`SubContext::original_config`] |
//! | `Config.TrackAndGet` | [`SubContext::track_and_get`] |
//! | `ObjectManager`, `UpdatingObjectManager` | [`ObjectManager`], [`UpdatingObjectManager`] |
//! | `OnlyReconcileChildStatus` | [`DesiredChild::AsItIs`] |
//!
//! Tests of steps are cases in a table of the crate [`homeostat-testing`](https://docs.rs/homeostat-testing).

mod advice;
mod aggregate;
mod branch;
mod cast;
mod child;
mod children;
mod childset;
mod config;
mod context;
mod external;
mod finalizing;
mod flow;
mod guard;
mod hooks;
mod manager;
mod override_setup;
mod repeat;
mod resource;
mod sequence;
mod setup;
mod stash;
mod suppress;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod tracking;
mod with_config;

pub use self::advice::Advice;
pub use self::aggregate::AggregateReconciler;
pub use self::branch::IfThen;
pub use self::cast::CastResource;
pub use self::child::ChildReconciler;
pub use self::children::DesiredChild;
pub use self::childset::{ChildResult, ChildSetReconciler};
pub use self::config::Config;
pub use self::context::{Request, SubContext};
pub use self::external::ExternalReconciler;
pub use self::finalizing::WithFinalizer;
pub use self::flow::{ErrorClass, Failures, Flow, Quiet, SubResult, quiet};
pub use self::guard::TryCatch;
pub use self::manager::{ObjectManager, UpdatingObjectManager};
pub use self::override_setup::OverrideSetup;
pub use self::repeat::{Cursor, EndlessLoop, ForEach, ITERATION, While};
pub use self::resource::ResourceReconciler;
pub use self::sequence::{Always, Sequence};
pub use self::setup::Setup;
pub use self::stash::{Stash, StashError, StashKey, Stashed};
pub use self::suppress::SuppressTransientErrors;
pub use self::sync::SyncReconciler;
pub use self::with_config::WithConfig;

use homeostat::run::BoxError;

/// One step in the reconciliation of an object.
///
/// A step must be idempotent: it is called at least once for each change. Several threads call it for different
/// objects.
///
/// A closure is a step without a set-up. Write out the types of its parameters:
/// `|cx: &SubContext<'_>, vm: &mut Vm| -> SubResult { … }`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step of the reconciliation of `{T}`",
    label = "not a step for `{T}`",
    note = "a closure needs the types of its parameters written out, `|cx: &SubContext<'_>, resource: &mut {T}| -> SubResult`",
    note = "it is shared by threads: what it captures must be `Send + Sync + 'static`"
)]
pub trait SubReconciler<T>: Send + Sync {
    /// Adds watches and indexes to the controller. Called once, before the controller is built.
    ///
    /// A step with inner steps must call their set-up.
    ///
    /// # Errors
    ///
    /// If a source cannot be added. The controller is not built.
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        let _ = setup;
        Ok(())
    }

    /// Runs the step.
    ///
    /// # Errors
    ///
    /// Any error. The next steps do not run; the [class](ErrorClass) of the error decides about logging and retries.
    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult;
}

impl<T, F: Fn(&SubContext<'_>, &mut T) -> SubResult + Send + Sync> SubReconciler<T> for F {
    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        self(cx, resource)
    }
}

/// A boxed step, for types that are chosen at run time.
impl<T> SubReconciler<T> for Box<dyn SubReconciler<T>> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        (**self).setup(setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        (**self).reconcile(cx, resource)
    }
}
