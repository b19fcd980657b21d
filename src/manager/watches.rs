//! Watches by name. The first caller starts a watch, and concurrent callers wait for it.

use std::any::Any;
use std::sync::Arc;

use super::component::Component;
use super::handle::Manager;
use super::state::ManagerInner;
use crate::base::error::StartError;
use crate::base::running::Running;
use crate::base::time::Nanos;
use crate::base::wait::Latch;
use crate::queue::Key;
use crate::watch::Watch;

/// The caller that starts the watch of a name. If it is dropped without a watch, the next caller starts one.
struct WatchStarter<'a> {
    inner: &'a ManagerInner,
    name: &'a str,
    latch: Arc<Latch>,
    watch: Option<Box<dyn Any + Send>>,
}

impl Drop for WatchStarter<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.inner.state.lock();
            state.starting_watches.remove(self.name);
            // The watch may already have ended by itself.
            if let (Some(entry), Some(watch)) = (state.components.get_mut(self.name), self.watch.take()) {
                entry.watch = Some(watch);
            }
        }
        self.latch.set(true);
    }
}

impl Manager {
    /// Returns the watch with this name, starting it with `start` on first use. Concurrent callers wait.
    ///
    /// The watch is a component of the manager: it stops with the manager, and can be [removed](Self::remove).
    ///
    /// ```
    /// use homeostat::{Context, Manager, Poller, Watch};
    /// use std::time::Duration;
    ///
    /// fn disks(manager: &Manager) -> Result<Watch<String, u64>, homeostat::StartError> {
    ///     let list = |_cx: &Context| Ok::<_, std::io::Error>([("disk-1".to_owned(), 10)]);
    ///     manager.watch("disks", || Poller::new(Duration::from_secs(5), list).name("disks").watch())
    /// }
    ///
    /// let manager = Manager::builder().build()?;
    /// let (one, other) = (disks(&manager)?, disks(&manager)?);
    /// assert!(one.store().wait_synced(Duration::from_secs(10)) && other.store().has_synced());
    /// # Ok::<_, homeostat::StartError>(())
    /// ```
    ///
    /// `start` may ask for other watches, but not for this one: it would wait for itself.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if `start` fails, if the watch of this name has other keys or values, or for the reasons of
    /// [`add`](Self::add).
    pub fn watch<K, T>(
        &self,
        name: &str,
        start: impl FnOnce() -> Result<Running<Watch<K, T>>, StartError>,
    ) -> Result<Watch<K, T>, StartError>
    where
        K: Key + Sync,
        T: Send + Sync + 'static,
    {
        let inner = &*self.inner;
        let latch = loop {
            let starting = {
                let mut state = inner.state.lock();
                if let Some(known) = state.components.get(name).and_then(|entry| entry.watch.as_ref()) {
                    let watch = known.downcast_ref::<Watch<K, T>>().cloned();
                    return watch.ok_or_else(|| StartError::named("watch", name, "has keys or values of another type"));
                }
                let Some(latch) = state.starting_watches.get(name) else {
                    let latch = Latch::new(inner.clock.clone());
                    state.starting_watches.insert(name.to_owned(), Arc::clone(&latch));
                    break latch;
                };
                Arc::clone(latch)
            };
            starting.wait_until(Nanos::NEVER);
        };
        let mut starter = WatchStarter { inner, name, latch, watch: None };
        let producer = start()?;
        let watch = producer.watch().clone();
        let mut component: Component = producer.into();
        name.clone_into(&mut component.name);
        self.inner.add(component)?;
        starter.watch = Some(Box::new(watch.clone()));
        Ok(watch)
    }
}
