//! The types of k8s-openapi and of `#[derive(CustomResource)]` as objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use homeostat::{Action, BoxError, Controller, Manager, Subscriber, WorkQueue};
use homeostat_objects::sub::{
    ChildReconciler, Config, DesiredChild, Flow, ResourceReconciler, SubContext, UpdatingObjectManager,
};
use homeostat_objects::{
    Api, Client, ClientError, DeleteOptions, Ignore, Kind, MemoryClient, Object, ObjectKey, ObjectMeta, ObjectWatch,
    OperationResult, PrimaryContext, PrimaryController, Query, Scheme, Secondary, SharedObject, add_finalizer,
    remove_finalizer, set_controller,
};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Endpoints, Namespace, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as openapi;
use serde_json::json;

/// A custom resource as kube-rs derives it.
mod derived {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
    pub(crate) struct SiteSpec {
        pub(crate) title: String,
        pub(crate) replicas: i32,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct SiteStatus {
        #[serde(default)]
        pub(crate) served: String,
    }

    homeostat_objects::object!(Site, namespaced, "example.com", "v1", status: SiteStatus);
}

use derived::{Site, SiteSpec, SiteStatus};

const PATIENCE: Duration = Duration::from_secs(30);

fn meta(name: &str) -> openapi::ObjectMeta {
    openapi::ObjectMeta {
        namespace: Some("default".to_owned()),
        name: Some(name.to_owned()),
        ..openapi::ObjectMeta::default()
    }
}

fn config_map(name: &str, text: &str) -> ConfigMap {
    let data = BTreeMap::from([("text".to_owned(), text.to_owned())]);
    ConfigMap { metadata: meta(name), data: Some(data), ..ConfigMap::default() }
}

fn deployment(name: &str, replicas: i32) -> Deployment {
    let labels = openapi::LabelSelector {
        match_labels: Some(BTreeMap::from([("app".to_owned(), name.to_owned())])),
        ..openapi::LabelSelector::default()
    };
    let container = Container { name: "web".to_owned(), image: Some("web:1".to_owned()), ..Container::default() };
    let pods = PodTemplateSpec {
        metadata: Some(openapi::ObjectMeta { labels: labels.match_labels.clone(), ..openapi::ObjectMeta::default() }),
        spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
    };
    let spec =
        DeploymentSpec { replicas: Some(replicas), selector: labels, template: pods, ..DeploymentSpec::default() };
    Deployment { metadata: meta(name), spec, status: None }
}

fn site(name: &str) -> Site {
    Site::new(name, SiteSpec { title: "Garden".to_owned(), replicas: 2 }).in_namespace("default")
}

/// Sets the namespace of a derived type.
trait InNamespace {
    fn in_namespace(self, namespace: &str) -> Self;
}

impl InNamespace for Site {
    fn in_namespace(mut self, namespace: &str) -> Self {
        self.metadata.namespace = Some(namespace.to_owned());
        self
    }
}

fn memory() -> Arc<MemoryClient> {
    Arc::new(MemoryClient::new())
}

#[test]
fn the_kinds_match_the_types() {
    assert_eq!(Deployment::KIND, Kind::namespaced("apps", "v1", "Deployment"));
    assert!(Deployment::KIND.is_namespaced() && !Namespace::KIND.is_namespaced());
    assert_eq!(Endpoints::KIND.plural(), "endpoints");
    assert_eq!((ConfigMap::KIND.api_version(), Pod::KIND.plural()), ("v1".into(), "pods".into()));
    let (api_version, kind) = (<Site as kube::Resource>::api_version(&()), <Site as kube::Resource>::kind(&()));
    assert_eq!(Site::KIND, Kind::of(&api_version, &kind));
    assert_eq!(Site::KIND.plural(), <Site as kube::Resource>::plural(&()));
    let scheme = Scheme::new().register::<Deployment>().register::<Site>();
    assert!(scheme.check(&deployment("web", 1).to_json().unwrap()).is_ok());
}

#[test]
fn metadata_is_read_and_written_through_the_type() {
    let mut pod = Pod { metadata: meta("web-1"), ..Pod::default() };
    pod.metadata.self_link = Some("/x".to_owned());
    pod.metadata.deletion_grace_period_seconds = Some(30);
    pod.metadata.annotations = Some(BTreeMap::new());
    let before = pod.clone();
    drop(pod.meta_mut());
    assert_eq!(pod.metadata, openapi::ObjectMeta { annotations: None, ..before.metadata });

    let own: ObjectMeta = serde_json::from_value(json!({
        "namespace": "default", "name": "web-1", "generateName": "web-", "uid": "u-1", "resourceVersion": "7", "generation": 3,
        "creationTimestamp": "2024-05-01T10:00:00Z", "deletionTimestamp": "2024-05-01T11:00:00Z",
        "deletionGracePeriodSeconds": 5, "labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["example.com/x"],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-2", "controller": true,
            "blockOwnerDeletion": true}],
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {}}, "time": "2024-05-01T10:00:00Z"}],
    }))
    .unwrap();
    *pod.meta_mut() = own.clone();
    assert_eq!(*pod.meta(), own);
    assert_eq!(pod.metadata.uid.as_deref(), Some("u-1"));
    assert_eq!(serde_json::to_value(&pod.metadata).unwrap(), serde_json::to_value(&own).unwrap());
    assert_eq!((pod.key(), pod.meta().is_deleting()), (ObjectKey::new("default", "web-1"), true));

    pod.meta_mut().finalizers.clear();
    assert_eq!(pod.metadata.finalizers, None);
}

#[test]
fn objects_are_written_and_read_by_an_api() {
    let client = memory();
    let deployments = Api::<Deployment>::new(client.clone());
    let mut web = deployments.create(&deployment("web", 2)).unwrap();
    assert_eq!((web.spec.replicas, web.metadata.generation), (Some(2), Some(1)));
    assert!(web.metadata.creation_timestamp.is_some());

    web.spec.replicas = Some(3);
    let updated = deployments.update(&web).unwrap();
    assert!(!updated.has_version_of(&web) && deployments.update(&web).unwrap_err().is_conflict());

    let status = DeploymentStatus { ready_replicas: Some(3), ..DeploymentStatus::default() };
    let ready = deployments.update_status(&Deployment { status: Some(status), ..updated }).unwrap();
    assert_eq!(ready.status.as_ref().unwrap().ready_replicas, Some(3));
    assert_eq!(deployments.list(&Query::all()).unwrap().items, std::slice::from_ref(&ready));

    let held = add_finalizer(&deployments, &ready, "example.com/x").unwrap();
    deployments.delete(&held.key(), &DeleteOptions::default()).unwrap();
    let held = deployments.get(&held.key()).unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    remove_finalizer(&deployments, &held, "example.com/x").unwrap();
    assert!(deployments.get(&held.key()).ignore_not_found().unwrap().is_none());
}

#[test]
fn a_derived_type_has_its_status() {
    let client = memory();
    let sites = Api::<Site>::new(client.clone());
    let mut garden = sites.create(&site("garden")).unwrap();
    assert_eq!((garden.status(), garden.spec.replicas), (None, 2));
    garden.status_mut().unwrap().served = "here".to_owned();
    let garden = sites.update_status(&garden).unwrap();
    assert_eq!(garden.status.unwrap().served, "here");
    let stored = client.get(&Site::KIND, &ObjectKey::new("default", "garden")).unwrap();
    assert_eq!(stored.pointer("/status/served").unwrap(), "here");
    assert_eq!(stored.get("apiVersion").unwrap(), "example.com/v1");
}

#[test]
fn an_object_that_does_not_match_its_type_is_an_error() {
    let shared = |json| SharedObject::from(&json);
    let wrong =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "a", "name": "b"}, "data": [1]});
    let error = ConfigMap::from_shared(&shared(wrong)).unwrap_err();
    assert!(error.is_invalid() && error.to_string().starts_with("ConfigMap a/b is invalid: "), "{error}");
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "a", "name": "b"}});
    assert!(ConfigMap::from_shared(&shared(other)).unwrap_err().is_invalid());
}

#[test]
fn watches_follow_the_types() {
    let client = memory();
    let configs = Api::<ConfigMap>::new(client.clone());
    let watch = ObjectWatch::new(configs.clone()).start().unwrap();
    let queue = WorkQueue::<ObjectKey>::new();
    let _subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    configs.create(&config_map("colours", "blue")).unwrap();
    let claim = queue.dequeue_timeout(PATIENCE).unwrap();
    let stored = watch.watch().store().get(&claim).unwrap();
    assert_eq!(stored.data.as_ref().unwrap()["text"], "blue");
}

#[test]
fn owners_can_be_of_any_of_the_types() {
    let client = memory();
    let owner = Api::<Site>::new(client.clone()).create(&site("garden")).unwrap();
    let mut colours = config_map("colours", "blue");
    set_controller(&owner, &mut colours).unwrap();
    let reference = &colours.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (&*reference.kind, &*reference.api_version, reference.controller),
        ("Site", "example.com/v1", Some(true))
    );
    assert_eq!(Some(&reference.uid), owner.metadata.uid.as_ref());
}

#[test]
fn a_primary_controller_makes_secondaries_of_the_types() {
    let client = memory();
    let (sites, deployments) =
        (Api::<Site>::new(client.clone()), Secondary::new(Api::<Deployment>::new(client.clone())));
    let secondary = deployments.clone();
    let updates = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&updates);
    let sync = move |cx: &PrimaryContext<'_>, site: &Site| -> Result<Action, BoxError> {
        let name = site.metadata.name.clone().unwrap_or_default();
        let ensured = secondary.ensure(cx, site, deployment(&name, site.spec.replicas))?;
        counted.fetch_add(usize::from(matches!(ensured, OperationResult::Updated(_))), Ordering::SeqCst);
        Ok(Action::await_change())
    };
    let manager = Manager::builder().build().unwrap();
    let controller =
        PrimaryController::new("sites", sites.clone(), sync).secondary(&deployments).add_to(&manager).unwrap();
    let running = manager.start().unwrap();
    let garden = sites.create(&site("garden")).unwrap();
    let settled = || {
        controller.enqueue(garden.key());
        controller.wait(&garden.key(), PATIENCE).unwrap();
        let replicas = |web: &Deployment| web.spec.replicas.unwrap();
        deployments.list(&garden).unwrap().iter().map(replicas).collect::<Vec<_>>()
    };
    assert_eq!(settled(), [2]);
    assert_eq!(updates.load(Ordering::SeqCst), 0, "an update that changes nothing");
    let grown = Site { spec: SiteSpec { replicas: 5, ..garden.spec.clone() }, ..sites.get(&garden.key()).unwrap() };
    sites.update(&grown).unwrap();
    assert_eq!(settled(), [5]);
    assert_eq!(updates.load(Ordering::SeqCst), 1);
    manager.stop();
    running.join().unwrap();
}

/// The parent is a derived type, and its child is a type of k8s-openapi.
#[test]
fn sub_reconcilers_work_on_the_types() {
    let client = memory();
    let (sites, configs) = (Api::<Site>::new(client.clone()), Api::<ConfigMap>::new(client.clone()));
    let desired = |_: &SubContext<'_>, site: &mut Site| Ok(DesiredChild::This(config_map("colours", &site.spec.title)));
    let reflect = |_: &SubContext<'_>, site: &mut Site, child: Result<Option<&ConfigMap>, &ClientError>| {
        site.status_mut().unwrap().served = child.unwrap().map(Object::key).unwrap().to_string();
        Ok(Flow::proceed())
    };
    let merge = |current: &mut ConfigMap, desired: &ConfigMap| current.data.clone_from(&desired.data);
    let child = ChildReconciler::new(desired, reflect, UpdatingObjectManager::<ConfigMap>::new(merge));
    let manager = Manager::builder().build().unwrap();
    let reconciler = ResourceReconciler::<Site>::new("sites", Config::new(client.clone()), child);
    let sources = reconciler.setup(&manager).unwrap();
    let controller = Controller::builder("sites", reconciler).sources(sources).build().unwrap();
    let handle = controller.handle();
    manager.add(controller).unwrap();
    let running = manager.start().unwrap();
    let garden = sites.create(&site("garden")).unwrap();
    handle.enqueue(garden.key());
    handle.wait(&garden.key(), PATIENCE).unwrap();
    let child = configs.get(&ObjectKey::new("default", "colours")).unwrap();
    assert_eq!(child.data.as_ref().unwrap()["text"], "Garden");
    assert!(child.meta().is_controlled_by(&garden.meta().uid));
    assert_eq!(sites.get(&garden.key()).unwrap().status, Some(SiteStatus { served: "default/colours".to_owned() }));
    manager.stop();
    running.join().unwrap();
}
