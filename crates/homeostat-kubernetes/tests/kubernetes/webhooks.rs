//! Admission hooks that a real server calls over HTTPS.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use homeostat::Running;
use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::{Client, DeleteOptions, Kind, ObjectKey};
use homeostat_serve::{AdmissionReviewer, Rejection, ServedResource, Server, ServerControl, UserInfo};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster;
use crate::cluster::certificates::Authority;
use crate::cluster::http::Http;
use crate::cluster::servers::ADMIN;
use crate::until::within;

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with hooks for config maps, and a namespace in which the API server calls them.
struct Webhooks {
    client: KubernetesClient,
    http: Http,
    /// This is also the name of the webhook configurations.
    namespace: String,
    server: Running<ServerControl>,
    /// The names of config maps that hooks saw in dry runs.
    dry_runs: Arc<Mutex<Vec<String>>>,
    _certificates: TempDir,
}

/// The hooks: each map gets an owner, the number 13 is invalid, 14 makes the hook panic, and maps can be protected
/// from deletion.
fn reviewer(dry_runs: &Arc<Mutex<Vec<String>>>) -> AdmissionReviewer {
    let dry_runs = Arc::clone(dry_runs);
    let maps = ServedResource::new(CONFIG_MAP)
        .mutate(|request, map| {
            map["data"]["owner"] = request.user.name.as_str().into();
            Ok(())
        })
        .validate(move |request, map| {
            if request.dry_run {
                dry_runs.lock().push(request.name.to_owned());
            }
            match map["data"]["number"].as_str() {
                Some("13") => Err(Rejection::invalid("data.number", "13", "must not be 13")),
                Some("14") => panic!("no idea"),
                _ => Ok(()),
            }
        })
        .validate_deletion(|_, map| match map["data"]["keep"].as_str() {
            Some("yes") => Err(Rejection::forbidden("it is kept")),
            _ => Ok(()),
        });
    AdmissionReviewer::new([maps]).unwrap()
}

/// Returns a webhook configuration for the config maps of a namespace.
fn configuration(kind: &Kind, namespace: &str, url: &str, authority: &Authority, operations: &[&str]) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": operations});
    let name = if kind.name().starts_with("Mutating") { "mutate" } else { "validate" };
    json!({
        "apiVersion": kind.api_version(), "kind": kind.name(), "metadata": {"name": namespace},
        "webhooks": [{
            "name": format!("{name}.homeostat.example.com"),
            "clientConfig": {"url": url, "caBundle": BASE64_STANDARD.encode(authority.certificate())},
            "namespaceSelector": {"matchLabels": {"hooked": namespace}}, "rules": [rule],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 20,
        }],
    })
}

fn configurations() -> [Kind; 2] {
    ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
        .map(|name| Kind::cluster("admissionregistration.k8s.io", "v1", name))
}

impl Webhooks {
    fn start() -> Self {
        let directory = cluster::own();
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        let kubeconfig: Value = serde_json::from_str(&read("kubeconfig")).unwrap();
        let http = Http::new(kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap(), &read("ca.crt"), ADMIN);

        let (authority, certificates) = (Authority::new("authority of webhooks"), tempfile::tempdir().unwrap());
        let identity = authority.server(&["127.0.0.1"]);
        let [certificate, key] = ["server.crt", "server.key"].map(|name| certificates.path().join(name));
        fs::write(&certificate, identity.certificate).unwrap();
        fs::write(&key, identity.key).unwrap();
        let dry_runs = Arc::default();
        // The API server has no credentials, so only the review paths are public.
        let server = Server::builder((Ipv4Addr::LOCALHOST, 0))
            .tls(certificate, key)
            .token("a-token", UserInfo::new("ada"))
            .admission_reviews("/admission", &reviewer(&dry_runs))
            .public_path("/admission/mutate")
            .public_path("/admission/validate");
        let server = server.build().unwrap().start().unwrap();

        let namespace = format!("webhooks-{}", std::process::id());
        let client = cluster::client(&directory.join("kubeconfig"));
        let hooks = Self { client, http, namespace, server, dry_runs, _certificates: certificates };
        hooks.install(&authority);
        hooks
    }

    /// Creates the namespace and the configurations, and waits until the API server calls both webhooks.
    fn install(&self, authority: &Authority) {
        let Self { client, namespace, server, .. } = self;
        let labels = json!({"hooked": namespace});
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
        client.create(&NAMESPACE, object).unwrap();
        let [mutating, validating] = configurations();
        let url = |path: &str| format!("{}/admission/{path}", server.url());
        let mutates = configuration(&mutating, namespace, &url("mutate"), authority, &["CREATE"]);
        let all = ["CREATE", "UPDATE", "DELETE"];
        let validates = configuration(&validating, namespace, &url("validate"), authority, &all);
        client.create(&mutating, mutates).unwrap();
        client.create(&validating, validates).unwrap();

        let mut number = 0;
        within(PATIENCE, "the API server calls the mutating webhook", || {
            number += 1;
            let created = self.create(&format!("probe-{number}"), &json!({})).1;
            (created["data"]["owner"] == "admin").then_some(())
        });
        within(PATIENCE, "the API server calls the validating webhook", || {
            let (code, _) = self.send("PATCH", "/probe-1", &json!({"data": {"number": "13"}}));
            (code == 422).then_some(())
        });
    }

    /// Sends a request about the namespace's config maps. `null` means no body.
    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let path = format!("/api/v1/namespaces/{}/configmaps{path}", self.namespace);
        let (code, text) = self.http.send(method, &path, Some(body).filter(|body| !body.is_null())).unwrap();
        (code, serde_json::from_str(&text).unwrap())
    }

    fn create(&self, name: &str, data: &Value) -> (u16, Value) {
        self.send("POST", "", &json!({"metadata": {"name": name}, "data": data}))
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        // While the configurations exist, nothing in the namespace can be deleted without this server.
        for kind in configurations() {
            let _ = self.client.delete(&kind, &ObjectKey::cluster(&self.namespace), &DeleteOptions::default());
        }
        let _ = self.client.delete(&NAMESPACE, &ObjectKey::cluster(&self.namespace), &DeleteOptions::default());
    }
}

#[test]
fn a_real_server_asks_the_hooks() {
    let hooks = Webhooks::start();
    let (code, created) = hooks.create("a", &json!({"number": "1"}));
    assert_eq!((code, &created["data"]), (201, &json!({"number": "1", "owner": "admin"})));

    // The mutating webhook is called first, and refuses too.
    let (code, status) = hooks.create("b", &json!({"number": "13"}));
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{status}");
    let fault = "denied the request: data.number: Invalid value: \"13\": must not be 13";
    let by_mutating = format!("admission webhook \"mutate.homeostat.example.com\" {fault}");
    assert_eq!(status["message"], by_mutating);
    assert_eq!(status["details"]["causes"][0]["field"], "data.number");

    // For changes and deletions, only the validating webhook is called.
    let (code, status) = hooks.send("PATCH", "/a", &json!({"data": {"number": "13"}}));
    let by_validating = format!("admission webhook \"validate.homeostat.example.com\" {fault}");
    assert_eq!((code, &status["message"]), (422, &json!(by_validating)), "{status}");
    let (code, changed) = hooks.send("PATCH", "/a", &json!({"data": {"number": "2", "owner": "eve", "keep": "yes"}}));
    assert_eq!((code, &changed["data"]["owner"]), (200, &json!("eve")));
    let (code, status) = hooks.send("DELETE", "/a", &Value::Null);
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")), "{status}");
    assert!(status["message"].as_str().unwrap().ends_with("denied the request: it is kept"), "{status}");
    assert_eq!(hooks.send("PATCH", "/a", &json!({"data": {"keep": "no"}})).0, 200);
    assert_eq!(hooks.send("DELETE", "/a", &Value::Null).0, 200);

    // A panicking hook refuses the object. The next review is answered again.
    let (code, status) = hooks.create("c", &json!({"number": "14"}));
    assert_eq!(code, 500);
    assert!(status["message"].as_str().unwrap().ends_with("denied the request: a hook panicked: no idea"), "{status}");

    // Hooks recognize dry runs. Both webhooks are called.
    let dry_run = json!({"metadata": {"name": "d"}});
    assert_eq!(hooks.send("POST", "?dryRun=All", &dry_run).0, 201);
    assert_eq!(hooks.send("GET", "/d", &Value::Null).0, 404);
    assert_eq!(*hooks.dry_runs.lock(), ["d", "d"]);

    // This crate's client names the fields.
    let metadata = json!({"namespace": hooks.namespace, "name": "e"});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"number": "13"}});
    let error = hooks.client.create(&CONFIG_MAP, map).unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert_eq!(error.causes()[0].field, "data.number");
    assert_eq!(hooks.server.counts().client_errors, 0, "the API server calls only the public paths");
}
