//! The locks of unit tests. A thread that takes two locks against the order of `ARCHITECTURE.md` panics.

use std::any::type_name;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

/// The types behind the locks, the outermost first. A lock of another type is not checked, and neither are the locks of
/// the crates below the one whose unit tests run.
const ORDER: [&str; 22] = [
    "homeostat::manager::state::MemberBody",
    "homeostat::controller::waiters::Waits",
    "homeostat::controller::failed_keys::FailedKeyTable",
    "homeostat_objects::own_writes::gate::OwnWritesState",
    "homeostat_objects::members::shards::gate::KeptKeys",
    "homeostat_objects::members::shards::moves::Moves",
    "homeostat_objects::members::shards::ShardsState",
    "homeostat::controller::sources::SourceEntries",
    "homeostat::controller::state::RunConditions",
    "homeostat::watch::core::CoreState",
    "homeostat::watch::subscriber_buffer::BufferState",
    "homeostat::watch::store::State",
    "homeostat::watch::store::index::Rows",
    "homeostat::watch::source_state::Record",
    "homeostat::run::pool::PoolState",
    "homeostat::queue::shared::Locked",
    "homeostat::manager::state::ManagerState",
    "homeostat::base::task_thread::TaskState",
    "bool",
    "homeostat::base::wait::LatchState",
    "homeostat_testing::scheduler::SchedulerState",
    "homeostat::base::clock::HeldState",
];

/// Returns the place of a type in the order. `None` if it has none.
fn place(name: &'static str) -> Option<usize> {
    // Monitors, such as events and latches, are named by the type of their value.
    let name = name.strip_prefix("homeostat::base::wait::MonitorState<").unwrap_or(name);
    let name = name.split(['<', '>']).next().unwrap_or(name);
    ORDER.iter().position(|known| *known == name)
}

thread_local! {
    /// The places of the locks that this thread holds.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A lock that this thread holds, unless its type has no place.
#[derive(Debug)]
struct Held(Option<usize>);

impl Held {
    /// Checks the order before the lock is taken.
    #[track_caller]
    fn of<T>() -> Self {
        let place = place(type_name::<T>());
        // A thread that ends has no list, and holds no lock.
        let outer = HELD.try_with(|held| held.borrow().iter().copied().max()).ok().flatten();
        if let (Some(outer), Some(place)) = (outer, place) {
            assert!(outer < place, "{} is taken while {} is held", ORDER[place], ORDER[outer]);
        }
        let _ = HELD.try_with(|held| held.borrow_mut().extend(place));
        Self(place)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            let at = held.iter().rposition(|place| Some(*place) == self.0);
            at.map(|at| held.remove(at))
        });
    }
}

#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Takes the lock only if it is free. Such a lock needs no order, because no thread waits for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().map(|inner| MutexGuard { inner, held: Held(None) })
    }

    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::of::<T>();
        MutexGuard { inner: self.0.lock(), held }
    }
}

#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    inner: parking_lot::MutexGuard<'a, T>,
    held: Held,
}

impl<T> MutexGuard<'_, T> {
    pub fn unlocked<U>(guard: &mut Self, work: impl FnOnce() -> U) -> U {
        guard.held = Held(None);
        let result = parking_lot::MutexGuard::unlocked(&mut guard.inner, work);
        guard.held = Held::of::<T>();
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[derive(Debug, Default)]
pub struct RwLock<T>(parking_lot::RwLock<T>);

/// A guard of a [`RwLock`].
#[derive(Debug)]
pub struct RwLockGuard<G> {
    inner: G,
    _held: Held,
}

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    #[track_caller]
    pub fn read(&self) -> RwLockGuard<parking_lot::RwLockReadGuard<'_, T>> {
        let held = Held::of::<T>();
        RwLockGuard { inner: self.0.read(), _held: held }
    }

    #[track_caller]
    pub fn write(&self) -> RwLockGuard<parking_lot::RwLockWriteGuard<'_, T>> {
        let held = Held::of::<T>();
        RwLockGuard { inner: self.0.write(), _held: held }
    }
}

impl<G: Deref> Deref for RwLockGuard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for RwLockGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) {
        self.0.wait_until(&mut guard.inner, deadline);
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A type that was renamed or moved would no longer be checked.
#[test]
fn every_type_of_the_order_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for name in ORDER.iter().filter(|name| **name != "bool") {
        let (path, name) = name.rsplit_once("::").unwrap();
        let (package, path) = path.split_once("::").unwrap();
        let folder =
            if package == "homeostat" { String::new() } else { format!("crates/{}", package.replace('_', "-")) };
        let path = root.join(folder).join("src").join(path.replace("::", "/"));
        let files = [path.with_extension("rs"), path.join("mod.rs")].map(std::fs::read_to_string);
        let declared =
            |text: &String| text.contains(&format!("struct {name} ")) || text.contains(&format!("struct {name}<"));
        assert!(files.iter().flatten().any(declared), "{name} in {}", path.display());
    }
}
