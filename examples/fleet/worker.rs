//! One worker: a process that owns a share of the jobs.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use homeostat::{Action, BoxError, Component, Context, Controller, Manager, Subscriber};
use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
use homeostat_objects::{Api, Client, ControllerExt, LeaseTiming, Members, ObjectKey, ObjectWatch, ShardHash};

use crate::objects::{Job, JobStatus};

/// The time after which other workers take over the jobs of a silent worker.
const LEASE: Duration = Duration::from_secs(3);
/// The time between two runs of a job.
const PERIOD: Duration = Duration::from_millis(500);

/// Works until standard input ends.
pub(crate) fn run(name: &str, server: &str) -> Result<(), BoxError> {
    let client: Arc<dyn Client> = Arc::new(KubernetesClient::builder(ClusterConfig::new(server)?).build()?);
    let jobs = Api::<Job>::new(client.clone());
    let members =
        Members::builder(client, "default", "workers").identity(name).timing(LeaseTiming::new(LEASE)).build()?;
    let watch = ObjectWatch::new(jobs.clone()).start()?;
    let owner = name.to_owned();
    let reconcile = move |cx: &Context, key: &ObjectKey| -> Result<Action, BoxError> {
        let mut job = jobs.get(key)?;
        // A write of an earlier owner is refused: the job has another version, or a greater number.
        let fence = cx.fence()?;
        let assignment = fence.number().unwrap_or_default();
        if assignment < job.status.assignment {
            return Err(format!("{key} belongs to a later assignment").into());
        }
        job.status = JobStatus { owner: owner.clone(), assignment };
        jobs.update_status(&job)?;
        Ok(Action::requeue_after(PERIOD))
    };
    let controller = Controller::builder("job", reconcile)
        .shards(members.shards(), |job: &ObjectKey| ShardHash::of([job.namespace(), job.name()]))
        .subscribe(&watch, Subscriber::to_itself)
        .build()?;
    let manager = Manager::builder().build()?;
    // Add the members before the controller, so that the lease is released after the controller's
    // last run.
    manager.add(Component::running("workers-member", members.start()?))?;
    manager.add(controller)?;
    manager.add(watch)?;
    let running = manager.start()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    manager.stop();
    Ok(running.join()?)
}
