//! Gates, which decide whether a controller may run a key now. They are for crates that build on this one.
//!
//! # Invariants
//!
//! - A deferred key stays in its queue with its reasons and failures. Only the queue knows that the key waits, so a
//!   gate need not forget a cancelled key.

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::text::ShownKey;
use crate::base::thread::shielded;
use crate::queue::{Key, KeyState, Reasons, WorkQueue};
use crate::run::fence::Fence;

/// Decides whether a controller may run a key now.
///
/// A controller takes a key from its queue, then asks its gates in order, on the thread that would run the key. The key
/// runs if all of them admit it. [`ControllerBuilder::gate`](crate::controller::ControllerBuilder::gate) adds a gate,
/// and a watch may [bring](BringGate) one.
///
/// # Examples
///
/// A gate that lets no key run on a full disk, and looks again every minute:
///
/// ```
/// use homeostat::run::{Admission, Gate, GateKey};
/// use homeostat::{Action, BoxError, Context, Controller, Reasons};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::Duration;
///
/// #[derive(Default)]
/// struct DiskSpace {
///     is_full: AtomicBool,
/// }
///
/// impl Gate for DiskSpace {
///     fn admit(&self, _key: &dyn GateKey, _reasons: Reasons) -> Admission {
///         if self.is_full.load(Ordering::Relaxed) { Admission::Defer(Duration::from_secs(60)) } else { Admission::Run }
///     }
/// }
///
/// let disk = Arc::<DiskSpace>::default();
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let controller = Controller::builder("backup", reconcile).gate(move |_queue, _resync| disk).build()?;
/// # Ok::<_, homeostat::StartError>(())
/// ```
pub trait Gate: Any + Send + Sync {
    /// Decides about a key that the controller has taken from its queue.
    ///
    /// A panic counts as a failed run of the key.
    fn admit(&self, key: &dyn GateKey, reasons: Reasons) -> Admission;

    /// Called after the claim of a [refused](Admission::Refuse) key has ended, even if another gate refused it. The
    /// default does nothing.
    fn refused(&self, key: &dyn GateKey, reasons: Reasons) {
        let _ = (key, reasons);
    }

    /// Returns whether a [resync](ResyncForGates) for the gates runs this key. The default is true.
    fn selects(&self, key: &dyn GateKey) -> bool {
        let _ = key;
        true
    }

    /// Called before a [resync](ResyncForGates) for the gates. `is_last_done`: whether all keys of the previous
    /// resync have been enqueued. The default does nothing.
    fn resync_begins(&self, is_last_done: bool) {
        let _ = is_last_done;
    }

    /// Returns the state of the gate as a line for the status of its controller. By default it has none.
    fn status(&self) -> Option<String> {
        None
    }
}

/// Enqueues the keys of the watches that all gates of a controller [select](Gate::selects), and asks the pollers to
/// poll. Returns at once. [`ControllerBuilder::gate`](crate::controller::ControllerBuilder::gate) passes it to a new
/// gate.
pub type ResyncForGates = Arc<dyn Fn() + Send + Sync>;

/// The decision of a [`Gate`] about a key.
#[derive(Debug)]
#[non_exhaustive]
pub enum Admission {
    /// The key may run.
    Run,
    /// The key may run. The permit is dropped when the run has ended, or at once if a later gate does not admit the
    /// key.
    RunWith(Permit),
    /// The key waits in the queue, with its reasons and failures, until it is [released](GateKey::releaser) or this
    /// time has passed. [`Duration::MAX`] never ends.
    Defer(Duration),
    /// The key leaves the queue without a run. Its failures are forgotten.
    Refuse,
}

/// The permission for one run. Dropped on the thread of the run, before its key can run again.
pub struct Permit {
    fence: Option<Fence>,
    at_end: Option<Box<dyn FnOnce() + Send>>,
}

impl Permit {
    /// Creates a permit that calls `at_end` when it is dropped. If the permit has a fence, the context of the run gets
    /// it too.
    #[must_use]
    pub fn new(fence: Option<Fence>, at_end: impl FnOnce() + Send + 'static) -> Self {
        Self { fence, at_end: Some(Box::new(at_end)) }
    }

    pub(crate) fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(at_end) = self.at_end.take() {
            shielded("the end of a permit", at_end);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("fence", &self.fence).finish_non_exhaustive()
    }
}

/// Ends the wait of a deferred key.
pub type Release = Box<dyn FnOnce() + Send + Sync>;

/// Returns the state of a key in its queue at the time of the call.
pub type ReadState = Box<dyn Fn() -> KeyState + Send + Sync>;

/// A key of a controller, without its type.
pub trait GateKey: fmt::Debug {
    /// Returns the name of the controller.
    fn controller(&self) -> &str;

    /// Returns the key itself, for a downcast.
    fn as_any(&self) -> &dyn Any;

    /// Returns a hash of the key. It is the same for equal keys of one process.
    fn hash(&self) -> u64;

    /// Returns a function that ends the wait of this key, if it is [deferred](Admission::Defer). It may be called at
    /// any time, even before the key waits, but not under a lock that [`Gate::admit`] takes.
    fn releaser(&self) -> Release;

    /// Returns a function that returns the state of this key in the controller's queue. It may be called at any time.
    fn state_reader(&self) -> ReadState;
}

/// A key of a queue.
pub(crate) struct TakenKey<'a, K: Key> {
    pub(crate) controller: &'a str,
    pub(crate) key: &'a K,
    pub(crate) queue: &'a WorkQueue<K>,
}

impl<K: Key + Sync + fmt::Debug> GateKey for TakenKey<'_, K> {
    fn controller(&self) -> &str {
        self.controller
    }

    fn as_any(&self) -> &dyn Any {
        self.key
    }

    fn hash(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(self.key)
    }

    fn releaser(&self) -> Release {
        let (key, queue) = (self.key.clone(), self.queue.clone());
        Box::new(move || shielded("a key that a gate releases", || queue.release(&key)))
    }

    fn state_reader(&self) -> ReadState {
        let (key, queue) = (self.key.clone(), self.queue.clone());
        Box::new(move || queue.state(&key))
    }
}

impl<K: fmt::Debug + Key> fmt::Debug for TakenKey<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ShownKey(self.key).fmt(f)
    }
}

/// Brings a gate to a controller before a source of it reads a watch; see
/// [`Watch::bring_gate`](crate::Watch::bring_gate). The returned guard is dropped when the source has ended.
pub type BringGate = Box<dyn Fn(&Gates) -> Option<Box<dyn Any + Send + Sync>> + Send + Sync>;

/// The gates of a controller.
pub struct Gates {
    clock: Clock,
    settings: Vec<Arc<dyn Gate>>,
    /// The gate that a watch has brought.
    brought: OnceLock<Arc<dyn Gate>>,
}

impl Gates {
    pub(crate) fn new(clock: Clock, settings: Vec<Arc<dyn Gate>>) -> Self {
        Self { clock, settings, brought: OnceLock::new() }
    }

    /// Returns the clock of the controller.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the first gate of this type.
    #[must_use]
    pub fn find<G: Gate>(&self) -> Option<Arc<G>> {
        self.iter().find_map(|gate| Arc::downcast(Arc::clone(gate) as Arc<dyn Any + Send + Sync>).ok())
    }

    /// Returns the first gate of this type, or adds a new one. `None` if another watch has brought a gate of another
    /// type: a controller takes one type of gate from its watches.
    pub fn find_or_bring<G: Gate>(&self, new: impl FnOnce() -> Arc<G>) -> Option<Arc<G>> {
        self.find().or_else(|| {
            self.brought.get_or_init(|| new());
            self.find()
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Gate>> {
        self.settings.iter().chain(self.brought.get())
    }

    /// Returns whether there is no gate.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.brought.get().is_none()
    }

    /// Asks all gates. Returns the permits for the run, or the first decision against it.
    #[cold]
    pub(crate) fn admit(&self, key: &dyn GateKey, reasons: Reasons) -> Result<Vec<Permit>, Admission> {
        let mut permits = Vec::new();
        for gate in self.iter() {
            match gate.admit(key, reasons) {
                Admission::Run => {}
                Admission::RunWith(permit) => permits.push(permit),
                refusal => return Err(refusal),
            }
        }
        Ok(permits)
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gates").field("len", &self.iter().count()).finish_non_exhaustive()
    }
}
