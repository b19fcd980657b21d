//! Workers with empty runs: the cost of the loop around each run.

use std::convert::Infallible;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use homeostat::{Action, Context, Enqueue, WorkQueue, Workers};

use crate::keys::keys;
use crate::meter::{Figures, Stopwatch, clock_read_ns};

/// Runs `count` keys once each on `threads` threads. All keys are ready before.
pub(super) fn drain(threads: usize, peer: &str, count: usize) -> Result<Figures> {
    let queue = WorkQueue::new();
    for key in keys::<u64>(count) {
        queue.enqueue(key);
    }
    let empty = |_cx: &Context, _key: &u64| -> Result<Action, Infallible> { Ok(Action::await_change()) };
    let workers = Workers::new(empty).threads(threads);
    // A run reads the clock only if there is a timeout, and then once.
    let (workers, reads) = match peer {
        "homeostat" => (workers, 0.0),
        "homeostat-timeout" => (workers.reconcile_timeout(Duration::from_secs(300)), 1.0),
        _ => bail!("no peer {peer}"),
    };
    let watch = Stopwatch::start();
    let handle = workers.start(&queue)?;
    while handle.metrics().successes < count as u64 {
        thread::sleep(Duration::from_millis(1));
    }
    let mut figures = watch.stop().per(count);
    let read = clock_read_ns();
    let net = figures["cpu_ns"] - reads * read;
    figures.insert("net_cpu_ns".to_owned(), net);
    figures.insert("clock_read_ns".to_owned(), read);
    handle.shutdown(Duration::ZERO)?;
    Ok(figures)
}
