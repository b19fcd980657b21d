//! All served kinds.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use super::column::PrintColumn;
use super::presets::NAMESPACE;
use super::resource::ServedResource;
use crate::admission::{SchemaFault, StructuralSchema};
use homeostat::rt::Chain;
use homeostat_objects::Kind;
use homeostat_objects::store::{is_dns_label, is_subdomain};

/// The error for a kind that cannot be served.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryError {
    kind: Box<Kind>,
    fault: KindFault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KindFault {
    Schema(SchemaFault),
    Other(String),
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            KindFault::Schema(fault) => write!(f, "{} cannot be served: {fault}", self.kind),
            KindFault::Other(fault) => write!(f, "{} cannot be served: {fault}", self.kind),
        }
    }
}

impl fmt::Debug for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Chain(self), f)
    }
}

impl Error for RegistryError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The message already includes the text of the fault.
        None
    }
}

/// The served kinds, by group, version and plural.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindRegistry {
    resources: BTreeMap<(String, String, String), ServedResource>,
}

impl KindRegistry {
    /// Checks and registers kinds.
    pub(crate) fn new(resources: impl IntoIterator<Item = ServedResource>) -> Result<Self, RegistryError> {
        let mut registry = Self::default();
        for resource in resources {
            registry.register(resource)?;
        }
        Ok(registry)
    }

    /// Returns these kinds and another one, which replaces the kind of the same name.
    pub(crate) fn with(&self, resource: ServedResource) -> Result<Self, RegistryError> {
        let mut registry = self.without(&resource.kind);
        registry.register(resource)?;
        Ok(registry)
    }

    /// Returns these kinds without one of them.
    pub(crate) fn without(&self, kind: &Kind) -> Self {
        let mut registry = self.clone();
        registry.resources.retain(|_, known| !known.kind.is_named(&kind.api_version(), kind.name()));
        registry
    }

    /// Returns these kinds, and virtual namespaces if there are no others.
    pub(crate) fn with_namespaces(mut self) -> Result<Self, RegistryError> {
        if !self.resources.values().any(|known| known.kind == NAMESPACE) {
            self.register(ServedResource::virtual_namespaces())?;
        }
        Ok(self)
    }

    fn register(&mut self, resource: ServedResource) -> Result<(), RegistryError> {
        let kind = Box::new(resource.kind.clone());
        self.add(resource).map_err(|fault| RegistryError { kind, fault })
    }

    fn add(&mut self, mut resource: ServedResource) -> Result<(), KindFault> {
        let kind = &resource.kind;
        let (group, version, plural) = (kind.group(), kind.version(), kind.plural().into_owned());
        let fault = |fault: String| Err(KindFault::Other(fault));
        if !group.is_empty() && !is_subdomain(group) {
            return fault(format!("its group {group:?} is not a DNS subdomain"));
        }
        if kind.name().is_empty() || !kind.name().bytes().all(|letter| letter.is_ascii_alphanumeric()) {
            return fault("its name must have letters and digits only".to_owned());
        }
        for (what, name) in [("version", version), ("plural", &plural)] {
            if !is_dns_label(name) {
                return fault(format!("its {what} {name:?} must have lower-case letters, digits and '-' only"));
            }
        }
        if let Some(known) = self.resources.values().find(|known| known.kind == *kind) {
            return fault(format!("{} is registered twice", known.kind));
        }
        let place = (group.to_owned(), version.to_owned(), plural);
        if let Some(known) = self.resources.get(&place) {
            return fault(format!("{} has the same plural", known.kind));
        }
        let given = std::mem::take(&mut resource.columns);
        let columns = if resource.has_all_columns { given } else { with_name_and_age(given) };
        let columns: Result<Vec<_>, _> = columns.into_iter().map(PrintColumn::read).collect();
        resource.columns = columns.map_err(KindFault::Other)?;
        resource.schema =
            resource.given_schema.as_ref().map(StructuralSchema::new).transpose().map_err(KindFault::Schema)?;
        self.resources.insert(place, resource);
        Ok(())
    }

    /// Returns the kind with this location in URLs.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&ServedResource> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Returns all kinds, ordered by group, version and plural.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ServedResource> {
        self.resources.values()
    }

    /// Returns the kinds of a group and version.
    pub(crate) fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a ServedResource> {
        self.iter().filter(move |resource| resource.kind.group() == group && resource.kind.version() == version)
    }

    /// Returns the groups with their versions, preferred version first. Always includes the core group.
    pub(crate) fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups = BTreeMap::from([("", vec!["v1"])]);
        for (group, version, _) in self.resources.keys() {
            let versions: &mut Vec<&str> = groups.entry(group).or_default();
            if !versions.contains(&version.as_str()) {
                versions.push(version);
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|version| version_rank(version));
        }
        groups
    }
}

/// Adds a column with the name at the beginning. Adds one with the age at the end, unless there is one.
fn with_name_and_age(mut columns: Vec<PrintColumn>) -> Vec<PrintColumn> {
    let name = PrintColumn::computed("Name", "string", |object| object.name().into())
        .format("name")
        .description("The name of the object, unique for its kind and namespace.");
    if !columns.iter().any(|column| column.name().eq_ignore_ascii_case("age")) {
        let age = PrintColumn::new("Age", "date", ".metadata.creationTimestamp");
        columns.push(age.description("The time since the creation."));
    }
    columns.insert(0, name);
    columns
}

/// The rank of a version: stable, then beta, then alpha, then others, and newer ones first.
fn version_rank(version: &str) -> (u8, std::cmp::Reverse<u64>, std::cmp::Reverse<u64>, String) {
    let parsed = (|| {
        let rest = version.strip_prefix('v')?;
        let (major, stage) =
            rest.find(|letter: char| !letter.is_ascii_digit()).map_or((rest, ""), |at| rest.split_at(at));
        let (rank, minor) = match (stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
            _ if stage.is_empty() => (0, "0"),
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (2, minor),
            _ => return None,
        };
        Some((rank, major.parse().ok()?, if minor.is_empty() { 0 } else { minor.parse().ok()? }))
    })();
    let (rank, major, minor) = parsed.unwrap_or((3, 0, 0));
    (rank, std::cmp::Reverse(major), std::cmp::Reverse(minor), version.to_owned())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(group: &'static str, version: &'static str, name: &'static str) -> ServedResource {
        ServedResource::new(Kind::namespaced(group, version, name))
    }

    #[test]
    fn the_preferred_version_of_a_group_comes_first() {
        let versions = ["v1alpha1", "v1beta2", "v2", "v10", "v1", "v1beta1", "foo1"];
        let kinds = versions.map(|version| kind("example.com", version, "Site"));
        let registry = KindRegistry::new(kinds).unwrap();
        let groups = registry.groups();
        assert_eq!(groups["example.com"], ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo1"]);
        assert_eq!(groups[""], ["v1"]);
        assert_eq!(registry.find("example.com", "v2", "sites").unwrap().kind().version(), "v2");
        assert!(registry.find("example.com", "v3", "sites").is_none());
    }

    #[test]
    fn unusable_kinds_are_refused_by_name() {
        let fault = |resources: Vec<ServedResource>| KindRegistry::new(resources).unwrap_err().to_string();
        let site = || kind("example.com", "v1", "Site");
        assert!(fault(vec![site(), site()]).contains("registered twice"));
        assert!(fault(vec![kind("a b", "v1", "Site")]).contains("\"a b\""));
        assert!(fault(vec![kind("", "V1", "Site")]).contains("\"V1\""));
        assert!(fault(vec![kind("", "v1", "Si te")]).contains("letters and digits"));
        let column = |kind: &str, path: &str| site().column(PrintColumn::new("Pages", kind, path));
        assert!(fault(vec![column("integer", "status")]).contains("column \"Pages\""));
        assert!(fault(vec![column("int", ".status")]).contains("\"int\""));
        assert!(fault(vec![site().schema(json!({"properties": {"a": {"pattern": "("}}}))]).contains("schema of a"));
    }
}
