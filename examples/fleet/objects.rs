//! Jobs.

use homeostat_objects::{ObjectKey, ObjectMeta};
use serde::{Deserialize, Serialize};

/// The number of jobs.
pub(crate) const JOBS: usize = 24;

/// A job that one worker owns.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) status: JobStatus,
}

/// The last run of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct JobStatus {
    /// The name of the worker.
    pub(crate) owner: String,
    /// The number of the assignment of keys. It rises with each change of the workers.
    pub(crate) assignment: u64,
}

homeostat_objects::object!(Job, namespaced, "example.com", "v1", status: JobStatus);

/// Returns the key of a job.
pub(crate) fn job(number: usize) -> ObjectKey {
    ObjectKey::new("default", &format!("job-{number:02}"))
}
