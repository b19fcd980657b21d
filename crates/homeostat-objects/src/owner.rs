//! Owner references: find and set the owners of an object.

use super::error::ClientError;
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::{ObjectMeta, OwnerReference};
use super::object::Object;

/// Returns the keys of an object's owners of this kind, in any version. For
/// [`Subscriber::to_owner`](homeostat::Subscriber::to_owner).
///
/// # Examples
///
/// A change of a config map enqueues the app that owns it:
///
/// ```
/// use homeostat_objects::{DynamicObject, Kind, Object, ObjectKey, owner_keys};
/// use homeostat::{Subscriber, Watch, WorkQueue};
///
/// const APP: Kind = Kind::namespaced("example.com", "v1", "App");
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let mut app = DynamicObject::new(&APP, "default", "shop");
/// app.meta_mut().uid = "u-1".into();
/// let mut colours = DynamicObject::new(&CONFIG_MAP, "default", "colours");
/// colours.meta_mut().owner_references.push(app.owner_reference());
///
/// let queue = WorkQueue::new();
/// let config_maps = Watch::push();
/// let to_app = Subscriber::to_owner(&queue, |_key, map: &DynamicObject| owner_keys(&map.meta(), &APP));
/// let subscription = config_maps.watch().subscribe(to_app.secondary())?;
/// config_maps.set(colours.key(), colours);
/// assert_eq!(*queue.dequeue()?, ObjectKey::new("default", "shop"));
/// # drop(subscription);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use]
pub fn owner_keys(meta: &ObjectMeta, kind: &Kind) -> Vec<ObjectKey> {
    meta.owner_references.iter().filter_map(|owner| key_of(meta, owner, kind)).collect()
}

/// Returns the key of the owner that manages an object, if that owner is of this kind in any version.
#[must_use]
pub fn controller_key(meta: &ObjectMeta, kind: &Kind) -> Option<ObjectKey> {
    key_of(meta, meta.controller()?, kind)
}

/// Returns the key of an owner, if it is of this kind in any version.
pub(crate) fn key_of(meta: &ObjectMeta, owner: &OwnerReference, kind: &Kind) -> Option<ObjectKey> {
    let namespace = if kind.is_namespaced() { &*meta.namespace } else { "" };
    kind.is_version_of(&owner.api_version, &owner.kind).then(|| ObjectKey::new(namespace, &owner.name))
}

/// Makes `owner` the manager of `child`: adds its [controller reference](Object::controller_reference), or replaces an
/// earlier reference to `owner`. Does not write to a client.
///
/// Do not give a child to an owner that is being deleted: the child would be deleted too, even if the deletion
/// [orphans](super::Propagation::Orphan) the other children.
///
/// # Errors
///
/// [`Invalid`](crate::ClientErrorKind::Invalid), which names both objects. `child` is not changed.
///
/// - For the child, if another object manages it. An earlier object with the name of `owner` is another object.
/// - For the child, if `owner` has a namespace and the child is in another namespace or in none.
/// - For the owner, if it has no `uid`: it was not created.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, DynamicObject, Kind, MemoryClient, Object, controller_key, set_controller};
/// use std::sync::Arc;
///
/// const APP: Kind = Kind::namespaced("example.com", "v1", "App");
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let apps = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), APP);
/// let shop = apps.create(&DynamicObject::new(&APP, "default", "shop"))?;
/// let mut colours = DynamicObject::new(&CONFIG_MAP, "default", "colours");
///
/// set_controller(&shop, &mut colours)?;
/// assert_eq!(controller_key(&colours.meta(), &APP), Some(shop.key()));
///
/// let other = apps.create(&DynamicObject::new(&APP, "default", "other"))?;
/// let refused = set_controller(&other, &mut colours).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "ConfigMap default/colours is invalid: metadata.ownerReferences is \"App shop\", but must contain no other \
///      controller before App default/other can manage it"
/// );
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
pub fn set_controller(owner: &impl Object, child: &mut impl Object) -> Result<(), ClientError> {
    let reference = owner.controller_reference();
    let (named, namespace) = (owner.object_ref(), &owner.meta().namespace);
    if reference.uid.is_empty() {
        let rule = format!("must be set: create the object before it owns {}", child.object_ref());
        return Err(ClientError::invalid(named, "metadata.uid", "", rule));
    }
    let invalid = |field: &str, value: &str, rule: String| ClientError::invalid(child.object_ref(), field, value, rule);
    if !namespace.is_empty() && *namespace != child.meta().namespace {
        let rule = format!("must be the namespace of its owner, {named}");
        return Err(invalid("metadata.namespace", &child.meta().namespace, rule));
    }
    if let Some(other) = child.meta().controller().filter(|other| other.uid != reference.uid) {
        let rule = format!("must contain no other controller before {named} can manage it");
        return Err(invalid("metadata.ownerReferences", &format!("{} {}", other.kind, other.name), rule));
    }
    let mut meta = child.meta_mut();
    let owners = &mut meta.owner_references;
    match owners.iter_mut().find(|known| known.uid == reference.uid) {
        Some(known) => *known = reference,
        None => owners.push(reference),
    }
    Ok(())
}

/// Removes `owner` from the owners of `child`. Returns whether it was an owner. Does not write to a client.
pub fn remove_owner(owner: &impl Object, child: &mut impl Object) -> bool {
    let mut meta = child.meta_mut();
    let owners = &mut meta.owner_references;
    let before = owners.len();
    owners.retain(|known| known.uid != owner.meta().uid);
    owners.len() < before
}

#[cfg(test)]
mod tests {
    use super::super::dynamic::DynamicObject;
    use super::*;

    const APP: Kind = Kind::namespaced("example.com", "v1", "App");
    const NODE: Kind = Kind::cluster("", "v1", "Node");
    const POD: Kind = Kind::namespaced("", "v1", "Pod");

    fn object(kind: &Kind, namespace: &str, name: &str, uid: &str) -> DynamicObject {
        let mut object = DynamicObject::new(kind, namespace, name);
        object.meta_mut().uid = uid.into();
        object
    }

    #[test]
    fn owners_are_found_by_group_and_kind() {
        let (shop, bank) = (object(&APP, "a", "shop", "1"), object(&APP, "a", "bank", "2"));
        let mut pod = object(&POD, "a", "p", "3");
        pod.meta_mut().owner_references = vec![
            shop.owner_reference(),
            OwnerReference { api_version: "example.com/v1beta1".into(), ..bank.controller_reference() },
            object(&NODE, "", "n", "4").owner_reference(),
        ];
        let keys = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<ObjectKey>>();
        assert_eq!(owner_keys(&pod.meta(), &APP), keys(&["a/shop", "a/bank"]));
        assert_eq!(owner_keys(&pod.meta(), &NODE), keys(&["n"]));
        assert_eq!(owner_keys(&pod.meta(), &Kind::namespaced("example.org", "v1", "App")), []);
        assert_eq!(owner_keys(&pod.meta(), &Kind::namespaced("example.com", "v1", "Apple")), []);
        assert_eq!(owner_keys(&pod.meta(), &Kind::namespaced("example.com", "v1", "Node")), []);
        assert_eq!(controller_key(&pod.meta(), &APP), Some(ObjectKey::new("a", "bank")));
        assert_eq!(controller_key(&pod.meta(), &NODE), None);
        pod.meta_mut().owner_references.remove(1);
        assert_eq!(controller_key(&pod.meta(), &APP), None);
    }

    /// Includes the cases of controller-runtime's `pkg/controller/controllerutil/controllerutil_test.go`
    /// (`SetControllerReference`).
    #[test]
    fn an_object_has_one_controller() {
        let (shop, bank) = (object(&APP, "a", "shop", "1"), object(&APP, "a", "bank", "2"));
        let mut pod = object(&POD, "a", "p", "3");
        pod.meta_mut().owner_references = vec![bank.owner_reference()];

        set_controller(&shop, &mut pod).unwrap();
        let owners = [bank.owner_reference(), shop.controller_reference()];
        assert_eq!(pod.meta().owner_references, owners);
        set_controller(&shop, &mut pod).unwrap();
        assert_eq!(pod.meta().owner_references, owners);

        let error = set_controller(&bank, &mut pod).unwrap_err().to_string();
        assert!(error.contains("Pod a/p") && error.contains("App shop") && error.contains("App a/bank"), "{error}");
        assert_eq!(pod.meta().owner_references, owners);

        assert!(remove_owner(&shop, &mut pod) && !remove_owner(&shop, &mut pod));
        set_controller(&bank, &mut pod).unwrap();
        assert_eq!(pod.meta().owner_references, [bank.controller_reference()]);
    }

    #[test]
    fn an_owner_that_was_created_again_is_another_owner() {
        let mut pod = object(&POD, "a", "p", "3");
        set_controller(&object(&APP, "a", "shop", "1"), &mut pod).unwrap();
        assert!(set_controller(&object(&APP, "a", "shop", "2"), &mut pod).unwrap_err().is_invalid());
        assert!(!remove_owner(&object(&APP, "a", "shop", "2"), &mut pod));
    }

    #[test]
    fn an_object_that_cannot_own_is_refused() {
        let refused = |owner: &DynamicObject, namespace: &str| {
            let mut child = object(&POD, namespace, "p", "3");
            let result = set_controller(owner, &mut child);
            assert_eq!(child.meta().owner_references.is_empty(), result.is_err());
            result.map_err(|error| error.to_string())
        };
        let node = object(&NODE, "", "n", "1");
        assert_eq!((refused(&node, "a"), refused(&node, "")), (Ok(()), Ok(())));
        let error = refused(&object(&APP, "a", "shop", "1"), "b").unwrap_err();
        assert_eq!(
            error,
            "Pod b/p is invalid: metadata.namespace is \"b\", but must be the namespace of its owner, App a/shop"
        );
        assert!(refused(&object(&APP, "a", "shop", "1"), "").is_err());
        let error = refused(&object(&APP, "a", "shop", ""), "a").unwrap_err();
        assert!(error.starts_with("App a/shop is invalid: metadata.uid") && error.contains("Pod a/p"), "{error}");
    }
}
