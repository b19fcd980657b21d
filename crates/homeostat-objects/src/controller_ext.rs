//! The settings that objects add to a controller.

use std::fmt;
use std::time::Duration;

use super::members::{ShardGate, ShardHash, Shards};
use super::own_writes::OwnWrites;
use homeostat::controller::{ControllerBuilder, ControllerHandle};
use homeostat::queue::Key;

/// The settings of a [controller](ControllerBuilder) that objects add.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{ControllerExt, ObjectKey};
/// use homeostat::{Action, BoxError, Context, Controller};
/// use std::time::Duration;
///
/// let reconcile = |_cx: &Context, _site: &ObjectKey| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let controller = Controller::builder("sites", reconcile).own_write_bound(Duration::from_secs(30)).build()?;
/// # Ok::<_, homeostat::StartError>(())
/// ```
pub trait ControllerExt<K: Key>: Sized {
    /// Sets how long a key may wait until a watch has shown the writes of its last run. With zero, keys do not wait.
    /// Default: 10 s.
    ///
    /// A run that reads from a watch must see the writes of the run before, or it repeats them. So if a run writes
    /// objects that a watch of this controller shows, its key runs again only once the watch shows the writes. If that
    /// takes longer than the bound, a log line says so, and the key runs.
    ///
    /// Only writes on the thread of the run count, through an [`Api`](super::Api) or a helper of this module, such as
    /// [`Secondary`](super::Secondary). Deletions of whole collections do not count.
    #[must_use]
    fn own_write_bound(self, bound: Duration) -> Self;

    /// Divides the keys among processes: this process runs only the keys that belong to it in `shards`.
    ///
    /// `hash` returns the hash of a key: [`ShardHash::of`] its parts, or only its namespace to keep a namespace
    /// together. All processes must use the same hash. Keys of other processes leave the queue without a run. After a
    /// change of the members, the watches of the controller enqueue the moved keys, and its pollers poll.
    ///
    /// A context has the [fence](homeostat::Context::fence) of this process, with the number of the assignment. Each
    /// later owner of a key has a greater number.
    #[must_use]
    fn shards(self, shards: &Shards, hash: impl Fn(&K) -> ShardHash + Send + Sync + 'static) -> Self;
}

/// The methods that objects add to the [handle of a controller](ControllerHandle).
///
/// # Examples
///
/// ```
/// use homeostat_objects::{ControllerHandleExt, ObjectKey};
/// use homeostat::{Action, BoxError, Context, Controller};
///
/// let reconcile = |_cx: &Context, _site: &ObjectKey| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let controller = Controller::builder("sites", reconcile).build()?;
/// assert!(controller.handle().owns(&ObjectKey::cluster("a")), "its keys are not divided");
/// # Ok::<_, homeostat::StartError>(())
/// ```
pub trait ControllerHandleExt<K: Key> {
    /// Returns whether this process may run a key now. Always true if the keys are not
    /// [divided](ControllerExt::shards).
    fn owns(&self, key: &K) -> bool;
}

impl<K: Key + Sync + fmt::Debug> ControllerExt<K> for ControllerBuilder<K> {
    fn own_write_bound(self, bound: Duration) -> Self {
        self.gate(move |queue, _resync| OwnWrites::new(queue.clock(), Some(bound)))
    }

    fn shards(self, shards: &Shards, hash: impl Fn(&K) -> ShardHash + Send + Sync + 'static) -> Self {
        let shards = shards.clone();
        self.gate(move |queue, resync| ShardGate::new(&shards, hash, queue.clone(), resync.clone()))
    }
}

impl<K: Key + Sync + fmt::Debug> ControllerHandleExt<K> for ControllerHandle<K> {
    fn owns(&self, key: &K) -> bool {
        self.gate::<ShardGate<K>>().is_none_or(|gate| gate.owns(key))
    }
}
