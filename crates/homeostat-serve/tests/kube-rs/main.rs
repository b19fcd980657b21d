//! kube-rs against a server in this process: its `Api`, discovery, watchers and controllers.

mod changes;
mod controllers;
mod discovery;
mod finalizers;
mod reads;
mod watches;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use homeostat::Running;
use homeostat_objects::{Kind, KindDefinition, MemoryClient, PrintColumn};
use homeostat_serve::{Access, AccessTarget, ObjectApi, Server, ServerControl};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::core::Status;
use kube::{Client, Config, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");

/// The time after which a test has hung.
const LONG: Duration = Duration::from_secs(60);

/// The desired state of a website.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Site", namespaced, status = "SiteStatus", shortname = "si")]
#[kube(derive = "PartialEq")]
struct SiteSpec {
    #[schemars(length(min = 1))]
    title: String,
    #[serde(default)]
    pages: u32,
    tags: Option<BTreeMap<String, String>>,
}

/// The state of a website.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
struct SiteStatus {
    phase: String,
}

/// A server with sites, config maps and events, and its client.
struct Door {
    client: Client,
    /// The number of watches that clients have started.
    watches: watch::Receiver<usize>,
    /// It stops when it is dropped.
    _server: Running<ServerControl>,
}

impl Door {
    /// Starts a server. It must be called on a runtime.
    fn new() -> Self {
        let objects = MemoryClient::builder().versions_by_time().build();
        let definition = serde_json::to_value(Site::crd()).unwrap();
        let schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        let title = PrintColumn::string("Title", ".spec.title");
        let api = ObjectApi::builder(Arc::new(objects))
            .serve(KindDefinition::new(SITE).short_name("si").column(title).schema(schema))
            .serve(KindDefinition::new(Kind::namespaced("", "v1", "ConfigMap")).with_status(false))
            .serve_events();
        let api = api.build().unwrap();
        let (started, watches) = watch::channel(0);
        let server = Server::builder((Ipv4Addr::LOCALHOST, 0)).objects(&api).authorize(move |request| {
            started.send_modify(|count| *count += usize::from(request.verb == "watch"));
            match &request.target {
                AccessTarget::Objects { resource, .. } if resource == "secrets" => Access::Deny("closed".to_owned()),
                _ => Access::Allow,
            }
        });
        let server = server.build().unwrap().start().unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        Self { client, watches, _server: server }
    }

    fn sites(&self) -> Api<Site> {
        Api::default_namespaced(self.client.clone())
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client.clone())
    }

    /// Creates a site.
    async fn create(&self, name: &str) -> Site {
        self.sites().create(&PostParams::default(), &site(name)).await.unwrap()
    }
}

/// Starts a server and runs a test with it. A test that hangs fails.
fn with_door(test: impl AsyncFnOnce(&Door)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let door = Door::new();
        let ended = tokio::time::timeout(LONG, test(&door)).await;
        assert!(ended.is_ok(), "the test has not ended after {LONG:?}");
    });
}

/// Returns a site with a label of its name.
fn site(name: &str) -> Site {
    let mut site = Site::new(name, SiteSpec { title: format!("Site {name}"), pages: 1, tags: None });
    site.labels_mut().insert("name".to_owned(), name.to_owned());
    site
}

/// Returns the names of objects, in their order.
fn names<'a, K: ResourceExt + 'a>(objects: impl IntoIterator<Item = &'a K>) -> Vec<String> {
    objects.into_iter().map(ResourceExt::name_any).collect()
}

/// Returns the version of an object.
fn version(object: &impl ResourceExt) -> String {
    object.resource_version().unwrap()
}

/// Returns the refusal of a call that must fail.
#[track_caller]
fn refused<T: Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("the server has not refused the call: {other:?}"),
    }
}
