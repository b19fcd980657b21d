//! The state that a member and its thread share.

use std::sync::Arc;

use super::shards::Shards;
use crate::lease::LeaseTiming;
use crate::sync::atomic::AtomicBool;
use crate::{Client, ObjectKey};

/// The state that a member and its thread share.
pub(super) struct MembersShared {
    pub(super) client: Arc<dyn Client>,
    pub(super) namespace: String,
    /// The name of the group and of the lease that holds its members.
    pub(super) group: String,
    pub(super) identity: String,
    pub(super) timing: LeaseTiming,
    pub(super) shards: Shards,
    pub(super) is_running: AtomicBool,
}

impl MembersShared {
    pub(super) fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.namespace, name)
    }
}
