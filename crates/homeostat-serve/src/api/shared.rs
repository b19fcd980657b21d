//! The state that all requests share.

use std::sync::{Arc, OnceLock};

use http::StatusCode;

use super::deadlines::WatchDeadlines;
use super::namespaces::NamespaceFinder;
use super::openapi::OpenApiDocuments;
use super::store::StoreHealth;
use crate::access::{Access, AccessRequest, AccessTarget, Authorizer, UserInfo};
use crate::kinds::KindRegistry;
use homeostat::base::Clock;
use homeostat_objects::{Client, SharedObject};

#[derive(Clone)]
pub(super) struct ApiShared {
    pub(super) client: Arc<dyn Client>,
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) namespaces: NamespaceFinder,
    /// Created for the first request that needs them.
    pub(super) documents: Arc<OnceLock<OpenApiDocuments>>,
    pub(super) clock: Clock,
    pub(super) deadlines: Arc<WatchDeadlines>,
    pub(super) store: Arc<StoreHealth>,
    pub(super) most_size: usize,
    pub(super) authorizer: Option<Authorizer>,
}

/// The result of a write.
pub(super) struct WriteOutcome {
    pub(super) code: StatusCode,
    pub(super) object: SharedObject,
    pub(super) warnings: Vec<String>,
}

impl ApiShared {
    /// Returns the same state with other kinds.
    pub(super) fn serving(&self, kinds: KindRegistry) -> Self {
        let kinds = Arc::new(kinds);
        let namespaces = NamespaceFinder::new(&self.client, &kinds, &self.deadlines);
        Self { kinds, namespaces, documents: Arc::default(), ..self.clone() }
    }

    /// Asks the authorizer whether a user may do something.
    pub(super) fn access(&self, user: &UserInfo, verb: &'static str, target: AccessTarget) -> Access {
        let Some(authorizer) = &self.authorizer else { return Access::Allow };
        authorizer(&AccessRequest { user: user.clone(), verb, target })
    }
}
