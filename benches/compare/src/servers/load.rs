//! The requests of a round.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use homeostat::CancellationToken;
use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::{Client, Kind, ObjectKey, Patch, PatchTarget, Query, WatchEvent};
use serde_json::json;

use super::process::{NAMESPACE, ServerProcess};
use crate::meter::{Figures, percentile, spread};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");

/// The number of client threads, unless the row has a single one.
pub(super) const THREADS: usize = 8;

/// The number of requests of each kind.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// Objects created by one thread.
    pub(super) alone: usize,
    /// Objects created by all threads.
    pub(super) objects: usize,
    pub(super) gets: usize,
    pub(super) lists: usize,
    /// Watches of all objects.
    pub(super) watches: usize,
    /// Changes that each watch sees.
    pub(super) changes: usize,
}

impl Load {
    pub(super) const FULL: Self =
        Self { alone: 500, objects: 5_000, gets: 20_000, lists: 40, watches: 100, changes: 1_000 };
    pub(super) const QUICK: Self = Self { alone: 10, objects: 50, gets: 50, lists: 2, watches: 3, changes: 10 };

    /// Sends the requests to a server without objects.
    pub(super) fn run(self, server: &ServerProcess) -> Result<Figures> {
        let client = server.client()?;
        let mut figures = Figures::new();
        figures.insert("start_ms".to_owned(), server.start.as_secs_f64() * 1_000.0);
        figures.insert("empty_bytes".to_owned(), server.resident()?);
        let mut add = |name: &str, metric: &str, value: f64| {
            figures.insert(format!("{name} {metric}"), value);
        };
        let mut measure = |name: &str, operations: usize, work: &dyn Fn() -> Result<Vec<f64>>| -> Result<()> {
            let (cpu, start) = (server.cpu()?, Instant::now());
            let mut latencies = work()?;
            let wall = start.elapsed();
            // The server's work after its last answer counts too.
            wait_until_idle(server)?;
            let cpu = server.cpu()?.saturating_sub(cpu);
            add(name, "rate", operations as f64 / wall.as_secs_f64());
            add(name, "cpu", cpu.as_secs_f64() * 1e6 / operations as f64);
            if !latencies.is_empty() {
                latencies.sort_by(f64::total_cmp);
                add(name, "p50", percentile(&latencies, 0.5));
                add(name, "p99", percentile(&latencies, 0.99));
            }
            Ok(())
        };
        let make = |number| make(&client, number);
        let get = |number| get(&client, number % self.objects);
        let list = |_| list(&client, self.alone + self.objects);
        measure("create-1", self.alone, &|| spread(1, self.objects..self.objects + self.alone, &make))?;
        measure("create", self.objects, &|| spread(THREADS, 0..self.objects, &make))?;
        measure("get-1", self.gets / 4, &|| spread(1, 0..self.gets / 4, &get))?;
        measure("get", self.gets, &|| spread(THREADS, 0..self.gets, &get))?;
        measure("list", self.lists, &|| spread(1, 0..self.lists, &list))?;
        measure("watch", self.watches * self.changes, &|| self.fan_out(&client))?;
        figures.insert("full_bytes".to_owned(), server.resident()?);
        Ok(figures)
    }

    /// Changes objects while watches see each change. Returns no latencies.
    fn fan_out(self, client: &KubernetesClient) -> Result<Vec<f64>> {
        let version = client.list(&CONFIG_MAP, &Query::all().limit(1))?.version;
        let stop = CancellationToken::new();
        let streams: Vec<_> = (0..self.watches)
            .map(|_| client.watch(&CONFIG_MAP, &Query::all(), Some(&version), &stop))
            .collect::<Result<_, _>>()?;
        thread::scope(|scope| {
            let readers: Vec<_> = streams
                .into_iter()
                .map(|mut stream| {
                    scope.spawn(move || -> Result<()> {
                        let mut seen = 0;
                        while seen < self.changes {
                            let event = stream.next().context("a watch ended")??;
                            seen += usize::from(matches!(event, WatchEvent::Modified(_)));
                        }
                        Ok(())
                    })
                })
                .collect();
            let written = spread(THREADS, 0..self.changes, &|number| change(client, number % self.objects));
            if written.is_err() {
                stop.cancel();
            }
            let read = readers.into_iter().map(|reader| reader.join().expect("a reader does not panic"));
            let read = read.collect::<Result<Vec<()>>>();
            written?;
            read?;
            Ok(Vec::new())
        })
    }
}

/// Waits until a server uses no CPU time, for at most a second, because kube-apiserver never becomes idle.
fn wait_until_idle(server: &ServerProcess) -> Result<()> {
    for _ in 0..20 {
        let before = server.cpu()?;
        thread::sleep(Duration::from_millis(50));
        if server.cpu()? == before {
            break;
        }
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("compare-{number:05}")
}

fn make(client: &KubernetesClient, number: usize) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": NAMESPACE, "name": name(number), "labels": {"app": "compare"}},
        "data": {"number": number.to_string(), "revision": "0", "text": "x".repeat(300)},
    });
    client.create(&CONFIG_MAP, object)?;
    Ok(())
}

fn get(client: &KubernetesClient, number: usize) -> Result<()> {
    client.get(&CONFIG_MAP, &ObjectKey::new(NAMESPACE, &name(number)))?;
    Ok(())
}

fn list(client: &KubernetesClient, objects: usize) -> Result<()> {
    let found = client.list(&CONFIG_MAP, &Query::all().namespace(NAMESPACE))?.items.len();
    ensure!(found == objects, "{found} objects in place of {objects}");
    Ok(())
}

fn change(client: &KubernetesClient, number: usize) -> Result<()> {
    let patch = Patch::Merge(json!({"data": {"revision": "1"}}));
    client.patch(&CONFIG_MAP, &ObjectKey::new(NAMESPACE, &name(number)), &patch, PatchTarget::Object)?;
    Ok(())
}
