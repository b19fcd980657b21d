//! The server, the workers, and the picture of the owners.

use std::collections::BTreeMap;
use std::env;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use homeostat::{BoxError, Context};
use homeostat_objects::{Api, Client, Kind, KindDefinition, MemoryClient, ObjectMeta};
use homeostat_serve::{ObjectApi, Server};
use rustix::process::{Pid, Signal, kill_process};

use crate::objects::{JOBS, Job, JobStatus, job};

/// The longest time that a change of the owners may take. A lease lasts for three seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A worker. Dropping it kills it.
struct Worker(Child);

impl Worker {
    fn start(name: &str, server: &str) -> Result<Self, BoxError> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["worker", name, "--server", server]).stdin(Stdio::piped());
        if env::var_os("RUST_LOG").is_none() {
            // The picture already shows that a killed or paused worker loses its jobs. Warnings would interrupt it.
            command.env("RUST_LOG", "error");
        }
        Ok(Self(command.spawn()?))
    }

    fn signal(&self, signal: Signal) -> Result<(), BoxError> {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }

    /// Ends the worker normally, by ending its standard input.
    fn end(mut self) -> Result<(), BoxError> {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a worker has failed: {status}").into()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The jobs, and the time since the start.
struct Scene {
    jobs: Api<Job>,
    cx: Context,
    start: Instant,
    shown: String,
}

impl Scene {
    /// Waits until these workers own all jobs, all with the same assignment number. Shows each change in the meantime.
    fn until_owners_are(&mut self, workers: &[&str]) -> Result<(), BoxError> {
        let deadline = self.cx.clock().now() + PATIENCE;
        loop {
            let (owners, is_settled) = self.show()?;
            if is_settled && owners.keys().eq(workers) {
                return Ok(());
            }
            if self.cx.clock().now() > deadline {
                return Err(format!("the jobs do not belong to {}", workers.join(", ")).into());
            }
            self.cx.sleep(Duration::from_millis(100))?;
        }
    }

    /// Shows the owners if they have changed. Returns the number of jobs of each worker, and whether all jobs have run
    /// with the same assignment number.
    fn show(&mut self) -> Result<(BTreeMap<String, usize>, bool), BoxError> {
        let all = (0..JOBS).map(|number| Ok(self.jobs.get(&job(number))?.status));
        let all: Vec<JobStatus> = all.collect::<Result<_, BoxError>>()?;
        let mut owners = BTreeMap::new();
        for status in all.iter().filter(|status| !status.owner.is_empty()) {
            *owners.entry(status.owner.clone()).or_default() += 1;
        }
        let picture: String = all.iter().map(|status| status.owner.chars().next().unwrap_or('.')).collect();
        let assignment = all.iter().map(|status| status.assignment).max().unwrap_or_default();
        if picture != self.shown {
            let counts: Vec<_> = owners.iter().map(|(owner, jobs): (_, &usize)| format!("{owner} {jobs}")).collect();
            let seconds = (self.cx.clock().now() - self.start).as_secs_f64();
            println!("{seconds:5.1}s  {picture}  assignment {assignment}: {}", counts.join(", "));
            self.shown = picture;
        }
        Ok((owners, all.iter().all(|status| status.assignment == assignment)))
    }
}

/// Shows the owners of the jobs while workers join and leave.
pub(crate) fn go() -> Result<(), BoxError> {
    let client: Arc<dyn Client> = Arc::new(MemoryClient::new());
    let jobs = Api::<Job>::new(client.clone());
    for number in 0..JOBS {
        let metadata = ObjectMeta::new("default", job(number).name());
        jobs.create(&Job { metadata, status: JobStatus::default() })?;
    }
    let leases = Kind::namespaced("coordination.k8s.io", "v1", "Lease");
    let api = ObjectApi::builder(client).serve(KindDefinition::of::<Job>()).serve(leases).build()?;
    let server = Server::builder((Ipv4Addr::LOCALHOST, 0)).objects(&api).build()?.start()?;
    let url = format!("http://{}", server.addresses()[0]);
    let cx = Context::detached();
    let start = cx.clock().now();
    let mut scene = Scene { jobs, cx, start, shown: String::new() };

    println!("start a, b and c");
    let a = Worker::start("a", &url)?;
    let b = Worker::start("b", &url)?;
    let c = Worker::start("c", &url)?;
    scene.until_owners_are(&["a", "b", "c"])?;

    println!("kill b");
    drop(b);
    scene.until_owners_are(&["a", "c"])?;

    println!("pause c");
    c.signal(Signal::STOP)?;
    scene.until_owners_are(&["a"])?;

    println!("add d");
    let d = Worker::start("d", &url)?;
    scene.until_owners_are(&["a", "d"])?;

    println!("continue c");
    c.signal(Signal::CONT)?;
    scene.until_owners_are(&["a", "c", "d"])?;

    println!("end a");
    a.end()?;
    scene.until_owners_are(&["c", "d"])?;
    c.end()?;
    d.end()?;
    drop(server);
    println!("The fleet has ended.");
    Ok(())
}
