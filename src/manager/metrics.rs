//! The metrics of a manager as plain values. They are collected without a visit of keys.

use super::election::Holder;
use super::handle::Manager;
use crate::controller::ControllerMetrics;
use crate::watch::source::SourceStatus;

/// The counts and measurements of a manager at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ManagerMetrics {
    pub(crate) name: String,
    /// By name.
    pub(crate) controllers: Vec<NamedMetrics>,
    /// The manager's own pollers and watches, by name.
    pub(crate) sources: Vec<SourceStatus>,
    pub(crate) elected: bool,
    pub(crate) leading: bool,
    pub(crate) leader: Option<Holder>,
}

/// The counts and measurements of a controller.
#[derive(Clone, Debug)]
pub(crate) struct NamedMetrics {
    pub(crate) name: String,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) sources: Vec<SourceStatus>,
}

impl Manager {
    /// Returns the counts and measurements of the manager and its controllers.
    pub(crate) fn metrics(&self) -> ManagerMetrics {
        ManagerMetrics {
            name: self.name().to_owned(),
            controllers: self.controller_metrics(),
            sources: self.sources(),
            elected: self.inner.elector.is_some(),
            leading: self.is_leading(),
            leader: self.leader(),
        }
    }

    /// Returns the counts and measurements of each controller, by name.
    pub(crate) fn controller_metrics(&self) -> Vec<NamedMetrics> {
        let entries = self.entries().into_iter();
        let metrics = entries.map(|(name, entry)| {
            let (metrics, sources) = (entry.metrics)();
            NamedMetrics { name, metrics, sources }
        });
        metrics.collect()
    }
}
