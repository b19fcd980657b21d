//! Objects as a part of a [`Server`](crate::serve::Server).

use std::sync::Arc;

use super::ObjectApi;
use super::shared::ApiShared;
use crate::serve::access::Authorizer;
use crate::serve::server::ServerBuilder;

impl ServerBuilder {
    /// Serves objects to `kubectl` and other clients of Kubernetes: the paths below `/api`, `/apis`, `/openapi` and `/version`.
    ///
    /// The [authorization](Self::authorize) is asked for each request, with the kind, the namespace and the name.
    pub fn objects(self, api: &ObjectApi) -> Self {
        let api = api.clone();
        self.object_handler(move |authorizer| Arc::new(api.authorized_by(authorizer)))
    }
}

impl ObjectApi {
    /// Returns the same API with this authorizer.
    pub(super) fn authorized_by(&self, authorizer: &Authorizer) -> Self {
        Self(Arc::new(ApiShared { authorizer: Some(Arc::clone(authorizer)), ..ApiShared::clone(&self.0) }))
    }
}
