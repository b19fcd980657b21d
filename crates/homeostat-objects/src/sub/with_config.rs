//! A step with another config.

use std::fmt;

use super::SubReconciler;
use super::config::Config;
use super::context::SubContext;
use super::flow::SubResult;
use super::setup::Setup;
use homeostat::run::BoxError;

/// Runs a step with another [`Config`], in its set-up and its runs: for example with the client of another cluster.
///
/// The object itself stays in the client that it was read from. See [`SubContext::original_config`].
///
/// # Examples
///
/// Deploy to another client:
///
/// ```
/// use homeostat_objects::{Client, DynamicObject, MemoryClient};
/// use homeostat_objects::sub::{Config, Flow, SubContext, SubResult, WithConfig};
/// use std::sync::Arc;
///
/// let remote: Arc<dyn Client> = Arc::new(MemoryClient::new());
/// let deploy = |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult { Ok(Flow::proceed()) };
/// let step = WithConfig::new(move |config: &Config| Ok(config.clone().with_client(remote.clone())), deploy);
/// # let _ = step;
/// ```
#[must_use]
pub struct WithConfig<T> {
    config: Configure,
    step: Box<dyn SubReconciler<T>>,
}

type Configure = Box<dyn Fn(&Config) -> Result<Config, BoxError> + Send + Sync>;

impl<T> WithConfig<T> {
    /// Wraps `step`. `config` computes the config from the outer one, once for the set-up and once for each run.
    ///
    /// It must return the same client and the same tracker each time. Otherwise changes of watched and tracked objects
    /// are lost.
    pub fn new(
        config: impl Fn(&Config) -> Result<Config, BoxError> + Send + Sync + 'static,
        step: impl SubReconciler<T> + 'static,
    ) -> Self {
        Self { config: Box::new(config), step: Box::new(step) }
    }
}

impl<T> SubReconciler<T> for WithConfig<T> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        let config = (self.config)(setup.config())?;
        self.step.setup(&mut setup.with_config(config))
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let config = (self.config)(cx.config())?;
        self.step.reconcile(&cx.with_config(config), resource)
    }
}

impl<T> fmt::Debug for WithConfig<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithConfig").finish_non_exhaustive()
    }
}
