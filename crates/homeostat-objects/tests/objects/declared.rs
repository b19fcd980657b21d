//! The macro `object!` in each of its forms.

use homeostat_objects::{Api, Kind, MemoryClient, Object, ObjectKey, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

macro_rules! declare {
    ($type:ident $(, $field:ident: $status:ty)?) => {
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        struct $type {
            metadata: ObjectMeta,
            size: u32,
            $(#[serde(skip_serializing_if = "is_null")] $field: $status,)?
        }
    };
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Seen {
    ready: bool,
}

fn is_null<T: Serialize>(value: &T) -> bool {
    serde_json::to_value(value).unwrap().is_null()
}

declare!(Plain);
declare!(Region);
declare!(Renamed);
declare!(Watched, status: Seen);
declare!(Optional, status: Option<Seen>);
declare!(Both, status: Option<Seen>);

homeostat_objects::object!(Plain, namespaced, "example.com", "v1");
homeostat_objects::object!(Region, cluster, "", "v2");
homeostat_objects::object!(Renamed, cluster, "example.com", "v1", kind: "Other");
homeostat_objects::object!(Watched, namespaced, "example.com", "v1", status: Seen);
homeostat_objects::object!(Optional, namespaced, "example.com", "v1", status: Seen,);
homeostat_objects::object!(Both, cluster, "example.com", "v1beta1", kind: "Two", status: Seen);

#[test]
fn kinds_are_as_declared() {
    for (kind, text, namespaced) in [
        (Plain::KIND, "Plain.example.com/v1", true),
        (Region::KIND, "Region/v2", false),
        (Renamed::KIND, "Other.example.com/v1", false),
        (Watched::KIND, "Watched.example.com/v1", true),
        (Optional::KIND, "Optional.example.com/v1", true),
        (Both::KIND, "Two.example.com/v1beta1", false),
    ] {
        assert_eq!((&*kind.to_string(), kind.is_namespaced()), (text, namespaced));
    }
}

#[test]
fn a_status_is_as_declared() {
    let mut plain = Plain::default();
    assert_eq!(plain.status(), None);
    assert_eq!(plain.status_mut(), None);
    let mut watched = Watched::default();
    assert_eq!(watched.status().as_deref(), Some(&Seen { ready: false }));
    watched.status_mut().unwrap().ready = true;
    assert!(watched.status.ready);
    let mut optional = Optional::default();
    assert_eq!(optional.status(), None);
    optional.status_mut().unwrap().ready = true;
    assert_eq!(optional.status, Some(Seen { ready: true }));
    let mut both = Both { status: Some(Seen { ready: true }), ..Both::default() };
    assert_eq!(both.status_mut(), Some(&mut Seen { ready: true }));
}

fn round_trip<T: Object + Default + PartialEq + std::fmt::Debug>(status: &Value) {
    let api = Api::<T>::new(Arc::new(MemoryClient::new()));
    let namespace = if T::KIND.is_namespaced() { "default" } else { "" };
    let mut object = T::default();
    *object.meta_mut() = ObjectMeta::new(namespace, "a");
    let json = object.to_json().unwrap();
    assert_eq!((&json["kind"], &json["apiVersion"]), (&json!(T::KIND.name()), &json!(T::KIND.api_version())));
    assert_eq!(T::from_shared(&json.into()).unwrap(), object);
    let mut created = api.create(&object).unwrap();
    if let Some(slot) = created.status_mut() {
        *slot = serde_json::from_value(status.clone()).unwrap();
        created = api.update_status(&created).unwrap();
        assert_eq!(serde_json::to_value(created.status().unwrap()).unwrap(), *status);
    }
    assert_eq!(api.get(&ObjectKey::new(namespace, "a")).unwrap(), created);
    let owner = created.controller_reference();
    assert_eq!((&*owner.name, &*owner.uid, owner.is_controller()), ("a", &*created.meta().uid, true));
    assert!(owner.is_of(&T::KIND) && !owner.is_of(&Kind::of("v1", "Nothing")));
}

#[test]
fn each_form_is_kept_by_a_client() {
    let status = json!({"ready": true});
    round_trip::<Plain>(&status);
    round_trip::<Region>(&status);
    round_trip::<Renamed>(&status);
    round_trip::<Watched>(&status);
    round_trip::<Optional>(&status);
    round_trip::<Both>(&status);
}

#[test]
fn json_of_another_type_is_invalid() {
    let json = json!({"metadata": {"namespace": "default", "name": "a"}, "size": "big"});
    let error = Plain::from_shared(&json.into()).unwrap_err();
    assert!(error.is_invalid() && error.to_string().starts_with("Plain default/a is invalid"), "{error}");
}
