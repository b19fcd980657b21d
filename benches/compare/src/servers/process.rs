//! The processes of the servers. They end when their owner is dropped.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, io, thread};

use anyhow::{Context, Result, bail, ensure};
use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
use homeostat_objects::{Client, FileClient, Kind, KindDefinition, MemoryClient};
use homeostat_serve::{ObjectApi, Server, UserInfo};
use k8s_openapi::api::core::v1::ConfigMap;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use serde_json::json;
use tempfile::TempDir;

use crate::meter::{cpu_of, resident_of};

/// The token of the only user.
const TOKEN: &str = "compare";

/// The namespace of all objects.
pub(super) const NAMESPACE: &str = "default";

/// The longest time that a server may take to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with an empty store.
pub(crate) struct ServerProcess {
    processes: Vec<Killed>,
    url: String,
    /// The time from the start of the first process to the first answer.
    pub(super) start: Duration,
    /// Removed after the processes have ended.
    folder: TempDir,
}

/// A process that is killed when this is dropped.
pub(crate) struct Killed(pub(crate) Child);

impl ServerProcess {
    /// Starts a server, and waits until it has created a namespace.
    pub(crate) fn start(kind: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("homeostat-compare-").tempdir()?;
        let (start, processes, url) = match kind {
            "kubernetes" => kubernetes(folder.path())?,
            store => homeostat(store, folder.path())?,
        };
        let mut server = Self { processes, url, start: Duration::ZERO, folder };
        server.wait_until_ready(start)?;
        server.start = start.elapsed();
        Ok(server)
    }

    fn wait_until_ready(&mut self, start: Instant) -> Result<()> {
        let client = self.client()?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        loop {
            let Err(error) = client.create(&Kind::cluster("", "v1", "Namespace"), namespace.clone()) else { break };
            if error.is_already_exists() {
                break;
            }
            for Killed(process) in &mut self.processes {
                if let Some(status) = process.try_wait()? {
                    bail!("a server ended with {status}: {}", logs(self.folder.path()));
                }
            }
            ensure!(start.elapsed() < PATIENCE, "no answer within {PATIENCE:?}: {error}; {}", logs(self.folder.path()));
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    pub(crate) fn client(&self) -> Result<KubernetesClient> {
        Ok(KubernetesClient::new(ClusterConfig::new(&self.url)?.token(TOKEN).insecure_skip_tls_verify())?)
    }

    /// Writes settings for other clients, and returns their path.
    pub(crate) fn kubeconfig(&self) -> Result<PathBuf> {
        let path = self.folder.path().join("kubeconfig");
        let name = "compare";
        let settings = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.url, "insecure-skip-tls-verify": true}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [{"name": name, "user": {"token": TOKEN}}],
        });
        fs::write(&path, settings.to_string())?;
        Ok(path)
    }

    /// Returns the CPU time of all processes so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        self.processes.iter().map(|Killed(process)| cpu_of(process.id())).sum()
    }

    /// Returns the resident bytes of all processes.
    pub(super) fn resident(&self) -> Result<f64> {
        self.processes.iter().map(|Killed(process)| resident_of(process.id())).sum()
    }
}

/// Returns the last lines of the logs.
fn logs(folder: &Path) -> String {
    let mut text = String::new();
    for name in ["etcd.log", "kube-apiserver.log", "homeostat.log"] {
        let log = fs::read_to_string(folder.join(name)).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        text.extend(lines[lines.len().saturating_sub(5)..].iter().flat_map(|line| [line, "\n"]));
    }
    text
}

/// Starts this program with [`serve`].
fn homeostat(store: &str, folder: &Path) -> Result<(Instant, Vec<Killed>, String)> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    fs::write(folder.join("server.pem"), cert.pem())?;
    fs::write(folder.join("server.key"), signing_key.serialize_pem())?;
    let start = Instant::now();
    let mut command = Command::new(env::current_exe()?);
    command.args(["server-process", store]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Killed(command.stderr(fs::File::create(folder.join("homeostat.log"))?).spawn()?);
    let mut url = String::new();
    BufReader::new(process.0.stdout.take().context("no output")?).read_line(&mut url)?;
    Ok((start, vec![process], url.trim().to_owned()))
}

/// Serves config maps until standard input ends. Prints the address.
pub(crate) fn serve(store: &str, folder: &Path) -> Result<()> {
    let client: Arc<dyn Client> = match store {
        "file" => Arc::new(FileClient::open(folder.join("objects.redb"))?),
        "memory" => Arc::new(MemoryClient::new()),
        other => bail!("no store {other}"),
    };
    let api = ObjectApi::builder(client).serve(KindDefinition::of::<ConfigMap>()).build()?;
    let server = Server::builder((Ipv4Addr::LOCALHOST, 0))
        .tls(folder.join("server.pem"), folder.join("server.key"))
        .token(TOKEN, UserInfo::new("compare"))
        .objects(&api)
        .build()?
        .start()?;
    println!("{}", server.url());
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Starts etcd, which syncs each write, and kube-apiserver with a self-signed certificate.
fn kubernetes(folder: &Path) -> Result<(Instant, Vec<Killed>, String)> {
    let ports: Vec<u16> = (0..3)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        // All are open at the same time, so they differ.
        .collect::<Result<Vec<_>, _>>()?
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect::<Result<_>>()?;
    let [etcd, peer] = [ports[0], ports[1]].map(|port| format!("http://127.0.0.1:{port}"));
    let path = |name: &str| folder.join(name).display().to_string();
    fs::write(folder.join("tokens.csv"), format!("{TOKEN},compare,compare,\"system:masters\"\n"))?;
    let keys = KeyPair::generate()?;
    fs::write(folder.join("accounts.key"), keys.serialize_pem())?;
    fs::write(folder.join("accounts.pub"), keys.public_key_pem())?;
    let etcd_arguments = [
        "--name=compare".to_owned(),
        format!("--data-dir={}", path("etcd")),
        format!("--listen-client-urls={etcd}"),
        format!("--advertise-client-urls={etcd}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=compare={peer}"),
    ];
    let server_arguments = [
        format!("--etcd-servers={etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", ports[2]),
        format!("--cert-dir={}", path("certificates")),
        format!("--token-auth-file={}", path("tokens.csv")),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-signing-key-file={}", path("accounts.key")),
        format!("--service-account-key-file={}", path("accounts.pub")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
    ];
    let spawn = |program: PathBuf, name: &str, arguments: &[String]| -> Result<Killed> {
        let log = fs::File::create(folder.join(format!("{name}.log")))?;
        let mut command = Command::new(&program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Killed(command.spawn().with_context(|| format!("cannot start {}: run .ci/kubernetes", program.display()))?))
    };
    let program = api_server()?;
    let start = Instant::now();
    let etcd = spawn("etcd".into(), "etcd", &etcd_arguments)?;
    let processes = vec![etcd, spawn(program, "kube-apiserver", &server_arguments)?];
    Ok((start, processes, format!("https://127.0.0.1:{}", ports[2])))
}

/// Returns the versions of the Kubernetes servers.
pub(super) fn kubernetes_versions() -> Result<String> {
    let line = |program: PathBuf| -> Result<String> {
        let output = Command::new(program).arg("--version").output()?;
        Ok(String::from_utf8(output.stdout)?.lines().next().unwrap_or_default().to_owned())
    };
    Ok(format!("{}, {}", line(api_server()?)?, line("etcd".into())?))
}

/// Runs the script that builds kube-apiserver once and prints its folder.
fn api_server() -> Result<PathBuf> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.ci/kubernetes");
    let output = Command::new(script).stderr(Stdio::inherit()).output().context("cannot run .ci/kubernetes")?;
    ensure!(output.status.success(), ".ci/kubernetes failed");
    Ok(Path::new(String::from_utf8(output.stdout)?.trim()).join("kube-apiserver"))
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
