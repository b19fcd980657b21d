//! The settings of a watch that is fed by a push or a channel.

use std::fmt;
use std::marker::PhantomData;

use super::core::{Same, WatchCore};
use super::{Push, Watch};
use crate::base::clock::Clock;
use crate::base::thread::ThreadOptions;
use crate::queue::Key;

/// Settings for a [`Watch`] that is fed by a [`Push`] or a channel.
///
/// # Examples
///
/// ```
/// use homeostat::Watch;
///
/// let push = Watch::<String, u32>::builder().name("vms").push();
/// assert_eq!(push.watch().name(), "vms");
/// ```
#[must_use = "settings do nothing until they are used"]
pub struct WatchBuilder<K, T> {
    name: String,
    clock: Clock,
    same: Same<T>,
    pub(super) threads: ThreadOptions,
    key: PhantomData<fn(K)>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> WatchBuilder<K, T> {
    pub(super) fn with(same: Same<T>) -> Self {
        Self { name: "watch".to_owned(), clock: Clock::system(), same, threads: ThreadOptions::new(), key: PhantomData }
    }

    /// Sets the name for log lines. Default: `watch`. It also names the thread of a [channel](Self::from_receiver)
    /// (`<name>-0`) and prefixes the default names of subscriptions.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the clock of the watch and its subscriptions. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the options of the thread that reads a [channel](Self::from_receiver).
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.threads = options;
        self
    }

    /// Creates the watch and returns the handle that feeds it. The watch has no thread.
    #[must_use]
    pub fn push(self) -> Push<K, T> {
        Push::new(WatchCore::new(self.name, self.clock, self.same))
    }
}

impl<K, T> fmt::Debug for WatchBuilder<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchBuilder").field("name", &self.name).field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Watch<K, T> {
    /// Returns a handle that feeds a new watch with default settings.
    #[must_use]
    pub fn push() -> Push<K, T>
    where
        T: PartialEq,
    {
        Self::builder().push()
    }

    /// Returns settings for a watch that compares whole values.
    pub fn builder() -> WatchBuilder<K, T>
    where
        T: PartialEq,
    {
        Self::compared(T::eq)
    }

    /// Returns settings for a watch that compares values by their versions.
    ///
    /// ```
    /// use homeostat::Watch;
    /// use homeostat::watch::EventKind;
    ///
    /// struct Vm { revision: u64, load: f64 }
    ///
    /// let push = Watch::versioned(|vm: &Vm| vm.revision).push();
    /// push.set("vm-1", Vm { revision: 1, load: 0.2 });
    /// assert_eq!(push.set("vm-1", Vm { revision: 1, load: 0.9 }), Some(EventKind::Unchanged));
    /// ```
    pub fn versioned<V: PartialEq>(version: impl Fn(&T) -> V + Send + Sync + 'static) -> WatchBuilder<K, T> {
        Self::compared(move |one, other| version(one) == version(other))
    }

    /// Returns settings for a watch that compares values with `is_same`.
    ///
    /// ```
    /// use homeostat::Watch;
    /// use homeostat::watch::EventKind;
    ///
    /// let push = Watch::compared(|one: &f64, other| (one - other).abs() < 0.5).push();
    /// push.set("load", 1.0);
    /// assert_eq!(push.set("load", 1.25), Some(EventKind::Unchanged));
    /// ```
    pub fn compared(is_same: impl Fn(&T, &T) -> bool + Send + Sync + 'static) -> WatchBuilder<K, T> {
        WatchBuilder::with(Box::new(is_same))
    }
}
