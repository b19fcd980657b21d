//! Homeostat: one connection, and a plain thread for each share.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use homeostat_nats::{KvBucket, KvConfig, KvUpdate, KvWatchOptions, NatsOptions};

use super::{CellArgs, Latencies, Share, VALUE, figures};
use crate::meter::{Figures, Stopwatch, wait_until_idle};

type Work = fn(&KvBucket, Share, &dyn Fn()) -> Result<Latencies>;

pub(super) fn run(args: &CellArgs) -> Result<Figures> {
    let connection = NatsOptions::new(&args.url).connect()?;
    let bucket = KvBucket::create(&connection, &KvConfig::new(&args.bucket))?;
    let work: Work = match args.workload.as_str() {
        "put" => put,
        "get" => get,
        "replay" => replay,
        _ => live,
    };
    if args.workload == "replay" {
        for number in 0..args.operations {
            bucket.put(&format!("k{number}"), &VALUE)?;
        }
    }
    let (ready, go) = (Arc::new(Barrier::new(args.threads + 1)), Arc::new(Barrier::new(args.threads + 1)));
    let threads: Vec<_> = args
        .shares()
        .into_iter()
        .map(|share| {
            // In a replay, every thread reads all entries.
            let share = if args.workload == "replay" { Share { operations: args.operations, ..share } } else { share };
            let (bucket, ready, go) = (bucket.clone(), Arc::clone(&ready), Arc::clone(&go));
            thread::spawn(move || {
                let wait = || {
                    ready.wait();
                    go.wait();
                };
                work(&bucket, share, &wait)
            })
        })
        .collect();
    ready.wait();
    wait_until_idle();
    let watch = Stopwatch::start();
    go.wait();
    let results: Vec<_> = threads.into_iter().map(thread::JoinHandle::join).collect();
    let latencies = results.into_iter().map(|result| result.map_err(|_| anyhow!("a panic"))?);
    let figures = figures(watch, latencies.collect::<Result<_>>()?)?;
    KvBucket::delete_bucket(&connection, &args.bucket)?;
    Ok(figures)
}

fn put(bucket: &KvBucket, share: Share, wait: &dyn Fn()) -> Result<Latencies> {
    bucket.put(&share.key(0), &VALUE)?;
    wait();
    let mut latencies = Latencies::new();
    for number in 0..share.operations {
        let key = share.key(number);
        let start = Instant::now();
        bucket.put(&key, &VALUE)?;
        latencies.add(start);
    }
    Ok(latencies)
}

fn get(bucket: &KvBucket, share: Share, wait: &dyn Fn()) -> Result<Latencies> {
    for number in 0..super::KEYS {
        bucket.put(&share.key(number), &VALUE)?;
    }
    wait();
    let mut latencies = Latencies::new();
    for number in 0..share.operations {
        let key = share.key(number);
        let start = Instant::now();
        let entry = bucket.get(&key)?;
        latencies.add(start);
        ensure!(entry.is_some_and(|entry| entry.value == VALUE), "no value");
    }
    Ok(latencies)
}

fn replay(bucket: &KvBucket, share: Share, wait: &dyn Fn()) -> Result<Latencies> {
    wait();
    let mut latencies = Latencies::new();
    let start = Instant::now();
    let mut watch = bucket.watch(&KvWatchOptions::new())?;
    while let KvUpdate::Entry(entry) = watch.recv()? {
        ensure!(entry.value == VALUE, "another value");
        latencies.add(start);
    }
    ensure!(latencies.0.len() == share.operations, "{} entries", latencies.0.len());
    Ok(latencies)
}

fn live(bucket: &KvBucket, share: Share, wait: &dyn Fn()) -> Result<Latencies> {
    let filter = format!("t{}.>", share.thread);
    let mut watch = bucket.watch(&KvWatchOptions::new().filter(filter).updates_only())?;
    ensure!(watch.recv()? == KvUpdate::Synced, "a change");
    bucket.put(&share.key(0), &VALUE)?;
    watch.recv()?;
    wait();
    let mut latencies = Latencies::new();
    for number in 0..share.operations {
        let key = share.key(number);
        let start = Instant::now();
        bucket.put(&key, &VALUE)?;
        let KvUpdate::Entry(entry) = watch.recv()? else { continue };
        latencies.add(start);
        ensure!(entry.key == key, "another key");
    }
    Ok(latencies)
}
