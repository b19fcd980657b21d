//! One run of a reconciler, and the threads around runs: workers of one queue, and pools shared by controllers.

pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod histogram;
pub(crate) mod metrics;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod reconciler;
pub(crate) mod runner;
pub(crate) mod workers;
