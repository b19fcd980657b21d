//! The smallest controller: a poller, a queue and workers make one table equal to another.
//!
//! ```sh
//! cargo run --example quickstart
//! ```
//!
//! It prints each step and ends once both tables are equal. Try other numbers in `desired`, or one thread instead of
//! four.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use homeostat::{Action, BoxError, Context, Poller, WorkQueue, Workers};
use parking_lot::Mutex;

type Table = BTreeMap<&'static str, u32>;

/// Makes the table of running replicas equal to the desired table, and ends.
#[derive(Parser)]
#[command(name = "quickstart", version)]
struct Arguments {}

fn main() -> Result<(), BoxError> {
    let Arguments {} = Arguments::parse();
    let desired: Arc<Table> = Arc::new([("web", 3), ("api", 2), ("db", 1)].into());
    let current: Arc<Mutex<Table>> = Arc::default();
    let (settled, all_settled) = crossbeam_channel::bounded(desired.len());
    let queue = WorkQueue::new();

    let (want, have) = (Arc::clone(&desired), Arc::clone(&current));
    let out_of_step = move |_cx: &Context| -> Result<Vec<&'static str>, BoxError> {
        let have = have.lock();
        Ok(want.iter().filter(|(name, count)| have.get(*name) != Some(count)).map(|(name, _)| *name).collect())
    };
    let poller = Poller::new(Duration::from_secs(1), out_of_step).start(&queue)?;

    let (want, have) = (Arc::clone(&desired), Arc::clone(&current));
    let reconcile = move |cx: &Context, name: &&'static str| -> Result<Action, BoxError> {
        let replicas = {
            let mut have = have.lock();
            let replicas = have.entry(name).or_default();
            *replicas += 1;
            *replicas
        };
        println!("{name}: started replica {replicas} of {} (called by {})", want[name], cx.reasons());
        if replicas < want[name] {
            return Ok(Action::requeue_after(Duration::from_millis(200)));
        }
        settled.send(*name)?;
        Ok(Action::await_change())
    };
    let workers = Workers::new(reconcile).threads(4).start(&queue)?;

    for name in all_settled.iter().take(desired.len()) {
        println!("{name}: settled");
    }
    poller.shutdown(Duration::from_secs(1))?;
    workers.shutdown(Duration::from_secs(1))?;
    println!("all as desired: {:?}", current.lock());
    Ok(())
}
