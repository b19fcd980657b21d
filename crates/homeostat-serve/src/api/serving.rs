//! Objects on a [`Server`](crate::Server).

use std::sync::Arc;

use super::ObjectApi;
use crate::access::Authorizer;
use crate::server::ServerBuilder;

impl ServerBuilder {
    /// Serves objects to `kubectl` and other Kubernetes clients, at the paths below `/api`, `/apis`, `/openapi` and
    /// `/version`.
    ///
    /// The [authorization](Self::authorize) is asked about each request, with the kind, namespace and name.
    ///
    /// If the client that stores the objects fails, the request gets status 500. The reply does not contain the cause,
    /// which may show paths and addresses. The log does, and the check `objects` of `/readyz` fails
    /// ([`status_pages`](Self::status_pages)).
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::{Kind, MemoryClient};
    /// use homeostat_serve::{ObjectApi, ServedResource, Server};
    /// use std::net::Ipv4Addr;
    /// use std::sync::Arc;
    ///
    /// let client = MemoryClient::builder().versions_by_time().build();
    /// let sites = ServedResource::new(Kind::namespaced("example.com", "v1", "Site"));
    /// let api = ObjectApi::builder(Arc::new(client)).serve(sites).build()?;
    /// let server = Server::builder((Ipv4Addr::LOCALHOST, 0)).objects(&api).build()?.start()?;
    /// let command = format!("kubectl --server http://{} get sites", server.addresses()[0]);
    /// # drop((server, command));
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn objects(self, api: &ObjectApi) -> Self {
        let (api, store) = (api.clone(), api.store());
        self.object_store(store).object_handler(move |authorizer| Arc::new(api.authorized_by(authorizer)))
    }
}

impl ObjectApi {
    /// Returns the same API with this authorizer.
    pub(super) fn authorized_by(&self, authorizer: &Authorizer) -> Self {
        Self { authorizer: Some(Arc::clone(authorizer)), shared: Arc::clone(&self.shared) }
    }
}
