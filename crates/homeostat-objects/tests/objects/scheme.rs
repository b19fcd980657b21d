//! The scheme: finds kinds and checks objects.

use homeostat_objects::{ClientError, Kind, ObjectMeta, Scheme};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::manifests::{file, scheme};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct VirtualMachine {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Spec {
    cores: u32,
    #[serde(default)]
    disks: Vec<Disk>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Disk {
    size: Value,
}

homeostat_objects::object!(VirtualMachine, namespaced, "compute.example.com", "v1beta2");

fn vm(pointer: &str, value: &Value) -> Value {
    let mut json = file("custom-resource");
    *json.pointer_mut(pointer).unwrap() = value.clone();
    json
}

/// Returns the path, value and message of an error.
#[track_caller]
fn invalid<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (String, String, String) {
    let error = result.unwrap_err();
    let text = error.to_string();
    let [cause] = error.causes() else { panic!("{error}") };
    (cause.field.clone(), cause.value.clone(), text)
}

#[test]
fn kinds_are_found_by_api_version_and_name() {
    let scheme =
        scheme().register::<VirtualMachine>().register_kind(Kind::of("v1", "Endpoints").with_plural("endpoints"));
    let found = |api_version, name| scheme.kind(api_version, name);
    assert!(!found("v1", "Node").unwrap().is_namespaced() && found("v1", "Pod").unwrap().is_namespaced());
    assert_eq!(found("v1", "Endpoints").unwrap().plural(), "endpoints");
    assert_eq!(found("compute.example.com/v1beta2", "VirtualMachine").unwrap().plural(), "virtualmachines");
    for (api_version, name) in
        [("apps/v1", "Pod"), ("v1", "Deployment"), ("apps/v2", "Deployment"), ("", ""), ("v1", "pod")]
    {
        assert_eq!(found(api_version, name), None, "{api_version} {name}");
    }
    assert_eq!(scheme.kinds().count(), 10, "{scheme:?}");
}

/// The last registration wins.
#[test]
fn a_kind_is_registered_once() {
    let scheme = Scheme::new().register_kind(Kind::of("v1", "Node")).register_kind(Kind::cluster("", "v1", "Node"));
    assert_eq!(scheme.kinds().count(), 1);
    assert!(!scheme.kind("v1", "Node").unwrap().is_namespaced());
}

#[test]
fn a_list_yields_its_items() {
    let names = |json: &Value| -> Vec<_> {
        let objects = scheme().objects(json).unwrap().into_iter();
        objects.map(|(kind, json)| format!("{kind} {}", json["metadata"]["name"].as_str().unwrap())).collect()
    };
    assert_eq!(names(&file("service")), ["Service/v1 web"]);
    assert_eq!(names(&file("list")), ["ConfigMap/v1 one", "Node/v1 node-2", "Deployment.apps/v1 api"]);
    let nested = json!({"apiVersion": "v1", "kind": "List", "items": [file("list"), file("node")]});
    assert_eq!(names(&nested).len(), 4);
    assert_eq!(names(&json!({"apiVersion": "v1", "kind": "List", "items": []})), [""; 0]);

    let pods = scheme().objects(&file("pod-list")).unwrap();
    assert_eq!(pods.len(), 2);
    for (kind, pod) in &pods {
        assert_eq!((kind, &pod["kind"], &pod["apiVersion"]), (&Kind::of("v1", "Pod"), &json!("Pod"), &json!("v1")));
    }
}

/// A registered kind with a name like `PodList` is not a list.
#[test]
fn a_registered_kind_may_have_the_name_of_a_list() {
    let access = json!({"apiVersion": "v1", "kind": "AccessList", "metadata": {"name": "a"}, "items": [1]});
    let scheme = Scheme::new().register_kind(Kind::of("v1", "AccessList"));
    assert_eq!(scheme.objects(&access).unwrap(), [(Kind::of("v1", "AccessList"), access)]);
}

#[test]
fn an_error_names_an_unregistered_kind() {
    let scheme = Scheme::new().register_kind(Kind::of("v1", "ConfigMap")).register_kind(Kind::of("v1", "Node"));
    let (field, value, text) = invalid(scheme.objects(&file("list")));
    assert_eq!((&*field, &*value), ("apiVersion", "apps/v1"));
    assert!(text.starts_with("Deployment shop/api is invalid: "), "{text}");
    let (field, value, text) = invalid(scheme.objects(&file("service")));
    assert_eq!((&*field, &*value), ("kind", "Service"));
    assert!(text.contains("Service shop/web"), "{text}");
    for json in [json!(1), json!({}), json!({"kind": "List", "items": 1}), json!({"apiVersion": "v1", "kind": "List"})]
    {
        invalid(scheme.objects(&json));
    }
    assert_eq!(invalid(scheme.check(&file("pod"))).1, "Pod");
}

#[test]
fn an_error_names_the_field_that_does_not_match() {
    let scheme = scheme().register::<VirtualMachine>();
    scheme.check(&file("custom-resource")).unwrap();
    for (pointer, wrong, path, value) in [
        ("/spec/cores", json!("eight"), "spec.cores", "\"eight\""),
        ("/spec/cores", json!(-1), "spec.cores", "-1"),
        ("/spec/disks", json!({}), "spec.disks", "{}"),
        ("/spec/disks/1", json!(7), "spec.disks[1]", "7"),
        ("/metadata/finalizers/1", json!(7), "metadata.finalizers[1]", "7"),
        ("/metadata/name", json!([1]), "metadata.name", "[1]"),
        ("/metadata", json!("x"), "metadata", "\"x\""),
    ] {
        let (field, notice, text) = invalid(scheme.check(&vm(pointer, &wrong)));
        assert_eq!((&*field, &*notice), (path, value), "{text}");
        assert!(text.starts_with("VirtualMachine ") && text.contains(path), "{text}");
    }
    let mut without = file("custom-resource");
    without["spec"].as_object_mut().unwrap().remove("cores");
    let (field, _, text) = invalid(scheme.check(&without));
    assert_eq!(field, "spec");
    assert!(text.contains("cores"), "{text}");
}

#[test]
fn only_the_metadata_is_checked_without_a_type() {
    let mut pod = file("pod");
    pod["spec"] = json!("anything");
    scheme().check(&pod).unwrap();
    pod["metadata"]["labels"] = json!({"a": 1});
    assert_eq!(invalid(scheme().check(&pod)).0, "metadata.labels.a");
    pod.as_object_mut().unwrap().remove("metadata");
    assert_eq!(invalid(scheme().check(&pod)).0, "metadata");
}

#[test]
fn several_documents_are_read() {
    let documents = format!("{}\n\n{} {}", file("node"), file("list"), file("event"));
    assert_eq!(scheme().read(&documents).unwrap().len(), 5);
    assert_eq!(scheme().read(" \n").unwrap(), []);
    for (documents, report) in [
        (format!("{} {{\"kind\": ", file("node")), "EOF"),
        ("nothing".to_owned(), "line 1"),
        (format!("{} {}", file("node"), json!({"apiVersion": "v1", "kind": "Cat"})), "Cat"),
    ] {
        let (_, _, text) = invalid(scheme().read(&documents));
        assert!(text.contains(report), "{text}");
    }
}

#[test]
fn an_integer_beyond_64_bits_is_refused() {
    let document = |size: &str| {
        let mut json = file("custom-resource");
        json["spec"]["text"] = "99999999999999999999".into();
        json.to_string().replace("\"spec\":{", &format!("\"spec\":{{\"bytes\":{size},"))
    };
    for kept in ["18446744073709551615", "-9223372036854775808", "1e30", "123456789012345678901.5"] {
        let objects = scheme().register::<VirtualMachine>().read(&document(kept)).unwrap();
        assert_eq!(objects[0].1["spec"]["bytes"], serde_json::from_str::<Value>(kept).unwrap(), "{kept}");
    }
    for altered in ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"] {
        let (_, value, text) = invalid(scheme().register::<VirtualMachine>().read(&document(altered)));
        assert_eq!(value, altered);
        assert_eq!(text, format!("a document is invalid: the integer {altered} does not fit into 64 bits"));
    }
}
