//! A watch, and the thread that feeds it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Push, Watch};
use crate::base::group::{Handle, StillRunning, ThreadGroup};
use crate::queue::Key;

/// What the handles of watches with a thread of their own have in common. Dropping it stops the watch and joins the thread.
pub(crate) struct Fed<K: Key + Sync, T: Send + Sync + 'static> {
    handle: Handle,
    /// Given up when it is detached.
    push: Option<Push<K, T>>,
    watch: Watch<K, T>,
    /// Whether the thread may end without being stopped.
    pub(crate) may_end: bool,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Fed<K, T> {
    pub(crate) fn new(handle: Handle, push: Push<K, T>, may_end: bool) -> Self {
        let watch = push.watch().clone();
        Self { handle, push: Some(push), watch, may_end }
    }

    pub(crate) fn watch(&self) -> &Watch<K, T> {
        &self.watch
    }

    pub(crate) fn crew(&self) -> &Arc<ThreadGroup> {
        &self.handle.crew
    }

    pub(crate) fn stop(&self) {
        if let Some(push) = &self.push {
            push.stop();
        }
        self.handle.stop();
    }

    pub(crate) fn join(&mut self) {
        self.handle.join();
    }

    pub(crate) fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        self.handle.join_timeout(timeout)
    }

    pub(crate) fn detach(&mut self) {
        self.push = None;
        self.handle.detach();
    }

    /// As the handle of this name.
    pub(crate) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name).field("watch", &self.watch).field("thread", &self.handle).finish_non_exhaustive()
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Drop for Fed<K, T> {
    fn drop(&mut self) {
        if !self.handle.is_detached() {
            self.stop();
            self.handle.join();
        }
    }
}
