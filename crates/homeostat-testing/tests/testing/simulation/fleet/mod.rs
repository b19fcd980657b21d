//! Several processes of one program use one store, in one simulation. Each process has a machine with its own clock.
//! Calls are late, lost, repeated or answered from an old state; processes are paused, cut off, stopped, killed and
//! started again.
//!
//! # Clocks
//!
//! The clocks of the machines run at 80 to 120 % of true time; in each world one runs at 80 % and one at 120 %. The
//! wall clocks are hours apart and are set by hours. The times of a lease are the defaults. In true time they promise:
//!
//! | time | by its clock | at 80 % | at 120 % |
//! |---|---|---|---|
//! | after its last renewal was sent, no run of the process begins and its runs are cancelled: renew deadline − margin | 8 s | 10 s | 6.7 s |
//! | its runs have ended, if they heed the cancellation: renew deadline | 10 s | 12.5 s | 8.3 s |
//! | after another process saw the renewal, it takes over: lease duration | 15 s | 18.8 s | 12.5 s |
//!
//! A renewal is seen after it was sent. Therefore the fast process takes over no earlier than 12.5 s after the slow
//! process sent its last renewal, and by then the runs of the slow process have ended. The defaults tolerate no more
//! than ±20 %, because the durations 15 s and 10 s have the same ratio as the rates 120 % and 80 %. The margin is for
//! runs that end slowly: the last run begins 2.5 s of true time before another process takes over.
//!
//! # Old reads
//!
//! The contract of a client allows old lists only if the query accepts them (`Query::not_older_than`); the lists of a
//! watch do. Here, gets and lists of leases are also old: the server that answers may not know yet that it no longer
//! leads. Nothing may depend on these answers, since each write names the version that was read.
//!
//! Nobody deletes the lease of a member: then the numbers could begin again, as the documentation of
//! [`Members`](homeostat_objects::Members) warns.

mod ground;
mod leader;
mod shards;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use homeostat::run::Fence;
use homeostat::{Action, Context, Controller, WorkerPool};
use homeostat_objects::{Api, Kind, ObjectKey, ObjectMeta};
use homeostat_testing::Simulation;

use self::ground::{Faults, Ground};
use super::{Outcome, SECOND};
use crate::hooked_client::HookedClient;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");
/// How long faults happen, and how long everything may take to settle.
const STORM: Duration = Duration::from_secs(90);
const CALM: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Disk {
    metadata: ObjectMeta,
    /// The wanted size, which users raise one by one.
    size: u64,
    #[serde(default)]
    status: DiskStatus,
}

#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct DiskStatus {
    size: u64,
}

homeostat_objects::object!(Disk, namespaced, "example.com", "v1", status: DiskStatus);

/// Writes the wanted size of a disk into its status, and marks the disk with the number of the term.
fn settle(disks: &Api<Disk>, cx: &Context, key: &ObjectKey) -> Outcome {
    let fence = cx.fence()?;
    let mut disk = disks.get(key)?;
    if disk.status.size != disk.size {
        disk.status.size = disk.size;
        cx.fence()?;
        disks.update_status(&disk)?;
    }
    let mut marked = disks.get(key)?;
    marked.metadata.mark_term(&fence)?;
    disks.update(&marked)?;
    Ok(Action::requeue_after(20 * SECOND))
}

/// Calls `step` each second of the storm, even between two steps of a run. The test itself continues only when no run
/// is in progress.
fn storm(sim: &Simulation, step: impl Fn() + Send + Sync + 'static) {
    let pool = WorkerPool::builder().threads(1).clock(sim.clock()).start().unwrap();
    let reconcile = move |_: &Context, _: &&str| -> Outcome {
        step();
        Ok(Action::requeue_after(SECOND))
    };
    let controller = Controller::builder("storm", reconcile).clock(sim.clock()).build().unwrap();
    let running = controller.start(&pool).unwrap();
    running.enqueue("step");
    sim.run_for(STORM);
    // A panic in a step is only a failed run.
    let runs = running.metrics().runs;
    assert!(runs.panics == 0 && runs.requeues > 10, "{runs:?}");
}

/// Returns whether a term has ended, by the clock of its process. Unlike [`Fence::check`], does not end the term.
fn is_over(fence: &Fence) -> bool {
    fence.remaining().is_none_or(|remaining| remaining.is_zero()) || fence.check().is_err()
}

/// Runs the seeds `0..most`, or as many as the environment variable says. If one fails, prints the end of its trace.
/// Returns the number of seeds, or `None` if there were too few to judge their counts.
#[expect(clippy::print_stdout, reason = "the trace of a failure")]
fn for_seeds(most: u64, run: impl Fn(&Simulation)) -> Option<u64> {
    let most = std::env::var("HOMEOSTAT_FLEET_SEEDS").map_or(most, |seeds| seeds.parse().unwrap());
    let ran = Cell::new(0);
    Simulation::seeds(0..most, |sim| {
        ran.set(ran.get() + 1);
        catch_unwind(AssertUnwindSafe(|| run(sim))).unwrap_or_else(|panic| {
            let trace = sim.trace();
            for turn in &trace[trace.len().saturating_sub(200)..] {
                println!("{turn}");
            }
            resume_unwind(panic)
        });
    });
    Some(ran.get()).filter(|ran| *ran >= 10)
}
