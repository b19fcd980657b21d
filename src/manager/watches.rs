//! Watches by name. The first caller starts a watch, and concurrent callers wait for it.

use super::component::Component;
use super::handle::Manager;
use super::state::ManagerInner;
use crate::base::error::StartError;
use crate::base::running::Running;
use crate::base::time::Nanos;
use crate::queue::Key;
use crate::watch::Watch;

/// The turn of a caller that starts the watch of a name.
struct StartTurn<'a>(&'a ManagerInner, &'a str);

impl Drop for StartTurn<'_> {
    fn drop(&mut self) {
        self.0.starting_watches.change(|names| names.retain(|name| name != self.1));
    }
}

impl Manager {
    /// Returns the watch with this name, starting it with `start` on first use. Concurrent callers wait.
    ///
    /// The watch is a component of the manager: it stops with the manager, and can be [removed](Self::remove). `name`
    /// is its name in the manager. The [name of the poller](crate::Poller::name) is the name in log lines, so set both.
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
    /// Returns [`StartError`] if `start` fails, if the watch of this name has other keys or values, or for the reasons
    /// of [`add`](Self::add).
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
        let _turn = inner.starting_watches.wait_for_some(Nanos::NEVER, |names| {
            let is_free = !names.iter().any(|other| other == name);
            is_free.then(|| {
                names.push(name.to_owned());
                StartTurn(inner, name)
            })
        });
        if let Some(known) = inner.state.lock().named(name).and_then(|member| member.facts.watch.as_ref()) {
            let watch = known.downcast_ref::<Watch<K, T>>().cloned();
            return watch.ok_or_else(|| StartError::named("watch", name, "has keys or values of another type"));
        }
        let producer = start()?;
        let watch = producer.watch().clone();
        let mut component: Component = producer.into();
        name.clone_into(&mut component.facts.name);
        self.inner.add(component)?;
        Ok(watch)
    }
}
