//! A watch that is fed by a poller: each poll is a whole listing.

use std::sync::Arc;

use super::{Poller, polling};
use crate::base::error::StartError;
use crate::base::running::Running;
use crate::base::wait::Latch;
use crate::queue::Key;
use crate::watch::core::Same;
use crate::watch::source::SourceHandle;
use crate::watch::{Watch, WatchBuilder};

impl<I: 'static> Poller<I> {
    /// Starts a watch of the items that the function lists.
    ///
    /// Each listing is compared with the stored items, and the changes are delivered to the subscribers of the
    /// [`Watch`]. An item that equals its last value makes no event. A key that is no longer listed is deleted.
    ///
    /// The first listing that succeeds is the initial list. If a listing fails or panics, it is logged and changes
    /// nothing: the items are not treated as deleted. The watch stops with the poller. [`edge`](Self::edge) and
    /// [`priority`](Self::priority) have no effect: the [`Subscriber`](crate::Subscriber) decides how keys are
    /// enqueued.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::{Context, Poller, Subscriber, WorkQueue};
    /// use std::time::Duration;
    ///
    /// fn list(_cx: &Context) -> std::io::Result<Vec<(String, u64)>> {
    ///     Ok(vec![("vm-1".to_owned(), 4)]) // a name and what is to be watched of it
    /// }
    ///
    /// let vms = Poller::new(Duration::from_secs(30), list).name("vms").watch()?;
    /// let queue = WorkQueue::<String>::new();
    /// let subscription = vms.subscribe(Subscriber::to_itself(&queue))?;
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// vms.shutdown(Duration::from_secs(1))?;
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn watch<K, T>(self) -> Result<Running<Watch<K, T>>, StartError>
    where
        I: IntoIterator<Item = (K, T)>,
        K: Key + Sync,
        T: PartialEq + Send + Sync + 'static,
    {
        self.watch_by(Box::new(T::eq))
    }

    /// Starts a watch like [`watch`](Self::watch), but compares values by their versions.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// ```
    /// use homeostat::{Context, Poller};
    /// use std::time::Duration;
    ///
    /// struct Vm { revision: u64, load: f64 }
    ///
    /// let list = |_cx: &Context| Ok::<_, std::io::Error>([("vm-1", Vm { revision: 1, load: 0.2 })]);
    /// let vms = Poller::new(Duration::from_secs(5), list).watch_versioned(|vm| vm.revision)?;
    /// assert!(vms.store().wait_synced(Duration::from_secs(10)));
    /// # Ok::<_, homeostat::StartError>(())
    /// ```
    pub fn watch_versioned<K, T, V: PartialEq>(
        self,
        version: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Result<Running<Watch<K, T>>, StartError>
    where
        I: IntoIterator<Item = (K, T)>,
        K: Key + Sync,
        T: Send + Sync + 'static,
    {
        self.watch_by(Box::new(move |one, other| version(one) == version(other)))
    }

    fn watch_by<K, T>(self, same: Same<T>) -> Result<Running<Watch<K, T>>, StartError>
    where
        I: IntoIterator<Item = (K, T)>,
        K: Key + Sync,
        T: Send + Sync + 'static,
    {
        let settings = &self.settings;
        let push = WatchBuilder::with(same).name(settings.name.as_str()).clock(settings.clock.clone()).push();
        let watch = push.watch().clone();
        // The poller has its own latch: a listing that returns after the stop must not set the latch of the store.
        let source = SourceHandle::new(watch.source_state(), &Latch::new(watch.clock()));
        let stopped = Arc::clone(&watch.core);
        let deliver = move |items: I| {
            // Collects the whole list before any comparison: half a list would delete the other half.
            let counts = push.replace_all(items);
            counts.created + counts.updated + counts.unchanged
        };
        let list = polling::list_and_deliver(self.list, deliver);
        Ok(self.settings.start(&source, list, move || stopped.stop(), watch)?.1)
    }
}
