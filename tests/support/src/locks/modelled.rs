//! The locks of the model checker. Time does not pass in a model.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Instant;

pub use loom::sync::atomic;

#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, inner: Some(self.lock_inner()) }
    }

    /// Takes the lock only if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|inner| MutexGuard { mutex: self, inner: Some(inner) })
    }

    fn lock_inner(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `inner` is `None` only during [`Condvar::wait`] and [`MutexGuard::unlocked`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    inner: Option<loom::sync::MutexGuard<'a, T>>,
}

impl<T> MutexGuard<'_, T> {
    pub fn unlocked<U>(guard: &mut Self, work: impl FnOnce() -> U) -> U {
        guard.inner = None;
        let result = work();
        guard.inner = Some(guard.mutex.lock_inner());
        result
    }
}

const HELD: &str = "a guard is empty only inside wait and unlocked";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect(HELD)
    }
}

#[derive(Debug)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    pub fn read(&self) -> impl Deref<Target = T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> impl DerefMut<Target = T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub fn new() -> Self {
        Self(loom::sync::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.inner.take().expect(HELD);
        guard.inner = Some(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner));
    }

    /// Same as [`wait`](Self::wait), because time does not pass in a model. Models use a held clock instead.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _deadline: Instant) {
        self.wait(guard);
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
