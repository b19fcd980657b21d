//! The decision about a key that was taken, and the permission for one run of a divided key.

use std::fmt;
use std::time::Duration;

use crate::run::fence::Fence;

/// The decision about a key that was taken.
pub(crate) enum Admission {
    /// It is run.
    Run,
    /// It is run within the limit of this permit, which is given back afterwards.
    RunWith(Box<Permit>),
    /// It is put aside for this time. [`Duration::MAX`] never ends.
    PutAside(Duration),
    /// It leaves the queue.
    Refuse,
}

/// The permission for one run. It is given back when it is dropped.
pub(crate) struct Permit {
    fence: Fence,
    give_back: Option<Box<dyn FnOnce() + Send>>,
}

impl Permit {
    pub(crate) fn new(fence: Fence, give_back: impl FnOnce() + Send + 'static) -> Self {
        Self { fence, give_back: Some(Box::new(give_back)) }
    }

    /// Returns the limit of the run.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("fence", &self.fence).finish_non_exhaustive()
    }
}
