//! Tests of schemas for types of all shapes, and of installations.
#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

mod kept;
mod keywords;
mod server;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::install::{InstallProgress, progress};
use super::version::object_schema;
use super::{CustomResourceDefinition, InstallError};
use homeostat::base::{CancellationToken, ManualClock};
use homeostat::run::Context;
use homeostat_objects::{
    Client, Condition, KindDefinition, MemoryClient, ObjectKey, ObjectMeta, PrintColumn, SharedObject,
};

/// A struct with a spec of this type.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Thing")]
struct Thing<S> {
    metadata: ObjectMeta,
    spec: S,
}

impl<S> homeostat_objects::Object for Thing<S>
where
    S: Clone + Serialize + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    const KIND: homeostat_objects::Kind = homeostat_objects::Kind::namespaced("example.com", "v1", "Thing");
    type Status = ();

    fn meta(&self) -> std::borrow::Cow<'_, ObjectMeta> {
        std::borrow::Cow::Borrowed(&self.metadata)
    }

    fn meta_mut(&mut self) -> homeostat_objects::MetaMut<'_> {
        (&mut self.metadata).into()
    }
}

/// Returns the structural schema of a field of this type.
fn schema_of<S>() -> Value
where
    S: Clone + Serialize + serde::de::DeserializeOwned + Send + Sync + JsonSchema + 'static,
{
    spec_schema(&KindDefinition::described_by::<Thing<S>>())
}

/// Returns the structural schema of the field `spec` of a kind.
fn spec_schema(definition: &KindDefinition) -> Value {
    object_schema(definition).unwrap()["properties"]["spec"].clone()
}

#[test]
fn scalars_have_a_type_and_known_formats() {
    let integer = |format: &str| json!({"type": "integer", "format": format});
    assert_eq!(schema_of::<String>(), json!({"type": "string"}));
    assert_eq!(schema_of::<bool>(), json!({"type": "boolean"}));
    assert_eq!(schema_of::<i64>(), integer("int64"));
    assert_eq!(schema_of::<u8>(), json!({"type": "integer", "minimum": 0, "maximum": 255}));
    assert_eq!(schema_of::<f64>(), json!({"type": "number", "format": "double"}));
    assert_eq!(schema_of::<std::net::IpAddr>(), json!({"type": "string"}));
    assert_eq!(schema_of::<Value>(), any_value());
}

/// The schema for any value. Without `nullable`, a server would drop a field that is `null`.
fn any_value() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true, "nullable": true})
}

#[test]
fn options_are_nullable() {
    assert_eq!(schema_of::<Option<i32>>(), json!({"type": "integer", "format": "int32", "nullable": true}));
    assert_eq!(
        schema_of::<Option<Plain>>(),
        json!({"type": "string", "anyOf": [{"enum": ["Red", "Green"]}], "nullable": true}),
        "a server compares null with the values of an enum"
    );
    let nested = schema_of::<Option<Nested>>();
    assert_eq!((&nested["type"], &nested["nullable"]), (&json!("object"), &json!(true)));
    assert_eq!(schema_of::<()>(), any_value());
}

/// A nested thing.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Nested {
    /// The number.
    number: i32,
    #[serde(default)]
    text: String,
    #[serde(default = "three")]
    size: i32,
    #[serde(default)]
    maybe: Option<bool>,
}

fn three() -> i32 {
    3
}

#[test]
fn structs_have_properties_defaults_and_descriptions() {
    assert_eq!(
        schema_of::<Nested>(),
        json!({
            "type": "object", "description": "A nested thing.", "required": ["number"],
            "properties": {
                "number": {"type": "integer", "format": "int32", "description": "The number."},
                "text": {"type": "string"},
                "size": {"type": "integer", "format": "int32", "default": 3},
                "maybe": {"type": "boolean", "nullable": true},
            },
        })
    );
}

#[test]
fn lists_have_items_and_sets_are_sets() {
    assert_eq!(schema_of::<Vec<String>>(), json!({"type": "array", "items": {"type": "string"}}));
    assert_eq!(
        schema_of::<BTreeSet<String>>(),
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"})
    );
    assert_eq!(
        schema_of::<(String, String)>(),
        json!({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2})
    );
    let mixed = schema_of::<(String, bool)>();
    assert_eq!(mixed["items"], json!({"x-kubernetes-preserve-unknown-fields": true}));
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Open {
    number: i32,
    #[serde(flatten)]
    others: BTreeMap<String, String>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Closed {
    number: i32,
}

#[test]
fn maps_have_values_and_never_properties_too() {
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    assert_eq!(schema_of::<BTreeMap<String, String>>(), map);
    assert_eq!(schema_of::<HashMap<u32, String>>(), map);
    assert_eq!(
        schema_of::<BTreeMap<String, Value>>(),
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    );
    let number = json!({"number": {"type": "integer", "format": "int32"}});
    assert_eq!(
        schema_of::<Open>(),
        json!({"type": "object", "properties": number, "required": ["number"],
            "x-kubernetes-preserve-unknown-fields": true})
    );
    assert_eq!(schema_of::<Closed>(), json!({"type": "object", "properties": number, "required": ["number"]}));
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
enum Plain {
    Red,
    /// The colour of grass.
    Green,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum External {
    /// A path.
    File { path: String },
    /// A place.
    Url(String),
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
enum Internal {
    File { path: String, size: i32 },
    Url { path: String },
    None,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "value")]
enum Adjacent {
    Text(String),
    Number(i32),
}

#[test]
fn enums_become_values_or_objects_of_all_variants() {
    assert_eq!(schema_of::<Plain>(), json!({"type": "string", "enum": ["Red", "Green"]}));
    assert_eq!(
        schema_of::<External>(),
        json!({
            "type": "object",
            "properties": {
                "file": {"type": "object", "description": "A path.", "properties": {"path": {"type": "string"}},
                    "required": ["path"]},
                "url": {"type": "string", "description": "A place."},
            },
            "oneOf": [{"required": ["file"]}, {"required": ["url"]}],
        })
    );
    let tag = |tag: &str| json!({"type": {"enum": [tag]}});
    assert_eq!(
        schema_of::<Internal>(),
        json!({
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": ["File", "Url", "None"]},
                "path": {"type": "string"},
                "size": {"type": "integer", "format": "int32"},
            },
            "oneOf": [
                {"properties": tag("File"), "required": ["type", "path", "size"]},
                {"properties": tag("Url"), "required": ["type", "path"]},
                {"properties": tag("None"), "required": ["type"]},
            ],
        })
    );
    assert_eq!(
        schema_of::<Adjacent>()["properties"],
        json!({"kind": {"type": "string", "enum": ["Text", "Number"]}, "value": {"x-kubernetes-int-or-string": true}})
    );
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Port {
    Number(i32),
    Name(String),
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Either {
    One { one: String },
    Two { two: String },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
enum Mixed {
    Nothing,
    Path(String),
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Flattened {
    name: String,
    #[serde(flatten)]
    source: External,
}

#[test]
fn alternatives_of_several_types_are_an_integer_or_string_or_anything() {
    assert_eq!(schema_of::<Port>(), json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(schema_of::<Option<Port>>(), json!({"x-kubernetes-int-or-string": true, "nullable": true}));
    assert_eq!(
        schema_of::<Either>(),
        json!({
            "type": "object", "properties": {"one": {"type": "string"}, "two": {"type": "string"}},
            "anyOf": [{"required": ["one"]}, {"required": ["two"]}],
        })
    );
    assert_eq!(schema_of::<Mixed>(), json!({"x-kubernetes-preserve-unknown-fields": true}));
    let flattened = schema_of::<Flattened>();
    assert_eq!(flattened["required"], json!(["name"]));
    assert_eq!(flattened["oneOf"], json!([{"required": ["file"]}, {"required": ["url"]}]));
    assert_eq!(flattened["properties"].as_object().unwrap().len(), 3);
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Tree {
    leaves: Vec<Branch>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Branch {
    tree: Option<Box<Tree>>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Cut {
    #[schemars(with = "Value")]
    below: Vec<Cut>,
    branch: Nested,
    twin: Nested,
}

#[test]
fn a_type_that_contains_itself_is_an_error_that_names_it() {
    let error = CustomResourceDefinition::new(&KindDefinition::described_by::<Thing<Tree>>()).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "Thing.example.com/v1: the schema of spec.leaves.items.tree is unusable: the type Tree contains itself"
        ),
        "{error}"
    );
    assert!(error.contains(r#"#[schemars(with = "serde_json::Value")]"#), "{error}");
    // A type may occur twice side by side.
    assert_eq!(schema_of::<Cut>()["properties"]["below"], any_value());
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Extended {
    #[schemars(extend("if" = {}))]
    odd: String,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Fine {
    conditions: Vec<Condition>,
    maybe: Option<Vec<Condition>>,
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    atomic: Vec<Condition>,
    #[schemars(extend("exclusiveMinimum" = 1))]
    number: i32,
    /// Its type has the bounds 0 and 255.
    #[schemars(extend("exclusiveMinimum" = 5, "exclusiveMaximum" = 300))]
    small: u8,
}

#[test]
fn extensions_are_kept_and_unknown_keywords_are_errors() {
    let error =
        CustomResourceDefinition::new(&KindDefinition::described_by::<Thing<Extended>>()).unwrap_err().to_string();
    assert_eq!(
        error,
        "Thing.example.com/v1: the schema of spec.odd is unusable: the keyword \"if\" is not supported; leave it out, and \
         use a validate hook or a rule in CEL (x-kubernetes-validations) instead"
    );
    let schema = schema_of::<Fine>();
    let conditions = &schema["properties"]["conditions"];
    assert_eq!(
        (&conditions["x-kubernetes-list-type"], &conditions["x-kubernetes-list-map-keys"]),
        (&json!("map"), &json!(["type"]))
    );
    assert_eq!(conditions["items"]["required"], json!(["type", "status"]));
    assert_eq!(schema["properties"]["maybe"]["x-kubernetes-list-map-keys"], json!(["type"]));
    assert_eq!(schema["properties"]["atomic"]["x-kubernetes-list-type"], "atomic");
    let number = &schema["properties"]["number"];
    assert_eq!((&number["minimum"], &number["exclusiveMinimum"]), (&json!(1), &json!(true)));
    let small = &schema["properties"]["small"];
    assert_eq!((&small["minimum"], &small["exclusiveMinimum"]), (&json!(5), &json!(true)));
    assert_eq!((&small["maximum"], &small["exclusiveMaximum"]), (&json!(255), &json!(null)));
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Scaled {
    metadata: ObjectMeta,
    spec: Nested,
    status: ScaledStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct ScaledStatus {
    replicas: i32,
}

/// The same kind in another version.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct OldScaled {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: BTreeMap<String, String>,
}

mod kinds {
    homeostat_objects::object!(super::Scaled, cluster, "example.com", "v1", kind: "Scaled", status: super::ScaledStatus);
    homeostat_objects::object!(super::OldScaled, cluster, "example.com", "v1beta1", kind: "Scaled");
}

fn scaled() -> CustomResourceDefinition {
    let stored = KindDefinition::described_by::<Scaled>()
        .short_name("sc")
        .category("all")
        .column(PrintColumn::integer("Replicas", ".status.replicas"))
        .column(PrintColumn::integer("Number", ".spec.number").wide().format("int32").description("The number."))
        .scale(".spec.number", ".status.replicas");
    let old = KindDefinition::described_by::<OldScaled>().deprecated("use v1");
    CustomResourceDefinition::new(&stored).unwrap().with_version(&old).unwrap()
}

#[test]
fn a_definition_has_names_versions_columns_and_subresources() {
    let definition = scaled();
    assert_eq!(definition.name(), "scaleds.example.com");
    let mut json = definition.to_json().clone();
    let versions = json["spec"]["versions"].take();
    assert_eq!(
        json,
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "scaleds.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "versions": null,
                "names": {"kind": "Scaled", "listKind": "ScaledList", "plural": "scaleds", "singular": "scaled",
                    "shortNames": ["sc"], "categories": ["all"]},
            },
        })
    );
    assert_eq!(
        versions[0],
        json!({
            "name": "v1", "served": true, "storage": true,
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.number", "statusReplicasPath": ".status.replicas"},
            },
            "additionalPrinterColumns": [
                {"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas"},
                {"name": "Number", "type": "integer", "jsonPath": ".spec.number", "priority": 1, "format": "int32",
                    "description": "The number."},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
                    "description": "The time since the creation."},
            ],
            "schema": {"openAPIV3Schema": {
                "type": "object", "required": ["spec"],
                "properties": {"spec": schema_of::<Nested>(), "status": {"type": "object", "required": ["replicas"],
                    "properties": {"replicas": {"type": "integer", "format": "int32"}}}},
            }},
        })
    );
    assert_eq!(
        (&versions[1]["storage"], &versions[1]["deprecationWarning"], versions[1].get("subresources")),
        (&json!(false), &json!("use v1"), None)
    );
    let read = CustomResourceDefinition::from_json(definition.to_json().clone()).unwrap();
    assert_eq!(read.served().collect::<Vec<_>>(), definition.served().collect::<Vec<_>>());
    assert!(read.served().all(|kind| !kind.is_namespaced()));
    assert!(
        definition
            .to_string()
            .starts_with("---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n")
    );
}

#[test]
fn a_definition_is_read_as_it_was_written() {
    let written = scaled();
    let versions = KindDefinition::of_custom_resource(written.to_json()).unwrap();
    let read = CustomResourceDefinition::new(&versions[0]).unwrap().with_version(&versions[1]).unwrap();
    assert_eq!(read.to_json(), written.to_json());
    assert_eq!(read.served().collect::<Vec<_>>(), written.served().collect::<Vec<_>>());
}

#[test]
fn a_version_may_have_selectors() {
    let definition = KindDefinition::described_by::<Scaled>()
        .scale_with_selector(".spec.number", ".status.replicas", ".status.selector")
        .selectable_field(".spec.number")
        .selectable_field(".spec.text");
    let definition = CustomResourceDefinition::new(&definition).unwrap();
    let version = &definition.to_json()["spec"]["versions"][0];
    assert_eq!(
        version["subresources"]["scale"],
        json!({"specReplicasPath": ".spec.number", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector"})
    );
    assert_eq!(version["selectableFields"], json!([{"jsonPath": ".spec.number"}, {"jsonPath": ".spec.text"}]));
}

#[test]
fn definitions_printed_one_after_the_other_are_one_file() {
    let two = format!(
        "{}{}",
        scaled(),
        CustomResourceDefinition::new(&KindDefinition::described_by::<Thing<String>>()).unwrap()
    );
    let parsed: Vec<Value> = serde_saphyr::from_multiple(&two).unwrap();
    let names: Vec<_> = parsed.iter().map(|definition| &definition["metadata"]["name"]).collect();
    assert_eq!(names, ["scaleds.example.com", "things.example.com"]);
}

/// A kind with a flattened `source` among the fields of the whole object.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Rooted<S: Default> {
    metadata: ObjectMeta,
    #[serde(flatten)]
    source: External,
    #[serde(default)]
    status: S,
}

mod rooted {
    use super::{Rooted, ScaledStatus};
    pub(super) type WithStatus = Rooted<ScaledStatus>;
    pub(super) type Without = Rooted<()>;
    homeostat_objects::object!(WithStatus, namespaced, "example.com", "v1", kind: "Rooted", status: ScaledStatus);
    homeostat_objects::object!(Without, namespaced, "example.com", "v1", kind: "Bare");
}

/// At the root of a kind with a status, a server allows no alternatives.
#[test]
fn the_root_of_a_kind_with_a_status_has_no_rules() {
    let schema = |definition: KindDefinition| object_schema(&definition).unwrap();
    let bare = schema(KindDefinition::described_by::<rooted::Without>());
    assert_eq!(bare["oneOf"], json!([{"required": ["file"]}, {"required": ["url"]}]));
    let with_status = schema(KindDefinition::described_by::<rooted::WithStatus>());
    assert_eq!(with_status.get("oneOf"), None);
    assert!(with_status["properties"]["file"].is_object());
}

#[test]
fn versions_of_different_kinds_are_refused() {
    let with = |other: KindDefinition| {
        let definition = CustomResourceDefinition::new(&KindDefinition::described_by::<Scaled>()).unwrap();
        definition.with_version(&other).unwrap_err().to_string()
    };
    let error = with(KindDefinition::described_by::<Thing<String>>());
    assert_eq!(error, "scaleds.example.com: Thing.example.com/v1 is another kind, not another version of it");
    assert!(with(KindDefinition::described_by::<Scaled>()).ends_with("has the version v1 twice"));
    let core = KindDefinition::new(homeostat_objects::Kind::cluster("", "v1", "Node"));
    let error = CustomResourceDefinition::new(&core).unwrap_err().to_string();
    assert_eq!(error, "Node/v1: the group must not be empty");
    let error = CustomResourceDefinition::from_json(json!({"metadata": {"name": "x"}})).unwrap_err().to_string();
    assert_eq!(error, "definition: /spec/group is missing");
}

fn with_conditions(conditions: &Value) -> SharedObject {
    let mut json = scaled().to_json().clone();
    json["status"] = json!({"conditions": conditions});
    SharedObject::from(json)
}

#[test]
fn the_conditions_decide_about_the_progress() {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m"});
    let (accepted, refused) = (condition("NamesAccepted", "True"), condition("NamesAccepted", "False"));
    let (there, not_there) = (condition("Established", "True"), condition("Established", "False"));
    for (conditions, expected) in [
        (json!(null), InstallProgress::Waiting("the server has not looked at it yet".to_owned())),
        (json!([accepted]), InstallProgress::Waiting("the server has not looked at it yet".to_owned())),
        (json!([accepted, not_there]), InstallProgress::Waiting("R: m".to_owned())),
        (json!([accepted, there]), InstallProgress::Established),
        (json!([refused, there]), InstallProgress::Refused("R: m".to_owned())),
    ] {
        assert_eq!(progress(&with_conditions(&conditions)), expected, "{conditions}");
    }
    let mut deleting = with_conditions(&json!([accepted, there])).to_value();
    deleting["metadata"]["deletionTimestamp"] = "2024-05-01T10:00:00Z".into();
    assert!(matches!(progress(&deleting.into()), InstallProgress::Waiting(_)));
    assert_eq!(progress(&SharedObject::from(scaled().to_json())), InstallProgress::NotNeeded);
}

#[test]
fn an_embedded_client_stores_the_definition_and_needs_no_more() {
    let client = MemoryClient::new();
    for _ in 0..2 {
        scaled().install(&Context::detached(), &client, "test", Duration::from_secs(10)).unwrap();
    }
    let key = ObjectKey::cluster("scaleds.example.com");
    assert_eq!(
        client.get(&CustomResourceDefinition::KIND, &key).unwrap().to_value()["spec"],
        scaled().to_json()["spec"]
    );
}

/// Stores a definition with these conditions, on a held clock.
fn stuck(conditions: &Value) -> (MemoryClient, ManualClock) {
    let clock = ManualClock::new();
    let client = MemoryClient::builder().clock(clock.clock()).build();
    let created = client.create(&CustomResourceDefinition::KIND, scaled().to_json().clone()).unwrap();
    let mut with_status = created.to_value();
    with_status["status"] = json!({"conditions": conditions});
    client.update_status(&CustomResourceDefinition::KIND, with_status).unwrap();
    (client, clock)
}

#[test]
fn a_wait_ends_by_timeout_cancellation_or_refusal() {
    let pending = json!([{"type": "Established", "status": "False", "reason": "Installing", "message": "soon"}]);
    let (client, clock) = stuck(&pending);
    let stop = CancellationToken::new();
    let cx = Context::detached_with(clock.clock(), stop.clone());
    let install = |timeout: Duration| scaled().install(&cx, &client, "test", timeout);

    let error = install(Duration::ZERO).unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(error.to_string(), "definition scaleds.example.com: not served in time: Installing: soon");

    stop.cancel();
    let error = install(Duration::from_secs(60)).unwrap_err();
    assert!(!error.is_timeout() && error.to_string().contains("the installation is cancelled"), "{error}");

    let refused =
        json!([{"type": "NamesAccepted", "status": "False", "reason": "ListKindConflict", "message": "taken"}]);
    let (client, clock) = stuck(&refused);
    let cx = Context::detached_with(clock.clock(), CancellationToken::new());
    let error = scaled().install(&cx, &client, "test", Duration::from_secs(60)).unwrap_err();
    let expected = "definition scaleds.example.com: the server refuses its names: ListKindConflict: taken";
    assert_eq!((error.to_string().as_str(), error.is_timeout()), (expected, false));
    let _: Arc<dyn std::error::Error + Send + Sync> = Arc::<InstallError>::new(error);
}

/// The wait ends once the conditions are set.
#[test]
fn a_wait_ends_when_the_kind_is_established() {
    let (client, clock) = stuck(&json!([]));
    let cx = Context::detached_with(clock.clock(), CancellationToken::new());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| scaled().install(&cx, &client, "test", Duration::from_secs(600)));
        clock.wait_for_sleepers(1);
        let key = ObjectKey::cluster("scaleds.example.com");
        let mut definition = client.get(&CustomResourceDefinition::KIND, &key).unwrap().to_value();
        definition["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        client.update_status(&CustomResourceDefinition::KIND, definition).unwrap();
        clock.advance(Duration::from_secs(1));
        waiting.join().unwrap().unwrap();
    });
}
