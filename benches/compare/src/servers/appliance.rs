//! The footprint of the example `appliance`: a file store, two controllers, a server and a status page.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
use homeostat_objects::{Client, Kind, Query, SharedObject};
use serde_json::{Value, json};

use super::process::Killed;
use crate::meter::{Figures, cpu_of, resident_of};

const VOLUME: Kind = Kind::namespaced("example.com", "v1", "Volume");
const SHARE: Kind = Kind::namespaced("example.com", "v1", "Share");

/// The number of shares in the second measurement.
pub(super) const SHARES: usize = 1_000;

/// How long nothing changes. Each share is checked once in this time.
const IDLE: Duration = Duration::from_secs(10);

/// Builds the example, and returns its program.
pub(super) fn build(quick: bool) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("cargo");
    command.args([
        "build",
        "--locked",
        "--package",
        "homeostat-examples",
        "--features",
        "serve",
        "--example",
        "appliance",
    ]);
    if !quick {
        command.arg("--release");
    }
    let target = root.join("target");
    ensure!(
        command.current_dir(&root).arg("--target-dir").arg(&target).status()?.success(),
        "the appliance does not build"
    );
    Ok(target.join(if quick { "debug" } else { "release" }).join("examples/appliance"))
}

/// Runs the program once.
pub(super) fn measure(program: &Path) -> Result<Figures> {
    let folder = tempfile::Builder::new().prefix("homeostat-compare-").tempdir()?;
    let stripped = folder.path().join("stripped");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(program).status().context("cannot run strip")?;
    ensure!(strip.success(), "strip failed");
    let start = Instant::now();
    let mut command = Command::new(program);
    command.arg("--data").arg(folder.path().join("data")).env("RUST_LOG", "error").stdout(Stdio::piped());
    let mut process = Killed(command.spawn()?);
    let mut line = String::new();
    // Must stay open, because the program prints more.
    let mut output = BufReader::new(process.0.stdout.take().context("no output")?);
    output.read_line(&mut line)?;
    let url = line.split_whitespace().find(|word| word.starts_with("http")).context("no address")?;
    let client = KubernetesClient::new(ClusterConfig::new(url.trim_end_matches('/'))?)?;
    client.list(&SHARE, &Query::all())?;
    let ready = start.elapsed();
    let (id, mut figures) = (process.0.id(), Figures::new());
    let mut add = |name: &str, value| figures.insert(name.to_owned(), value);
    add("start_ms", ready.as_secs_f64() * 1_000.0);
    add("program_bytes", fs::metadata(&stripped)?.len() as f64);
    add("ready_bytes", resident_of(id)?);
    let object = |kind: &str, name: &str, spec: Value| {
        let metadata = json!({"namespace": "default", "name": name});
        json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    client.create(&VOLUME, object("Volume", "music", json!({"sizeMib": 16})))?;
    for number in 0..SHARES {
        client.create(&SHARE, object("Share", &format!("share-{number}"), json!({"volume": "music"})))?;
    }
    let is_ready = |share: &SharedObject| {
        let status = share.pointer("/status/conditions/0/status");
        status.and_then(|status| status.as_str()) == Some("True")
    };
    while !client.list(&SHARE, &Query::all())?.items.iter().all(is_ready) {
        thread::sleep(Duration::from_millis(100));
    }
    add("full_bytes", resident_of(id)?);
    let cpu = cpu_of(id)?;
    thread::sleep(IDLE);
    add("idle_percent", 100.0 * (cpu_of(id)? - cpu).as_secs_f64() / IDLE.as_secs_f64());
    Ok(figures)
}
