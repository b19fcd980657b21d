//! A reconciler that is called with the stored value of its key.

use std::fmt;
use std::sync::Arc;

use super::Store;
use crate::queue::Key;
use crate::run::context::Context;
use crate::run::error::BoxError;
use crate::run::reconciler::{Action, Reconciler};

/// Returns a reconciler that calls `reconcile` with the key and its stored value. The value is `None` if the key is
/// gone.
///
/// The value is read when the run begins, and is at least as new as the event that caused the run. It may still be
/// older than the real object. If a decision must not be based on an old value, check the object itself.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Reconciler, Watch, with_value};
/// use std::sync::Arc;
///
/// let push = Watch::push();
/// let vms = with_value(&push.watch().store(), |_cx: &Context, name: &&str, vm: Option<Arc<u32>>| -> Result<Action, BoxError> {
///     match vm {
///         Some(vm) => println!("{name} has {vm} cores"),
///         None => println!("{name} is gone: clean up"),
///     }
///     Ok(Action::await_change())
/// });
/// push.set("vm-1", 4);
/// vms.reconcile(&Context::detached(), &"vm-1")?;
/// # Ok::<_, BoxError>(())
/// ```
pub fn with_value<K, T, E, F>(store: &Store<K, T>, reconcile: F) -> WithValue<K, T, F>
where
    K: Key + Sync,
    T: Send + Sync + 'static,
    F: Fn(&Context, &K, Option<Arc<T>>) -> Result<Action, E> + Send + Sync,
    E: Into<BoxError>,
{
    WithValue { store: store.clone(), reconcile }
}

/// The reconciler that [`with_value`] returns.
#[derive(Clone)]
pub struct WithValue<K, T, F> {
    store: Store<K, T>,
    reconcile: F,
}

impl<K, T, E, F> Reconciler<K> for WithValue<K, T, F>
where
    K: Key + Sync,
    T: Send + Sync + 'static,
    F: Fn(&Context, &K, Option<Arc<T>>) -> Result<Action, E> + Send + Sync,
    E: Into<BoxError>,
{
    type Error = E;

    fn reconcile(&self, cx: &Context, key: &K) -> Result<Action, E> {
        (self.reconcile)(cx, key, self.store.get(key))
    }
}

impl<K, T, F> fmt::Debug for WithValue<K, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithValue").field("store", &self.store).finish_non_exhaustive()
    }
}
