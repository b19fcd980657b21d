//! Clients of one Kubernetes API server: homeostat and kube-rs list and watch the same objects.
//!
//! The objects are created once. In each round, each peer runs in a new process. It starts its watch, and reports when
//! its store has all objects. Then this process changes the objects, and the peer reports when it has seen each
//! change.

mod peers;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use homeostat_kubernetes::{Kubeconfig, KubernetesClient};
use homeostat_objects::{Client, Kind, Patch, PatchTarget, Query};
use serde_json::json;

use self::peers::Watcher;
use crate::machine::Machine;
use crate::meter::{Figures, Stopwatch, median, resident, spread};
use crate::runner::Summary;
use crate::servers::{Killed, ServerProcess};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// The label of the objects.
const LABEL: &str = "homeostat-compare=yes";
/// The peers, in the order of the table.
const PEERS: [(&str, &str); 4] = [
    ("homeostat", "homeostat, `ConfigMap` of k8s-openapi"),
    ("homeostat-queued", "the same, with a work queue and its consumer"),
    ("homeostat-dynamic", "homeostat, `DynamicObject`"),
    ("kube", "kube-rs, `ConfigMap` of k8s-openapi"),
];
/// The number of threads that write objects.
const WRITERS: usize = 8;

/// Measures the peers against the server of a kubeconfig, or a new one, and writes a table.
pub(crate) fn measure(kubeconfig: Option<PathBuf>, objects: usize, rounds: u32, out: &Path) -> Result<()> {
    let machine = Machine::look()?;
    // Dropped at the end of this function.
    let server;
    let kubeconfig = &match kubeconfig {
        Some(given) => given,
        None => {
            server = ServerProcess::start("kubernetes")?;
            server.kubeconfig()?
        }
    };
    let client: Arc<dyn Client> = Arc::new(KubernetesClient::new(Kubeconfig::read(kubeconfig)?.config()?)?);
    make(&client, objects)?;
    let mut results: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
    for round in 0..rounds as usize {
        for place in 0..PEERS.len() {
            let (peer, _) = PEERS[(place + round) % PEERS.len()];
            let figures = in_new_process(peer, kubeconfig, objects, &client)?;
            eprintln!("round {} {peer}: {figures:?}", round + 1);
            results.entry(peer).or_default().push(figures);
        }
    }
    fs::write(out, table(&machine, objects, rounds, &results))
        .with_context(|| format!("cannot write {}", out.display()))
}

/// Creates the missing objects.
fn make(client: &Arc<dyn Client>, objects: usize) -> Result<()> {
    let found = client.list(&CONFIG_MAP, &Query::all().labels(LABEL.parse()?))?.items.len();
    if found >= objects {
        return Ok(());
    }
    eprintln!("makes {objects} objects");
    spread(WRITERS, 0..objects, &|number| {
        let made = client.create(
            &CONFIG_MAP,
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": "default", "name": name(number), "labels": {"homeostat-compare": "yes"}},
                "data": {"number": number.to_string(), "revision": "0", "text": "x".repeat(300)},
            }),
        );
        match made {
            Err(error) if !error.is_already_exists() => Err(error.into()),
            _ => Ok(()),
        }
    })
    .map(drop)
}

fn name(number: usize) -> String {
    format!("compare-{number:05}")
}

/// Runs one peer, and changes each object once after the peer's store is in sync.
fn in_new_process(peer: &str, kubeconfig: &Path, objects: usize, client: &Arc<dyn Client>) -> Result<Figures> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["cluster-cell", peer, &objects.to_string()]).arg(kubeconfig).stdout(Stdio::piped());
    let mut child = Killed(command.spawn().context("cannot start a peer")?);
    let mut lines = BufReader::new(child.0.stdout.take().context("no output")?).lines();
    let mut line = || lines.next().context("the peer has ended").and_then(|line| Ok(line?));
    ensure!(line()? == "synced", "the peer must say when it is in sync");
    let revision = format!("{:?}", std::time::SystemTime::now());
    spread(WRITERS, 0..objects, &|number| {
        let key = homeostat_objects::ObjectKey::new("default", &name(number));
        client.patch(&CONFIG_MAP, &key, &Patch::Merge(json!({"data": {"revision": revision}})), PatchTarget::Object)?;
        Ok(())
    })?;
    let figures = serde_json::from_str(&line()?)?;
    child.0.wait()?;
    Ok(figures)
}

/// Runs one peer in this process, and prints its figures.
pub(crate) fn cell(peer: &str, kubeconfig: &Path, objects: usize) -> Result<()> {
    let (before, _) = resident()?;
    let watch = Stopwatch::start();
    let watcher: Box<dyn Watcher> = match peer {
        "homeostat" => Box::new(peers::homeostat_typed(kubeconfig)?),
        "homeostat-queued" => Box::new(peers::homeostat_queued(kubeconfig)?),
        "homeostat-dynamic" => Box::new(peers::homeostat_dynamic(kubeconfig)?),
        "kube" => Box::new(peers::Kube::start(kubeconfig)?),
        _ => bail!("no peer {peer}"),
    };
    watcher.wait_synced(objects);
    let synced = watch.stop();
    let (settled, peak) = resident()?;
    let changes = watcher.changes().count();
    println!("synced");
    std::io::stdout().flush()?;
    let watch = Stopwatch::start();
    watcher.changes().wait_for(changes + objects);
    let mut figures = synced.named("sync_cpu_ns", "sync_wall_ns", objects);
    figures.insert("event_cpu_ns".to_owned(), watch.stop().cpu.as_nanos() as f64 / objects as f64);
    figures.insert("peak_bytes".to_owned(), (peak - before) / objects as f64);
    figures.insert("settled_bytes".to_owned(), (settled - before) / objects as f64);
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn table(machine: &Machine, objects: usize, rounds: u32, results: &BTreeMap<&str, Vec<Figures>>) -> String {
    let Machine { cpu, cores, memory, commit, toolchain, load, .. } = machine;
    let mut text = format!(
        "# One API server, two clients\n\nEach client lists {objects} ConfigMaps and keeps them in a store. Then each object changes \
         once, and the client calls a function with each change. The figures are medians of {rounds} rounds, each in a new process. \
         Beside each stands its ratio to kube-rs, with the lowest and highest ratio of a round in brackets.\n\n\
         Machine: {cpu}, {cores} cores, {memory}; {toolchain}; commit {commit}. The server and etcd run on the same machine. Load \
         averages before the run: {load}.\n\n\
         | client | sync, CPU µs an object | sync, wall µs an object | CPU µs a change | peak growth until in sync, bytes an object | \
         growth when in sync, bytes an object |\n|---|--:|--:|--:|--:|--:|\n"
    );
    for (peer, label) in PEERS {
        let _ = write!(text, "| {label} |");
        for metric in ["sync_cpu_ns", "sync_wall_ns", "event_cpu_ns", "peak_bytes", "settled_bytes"] {
            let of = |peer: &str| results[peer].iter().map(|figures| figures[metric]).collect::<Vec<f64>>();
            let (own, kube) = (of(peer), of("kube"));
            let unit = if metric.ends_with("_ns") { 1000.0 } else { 1.0 };
            let Some(Summary { median: ratio, min, max }) = Summary::ratio(&own, &kube) else { continue };
            let _ = write!(text, " {:.1}, {ratio:.2} [{min:.2}, {max:.2}] |", median(&own) / unit);
        }
        text.push('\n');
    }
    text
}
