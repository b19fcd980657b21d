//! `async-nats`: one connection, and a task or a blocking thread for each share.
//!
//! `tasks` runs them on tokio's default runtime, and `current` on its current-thread runtime. `block_on` is for a
//! program with plain threads: each thread blocks on a future, and the default runtime runs the connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use async_nats::jetstream::{self, kv};
use futures::StreamExt;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Barrier;

use super::{CellArgs, Latencies, Share, VALUE, figures};
use crate::meter::{Figures, Stopwatch, wait_until_idle};

/// The common start of all shares: the first barrier means that they are ready, and the second one lets them go.
type Start = Arc<(Barrier, Barrier)>;
type Work = fn(kv::Store, Share, Start) -> Pin<Box<dyn Future<Output = Result<Latencies>> + Send>>;

pub(super) fn run(args: &CellArgs) -> Result<Figures> {
    let runtime = if args.client == "current" {
        Builder::new_current_thread().enable_all().build()?
    } else {
        Builder::new_multi_thread().enable_all().build()?
    };
    let (jetstream, bucket) = runtime.block_on(async {
        let jetstream = jetstream::new(async_nats::connect(&args.url).await?);
        let config = kv::Config { bucket: args.bucket.clone(), ..kv::Config::default() };
        let bucket = jetstream.create_key_value(config).await?;
        if args.workload == "replay" {
            for number in 0..args.operations {
                bucket.put(format!("k{number}"), VALUE.to_vec().into()).await?;
            }
        }
        anyhow::Ok((jetstream, bucket))
    })?;
    let work: Work = match args.workload.as_str() {
        "put" => |bucket, share, start| Box::pin(put(bucket, share, start)),
        "get" => |bucket, share, start| Box::pin(get(bucket, share, start)),
        "replay" => |bucket, share, start| Box::pin(replay(bucket, share, start)),
        _ => |bucket, share, start| Box::pin(live(bucket, share, start)),
    };
    let start: Start = Arc::new((Barrier::new(args.threads + 1), Barrier::new(args.threads + 1)));
    let shares = args.shares().into_iter().map(|share| {
        // In a replay, every thread reads all entries.
        if args.workload == "replay" { Share { operations: args.operations, ..share } } else { share }
    });
    let futures = shares.map(|share| work(bucket.clone(), share, Arc::clone(&start)));
    let figures = if args.client == "block_on" {
        blocking(&runtime, futures.collect(), &start)?
    } else {
        runtime.block_on(async {
            let tasks: Vec<_> = futures.map(tokio::spawn).collect();
            start.0.wait().await;
            wait_until_idle();
            let watch = Stopwatch::start();
            start.1.wait().await;
            let mut latencies = Vec::new();
            for task in tasks {
                latencies.push(task.await??);
            }
            figures(watch, latencies)
        })?
    };
    runtime.block_on(jetstream.delete_key_value(&args.bucket))?;
    Ok(figures)
}

/// Runs each future on a new thread.
fn blocking(
    runtime: &Runtime,
    futures: Vec<Pin<Box<dyn Future<Output = Result<Latencies>> + Send>>>,
    start: &Start,
) -> Result<Figures> {
    let threads: Vec<_> = futures
        .into_iter()
        .map(|future| {
            let handle = runtime.handle().clone();
            thread::spawn(move || handle.block_on(future))
        })
        .collect();
    runtime.block_on(start.0.wait());
    wait_until_idle();
    let watch = Stopwatch::start();
    runtime.block_on(start.1.wait());
    let results: Vec<_> = threads.into_iter().map(thread::JoinHandle::join).collect();
    let latencies = results.into_iter().map(|result| result.map_err(|_| anyhow!("a panic"))?);
    figures(watch, latencies.collect::<Result<_>>()?)
}

async fn wait(start: &Start) {
    start.0.wait().await;
    start.1.wait().await;
}

async fn put(bucket: kv::Store, share: Share, start: Start) -> Result<Latencies> {
    bucket.put(share.key(0), VALUE.to_vec().into()).await?;
    wait(&start).await;
    let mut latencies = Latencies::new();
    for number in 0..share.operations {
        let key = share.key(number);
        let start = Instant::now();
        bucket.put(key, VALUE.as_slice().into()).await?;
        latencies.add(start);
    }
    Ok(latencies)
}

async fn get(bucket: kv::Store, share: Share, start: Start) -> Result<Latencies> {
    for number in 0..super::KEYS {
        bucket.put(share.key(number), VALUE.to_vec().into()).await?;
    }
    wait(&start).await;
    let mut latencies = Latencies::new();
    for number in 0..share.operations {
        let key = share.key(number);
        let start = Instant::now();
        let value = bucket.get(key).await?;
        latencies.add(start);
        ensure!(value.is_some_and(|value| *value == VALUE), "no value");
    }
    Ok(latencies)
}

async fn replay(bucket: kv::Store, share: Share, start: Start) -> Result<Latencies> {
    wait(&start).await;
    let mut latencies = Latencies::new();
    let start = Instant::now();
    let mut watch = bucket.watch_with_history(">").await?;
    loop {
        let entry = watch.next().await.context("the watch has ended")??;
        ensure!(*entry.value == VALUE, "another value");
        latencies.add(start);
        if entry.delta == 0 {
            break;
        }
    }
    ensure!(latencies.0.len() == share.operations, "{} entries", latencies.0.len());
    Ok(latencies)
}

async fn live(bucket: kv::Store, share: Share, start: Start) -> Result<Latencies> {
    let mut watch = bucket.watch(format!("t{}.>", share.thread)).await?;
    bucket.put(share.key(0), VALUE.to_vec().into()).await?;
    watch.next().await.context("the watch has ended")??;
    wait(&start).await;
    let mut latencies = Latencies::new();
    for number in 0..share.operations {
        let key = share.key(number);
        let start = Instant::now();
        bucket.put(&key, VALUE.as_slice().into()).await?;
        let entry = watch.next().await.context("the watch has ended")??;
        latencies.add(start);
        ensure!(entry.key == key, "another key");
    }
    Ok(latencies)
}
