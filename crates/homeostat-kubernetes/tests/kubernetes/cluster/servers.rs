//! etcd, the API server and kube-controller-manager of one cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat_kubernetes::KubernetesClient;
use homeostat_test_support::system::free_port;
use rcgen::KeyPair;
use serde_json::json;

use super::certificates::Authority;
use super::http::Http;
use super::process::{Directory, Process};
use super::programs::Programs;
use crate::kinds;
use crate::until::within;

/// The longest time that a server may need to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// The token of a user with all rights.
pub(crate) const ADMIN: &str = "admin-token";

/// Another token of the same user.
pub(crate) const OTHER_ADMIN: &str = "other-admin-token";

/// The token of a user without any rights.
pub(crate) const NOBODY: &str = "nobody-token";

/// Settings of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Additional arguments for the API server.
    pub(crate) api_server: Vec<&'static str>,
    /// Whether kube-controller-manager collects garbage and deletes namespaces, if there is one.
    pub(crate) controllers: bool,
}

/// The servers of one cluster on loopback ports, with their files in a temporary directory.
pub(crate) struct Servers {
    // Fields are dropped in this order, so that processes end first.
    controller_manager: Option<Process>,
    pub(crate) api_server: Process,
    pub(crate) etcd: Process,
    pub(crate) authority: Authority,
    pub(crate) directory: Directory,
    pub(crate) url: String,
    programs: Programs,
    etcd_url: String,
}

impl Servers {
    /// Starts a cluster in a directory below `parent`, and waits until it is ready.
    ///
    /// Its processes end with the calling thread.
    pub(crate) fn start(parent: &Path, options: &Options) -> Self {
        let programs = Programs::find();
        let directory = Directory::new(parent).unwrap();
        let [etcd, peer, secure] = std::array::from_fn(|_| free_port());
        let etcd_url = format!("http://127.0.0.1:{etcd}");
        let url = format!("https://127.0.0.1:{secure}");
        let authority = Authority::new("authority 1");
        let keys = KeyPair::generate().unwrap();
        directory.write("service-accounts.key", keys.serialize_pem());
        directory.write("service-accounts.pub", keys.public_key_pem());
        let mut servers = Self {
            etcd: programs.etcd(&directory, &etcd_url, peer),
            api_server: programs.api_server(&directory, &etcd_url, secure, &options.api_server),
            controller_manager: programs.controller_manager(&directory),
            authority,
            directory,
            url,
            programs,
            etcd_url,
        };
        servers.write_credentials();
        servers.write_tokens(&[ADMIN, OTHER_ADMIN]);
        servers.etcd.start();
        servers.api_server.start();
        servers.wait_until_ready();
        let version = servers.http().get("/version")["gitVersion"].as_str().unwrap().to_owned();
        servers.directory.write("version", version);
        let client = servers.client();
        if servers.programs.are_complete() {
            kinds::create_namespace(&client, "default");
        }
        if options.controllers {
            // The garbage collector knows kinds that exist at its start, and learns about others within 30 seconds.
            kinds::install(&client);
            servers.controller_manager.iter_mut().for_each(Process::start);
        }
        servers
    }

    /// Returns a client for the administrator.
    pub(crate) fn client(&self) -> KubernetesClient {
        super::client(&self.directory.path().join("kubeconfig"))
    }

    /// Returns a client that is independent of the client under test.
    pub(crate) fn http(&self) -> Http {
        if self.programs.are_complete() {
            Http::new(&self.url, self.authority.certificate(), ADMIN)
        } else {
            Http::of_directory(self.directory.path(), &self.url)
        }
    }

    /// Waits until etcd and the API server are ready.
    pub(crate) fn wait_until_ready(&mut self) {
        let etcd = ureq::Agent::new_with_defaults();
        let health = format!("{}/health", self.etcd_url);
        within(PATIENCE, "etcd is ready", || {
            assert_eq!(self.etcd.failure(), None);
            etcd.get(&health).call().ok()
        });
        let (http, path) = if self.programs.are_complete() {
            // Every user may make this request.
            (Http::new(&self.url, self.authority.certificate(), NOBODY), "/readyz")
        } else {
            // `/readyz` would wait for the core API server.
            (self.http(), "/apis/apiextensions.k8s.io/v1")
        };
        within(PATIENCE, "the API server is ready", || {
            assert_eq!(self.api_server.failure(), None);
            http.send("GET", path, None).ok().filter(|(status, _)| *status == 200)
        });
    }

    /// Makes the server accept these tokens for its administrator after its next start.
    pub(crate) fn write_tokens(&self, tokens: &[&str]) {
        let admins = tokens.iter().map(|token| format!("{token},admin,admin,\"system:masters\"\n"));
        let lines: String = admins.chain([format!("{NOBODY},nobody,nobody\n")]).collect();
        self.directory.write("tokens.csv", lines);
    }

    /// Writes the certificates of the current authority, and kubeconfigs for them.
    fn write_credentials(&self) {
        let directory = &self.directory;
        directory.write("ca.crt", self.authority.certificate());
        let server = self.authority.server(&["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"]);
        directory.write("server.crt", server.certificate);
        directory.write("server.key", server.key);
        self.rotate_client_certificate();
        let files = json!({"client-certificate": "client.pem", "client-key": "client.pem"});
        directory.write("kubeconfig-certificate", self.kubeconfig(&files));
        if self.programs.are_complete() {
            directory.write("kubeconfig", self.kubeconfig(&json!({"token": ADMIN})));
            directory.write("kubeconfig-nobody", self.kubeconfig(&json!({"token": NOBODY})));
        } else {
            directory.write("kubeconfig", self.kubeconfig(&files));
            // Nothing listens on port 1.
            directory.write("kubeconfig-core", self.kubeconfig(&files).replace(&self.url, "https://127.0.0.1:1"));
        }
    }

    /// Returns a kubeconfig for this user. Relative paths in it start at the cluster's directory.
    pub(crate) fn kubeconfig(&self, user: &serde_json::Value) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": "ca.crt"}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        })
        .to_string()
    }

    /// Issues a new certificate for the client.
    pub(crate) fn rotate_client_certificate(&self) {
        let client = self.authority.client("admin", "system:masters");
        // One file, so that both change at once.
        self.directory.write("client.pem", format!("{}{}", client.certificate, client.key));
        self.directory.write("client.crt", client.certificate);
        self.directory.write("client.key", client.key);
    }

    /// Replaces the authority, and the certificates of server and client. The server must be restarted.
    pub(crate) fn rotate_certificates(&mut self, name: &str) {
        self.authority = Authority::new(name);
        self.write_credentials();
    }

    /// Copies the files of etcd as of now.
    pub(crate) fn save_etcd(&self) {
        self.etcd.pause();
        copy_directory(&self.etcd_files("etcd"), &self.etcd_files("etcd.saved"));
        self.etcd.resume();
    }

    /// Restarts etcd and the API server with the files that were [saved](Self::save_etcd).
    pub(crate) fn restore_etcd(&mut self) {
        self.api_server.kill();
        self.etcd.kill();
        fs::remove_dir_all(self.etcd_files("etcd")).unwrap();
        copy_directory(&self.etcd_files("etcd.saved"), &self.etcd_files("etcd"));
        self.etcd.start();
        self.api_server.start();
        self.wait_until_ready();
    }

    fn etcd_files(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    // etcd opens only files that no other user can read.
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
