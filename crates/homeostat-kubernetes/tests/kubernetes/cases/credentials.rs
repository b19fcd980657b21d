//! Credentials from plugins and merged settings: cases 13 and 15.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use homeostat_kubernetes::{Impersonation, Kubeconfig, KubernetesClient};
use homeostat_objects::{Client, ClientError, ClientErrorKind, Kind, ObjectKey, Query};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{CONFIG_MAP, PATIENCE};
use crate::cluster::servers::{ADMIN, NOBODY};
use crate::cluster::{self};
use crate::until::within;

const SECRET: Kind = Kind::namespaced("", "v1", "Secret");

/// Returns the kubeconfig of the shared cluster with this user.
fn kubeconfig(user: &Value) -> Value {
    let directory = cluster::own();
    let text = fs::read_to_string(directory.join("kubeconfig")).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"] = user.clone();
    kubeconfig
}

fn client_with(kubeconfig: &Value) -> KubernetesClient {
    let config = Kubeconfig::parse(&kubeconfig.to_string(), cluster::own()).unwrap().config().unwrap();
    KubernetesClient::new(config).unwrap()
}

fn reads(client: &KubernetesClient) -> Result<(), ClientError> {
    client.list(&SECRET, &Query::all().namespace("default")).map(drop)
}

/// A plugin that counts its runs and prints a credential from a file.
struct Plugin(TempDir);

impl Plugin {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = "echo run >>\"$1/runs\"\ntest ! -e \"$1/fails\" || { echo the vault is sealed >&2; exit 7; }\ncat \"$1/credential\"";
        fs::write(directory.path().join("plugin"), script).unwrap();
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn prints(&self, version: &str, status: &Value) {
        let api_version = format!("client.authentication.k8s.io/{version}");
        let credential = json!({"apiVersion": api_version, "kind": "ExecCredential", "status": status});
        fs::write(self.path().join("credential"), credential.to_string()).unwrap();
    }

    fn user(&self, version: &str) -> Value {
        let directory = self.path().to_str().unwrap();
        json!({"exec": {
            "apiVersion": format!("client.authentication.k8s.io/{version}"), "command": "sh",
            "args": [format!("{directory}/plugin"), directory], "interactiveMode": "Never",
        }})
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.path().join("runs")).unwrap_or_default().lines().count()
    }
}

/// Returns the time of day after `duration`, in the JSON format.
#[expect(clippy::disallowed_methods, reason = "the plugin reports the real time")]
fn after(duration: Duration) -> String {
    jiff::Timestamp::try_from(SystemTime::now() + duration).unwrap().to_string()
}

#[test]
fn case_13_a_plugin_gives_a_token_until_it_expires() {
    for version in ["v1", "v1beta1"] {
        let plugin = Plugin::new();
        plugin.prints(version, &json!({"token": ADMIN, "expirationTimestamp": after(Duration::from_secs(3_600))}));
        let client = client_with(&kubeconfig(&plugin.user(version)));
        reads(&client).unwrap();
        reads(&client).unwrap();
        assert_eq!(plugin.runs(), 1, "the token is kept");

        let plugin = Plugin::new();
        plugin.prints(version, &json!({"token": ADMIN, "expirationTimestamp": after(Duration::ZERO)}));
        let client = client_with(&kubeconfig(&plugin.user(version)));
        reads(&client).unwrap();
        let runs = plugin.runs();
        reads(&client).unwrap();
        assert!(plugin.runs() > runs, "an expired token is renewed");
    }
}

#[test]
fn case_13_a_refused_token_is_asked_for_again() {
    let plugin = Plugin::new();
    plugin.prints("v1", &json!({"token": "an-old-token"}));
    let client = client_with(&kubeconfig(&plugin.user("v1")));
    assert!(*reads(&client).unwrap_err().kind() == ClientErrorKind::Unauthorized);
    plugin.prints("v1", &json!({"token": ADMIN}));
    reads(&client).unwrap();
}

#[test]
fn case_13_a_plugin_gives_a_certificate() {
    let directory = cluster::own();
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    let plugin = Plugin::new();
    let certificate = json!({"clientCertificateData": read("client.crt"), "clientKeyData": read("client.key")});
    plugin.prints("v1", &certificate);
    reads(&client_with(&kubeconfig(&plugin.user("v1")))).unwrap();
}

#[test]
fn case_13_a_failing_plugin_is_named_with_its_output() {
    let plugin = Plugin::new();
    fs::write(plugin.path().join("fails"), "").unwrap();
    let client = client_with(&kubeconfig(&plugin.user("v1")));
    let error = reads(&client).unwrap_err().to_string();
    assert!(error.contains("the vault is sealed") && error.contains("sh"), "{error}");
    fs::remove_file(plugin.path().join("fails")).unwrap();
    fs::write(plugin.path().join("credential"), "rubbish").unwrap();
    // A failure is remembered for a moment.
    within(PATIENCE, "the plugin runs again", || {
        reads(&client).unwrap_err().to_string().contains("printed no ExecCredential").then_some(())
    });
    plugin.prints("v1", &json!({"token": ADMIN}));
    within(PATIENCE, "the plugin works", || reads(&client).ok());
}

#[test]
fn case_15_files_are_merged_and_their_relative_paths_are_their_own() {
    let directory = cluster::own();
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let whole = kubeconfig(&json!({"tokenFile": "secrets/token"}));
    let part = |names: &[&str]| {
        let mut part = json!({"apiVersion": "v1", "kind": "Config"});
        for name in names {
            part[*name] = whole[*name].clone();
        }
        part.to_string()
    };
    fs::create_dir(one.path().join("secrets")).unwrap();
    fs::write(one.path().join("secrets/token"), format!("{ADMIN}\n")).unwrap();
    fs::write(one.path().join("config"), part(&["users", "contexts"])).unwrap();
    fs::copy(directory.join("ca.crt"), other.path().join("ca.crt")).unwrap();
    fs::write(other.path().join("config"), part(&["clusters", "users", "current-context"])).unwrap();
    let files = [one.path().join("config"), other.path().join("config")];
    let config = Kubeconfig::read_all(&files).unwrap().config().unwrap();
    reads(&KubernetesClient::new(config).unwrap()).unwrap();
}

#[test]
fn case_15_the_name_in_the_certificate_can_be_set() {
    let mut named = kubeconfig(&json!({"token": ADMIN}));
    named["clusters"][0]["cluster"]["tls-server-name"] = json!("kubernetes.default.svc");
    reads(&client_with(&named)).unwrap();
    named["clusters"][0]["cluster"]["tls-server-name"] = json!("elsewhere.example.com");
    let error = reads(&client_with(&named)).unwrap_err();
    assert!(error.is_transport(), "{error:?}");
}

#[test]
fn case_15_a_user_acts_as_another() {
    let config = || {
        let text = kubeconfig(&json!({"token": ADMIN})).to_string();
        Kubeconfig::parse(&text, cluster::own()).unwrap().config().unwrap()
    };
    let nobody = KubernetesClient::new(config().impersonate(Impersonation::new("nobody"))).unwrap();
    let error = reads(&nobody).unwrap_err();
    assert!(*error.kind() == ClientErrorKind::Forbidden && error.to_string().contains("nobody"), "{error:?}");
    let user = json!({"token": ADMIN, "as": "somebody", "as-groups": ["system:masters"]});
    reads(&client_with(&kubeconfig(&user))).unwrap();
}

#[test]
fn a_forbidden_call_names_its_user_verb_and_kind() {
    let client = client_with(&kubeconfig(&json!({"token": NOBODY})));
    let error = client.get(&CONFIG_MAP, &ObjectKey::new("default", "a")).unwrap_err();
    let text = error.to_string();
    assert!(
        *error.kind() == ClientErrorKind::Forbidden
            && text.contains("nobody")
            && text.contains("get")
            && text.contains("configmaps"),
        "{text}"
    );
    let stop = homeostat::CancellationToken::new();
    let watch = client.watch(&CONFIG_MAP, &Query::all(), Some("1"), &stop);
    let error = watch.and_then(|mut events| events.next().unwrap()).unwrap_err();
    assert_eq!(*error.kind(), ClientErrorKind::Forbidden, "{error:?}");
    assert!(
        *reads(&client_with(&kubeconfig(&json!({"token": "unknown"})))).unwrap_err().kind()
            == ClientErrorKind::Unauthorized
    );
}
