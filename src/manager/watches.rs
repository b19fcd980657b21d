//! Watches that are asked for by name: whoever asks first starts one, the others wait for it.

use std::any::Any;
use std::sync::Arc;

use super::component::Component;
use super::{Inner, Manager};
use crate::base::error::StartError;
use crate::base::time::Nanos;
use crate::base::wait::Latch;
use crate::queue::Key;
use crate::watch::{Watch, WatchProducer};

/// What a manager knows of the watch of a name.
pub(super) enum Known {
    /// Somebody starts it; settled when it is known how that has ended.
    Starting(Arc<Latch>),
    /// A [`Watch`], whatever its keys and values are.
    Watch(Box<dyn Any + Send>),
}

/// The one who starts the watch of a name. Dropped before it has, the next one does.
struct Starter<'a> {
    inner: &'a Inner,
    name: &'a str,
    gate: Arc<Latch>,
    watch: Option<Box<dyn Any + Send>>,
}

impl Drop for Starter<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.inner.state.lock();
            // It may have ended again by itself.
            let known = state.names.contains(self.name);
            match self.watch.take().filter(|_| known) {
                Some(watch) => state.watches.insert(self.name.to_owned(), Known::Watch(watch)),
                None => state.watches.remove(self.name),
            };
        }
        self.gate.settle(true);
    }
}

impl Manager {
    /// The watch of this name: that of the one who asked first, who started it with `start`; who asks meanwhile waits for that. It
    /// runs from then on, and is stopped with the manager, as if it had been added by that first call.
    ///
    /// ```
    /// use homeostat::{Context, Manager, Watch};
    /// use homeostat::watch::PollWatch;
    /// use std::time::Duration;
    ///
    /// fn disks(manager: &Manager) -> Result<Watch<String, u64>, homeostat::StartError> {
    ///     let list = |_cx: &Context| Ok::<_, std::io::Error>([("disk-1".to_owned(), 10)]);
    ///     manager.watch("disks", || PollWatch::new(Duration::from_secs(5), list).name("disks").start())
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
    /// If it cannot be started, or there is a watch of this name of other things, or as [`add`](Self::add).
    pub fn watch<K, T, P>(
        &self,
        name: &str,
        start: impl FnOnce() -> Result<P, StartError>,
    ) -> Result<Watch<K, T>, StartError>
    where
        K: Key + Sync,
        T: Send + Sync + 'static,
        P: WatchProducer<K, T> + Into<Component>,
    {
        let inner = &*self.inner;
        let gate = loop {
            let starting = {
                let mut state = inner.state.lock();
                match state.watches.get(name) {
                    Some(Known::Watch(known)) => {
                        let watch = known.downcast_ref::<Watch<K, T>>().cloned();
                        return watch
                            .ok_or_else(|| StartError::named("watch", name, "has keys or values of another type"));
                    }
                    Some(Known::Starting(gate)) => Arc::clone(gate),
                    None => {
                        let gate = Latch::new(inner.clock.clone());
                        state.watches.insert(name.to_owned(), Known::Starting(Arc::clone(&gate)));
                        break gate;
                    }
                }
            };
            starting.wait_until(Nanos::NEVER);
        };
        let mut starter = Starter { inner, name, gate, watch: None };
        let producer = start()?;
        let watch = producer.watch().clone();
        let mut component: Component = producer.into();
        name.clone_into(&mut component.name);
        self.inner.add(component)?;
        starter.watch = Some(Box::new(watch.clone()));
        Ok(watch)
    }
}
