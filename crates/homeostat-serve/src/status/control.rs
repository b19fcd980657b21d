//! Actions of users on keys and controllers: retry, suspend, resume.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use homeostat::manager::Manager;
use homeostat::queue::{Enqueue, EnqueueOutcome, Key, KeyState, Reasons};
use homeostat::run::GateKey;

/// An action on a key, or on all keys of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserAction {
    /// Runs the key now, regardless of a delay. For a controller, runs all failed keys.
    Retry,
    /// Starts no run of the key until it is resumed.
    Suspend,
    Resume,
}

impl UserAction {
    pub(crate) const ALL: [Self; 3] = [Self::Retry, Self::Suspend, Self::Resume];

    /// Returns the last segment of the action's path.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
        }
    }
}

impl fmt::Display for UserAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Acts on one key, or on all keys of a controller. Returns false if the manager no longer has the controller.
///
/// It holds no handle of the controller, because it is kept with the controller's runs.
pub(crate) type Control = Arc<dyn Fn(&Manager, UserAction) -> bool + Send + Sync>;

/// Creates the control of a key. `None` if the controller has another type of keys.
type OfKey = Box<dyn Fn(&dyn GateKey) -> Option<Control> + Send + Sync>;

/// Acts on one controller and its keys.
pub(crate) struct Controls {
    /// Acts on all keys.
    pub(crate) all: Control,
    of_key: OfKey,
}

impl Controls {
    /// Creates the controls of the controller with this name and this type of keys.
    pub(crate) fn new<K: Key + Sync + fmt::Debug>(controller: &str) -> Self {
        let controller: Arc<str> = controller.into();
        let of_all = Arc::clone(&controller);
        let all = move |manager: &Manager, action| {
            let Ok(handle) = manager.controller::<K>(&of_all) else { return false };
            match action {
                UserAction::Retry => {
                    handle.retry_now();
                    let queue = handle.queue().because(Reasons::MANUAL);
                    for failed in handle.failing().into_iter().chain(handle.parked()) {
                        // See below.
                        if matches!(handle.queue().state(&failed.key), KeyState::Processing(_)) {
                            queue.enqueue_now(failed.key);
                        }
                    }
                }
                UserAction::Suspend => handle.suspend_all(),
                UserAction::Resume => handle.resume_all(),
            }
            true
        };
        let of_key = move |key: &dyn GateKey| -> Option<Control> {
            let key = key.as_any().downcast_ref::<K>()?.clone();
            let controller = Arc::clone(&controller);
            Some(Arc::new(move |manager, action| {
                let Ok(handle) = manager.controller::<K>(&controller) else { return false };
                match action {
                    UserAction::Retry => {
                        let queue = handle.queue().because(Reasons::MANUAL);
                        // If an active run fails, its backoff would replace a rescheduled run. If it has ended
                        // meanwhile, the key may run twice.
                        if queue.reschedule(key.clone(), Duration::ZERO) == EnqueueOutcome::Rerun {
                            queue.enqueue_now(key.clone());
                        }
                    }
                    UserAction::Suspend => handle.suspend(key.clone()),
                    UserAction::Resume => handle.resume(&key),
                }
                true
            }))
        };
        Self { all: Arc::new(all), of_key: Box::new(of_key) }
    }

    /// Returns the control of a key. `None` if the controller has another type of keys.
    pub(crate) fn of_key(&self, key: &dyn GateKey) -> Option<Control> {
        (self.of_key)(key)
    }
}

impl fmt::Debug for Controls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controls").finish_non_exhaustive()
    }
}
