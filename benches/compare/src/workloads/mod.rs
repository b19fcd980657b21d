//! The workloads. One call of [`run`] measures one cell, in a new process.

mod controller;
mod line;
mod threads;
mod timers;
mod workers;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use homeostat::WorkQueue;
use homeostat::queue::FastState;

use crate::keys::BenchKey;
use crate::meter::Figures;
use crate::peers::naive::Naive;
use crate::peers::{HomeostatDelays, NaiveDelays, delay_queue, kube, wheel};

pub(crate) type Fold = foldhash::fast::RandomState;

/// A workload with its variants and peers.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) variants: &'static [&'static str],
    pub(crate) peers: &'static [&'static str],
}

/// All workloads of a command.
pub(crate) const PLAN: &[Workload] = &[
    Workload {
        name: "W1",
        variants: &["u64", "arc", "string"],
        peers: &[
            "homeostat",
            "homeostat-timing",
            "homeostat-fold",
            "homeostat-sip",
            "naive-fold",
            "naive-sip",
            "crossbeam-channel",
            "kube-scheduler",
        ],
    },
    Workload {
        name: "W1w",
        variants: &["u64", "arc", "string", "u64-drain"],
        peers: &["homeostat", "naive-fold", "naive-sip"],
    },
    Workload {
        name: "W2",
        variants: &[
            "u64-1000",
            "u64-10000",
            "u64-100000",
            "u64-1000000",
            "arc-1000",
            "arc-1000000",
            "string-1000",
            "string-1000000",
        ],
        peers: &["homeostat", "naive-fold", "naive-sip", "crossbeam-channel", "kube-scheduler"],
    },
    Workload {
        name: "W3",
        variants: &["u64", "arc"],
        peers: &["homeostat", "naive-fold", "naive-sip", "kube-scheduler"],
    },
    Workload {
        name: "W3",
        variants: &["string"],
        peers: &["homeostat", "homeostat-owned", "naive-fold", "naive-fold-ref", "naive-sip", "kube-scheduler"],
    },
    Workload {
        name: "W4",
        variants: &["2p2c", "1p1c", "4p4c", "2p2c-paced", "1p1c-paced", "4p4c-paced"],
        peers: &["homeostat", "naive-fold", "naive-sip", "crossbeam-channel"],
    },
    Workload {
        name: "W5",
        variants: &["100000", "1000000", "100000-minute"],
        peers: &["homeostat", "naive-fold", "delayqueue", "kube-scheduler", "wheel-crate"],
    },
    Workload {
        name: "late",
        variants: &["1ms", "100ms", "1s", "1min"],
        peers: &["homeostat", "naive-fold", "delayqueue", "kube-scheduler", "wheel-crate"],
    },
    Workload {
        name: "W6",
        variants: &["ready-u64", "ready-string"],
        peers: &["homeostat", "naive-fold", "crossbeam-channel"],
    },
    Workload {
        name: "W6",
        variants: &["delayed-u64"],
        peers: &["homeostat", "naive-fold", "delayqueue", "kube-scheduler", "wheel-crate"],
    },
    Workload { name: "W7", variants: &["u64"], peers: &["homeostat", "naive-fold", "naive-sip", "crossbeam-channel"] },
    Workload {
        name: "idle",
        variants: &["u64"],
        peers: &["homeostat", "naive-fold", "delayqueue", "kube-scheduler", "wheel-crate"],
    },
    Workload {
        name: "controller",
        variants: &["create", "storm", "waves", "resync"],
        peers: &["homeostat", "kube-controller"],
    },
    Workload { name: "workers", variants: &["1", "2", "4"], peers: &["homeostat", "homeostat-timeout"] },
];

/// The size of the workloads: full, or a hundredth to test that everything runs.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) quick: bool,
}

impl Scale {
    fn of(self, full: usize) -> usize {
        if self.quick { (full / 100).max(10) } else { full }
    }
}

/// Measures one cell.
pub(crate) fn run(workload: &str, variant: &str, peer: &str, scale: Scale) -> Result<Figures> {
    match workload {
        "W1" | "W1w" | "W2" | "W3" => match variant.split('-').next() {
            Some("u64") => one_thread::<u64>(workload, variant, peer, scale),
            Some("arc") => one_thread::<Arc<str>>(workload, variant, peer, scale),
            Some("string") => strings(workload, variant, peer, scale),
            _ => bail!("no key {variant}"),
        },
        "W4" => two_sides(variant, peer, scale),
        "W5" | "late" | "idle" => delays(workload, variant, peer, scale),
        "W6" => memory(variant, peer, scale),
        "W7" => Ok(match peer {
            "homeostat" => with(homeostat(), |feed, take| threads::wake(feed, take, scale.of(5_000))),
            "naive-fold" => with(naive::<_, Fold>(), |feed, take| threads::wake(feed, take, scale.of(5_000))),
            "naive-sip" => with(naive::<_, RandomState>(), |feed, take| threads::wake(feed, take, scale.of(5_000))),
            "crossbeam-channel" => {
                with(crossbeam_channel::unbounded(), |feed, take| threads::wake(feed, take, scale.of(5_000)))
            }
            _ => bail!("no peer {peer}"),
        }),
        "controller" => {
            let objects = if variant == "create" { 100_000 } else { 10_000 };
            controller::run(variant, peer, scale.of(objects))
        }
        "workers" => workers::drain(variant.parse()?, peer, scale.of(1_000_000)),
        _ => bail!("no workload {workload}"),
    }
}

/// Both ends of any queue.
fn with<I, O, R>((feed, take): (I, O), run: impl FnOnce(I, O) -> R) -> R {
    run(feed, take)
}

fn twice<T: Clone>(queue: T) -> (T, T) {
    (queue.clone(), queue)
}

fn homeostat<K: BenchKey>() -> (WorkQueue<K>, WorkQueue<K>) {
    twice(WorkQueue::new())
}

fn hashed<K: BenchKey, S: BuildHasher + Clone + Default>() -> (WorkQueue<K, S>, WorkQueue<K, S>) {
    twice(WorkQueue::builder().hasher(S::default()).build())
}

fn timed<K: BenchKey>() -> (WorkQueue<K, FastState>, WorkQueue<K, FastState>) {
    twice(WorkQueue::builder().timing(true).build())
}

type NaiveEnds<K, S> = (Arc<Naive<K, S>>, Arc<Naive<K, S>>);

fn naive<K: BenchKey, S: BuildHasher + Default>() -> NaiveEnds<K, S> {
    twice(Arc::new(Naive::new()))
}

fn one_thread<K: BenchKey>(workload: &str, variant: &str, peer: &str, scale: Scale) -> Result<Figures> {
    use crossbeam_channel::unbounded;
    let ops = scale.of(4_000_000);
    // Its delays have a tick of a millisecond, so each round trip waits for the tick.
    let slow_ops = scale.of(1_000);
    Ok(match (workload, peer) {
        ("W1", "homeostat") => line::round_trips::<K, _, _>(homeostat(), ops),
        ("W1", "homeostat-timing") => line::round_trips::<K, _, _>(timed(), ops),
        ("W1", "homeostat-fold") => line::round_trips::<K, _, _>(hashed::<K, Fold>(), ops),
        ("W1", "homeostat-sip") => line::round_trips::<K, _, _>(hashed::<K, RandomState>(), ops),
        ("W1", "naive-fold") => line::round_trips::<K, _, _>(naive::<K, Fold>(), ops),
        ("W1", "naive-sip") => line::round_trips::<K, _, _>(naive::<K, RandomState>(), ops),
        ("W1", "crossbeam-channel") => line::round_trips::<K, _, _>(unbounded(), ops),
        ("W1", "kube-scheduler") => kube::block_on(line::kube_round_trips::<K>(slow_ops)),
        ("W1w", peer) if variant.ends_with("-drain") => {
            let keys = scale.of(1_000_000);
            match peer {
                "homeostat" => line::homeostat_drain::<K>(keys),
                "naive-fold" => line::naive_drain::<K, Fold>(keys),
                "naive-sip" => line::naive_drain::<K, RandomState>(keys),
                _ => bail!("no peer {peer}"),
            }
        }
        ("W1w", "homeostat") => line::homeostat_cycle::<K>(ops),
        ("W1w", "naive-fold") => line::naive_cycle::<K, Fold>(ops),
        ("W1w", "naive-sip") => line::naive_cycle::<K, RandomState>(ops),
        ("W2", peer) => {
            let (_, count) = variant.split_once('-').unwrap_or_default();
            let keys = scale.of(count.parse()?);
            let total = scale.of(1_000_000);
            match peer {
                "homeostat" => line::in_then_out::<K, _, _>(homeostat, keys, total),
                "naive-fold" => line::in_then_out::<K, _, _>(naive::<K, Fold>, keys, total),
                "naive-sip" => line::in_then_out::<K, _, _>(naive::<K, RandomState>, keys, total),
                "crossbeam-channel" => line::in_then_out::<K, _, _>(unbounded, keys, total),
                "kube-scheduler" => kube::block_on(line::kube_in_then_out::<K>(keys, total / 10)),
                _ => bail!("no peer {peer}"),
            }
        }
        ("W3", "homeostat" | "homeostat-owned") => line::duplicates::<K, _, _>(homeostat(), ops),
        ("W3", "naive-fold") => line::duplicates::<K, _, _>(naive::<K, Fold>(), ops),
        ("W3", "naive-sip") => line::duplicates::<K, _, _>(naive::<K, RandomState>(), ops),
        ("W3", "kube-scheduler") => kube::block_on(line::kube_duplicates::<K>(ops / 10)),
        _ => bail!("no peer {peer} in {workload}"),
    })
}

/// Like [`one_thread`], and strings may be enqueued by reference.
fn strings(workload: &str, variant: &str, peer: &str, scale: Scale) -> Result<Figures> {
    let ops = scale.of(4_000_000);
    match (workload, peer) {
        ("W3", "homeostat") => Ok(line::homeostat_duplicates_by_ref(ops)),
        ("W3", "naive-fold-ref") => Ok(line::naive_duplicates_by_ref(ops)),
        _ => one_thread::<String>(workload, variant, peer, scale),
    }
}

fn two_sides(variant: &str, peer: &str, scale: Scale) -> Result<Figures> {
    let (sides, paced) = match variant {
        "2p2c" => (2, false),
        "1p1c" => (1, false),
        "4p4c" => (4, false),
        "2p2c-paced" => (2, true),
        "1p1c-paced" => (1, true),
        "4p4c-paced" => (4, true),
        _ => bail!("no variant {variant}"),
    };
    let ops = scale.of(2_000_000);
    Ok(match peer {
        "homeostat" => with(homeostat(), |feed, take| threads::contend(feed, take, sides, ops, paced)),
        "naive-fold" => with(naive::<_, Fold>(), |feed, take| threads::contend(feed, take, sides, ops, paced)),
        "naive-sip" => with(naive::<_, RandomState>(), |feed, take| threads::contend(feed, take, sides, ops, paced)),
        "crossbeam-channel" => {
            with(crossbeam_channel::unbounded(), |feed, take| threads::contend(feed, take, sides, ops, paced))
        }
        _ => bail!("no peer {peer}"),
    })
}

fn delays(workload: &str, variant: &str, peer: &str, scale: Scale) -> Result<Figures> {
    if workload == "idle" {
        let keys = scale.of(1_000_000);
        return match peer {
            "homeostat" => timers::idle::<HomeostatDelays>(keys, scale),
            "naive-fold" => timers::idle::<NaiveDelays>(keys, scale),
            "delayqueue" => timers::idle::<delay_queue::Timer>(keys, scale),
            "kube-scheduler" => timers::idle::<kube::Timer>(keys, scale),
            "wheel-crate" => timers::idle::<wheel::Timer>(keys, scale),
            _ => bail!("no peer {peer}"),
        };
    }
    if workload == "late" {
        let delay = match variant {
            "1ms" => Duration::from_millis(1),
            "100ms" => Duration::from_millis(100),
            "1s" => Duration::from_secs(1),
            "1min" => Duration::from_secs(if scale.quick { 2 } else { 60 }),
            _ => bail!("no delay {variant}"),
        };
        let count = scale.of(1_000);
        return Ok(match peer {
            "homeostat" => timers::late::<HomeostatDelays>(count, delay),
            "naive-fold" => timers::late::<NaiveDelays>(count, delay),
            "delayqueue" => timers::late::<delay_queue::Timer>(count, delay),
            "kube-scheduler" => timers::late::<kube::Timer>(count, delay),
            "wheel-crate" => timers::late::<wheel::Timer>(count, delay),
            _ => bail!("no peer {peer}"),
        });
    }
    let (keys, span) = match variant.strip_suffix("-minute") {
        Some(keys) => (keys, Duration::from_secs(if scale.quick { 1 } else { 60 })),
        None => (variant, Duration::from_secs(1)),
    };
    let keys = scale.of(keys.parse()?);
    Ok(match peer {
        "homeostat" => timers::spread::<HomeostatDelays>(keys, span),
        "naive-fold" => timers::spread::<NaiveDelays>(keys, span),
        "delayqueue" => timers::spread::<delay_queue::Timer>(keys, span),
        "kube-scheduler" => timers::spread::<kube::Timer>(keys, span),
        "wheel-crate" => timers::spread::<wheel::Timer>(keys, span),
        _ => bail!("no peer {peer}"),
    })
}

fn memory(variant: &str, peer: &str, scale: Scale) -> Result<Figures> {
    let keys = scale.of(1_000_000);
    match (variant, peer) {
        ("ready-u64", "homeostat") => line::memory::<u64, _, _>(homeostat(), keys),
        ("ready-u64", "naive-fold") => line::memory::<u64, _, _>(naive::<u64, Fold>(), keys),
        ("ready-u64", "crossbeam-channel") => line::memory::<u64, _, _>(crossbeam_channel::unbounded(), keys),
        ("ready-string", "homeostat") => line::memory::<String, _, _>(homeostat(), keys),
        ("ready-string", "naive-fold") => line::memory::<String, _, _>(naive::<String, Fold>(), keys),
        ("ready-string", "crossbeam-channel") => line::memory::<String, _, _>(crossbeam_channel::unbounded(), keys),
        ("delayed-u64", "homeostat") => timers::memory::<HomeostatDelays>(keys),
        ("delayed-u64", "naive-fold") => timers::memory::<NaiveDelays>(keys),
        ("delayed-u64", "delayqueue") => timers::memory::<delay_queue::Timer>(keys),
        ("delayed-u64", "kube-scheduler") => timers::kube_memory(keys),
        ("delayed-u64", "wheel-crate") => timers::memory::<wheel::Timer>(keys),
        _ => bail!("no peer {peer} in W6 {variant}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each cell runs and gives finite figures. The timer of the wheel crate is excluded, because a process can have
    /// only one.
    #[test]
    fn every_cell_of_the_plan_runs() {
        for workload in PLAN.iter().filter(|workload| !matches!(workload.name, "idle" | "W6")) {
            for (variant, peer) in workload.variants.iter().flat_map(|v| workload.peers.iter().map(move |p| (v, p))) {
                if *peer != "wheel-crate" {
                    let figures = run(workload.name, variant, peer, Scale { quick: true }).unwrap();
                    assert!(figures.values().all(|value| value.is_finite()), "{variant} {peer}: {figures:?}");
                }
            }
        }
    }
}
