//! Rules that permit a program's requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

use super::manifest::yaml_of;
use homeostat_objects::{EventRecorder, Kind};

const READ: [&str; 3] = ["get", "list", "watch"];
/// The verbs of a controller for the objects that it creates. `Client::apply` needs `patch`, and `create` for a new
/// object.
const WRITE: [&str; 4] = ["create", "update", "patch", "delete"];
const UPDATE: [&str; 3] = ["get", "update", "patch"];
const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");

/// The requests that a program makes, as rules for role-based access control (RBAC). Displays as the YAML of a role's
/// `rules`.
///
/// # Examples
///
/// ```
/// use homeostat_kubernetes::RbacRules;
/// use homeostat_objects::Kind;
///
/// const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let rules = RbacRules::new().read(&SITE).status(&SITE).write(&CONFIG_MAP).record_events().elect_leader();
/// assert!(rules.allows(&CONFIG_MAP, "delete") && !rules.allows(&SITE, "delete"));
/// assert_eq!(rules.to_json().as_array().unwrap().len(), 5);
/// println!("{rules}");
///
/// // The manifests of an account that has these rights in all namespaces.
/// let objects = rules.manifests("sites", "operators");
/// assert_eq!(objects[2]["kind"], "ClusterRoleBinding");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RbacRules(BTreeMap<RbacResource, BTreeSet<String>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RbacResource {
    group: String,
    /// The plural. A `/` and a subresource may follow.
    name: String,
}

impl RbacRules {
    /// Returns rules that allow nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Permits reading and watching objects of this kind.
    #[must_use]
    pub fn read(self, kind: &Kind) -> Self {
        self.allow(kind, &READ)
    }

    /// Permits reading, watching, creating, changing and deleting objects of this kind, one at a time.
    ///
    /// [`Client::delete_collection`](homeostat_objects::Client::delete_collection) also needs `.allow(kind,
    /// &["deletecollection"])`.
    #[must_use]
    pub fn write(self, kind: &Kind) -> Self {
        self.allow(kind, &READ).allow(kind, &WRITE)
    }

    /// Permits changing the status of objects of this kind.
    #[must_use]
    pub fn status(self, kind: &Kind) -> Self {
        self.allow_subresource(kind, "status", &UPDATE)
    }

    /// Permits adding and removing finalizers of objects of this kind, and making these objects the owners of others.
    #[must_use]
    pub fn finalizers(self, kind: &Kind) -> Self {
        self.allow(kind, &UPDATE).allow_subresource(kind, "finalizers", &["update"])
    }

    /// Permits an [`EventRecorder`] to store events.
    #[must_use]
    pub fn record_events(self) -> Self {
        self.allow(&EventRecorder::KIND, &["create", "patch"])
    }

    /// Permits a [`LeaseElector`](homeostat_objects::LeaseElector) to keep its lease.
    #[must_use]
    pub fn elect_leader(self) -> Self {
        self.allow(&LEASE, &["get", "create", "update"])
    }

    /// Permits [`Members`](homeostat_objects::Members) to keep their leases.
    #[must_use]
    pub fn divide_keys(self) -> Self {
        self.allow(&LEASE, &["get", "list", "create", "update", "delete"])
    }

    /// Permits these verbs for objects of a kind.
    #[must_use]
    pub fn allow(self, kind: &Kind, verbs: &[&str]) -> Self {
        self.insert(kind.group(), kind.plural().into_owned(), verbs)
    }

    /// Permits these verbs for a subresource of a kind's objects, such as `status`.
    #[must_use]
    pub fn allow_subresource(self, kind: &Kind, subresource: &str, verbs: &[&str]) -> Self {
        self.insert(kind.group(), format!("{}/{subresource}", kind.plural()), verbs)
    }

    /// Adds the rules of another part of the program.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for (resource, verbs) in other.0 {
            self.0.entry(resource).or_default().extend(verbs);
        }
        self
    }

    /// Returns whether the rules permit a verb for objects of a kind.
    #[must_use]
    pub fn allows(&self, kind: &Kind, verb: &str) -> bool {
        let resource = RbacResource { group: kind.group().to_owned(), name: kind.plural().into_owned() };
        self.0.get(&resource).is_some_and(|verbs| verbs.contains(verb))
    }

    fn insert(mut self, group: &str, name: String, verbs: &[&str]) -> Self {
        let known = self.0.entry(RbacResource { group: group.to_owned(), name }).or_default();
        known.extend(verbs.iter().map(|verb| (*verb).to_owned()));
        self
    }

    /// Returns the `rules` of a role.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rule = |(resource, verbs): (&RbacResource, &BTreeSet<String>)| json!({"apiGroups": [resource.group], "resources": [resource.name], "verbs": verbs});
        self.0.iter().map(rule).collect()
    }

    /// Returns three objects with this name: a service account in a namespace, a cluster role with these rules, and
    /// their binding.
    #[must_use]
    pub fn manifests(&self, name: &str, namespace: &str) -> Vec<Value> {
        let group = "rbac.authorization.k8s.io";
        vec![
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
                "rules": self.to_json(),
            }),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            }),
        ]
    }
}

impl fmt::Display for RbacRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&yaml_of(&self.to_json()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");

    #[test]
    fn rules_of_one_resource_are_one_rule() {
        let rules = RbacRules::new().write(&SITE).status(&SITE).finalizers(&SITE).and(RbacRules::new().read(&SITE));
        assert_eq!(
            rules.to_json(),
            json!([
                {"apiGroups": ["example.com"], "resources": ["sites"],
                    "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]},
                {"apiGroups": ["example.com"], "resources": ["sites/finalizers"], "verbs": ["update"]},
                {"apiGroups": ["example.com"], "resources": ["sites/status"], "verbs": ["get", "patch", "update"]},
            ])
        );
        assert_eq!(
            RbacRules::new().record_events().to_string(),
            "- apiGroups:\n  - events.k8s.io\n  resources:\n  - events\n  verbs:\n  - create\n  - patch\n"
        );
    }

    #[test]
    fn electors_and_members_may_write_leases() {
        let verbs = |rules: RbacRules| rules.to_json()[0]["verbs"].clone();
        assert_eq!(verbs(RbacRules::new().elect_leader()), json!(["create", "get", "update"]));
        assert_eq!(verbs(RbacRules::new().divide_keys()), json!(["create", "delete", "get", "list", "update"]));
    }
}
