//! The parts without a manager: a poller finds services with too few replicas, and workers start them.
//!
//! ```sh
//! cargo run --example quickstart
//! ```
//!
//! It prints each step, and ends once each service has its replicas. Try other numbers in `desired`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use homeostat::{Action, BoxError, Context, Poller, WorkQueue, Workers};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

type Replicas = BTreeMap<&'static str, u32>;

fn main() -> Result<(), BoxError> {
    let desired: Arc<Replicas> = Arc::new([("web", 3), ("api", 2), ("db", 1)].into());
    let running: Arc<Mutex<Replicas>> = Arc::default();
    let (complete, each_complete) = mpsc::channel();
    let queue = WorkQueue::new();

    let (want, have) = (Arc::clone(&desired), Arc::clone(&running));
    let incomplete = move |_cx: &Context| -> Result<Vec<&'static str>, BoxError> {
        let have = have.lock();
        Ok(want.iter().filter(|(name, count)| have.get(*name) != Some(count)).map(|(name, _)| *name).collect())
    };
    let poller = Poller::new(Duration::from_secs(1), incomplete).start(&queue)?;

    let (want, have) = (Arc::clone(&desired), running);
    let start_one = move |_cx: &Context, name: &&'static str| -> Result<Action, BoxError> {
        let mut have = have.lock();
        let count = have.entry(name).or_default();
        if *count < want[name] {
            *count += 1;
            println!("{name}: started replica {count} of {}", want[name]);
            return Ok(Action::requeue_after(Duration::from_millis(200)));
        }
        complete.send(*name)?;
        Ok(Action::await_change())
    };
    let workers = Workers::new(start_one).threads(4).start(&queue)?;

    for name in each_complete.iter().take(desired.len()) {
        println!("{name}: complete");
    }
    poller.shutdown(Duration::from_secs(1))?;
    workers.shutdown(Duration::from_secs(1))?;
    Ok(())
}
