//! Ownership across clients, where owner references do not work.

use std::borrow::Cow;

use super::error::{ClientError, ObjectRef};
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::ObjectMeta;
use super::object::Object;
use super::query::Query;
use super::selector::LabelSelector;
use super::stable_hash::stable_hash;
use super::validate::is_label_value;

/// Marks objects with an owner that another client stores, where an owner reference would not work.
///
/// The marks are the owner's kind and key, each as an annotation and as a label with the same name:
///
/// | | `homeostat.dev/owner-kind` | `homeostat.dev/owner-key` |
/// |---|---|---|
/// | annotation, which decides | `Deployment.apps`, `Pod` | `default/web`, `node-1` |
/// | label, for queries | the same | `default_web`, `node-1` |
///
/// The kind has no version, because all versions of a kind refer to the same objects. A label cannot contain a slash or
/// more than 63 characters: an underscore replaces the slash, and a hash of 16 digits replaces a text that does not
/// fit. In rare cases, labels of different owners are equal. Only the annotations decide; an object with only the
/// labels has no owner.
///
/// An owner that is deleted and created again has the same key, so it owns its objects again.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{DynamicObject, Kind, Object, ObjectKey, ObjectRef, Ownership};
///
/// const MODEL: Kind = Kind::namespaced("example.com", "v1", "Model");
/// const POD: Kind = Kind::namespaced("", "v1", "Pod");
/// let ownership = Ownership::new();
/// let owner = ObjectRef::new(&MODEL, &ObjectKey::new("default", "shop"));
/// let mut pod = DynamicObject::new(&POD, "pods", "shop-1");
///
/// ownership.mark(&owner, &mut pod)?;
/// assert_eq!(ownership.owner_key(&pod.meta(), &MODEL), Some(owner.key().clone()));
/// assert!(ownership.query_of(&owner).selects(&pod.to_json()?)); // and a client lists all such
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    kind: Cow<'static, str>,
    key: Cow<'static, str>,
}

/// The owner of an object, read from its marks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MarkedOwner {
    /// The name of the kind and its group, as in `Deployment.apps`. A kind of the core group has only a name.
    pub kind: String,
    /// The namespace and name.
    pub key: ObjectKey,
}

impl MarkedOwner {
    /// Returns whether the owner is of this kind, in any version.
    #[must_use]
    pub fn is_of(&self, kind: &Kind) -> bool {
        self.kind == name_of(kind)
    }
}

impl Ownership {
    /// Uses the names `homeostat.dev/owner-kind` and `homeostat.dev/owner-key`.
    #[must_use]
    pub const fn new() -> Self {
        Self { kind: Cow::Borrowed("homeostat.dev/owner-kind"), key: Cow::Borrowed("homeostat.dev/owner-key") }
    }

    /// Uses other names for the marks, such as `example.com/ownerkind` and `example.com/ownerkey`.
    ///
    /// They must be two different names that are valid for labels. Otherwise clients refuse marked objects.
    #[must_use]
    pub fn named(kind: impl Into<Cow<'static, str>>, key: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: kind.into(), key: key.into() }
    }

    /// Marks `child` with this owner. Does not write to a client.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ClientErrorKind::Invalid), which names both objects, if `child` has the marks of another
    /// owner. In that case [`unmark`](Self::unmark) it first. `child` is not changed.
    pub fn mark(&self, owner: &ObjectRef, child: &mut impl Object) -> Result<(), ClientError> {
        let marks = [(&self.kind, name_of(owner.kind())), (&self.key, owner.key().to_string())];
        let meta = child.meta();
        let known = |name: &str| meta.annotations.get(name);
        if let Some((name, _)) = marks.iter().find(|(name, value)| known(name).is_some_and(|known| known != value)) {
            let value = [&self.kind, &self.key].map(|name| known(name).map_or("", String::as_str)).join(" ");
            let (field, rule) =
                (format!("metadata.annotations[{name}]"), format!("must be the mark of its owner, {owner}"));
            return Err(ClientError::invalid(child.object_ref(), field, value, rule));
        }
        drop(meta);
        let mut meta = child.meta_mut();
        for (name, value) in marks {
            meta.labels.insert(name.to_string(), label_value(&value));
            meta.annotations.insert(name.to_string(), value);
        }
        Ok(())
    }

    /// Removes the marks of any owner. Returns whether there were marks. Does not write to a client.
    pub fn unmark(&self, child: &mut impl Object) -> bool {
        let mut meta = child.meta_mut();
        let mut found = false;
        for name in [&*self.kind, &*self.key] {
            found |= meta.labels.remove(name).is_some();
            found |= meta.annotations.remove(name).is_some();
        }
        found
    }

    /// Returns the owner that the annotations name; `None` if one is missing or the key cannot be parsed.
    #[must_use]
    pub fn owner_of(&self, child: &ObjectMeta) -> Option<MarkedOwner> {
        let mark = |name: &str| child.annotations.get(name).filter(|value| !value.is_empty());
        Some(MarkedOwner { kind: mark(&self.kind)?.clone(), key: mark(&self.key)?.parse().ok()? })
    }

    /// Returns the key of the owner, if it is of this kind. For
    /// [`Subscriber::to_owner`](homeostat::Subscriber::to_owner).
    #[must_use]
    pub fn owner_key(&self, child: &ObjectMeta, kind: &Kind) -> Option<ObjectKey> {
        self.owner_of(child).filter(|owner| owner.is_of(kind)).map(|owner| owner.key)
    }

    /// Returns the key of the owner, if it is of this kind and one of the two labels is missing. No list finds such an
    /// object.
    pub(crate) fn unlabelled_owner(&self, child: &ObjectMeta, kind: &Kind) -> Option<ObjectKey> {
        let owner = self.owner_key(child, kind)?;
        self.labels_of(child).any(|(name, value)| child.labels.get(name) != Some(&value)).then_some(owner)
    }

    /// Returns the labels that correspond to the annotations of an object.
    pub(crate) fn labels_of<'a>(&'a self, child: &'a ObjectMeta) -> impl Iterator<Item = (&'a str, String)> {
        let names = [&*self.kind, &*self.key].into_iter();
        names.filter_map(|name| Some((name, label_value(child.annotations.get(name)?))))
    }

    /// Returns a query for the objects marked with this owner.
    ///
    /// If a key does not fit into a label, the query may also select objects of other owners. To be sure, check each
    /// object with [`owner_of`](Self::owner_of).
    #[must_use]
    pub fn query_of(&self, owner: &ObjectRef) -> Query {
        let mut labels = LabelSelector::label(&*self.key, label_value(&owner.key().to_string()));
        labels.match_labels.insert(self.kind.to_string(), label_value(&name_of(owner.kind())));
        Query::all().labels(labels)
    }
}

impl Default for Ownership {
    fn default() -> Self {
        Self::new()
    }
}

fn name_of(kind: &Kind) -> String {
    let separator = if kind.group().is_empty() { "" } else { "." };
    format!("{}{separator}{}", kind.name(), kind.group())
}

fn label_value(text: &str) -> String {
    let value = text.replacen('/', "_", 1);
    if is_label_value(&value) { value } else { stable_hash(&[text]) }
}

#[cfg(test)]
mod tests {
    use super::super::dynamic::DynamicObject;
    use super::*;

    const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment");
    const NODE: Kind = Kind::cluster("", "v1", "Node");

    fn owner(kind: &Kind, key: &str) -> ObjectRef {
        ObjectRef::new(kind, &key.parse().unwrap())
    }

    fn pod() -> DynamicObject {
        DynamicObject::new(&Kind::namespaced("", "v1", "Pod"), "pods", "p")
    }

    /// Returns the marks of a pod with this owner, labels first.
    fn marks(owner: &ObjectRef) -> Vec<String> {
        let mut pod = pod();
        Ownership::new().mark(owner, &mut pod).unwrap();
        let marked = Ownership::new().owner_of(&pod.meta()).unwrap();
        assert!(marked.is_of(owner.kind()) && marked.key == *owner.key());
        assert!(Ownership::new().query_of(owner).selects(&pod.to_json().unwrap()));
        assert!(pod.meta().labels.values().all(|value| is_label_value(value)));
        let read = |name: &str| [&pod.meta().labels[name], &pod.meta().annotations[name]].map(String::clone);
        [read("homeostat.dev/owner-kind"), read("homeostat.dev/owner-key")].concat()
    }

    #[test]
    fn labels_find_objects_and_annotations_decide() {
        let web = marks(&owner(&DEPLOYMENT, "default/web"));
        assert_eq!(web, ["Deployment.apps", "Deployment.apps", "default_web", "default/web"]);
        assert_eq!(marks(&owner(&NODE, "node-1.example.com"))[2..], ["node-1.example.com"; 2]);
    }

    #[test]
    fn a_label_holds_a_hash_of_a_text_that_does_not_fit() {
        let fits = format!("a/{}", "b".repeat(61));
        assert_eq!(marks(&owner(&DEPLOYMENT, &fits))[2].len(), 63);
        for key in [&format!("{fits}b"), "a/system:node", "a/x-", "é"] {
            let label = &marks(&owner(&DEPLOYMENT, key))[2];
            assert!(label.len() == 16 && label.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}: {label}");
        }
        assert_ne!(label_value("a/x:1"), label_value("a/x:2"));
    }

    #[test]
    fn owners_with_other_groups_kinds_and_names_differ() {
        let (web, mut pod) = (owner(&DEPLOYMENT, "default/web"), pod());
        Ownership::new().mark(&web, &mut pod).unwrap();
        let json = pod.to_json().unwrap();
        let beta = Kind::namespaced("apps", "v1beta1", "Deployment");
        assert_eq!(Ownership::new().owner_key(&pod.meta(), &beta), Some(web.key().clone()));
        for other in [
            owner(&Kind::namespaced("example.com", "v1", "Deployment"), "default/web"),
            owner(&Kind::namespaced("apps", "v1", "StatefulSet"), "default/web"),
            owner(&DEPLOYMENT, "default/db"),
        ] {
            assert!(!Ownership::new().query_of(&other).selects(&json));
            let error = Ownership::new().mark(&other, &mut pod).unwrap_err().to_string();
            assert!(error.contains("Deployment.apps default/web") && error.contains(&other.to_string()), "{error}");
            assert_eq!(pod.to_json().unwrap(), json);
        }
        assert_eq!(Ownership::new().owner_key(&pod.meta(), &NODE), None);
        Ownership::new().mark(&web, &mut pod).unwrap();
        assert_eq!(pod.to_json().unwrap(), json);
    }

    #[test]
    fn the_names_of_marks_can_be_set_and_marks_removed() {
        let (kumori, web) =
            (Ownership::named("kumori/ownerkind", "kumori/ownerkey"), owner(&DEPLOYMENT, "default/web"));
        let mut pod = pod();
        kumori.mark(&web, &mut pod).unwrap();
        assert_eq!(pod.meta().labels["kumori/ownerkey"], "default_web");
        assert_eq!(Ownership::new().owner_of(&pod.meta()), None);
        Ownership::new().mark(&owner(&NODE, "n"), &mut pod).unwrap();
        assert!(kumori.unmark(&mut pod) && !kumori.unmark(&mut pod));
        assert_eq!((kumori.owner_of(&pod.meta()), pod.meta().labels.len()), (None, 2));
    }

    #[test]
    fn half_a_mark_is_none() {
        let ownership = Ownership::new();
        for (kind, key) in [(None, Some("a/b")), (Some("X"), None), (Some("X"), Some("a/b/c")), (Some(""), Some("a"))] {
            let mut meta = ObjectMeta::new("pods", "p")
                .label("homeostat.dev/owner-kind", "X")
                .label("homeostat.dev/owner-key", "a");
            let annotations = [("homeostat.dev/owner-kind", kind), ("homeostat.dev/owner-key", key)];
            for (name, value) in annotations.into_iter().filter_map(|(name, value)| Some((name, value?))) {
                meta = meta.annotation(name, value);
            }
            assert_eq!(ownership.owner_of(&meta), None, "{kind:?} {key:?}");
        }
    }
}
