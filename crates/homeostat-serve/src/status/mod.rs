//! Health checks, metrics and the status of a manager, for tools.

mod checks;
mod control;
mod exposition;
mod json;
mod process;
mod prometheus;
mod recent_runs;

pub(crate) use self::checks::{
    CheckKind, CheckOwner, CheckResult, FailureReasons, HealthChecks, all_ok, reply_to_group, reply_to_one,
};
pub(crate) use self::control::{Control, Controls, UserAction};
pub(crate) use self::json::status_json;
pub(crate) use self::process::ProcessFacts;
pub(crate) use self::prometheus::{CONTENT_TYPE, LIBRARY_VERSION, metrics_text};
pub(crate) use self::recent_runs::{BegunRun, RecentRun, RunLogs, reason_words};
