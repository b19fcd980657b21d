//! The kinds that the server serves.
//!
//! The plural in a path is guessed from the kind. If the server does not know the path, the client reads the list of
//! kinds in the kind's group and version, because the plural may be irregular. A replaced definition may also have
//! changed it. A broken group does not affect the others.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use http::Method;
use serde::Deserialize;

use crate::http::agent::StoppableCall;
use crate::http::answer::ApiStatus;
use crate::http::path::RequestPath;
use crate::http::transport::{HttpRequest, HttpTransport};
use crate::sync::Mutex;
use homeostat::base::CancellationToken;
use homeostat::rt::Nanos;
use homeostat_objects::{ClientError, Kind, ObjectRef};

/// The shortest interval between two reads of a list of kinds after requests with unknown paths.
const PERIOD: Duration = Duration::from_secs(1);

/// How the server serves a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedKind {
    /// The plural in lower case, as it appears in URLs.
    pub plural: String,
    /// Whether the objects belong to namespaces.
    pub namespaced: bool,
    /// The supported verbs, such as `get` and `list`.
    pub verbs: Vec<String>,
    /// The subresources, such as `status` and `scale`.
    pub subresources: Vec<String>,
}

/// The lists of kinds read so far, by group and version.
#[derive(Debug, Default)]
pub(super) struct Discovery(Mutex<HashMap<String, Group>>);

/// The kinds in a group and version.
#[derive(Clone, Debug, Default)]
struct Group {
    read_at: Nanos,
    /// `None` if the server does not serve this group and version.
    kinds: Option<BTreeMap<String, ServedKind>>,
}

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Option<Vec<String>>,
}

impl Discovery {
    /// Returns the plural of a kind: as the server has reported it, or else as guessed.
    pub(super) fn plural(&self, kind: &Kind) -> String {
        let groups = self.0.lock();
        let found = groups.get(&*kind.api_version()).and_then(|group| group.kinds.as_ref()?.get(kind.name()));
        found.map_or_else(|| kind.plural().into_owned(), |served| served.plural.clone())
    }

    /// Looks up a kind after the server did not know its path. Reads the list of the kind's group and version, unless
    /// it was read just before. Cancelling `stop` ends the request.
    ///
    /// # Errors
    ///
    /// Returns [`KindNotServed`](homeostat_objects::ClientErrorKind::KindNotServed) if the server does not serve the
    /// kind, or the errors of a request.
    pub(super) fn find(
        &self,
        transport: &HttpTransport,
        object: &ObjectRef,
        stop: Option<&CancellationToken>,
    ) -> Result<ServedKind, ClientError> {
        let known = self.0.lock().get(&*object.kind().api_version()).cloned();
        match known {
            Some(group) if !transport.clock().reached(group.read_at.after(PERIOD)) => group.find(transport, object),
            _ => self.read(transport, object, stop),
        }
    }

    /// Reads the list of the kind's group and version, and returns the kind's entry. Cancelling `stop` ends the
    /// request.
    ///
    /// # Errors
    ///
    /// Returns [`KindNotServed`](homeostat_objects::ClientErrorKind::KindNotServed) if the server does not serve the
    /// kind, or the errors of a request.
    pub(super) fn read(
        &self,
        transport: &HttpTransport,
        object: &ObjectRef,
        stop: Option<&CancellationToken>,
    ) -> Result<ServedKind, ClientError> {
        let group = read(transport, object, stop)?;
        self.0.lock().insert(object.kind().api_version().into_owned(), group.clone());
        group.find(transport, object)
    }
}

impl Group {
    fn find(&self, transport: &HttpTransport, object: &ObjectRef) -> Result<ServedKind, ClientError> {
        let kind = object.kind();
        if let Some(found) = self.kinds.as_ref().and_then(|kinds| kinds.get(kind.name())) {
            return Ok(found.clone());
        }
        let (server, version) = (transport.server(), kind.api_version());
        let reason = match &self.kinds {
            None => format!("{server} has no group and version {version}"),
            Some(kinds) => {
                let kinds: Vec<_> = kinds.keys().map(String::as_str).take(20).collect();
                format!("{server} has {version} with the kinds {}", kinds.join(", "))
            }
        };
        Err(ClientError::kind_not_served(object.clone(), reason))
    }
}

fn read(transport: &HttpTransport, object: &ObjectRef, stop: Option<&CancellationToken>) -> Result<Group, ClientError> {
    let path = RequestPath::of_version(object.kind())
        .map_err(|cause| ClientError::with_causes(object.clone(), vec![cause]))?;
    let request = HttpRequest { method: Method::GET, path: &path, body: None, accept: "application/json" };
    let line = transport.line("GET", &path, object, "");
    let (head, body) =
        transport.call(&request, stop.map(StoppableCall::new).as_ref()).map_err(|error| line.error(error))?;
    let read_at = transport.clock().nanos();
    if head.code == 404 {
        return Ok(Group { read_at, kinds: None });
    }
    if !head.is_success() {
        return Err(ApiStatus::read(&body).error(&line, &head));
    }
    let list: ResourceList = serde_json::from_slice(&body)
        .map_err(|error| line.unusable(format!("the list of kinds is invalid: {error}")))?;
    Ok(Group { read_at, kinds: Some(served(list.resources)) })
}

fn served(resources: Vec<Resource>) -> BTreeMap<String, ServedKind> {
    let (parts, wholes): (Vec<_>, Vec<_>) = resources.into_iter().partition(|resource| resource.name.contains('/'));
    let wholes = wholes.into_iter().map(|Resource { name, kind, namespaced, verbs }| {
        let of_it = |part: &Resource| {
            part.name.split_once('/').filter(|(plural, _)| *plural == name).map(|(_, part)| part.to_owned())
        };
        let subresources = parts.iter().filter_map(of_it).collect();
        (kind, ServedKind { plural: name, namespaced, verbs: verbs.unwrap_or_default(), subresources })
    });
    // Virtual resources, such as access reviews, cannot be read. If two resources have one kind, prefer a readable
    // one.
    let mut kinds = BTreeMap::<String, ServedKind>::new();
    for (kind, served) in wholes {
        let reads = |served: &ServedKind| served.verbs.iter().any(|verb| verb == "get");
        if kinds.get(&kind).is_none_or(|known| !reads(known) && reads(&served)) {
            kinds.insert(kind, served);
        }
    }
    kinds
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn subresources_belong_to_their_resource() {
        let text = r#"{"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": ["get", "list"]},
            {"name": "deployments/scale", "group": "autoscaling", "kind": "Scale", "namespaced": true, "verbs": ["get"]},
            {"name": "deployments/status", "kind": "Deployment", "namespaced": true, "verbs": ["get"]},
            {"name": "things", "kind": "Thing", "namespaced": false, "verbs": null}]}"#;
        let list: ResourceList = serde_json::from_str(text).unwrap();
        let kinds = served(list.resources);
        assert_eq!(kinds.keys().collect::<Vec<_>>(), ["Deployment", "Thing"]);
        let deployment = &kinds["Deployment"];
        assert_eq!((deployment.plural.as_str(), deployment.namespaced), ("deployments", true));
        assert_eq!(
            (deployment.verbs.len(), &deployment.subresources[..]),
            (2, &["scale".to_owned(), "status".to_owned()][..])
        );
        assert!(!kinds["Thing"].namespaced && kinds["Thing"].verbs.is_empty());
    }
}
