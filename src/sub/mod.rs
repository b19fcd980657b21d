//! Business logic in small pieces that can be tested alone: sub-reconcilers, and what puts them together. Feature `objects`.
//!
//! A [`SubReconciler`] is one step of a run: it is given an object, changes what it says of it (its status, mostly) or what
//! belongs to it, and says whether the steps behind it follow. Steps are put together to one, and that one is run by a
//! [`ResourceReconciler`]: a plain [`Reconciler`](crate::Reconciler) for a [`Controller`](crate::Controller).

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

use crate::run::error::BoxError;

/// One step of the reconciliation of an object.
///
/// It is called at least once for each change, so it must be idempotent; by many threads at once, for different objects.
///
/// A closure is one, that adds nothing to its controller. Its parameters need their types written out:
/// `|cx: &SubContext<'_>, vm: &mut Vm| -> SubResult { … }`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step of the reconciliation of `{T}`",
    label = "not a step for `{T}`",
    note = "a closure needs the types of its parameters written out, `|cx: &SubContext<'_>, resource: &mut {T}| -> SubResult`",
    note = "it is shared by threads: what it captures must be `Send + Sync + 'static`"
)]
pub trait SubReconciler<T>: Send + Sync {
    /// Adds to the controller what it needs: watches and indexes. Called once, before the controller is built. What is put together
    /// of steps passes it on to all of them.
    ///
    /// # Errors
    ///
    /// If something cannot be added: there will be no controller.
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        let _ = setup;
        Ok(())
    }

    /// Takes the step.
    ///
    /// # Errors
    ///
    /// What follows one is said by its [class](ErrorClass). The steps behind this one do not follow.
    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult;
}

impl<T, F: Fn(&SubContext<'_>, &mut T) -> SubResult + Send + Sync> SubReconciler<T> for F {
    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        self(cx, resource)
    }
}

/// A step that is known only as the program runs.
impl<T> SubReconciler<T> for Box<dyn SubReconciler<T>> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        (**self).setup(setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        (**self).reconcile(cx, resource)
    }
}
