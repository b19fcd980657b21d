//! Reviews of a user's own access: `kubectl auth can-i` and `kubectl auth whoami`.

use serde_json::{Value, json};

use super::body;
use super::shared::ApiShared;
use super::status::StatusError;
use crate::access::{Access, AccessTarget, UserInfo};
use crate::http::IncomingRequest;

/// The verbs for objects.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Answers a review.
pub(super) fn review(api: &ApiShared, request: &IncomingRequest, plural: &str) -> Result<Value, StatusError> {
    let unknown = || StatusError::method_not_allowed(format!("{plural} are not served"));
    let (group, kind) = match plural {
        "selfsubjectaccessreviews" => ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
        "selfsubjectrulesreviews" => ("authorization.k8s.io/v1", "SelfSubjectRulesReview"),
        "selfsubjectreviews" => ("authentication.k8s.io/v1", "SelfSubjectReview"),
        _ => return Err(unknown()),
    };
    let spec = spec(request, kind)?;
    let status = match kind {
        "SelfSubjectAccessReview" => access(api, &request.user, &spec),
        "SelfSubjectRulesReview" => rules(api, &request.user, spec["namespace"].as_str().unwrap_or_default()),
        _ => {
            let UserInfo { name, groups } = &request.user;
            // Kubernetes has a name for users without credentials.
            let (name, groups) = if name.is_empty() {
                ("system:anonymous", json!(["system:unauthenticated"]))
            } else {
                (name.as_str(), json!(groups))
            };
            json!({"userInfo": {"username": name, "groups": groups}})
        }
    };
    Ok(
        json!({"kind": kind, "apiVersion": group, "metadata": {"creationTimestamp": null}, "spec": spec, "status": status}),
    )
}

/// Reads the `spec` of a review.
fn spec(request: &IncomingRequest, kind: &str) -> Result<Value, StatusError> {
    let mut review = body::json(request)?;
    match review["kind"].as_str() {
        Some(sent) if sent != kind => Err(StatusError::bad_request(format!("the body is a {sent}, not a {kind}"))),
        _ => Ok(review.get_mut("spec").map(Value::take).unwrap_or_default()),
    }
}

/// Returns the status of an access review.
fn access(api: &ApiShared, user: &UserInfo, spec: &Value) -> Value {
    let answer = |access| match access {
        Access::Allow => json!({"allowed": true}),
        Access::Deny(reason) => json!({"allowed": false, "reason": reason}),
    };
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let attributes = if resource.is_object() { resource } else { path };
    let text = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
    let asked = text("verb");
    let verbs: Vec<_> = VERBS.into_iter().filter(|verb| asked == "*" || asked == *verb).collect();
    if verbs.is_empty() {
        return json!({"allowed": false, "reason": format!("this server has no verb {asked:?}")});
    }
    let target = if resource.is_object() {
        let (plural, part) = (text("resource"), text("subresource"));
        let resource = if part.is_empty() { plural } else { format!("{plural}/{part}") };
        AccessTarget::objects(text("group"), resource, text("namespace"), text("name"))
    } else {
        AccessTarget::Path(text("path"))
    };
    let refusal =
        verbs.into_iter().map(|verb| api.access(user, verb, target.clone())).find(|one| *one != Access::Allow);
    answer(refusal.unwrap_or(Access::Allow))
}

/// Returns the status of a rules review: the verbs that the user may use on each served kind in a namespace.
fn rules(api: &ApiShared, user: &UserInfo, namespace: &str) -> Value {
    let kinds = api.kinds.iter().map(|resource| (resource.kind(), resource.has_status()));
    let mut rules = Vec::new();
    for (kind, has_status) in kinds {
        let namespace = if kind.is_namespaced() { namespace } else { "" };
        let plural = kind.plural().into_owned();
        let status = has_status.then(|| format!("{plural}/status"));
        for resource in std::iter::once(plural).chain(status) {
            let allowed = VERBS.into_iter().filter(|verb| {
                let target = AccessTarget::objects(kind.group(), resource.as_str(), namespace, "");
                api.access(user, verb, target) == Access::Allow
            });
            let allowed: Vec<_> = allowed.collect();
            if !allowed.is_empty() {
                rules.push(json!({"verbs": allowed, "apiGroups": [kind.group()], "resources": [resource]}));
            }
        }
    }
    json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": false})
}
