//! All served kinds.

use std::collections::BTreeMap;

use super::presets::NAMESPACE;
use super::resource::ServedResource;
use homeostat_objects::{DefinitionError, Kind};

/// The served kinds, by group, version and plural.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindRegistry {
    resources: BTreeMap<(String, String, String), ServedResource>,
}

impl KindRegistry {
    /// Checks and registers kinds.
    pub(crate) fn new(resources: impl IntoIterator<Item = ServedResource>) -> Result<Self, DefinitionError> {
        let mut registry = Self::default();
        for resource in resources {
            registry.add(resource)?;
        }
        Ok(registry)
    }

    /// Returns these kinds and another one, which replaces the kind of the same name.
    pub(crate) fn with(&self, resource: ServedResource) -> Result<Self, DefinitionError> {
        let mut registry = self.without(resource.kind());
        registry.add(resource)?;
        Ok(registry)
    }

    /// Returns these kinds without one of them.
    pub(crate) fn without(&self, kind: &Kind) -> Self {
        let mut registry = self.clone();
        registry.resources.retain(|_, known| !known.kind().is_named(&kind.api_version(), kind.name()));
        registry
    }

    /// Returns these kinds, and virtual namespaces if there are no others.
    pub(crate) fn with_namespaces(mut self) -> Result<Self, DefinitionError> {
        if !self.iter().any(|known| *known.kind() == NAMESPACE) {
            self.add(ServedResource::virtual_namespaces())?;
        }
        Ok(self)
    }

    /// Checks a kind, and adds it if its version is served.
    fn add(&mut self, mut resource: ServedResource) -> Result<(), DefinitionError> {
        resource.compile()?;
        let kind = resource.kind();
        let fault = |fault: &str| Err(DefinitionError::new(kind, fault));
        if self.iter().any(|known| known.kind() == kind) {
            return fault("is registered twice");
        }
        let place = (kind.group().to_owned(), kind.version().to_owned(), kind.plural().into_owned());
        if let Some(known) = self.resources.get(&place) {
            return fault(&format!("{} has the same plural", known.kind()));
        }
        if resource.definition().is_served() {
            self.resources.insert(place, resource);
        }
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
        self.iter().filter(move |resource| {
            let kind = resource.kind();
            kind.group() == group && kind.version() == version
        })
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
    use homeostat_objects::{Kind, KindDefinition, PrintColumn};

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
        assert_eq!(fault(vec![site(), site()]), "Site.example.com/v1: is registered twice");
        let other = KindDefinition::new(Kind::namespaced("example.com", "v1", "Page").with_plural("sites"));
        assert!(fault(vec![site(), other.into()]).ends_with("Site.example.com/v1 has the same plural"));
        assert!(fault(vec![kind("a b", "v1", "Site")]).contains("\"a b\""));
        let definition = || KindDefinition::new(Kind::namespaced("example.com", "v1", "Site"));
        let column = PrintColumn::integer("Pages", "status");
        assert!(fault(vec![definition().column(column).into()]).contains("column \"Pages\""));
        let schema = json!({"properties": {"a": {"pattern": "("}}});
        assert!(fault(vec![definition().schema(schema).into()]).contains("schema of a"));
    }

    #[test]
    fn versions_that_are_not_served_are_left_out() {
        let old = KindDefinition::new(Kind::namespaced("example.com", "v1alpha1", "Site")).not_served();
        let registry = KindRegistry::new([old.into(), kind("example.com", "v1", "Site")]).unwrap();
        assert_eq!(registry.groups()["example.com"], ["v1"]);
    }
}
