//! The programs of a cluster, and their arguments.

use std::env;
use std::path::PathBuf;

use homeostat_test_support::installed::cache;

use super::process::{Directory, Process};

/// The environment variable with the directory of the servers' programs. By default, the tests use what
/// `.ci/kubernetes` has built.
const SERVERS: &str = "HOMEOSTAT_KUBERNETES_SERVERS";

/// The version that `.ci/kubernetes` builds.
const VERSION: &str = "1.20.2";

/// Turns off the admission plugins that ask the core API server, which does not run here.
const OF_THE_CORE: &str = "--disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionWebhook,\
     ValidatingAdmissionWebhook,ValidatingAdmissionPolicy,MutatingAdmissionPolicy";

/// The programs of a cluster.
pub(crate) enum Programs {
    /// kube-apiserver and kube-controller-manager in this directory, with the etcd of the system.
    Complete(PathBuf),
    /// apiextensions-apiserver and its etcd in this directory. It serves custom resources only: no core kinds and no
    /// namespaces. It has no garbage collector and no tokens.
    Extensions(PathBuf),
}

impl Programs {
    /// Finds the programs.
    pub(crate) fn find() -> Self {
        let chosen = env::var_os(SERVERS).map(PathBuf::from);
        let folder = chosen.clone().unwrap_or_else(|| cache().join(format!("kubernetes-{VERSION}")));
        let has = |program: &str| folder.join(program).is_file();
        let path = env::var_os("PATH").unwrap_or_default();
        if has("kube-apiserver") && has("kube-controller-manager") {
            let has_etcd = env::split_paths(&path).any(|directory| directory.join("etcd").is_file());
            assert!(has_etcd, "etcd is not in the PATH: install Debian's package etcd-server, or run .ci/kubernetes");
            return Self::Complete(folder);
        }
        if has("apiextensions-apiserver") && has("etcd") {
            return Self::Extensions(folder);
        }
        assert!(chosen.is_none(), "{SERVERS}: {} has no programs: run .ci/extensions-server", folder.display());
        panic!("{} does not exist: run .ci/kubernetes, which builds kube-apiserver", folder.display())
    }

    /// Returns whether the cluster has core kinds, namespaces, tokens and a garbage collector.
    pub(crate) fn are_complete(&self) -> bool {
        matches!(self, Self::Complete(_))
    }

    /// Returns the name of the directory.
    pub(crate) fn name(&self) -> String {
        let (Self::Complete(folder) | Self::Extensions(folder)) = self;
        folder.file_name().unwrap().to_str().unwrap().to_owned()
    }

    pub(super) fn etcd(&self, directory: &Directory, url: &str, peer: u16) -> Process {
        let peers = format!("http://127.0.0.1:{peer}");
        let arguments = vec![
            "--name=test".to_owned(),
            format!("--data-dir={}", directory.path().join("etcd").display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=test={peers}"),
            // Tests kill processes, not the machine, so written data survives.
            "--unsafe-no-fsync".to_owned(),
        ];
        let program = match self {
            Self::Complete(_) => PathBuf::from("etcd"),
            Self::Extensions(folder) => folder.join("etcd"),
        };
        Process::new(program, arguments, directory.path())
    }

    pub(super) fn api_server(&self, directory: &Directory, etcd: &str, port: u16, more: &[&str]) -> Process {
        let file = |name: &str| directory.path().join(name).display().to_string();
        let mut arguments = vec![
            format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
        ];
        let program = match self {
            Self::Complete(folder) => {
                arguments.extend([
                    "--advertise-address=127.0.0.1".to_owned(),
                    format!("--token-auth-file={}", file("tokens.csv")),
                    "--authorization-mode=RBAC".to_owned(),
                    "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                    format!("--service-account-signing-key-file={}", file("service-accounts.key")),
                    format!("--service-account-key-file={}", file("service-accounts.pub")),
                    "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
                    "--disable-admission-plugins=ServiceAccount".to_owned(),
                    "--endpoint-reconciler-type=none".to_owned(),
                ]);
                folder.join("kube-apiserver")
            }
            Self::Extensions(folder) => {
                let core = file("kubeconfig-core");
                arguments.extend([
                    format!("--kubeconfig={core}"),
                    format!("--authentication-kubeconfig={core}"),
                    format!("--authorization-kubeconfig={core}"),
                    "--authentication-skip-lookup".to_owned(),
                    "--enable-priority-and-fairness=false".to_owned(),
                    OF_THE_CORE.to_owned(),
                ]);
                folder.join("apiextensions-apiserver")
            }
        };
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        Process::new(program, arguments, directory.path())
    }

    pub(super) fn controller_manager(&self, directory: &Directory) -> Option<Process> {
        let Self::Complete(folder) = self else { return None };
        let arguments = vec![
            format!("--kubeconfig={}", directory.path().join("kubeconfig").display()),
            "--controllers=garbagecollector,namespace".to_owned(),
            "--leader-elect=false".to_owned(),
            "--port=0".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        Some(Process::new(folder.join("kube-controller-manager"), arguments, directory.path()))
    }
}
