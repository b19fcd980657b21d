//! Definitions of kinds, on a real server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use homeostat::{BoxError, CancellationToken, Context, ManualClock};
use homeostat_kubernetes::{ClusterConfig, CustomResourceDefinition, Impersonation, Kubeconfig, KubernetesClient};
use homeostat_objects::{
    Api, Client, ClientErrorKind, Condition, ConditionStatus, DeleteOptions, DynamicObject, Ignore, Kind,
    KindDefinition, Object, ObjectKey, ObjectMeta, PrintColumn, Query,
};
use homeostat_testing::{ApiServer, ServerAnswer, ServerRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster;
use crate::until::within;
use homeostat::rt::Chain;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn client() -> Arc<dyn Client> {
    client_as(None)
}

fn client_as(user: Option<&str>) -> Arc<dyn Client> {
    let config = Kubeconfig::read(cluster::shared()).unwrap().config().unwrap();
    let config = match user {
        Some(user) => config.impersonate(Impersonation::new(user)),
        None => config,
    };
    Arc::new(KubernetesClient::new(config).unwrap())
}

fn install(client: &Arc<dyn Client>, definition: &CustomResourceDefinition) -> Result<(), BoxError> {
    Ok(definition.install(&Context::detached(), &**client, "tests", PATIENCE)?)
}

/// Deletes a definition, and waits until it is gone.
fn remove(client: &Arc<dyn Client>, name: &str) {
    let key = ObjectKey::cluster(name);
    let kind = CustomResourceDefinition::KIND;
    client.delete(&kind, &key, &DeleteOptions::default()).ignore_not_found().unwrap();
    within(PATIENCE, "the definition is gone", || {
        client.get(&kind, &key).ignore_not_found().unwrap().is_none().then_some(())
    });
}

/// A type with fields of all shapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Shape {
    metadata: ObjectMeta,
    spec: ShapeSpec,
    #[serde(default)]
    status: ShapeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ShapeStatus {
    replicas: i32,
}

/// All shapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ShapeSpec {
    nested: Nested,
    no_nested: Option<Nested>,
    colour: Colour,
    no_colour: Option<Colour>,
    source: Source,
    no_source: Option<Source>,
    tagged: Tagged,
    adjacent: Adjacent,
    port: Port,
    no_port: Option<Port>,
    either: Either,
    mixed: Mixed,
    map: BTreeMap<String, Nested>,
    by_number: HashMap<u32, String>,
    set: BTreeSet<String>,
    pair: (u8, String),
    open: Open,
    any: Value,
    letter: char,
    number: std::num::NonZeroU16,
    #[serde(flatten)]
    flattened: Flattened,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Nested {
    /// A number.
    #[schemars(range(min = 1, max = 5))]
    number: u8,
    #[serde(default)]
    text: String,
    #[serde(default = "three")]
    size: i32,
}

fn three() -> i32 {
    3
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
enum Colour {
    Red,
    /// The colour of grass.
    Green,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Source {
    /// A path.
    File { path: String },
    /// A place.
    Url(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
enum Tagged {
    File { path: String },
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "value")]
enum Adjacent {
    Text(String),
    Number(i32),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Port {
    Number(i32),
    Name(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Either {
    One { one: String },
    Two { two: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
enum Mixed {
    Nothing,
    Path(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Flattened {
    This(String),
    That { deep: bool },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Open {
    known: bool,
    #[serde(flatten)]
    others: BTreeMap<String, String>,
}

homeostat_objects::object!(Shape, namespaced, "shapes.example.com", "v1", status: ShapeStatus);

fn shape(name: &str) -> Shape {
    let nested = Nested { number: 2, text: "t".to_owned(), size: 4 };
    let spec = ShapeSpec {
        nested: nested.clone(),
        no_nested: None,
        colour: Colour::Green,
        no_colour: None,
        source: Source::File { path: "/a".to_owned() },
        no_source: None,
        tagged: Tagged::Nothing,
        adjacent: Adjacent::Number(7),
        port: Port::Name("http".to_owned()),
        no_port: None,
        either: Either::Two { two: "2".to_owned() },
        mixed: Mixed::Path("/b".to_owned()),
        map: [("a".to_owned(), nested)].into(),
        by_number: [(7, "seven".to_owned())].into(),
        set: ["a".to_owned(), "b".to_owned()].into(),
        pair: (1, "one".to_owned()),
        open: Open { known: true, others: [("free".to_owned(), "yes".to_owned())].into() },
        any: json!({"free": [1, "a", {"b": false}]}),
        letter: 'x',
        number: std::num::NonZeroU16::MIN,
        flattened: Flattened::That { deep: true },
    };
    Shape { metadata: ObjectMeta::new("default", name), spec, status: ShapeStatus::default() }
}

#[test]
fn types_of_all_shapes_are_stored_as_they_are_and_checked() {
    let client = client();
    let definition = CustomResourceDefinition::new(&KindDefinition::described_by::<Shape>()).unwrap();
    remove(&client, definition.name());
    install(&client, &definition).unwrap();
    // Installing again changes nothing.
    install(&client, &definition).unwrap();
    let stored =
        client.get(&CustomResourceDefinition::KIND, &ObjectKey::cluster(definition.name())).unwrap().to_value();
    let conditions = stored["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|condition| condition["type"] != "NonStructuralSchema"), "{conditions:?}");

    let shapes = Api::<Shape>::new(client.clone());
    let created = shapes.create(&shape("good")).unwrap();
    assert_eq!((&created.spec, &created.status), (&shape("good").spec, &ShapeStatus::default()));
    let with_status = Shape { status: ShapeStatus { replicas: 2 }, ..created };
    assert_eq!(shapes.update_status(&with_status).unwrap().status.replicas, 2);

    for (path, value, field) in [
        ("/spec/nested/number", json!(9), "spec.nested.number"),
        ("/spec/colour", json!("Blue"), "spec.colour"),
        ("/spec/noColour", json!("Blue"), "spec"),
        ("/spec/source", json!({}), "spec.source"),
        ("/spec/source", json!({"file": {"path": "a"}, "url": "b"}), "spec.source"),
        ("/spec/tagged", json!({"type": "File"}), "spec.tagged"),
        ("/spec/port", json!(true), "spec.port"),
        ("/spec/either", json!({}), "spec.either"),
    ] {
        let mut bad = shape("bad").to_json().unwrap();
        *bad.pointer_mut(path).unwrap() = value.clone();
        match client.create(&Shape::KIND, bad) {
            Err(error) if error.is_invalid() => assert!(error.to_string().contains(field), "{path}: {error}"),
            other => panic!("{path} = {value}: {other:?}"),
        }
    }

    // Missing fields get the type's defaults.
    let mut short = shape("short").to_json().unwrap();
    short["spec"]["nested"] = json!({"number": 1});
    let short = client.create(&Shape::KIND, short).unwrap();
    assert_eq!(short.pointer("/spec/nested/size").unwrap(), json!(3));

    remove(&client, definition.name());
    // After the definition is gone, the server still handles requests for a moment.
    within(PATIENCE, "the kind is not served", || {
        let error = client.list(&Shape::KIND, &Query::all()).err()?;
        assert_eq!(*error.kind(), ClientErrorKind::KindNotServed, "{error}");
        Some(())
    });
}

/// A type with fields that a server would drop or change if the definition accepted less than the type writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Kept {
    metadata: ObjectMeta,
    spec: KeptSpec,
    #[serde(default)]
    status: KeptStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct KeptStatus {
    selector: String,
    replicas: i32,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct KeptSpec {
    external: Named<Source>,
    tagged: Named<Tagged>,
    adjacent: Vec<Named<Adjacent>>,
    either: Box<Named<Either>>,
    twice: Named<Named2<Source>>,
    caught: Vec<Caught>,
    template: Template,
    probe: Probe,
    any: Value,
    list: Vec<Value>,
    map: BTreeMap<String, Value>,
    set: BTreeSet<Option<String>>,
    by_colour: BTreeMap<Shade, Option<Nested>>,
    signed: std::num::NonZeroI32,
    unit: (),
    #[schemars(extend("not" = {"const": "root"}))]
    user: String,
    #[serde(default)]
    #[schemars(range(min = 1))]
    replicas: i32,
    number: i64,
    colour: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Named<S> {
    name: String,
    #[serde(flatten)]
    source: Option<S>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Named2<S> {
    number: u8,
    #[serde(flatten)]
    source: S,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Caught {
    #[serde(flatten)]
    any: Catch,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Catch {
    Known { a: u8 },
    Other(Value),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Template {
    metadata: ObjectMeta,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", deny_unknown_fields)]
enum Probe {
    HttpGet {
        #[serde(default = "eighty")]
        port: u16,
    },
    Exec {
        cmd: String,
    },
}

fn eighty() -> u16 {
    80
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
enum Shade {
    Dark,
    Light,
}

homeostat_objects::object!(Kept, namespaced, "kept.example.com", "v1", status: KeptStatus);

fn kept() -> KeptSpec {
    let file = || Source::File { path: "/a".to_owned() };
    KeptSpec {
        external: Named { name: "n".to_owned(), source: Some(Source::Url("u".to_owned())) },
        tagged: Named { name: "n".to_owned(), source: Some(Tagged::File { path: "/a".to_owned() }) },
        adjacent: vec![Named { name: "n".to_owned(), source: Some(Adjacent::Number(7)) }],
        either: Box::new(Named { name: "n".to_owned(), source: Some(Either::Two { two: "2".to_owned() }) }),
        twice: Named {
            name: "n".to_owned(),
            source: Some(Named2 {
                number: 1,
                source: file(),
                rest: [("more".to_owned(), json!({"x": [null]}))].into(),
            }),
        },
        caught: vec![Caught { any: Catch::Known { a: 1 } }, Caught { any: Catch::Other(json!({"b": {"c": 2}})) }],
        template: serde_json::from_value(json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}))
            .unwrap(),
        probe: Probe::Exec { cmd: "x".to_owned() },
        any: Value::Null,
        list: vec![Value::Null, json!({"a": {"b": null}})],
        map: [("a".to_owned(), Value::Null), ("b".to_owned(), json!([{"c": 1}]))].into(),
        set: [None, Some("a".to_owned())].into(),
        by_colour: [(Shade::Dark, None), (Shade::Light, Some(Nested { number: 1, text: "t".to_owned(), size: 4 }))]
            .into(),
        signed: std::num::NonZeroI32::MIN,
        unit: (),
        user: "me".to_owned(),
        replicas: 1,
        number: i64::MAX,
        colour: "blue".to_owned(),
    }
}

#[test]
fn a_server_keeps_each_field_that_a_type_writes() {
    let client = client();
    let definition = KindDefinition::described_by::<Kept>().scale_with_selector(
        ".spec.replicas",
        ".status.replicas",
        ".status.selector",
    );
    let definition = CustomResourceDefinition::new(&definition).unwrap();
    remove(&client, definition.name());
    install(&client, &definition).unwrap();
    let kinds = Api::<Kept>::new(client.clone());
    let kept = Kept { metadata: ObjectMeta::new("default", "a"), spec: kept(), status: KeptStatus::default() };
    let written = kept.to_json().unwrap();
    let created = client.create(&Kept::KIND, written.clone()).unwrap().to_value();
    assert_eq!(created["spec"], written["spec"]);
    let mut created = kinds.get(&ObjectKey::new("default", "a")).unwrap();
    assert_eq!(created.spec, kept.spec);
    created.status.selector = "app=web".to_owned();
    created.status.conditions = ["Ready", "Done"].map(|kind| Condition::new(kind, ConditionStatus::True, "R")).into();
    let updated = kinds.update_status(&created).unwrap();
    assert_eq!(updated.status, created.status);
    // For a default that violates a rule, the type sets the value.
    let mut short = written;
    short["metadata"]["name"] = "b".into();
    short["spec"].as_object_mut().unwrap().remove("replicas");
    let short: Kept = serde_json::from_value(client.create(&Kept::KIND, short).unwrap().to_value()).unwrap();
    assert_eq!(short.spec.replicas, 0);
    for (path, value) in
        [("/spec/user", json!("root")), ("/spec/signed", json!(0)), ("/spec/probe", json!({"type": "Exec"}))]
    {
        let mut bad = kept.to_json().unwrap();
        bad["metadata"]["name"] = "bad".into();
        *bad.pointer_mut(path).unwrap() = value;
        let error = client.create(&Kept::KIND, bad).unwrap_err();
        assert!(error.is_invalid(), "{path}: {error}");
    }
    remove(&client, definition.name());
}

/// A stored version, and an older one that lacks a field.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Plan {
    metadata: ObjectMeta,
    name: String,
    #[serde(default)]
    replicas: i32,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct OldPlan {
    metadata: ObjectMeta,
    name: String,
}

homeostat_objects::object!(Plan, cluster, "plans.example.com", "v1");
homeostat_objects::object!(OldPlan, cluster, "plans.example.com", "v1beta1", kind: "Plan");

#[test]
fn all_served_versions_can_be_used() {
    let client = client();
    let stored = KindDefinition::described_by::<Plan>()
        .short_name("pl")
        .category("all")
        .column(PrintColumn::string("Name", ".name"))
        .scale(".spec.replicas", ".status.replicas");
    let old = KindDefinition::described_by::<OldPlan>().deprecated("use v1");
    let definition = CustomResourceDefinition::new(&stored).unwrap().with_version(&old).unwrap();
    remove(&client, definition.name());
    install(&client, &definition).unwrap();
    let old = OldPlan { metadata: ObjectMeta::new("", "a"), name: "first".to_owned() };
    Api::<OldPlan>::new(client.clone()).create(&old).unwrap();
    let plan = Api::<Plan>::new(client.clone()).get(&ObjectKey::cluster("a")).unwrap();
    assert_eq!((&*plan.name, plan.replicas), ("first", 0));
    remove(&client, definition.name());
}

#[test]
fn names_that_are_taken_are_refused_with_the_reason_of_the_server() {
    let client = client();
    let first = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "taken.names.example.com"},
        "spec": {
            "group": "names.example.com", "scope": "Cluster",
            "names": {"kind": "Taken", "plural": "taken", "singular": "taken", "listKind": "TakenList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let mut second = first.clone();
    second["metadata"]["name"] = "others.names.example.com".into();
    second["spec"]["names"]["plural"] = "others".into();
    second["spec"]["names"]["singular"] = "other".into();
    let [first, second] = [first, second].map(|json| CustomResourceDefinition::from_json(json).unwrap());
    for definition in [&first, &second] {
        remove(&client, definition.name());
    }
    install(&client, &first).unwrap();
    let error = install(&client, &second).unwrap_err().to_string();
    let expected = "definition others.names.example.com: the server refuses its names: ";
    assert!(error.starts_with(expected) && error.contains("already in use"), "{error}");
    for definition in [&first, &second] {
        remove(&client, definition.name());
    }
}

#[test]
fn a_forbidden_installation_is_reported_as_forbidden() {
    let definition = CustomResourceDefinition::new(&KindDefinition::described_by::<Plan>()).unwrap();
    let error = install(&client_as(Some("nobody")), &definition).unwrap_err();
    let text = Chain(&*error).to_string();
    assert!(
        text.starts_with("definition plans.plans.example.com: cannot be applied: ") && text.contains("nobody"),
        "{text}"
    );
}

/// A server may postpone requests for a new kind for as long as a client repeats them.
#[test]
fn an_installation_ends_in_time_although_the_server_postpones_requests() {
    let hour = Duration::from_secs(3600);
    let definition = CustomResourceDefinition::new(&KindDefinition::described_by::<Plan>()).unwrap();
    let mut established = definition.to_json().clone();
    established["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
    for timeout in [Duration::from_secs(8), hour] {
        let server = ApiServer::start().unwrap();
        server.rule(ServerRule::new("PATCH", "*").otherwise(ServerAnswer::json(200, established.clone())));
        let busy = ServerAnswer::error(429, "TooManyRequests", "storage is (re)initializing");
        server.rule(ServerRule::new("GET", "*").otherwise(busy.header("Retry-After", "1")));
        let clock = ManualClock::new();
        let config = ClusterConfig::new(&server.url()).unwrap();
        let client = KubernetesClient::builder(config).clock(clock.clock()).call_timeout(hour).build().unwrap();
        let stop = CancellationToken::new();
        let cx = Context::detached_with(clock.clock(), stop.clone());
        let error = std::thread::scope(|scope| {
            let installs = scope.spawn(|| definition.install(&cx, &client, "tests", timeout).unwrap_err());
            server.wait_for_requests(|requests| requests.iter().any(|request| request.method() == "GET"));
            if timeout == hour {
                stop.cancel();
            }
            within(PATIENCE, "the installation has ended", || {
                clock.advance(Duration::from_millis(100));
                installs.is_finished().then_some(())
            });
            installs.join().unwrap()
        });
        let expected = if timeout == hour { "the installation is cancelled" } else { "not served in time" };
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.is_timeout(), timeout != hour, "{error}");
    }
}

/// kube-rs generates the definition, and homeostat installs it and uses the derived type.
mod derived {
    use kube::{CustomResource, CustomResourceExt};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "derived.example.com", version = "v1", kind = "Garden", namespaced, status = "GardenStatus")]
    struct GardenSpec {
        plants: Vec<String>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct GardenStatus {
        watered: bool,
    }

    homeostat_objects::object!(Garden, namespaced, "derived.example.com", "v1", status: GardenStatus);

    #[test]
    fn a_derived_type_is_installed_and_used() {
        let client = client();
        let definition = CustomResourceDefinition::from_json(serde_json::to_value(Garden::crd()).unwrap()).unwrap();
        remove(&client, definition.name());
        install(&client, &definition).unwrap();
        let gardens = Api::<Garden>::new(client.clone());
        let mut garden = Garden::new("roses", GardenSpec { plants: vec!["rose".to_owned()] });
        garden.meta_mut().namespace = "default".to_owned();
        let mut garden = gardens.create(&garden).unwrap();
        garden.status_mut().unwrap().watered = true;
        let garden = gardens.update_status(&garden).unwrap();
        assert_eq!((garden.status.unwrap().watered, garden.spec.plants.len()), (true, 1));
        remove(&client, definition.name());
    }
}

/// The types of k8s-openapi work with a real server as with an embedded client.
#[test]
fn the_types_of_k8s_openapi_are_read_and_written() {
    use k8s_openapi::api::core::v1::ConfigMap;
    let maps = Api::<ConfigMap>::new(client());
    let mut map = ConfigMap { data: Some([("a".to_owned(), "b".to_owned())].into()), ..ConfigMap::default() };
    (map.metadata.namespace, map.metadata.name) = (Some("default".to_owned()), Some("openapi-types".to_owned()));
    maps.delete(&map.key(), &DeleteOptions::default()).ignore_not_found().unwrap();
    let mut created = maps.create(&map).unwrap();
    created.meta_mut().labels.insert("of".to_owned(), "homeostat".to_owned());
    let updated = maps.update(&created).unwrap();
    assert_eq!(updated.metadata.labels.unwrap()["of"], "homeostat");
    assert_eq!(updated.data.unwrap()["a"], "b");
    maps.delete(&map.key(), &DeleteOptions::default()).unwrap();
    let of_kind = Api::<DynamicObject>::of_kind(client(), Kind::namespaced("", "v1", "ConfigMap"));
    assert!(of_kind.get(&map.key()).ignore_not_found().unwrap().is_none());
}
