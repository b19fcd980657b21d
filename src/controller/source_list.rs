//! The sources of a running controller.

use std::sync::Arc;
use std::time::Duration;

use super::own_writes::ViewGuard;
use super::source::KeySource;
use crate::base::error::StartError;
use crate::base::running::RunPhase;
use crate::base::sync::Mutex;
use crate::base::wait::{HandedOver, Latch};
use crate::watch::source::SourceHandle;

/// The sources of one controller. Sources can be added and removed while it runs.
#[derive(Default)]
pub(super) struct SourceList(Mutex<SourceEntries>);

#[derive(Default)]
struct SourceEntries {
    /// The sources with threads that have not been joined.
    running: Vec<RunningSource>,
    /// The handles of all sources that were started and not removed, including ended ones.
    handles: Vec<SourceHandle>,
    /// The sources without a complete initial listing.
    unsynced: Vec<SourceHandle>,
    /// Whether all initial listings have been complete at one time.
    synced: bool,
    /// The number of sources that were ever started.
    started: usize,
}

/// A started source.
pub(super) struct RunningSource {
    pub(super) source: Box<dyn KeySource>,
    pub(super) handle: SourceHandle,
    /// Set when the source has ended.
    pub(super) ended: Arc<Latch>,
    /// Kept while the source reads a watch that shows writes.
    pub(super) view: Option<ViewGuard>,
    pub(super) removed: bool,
}

/// The state of the initial listings.
pub(super) enum Syncing {
    Synced,
    /// The initial listings of these sources are missing.
    Missing(Vec<SourceHandle>),
    /// The source with this name ended before its initial listing was complete.
    Ended(String),
}

impl SourceList {
    /// Returns the number of the next source.
    pub(super) fn next_number(&self) -> usize {
        let mut entries = self.0.lock();
        entries.started += 1;
        entries.started - 1
    }

    /// Adds a source unless `is_closed`, which is called under the lock. Makes the name of its handle unique.
    pub(super) fn add(
        &self,
        mut source: RunningSource,
        is_closed: impl FnOnce() -> bool,
    ) -> Result<SourceHandle, Box<RunningSource>> {
        let mut entries = self.0.lock();
        if is_closed() {
            return Err(Box::new(source));
        }
        let handle = with_own_name(source.handle, &entries.handles);
        source.handle = handle.clone();
        if !entries.synced {
            entries.unsynced.push(handle.clone());
        }
        entries.handles.push(handle.clone());
        entries.running.push(source);
        Ok(handle)
    }

    /// Stops the source with this name and removes it. Returns a latch that is set when the source has ended. `None` if there is
    /// no such source.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<Latch>> {
        let removed = {
            let mut entries = self.0.lock();
            let count = entries.handles.len();
            entries.handles.retain(|handle| handle.name() != name);
            entries.unsynced.retain(|handle| handle.name() != name);
            if entries.handles.len() == count {
                return None;
            }
            let found = entries.running.iter_mut().find(|source| !source.removed && source.handle.name() == name);
            found.map(|source| {
                source.removed = true;
                (source.source.ending(false), source.view.take(), Arc::clone(&source.ended))
            })
        };
        let Some((end, view, ended)) = removed else { return Some(settled()) };
        // Without the lock: the end drops the source's values and its mapping, which may use the controller.
        end();
        drop(view);
        Some(ended)
    }

    /// Aborts the removed source with this latch. Returns the names of its threads that have not ended.
    pub(super) fn abort_removed(&self, ended: &Arc<Latch>) -> Vec<String> {
        let of_latch = |source: &&RunningSource| Arc::ptr_eq(&source.ended, ended);
        let end = self.0.lock().running.iter().find(of_latch).map(|source| source.source.ending(true));
        // Without the lock: the cancellation of a listing may call user code.
        if let Some(end) = end {
            end();
        }
        let entries = self.0.lock();
        entries.running.iter().find(of_latch).map(|source| source.source.status().threads).unwrap_or_default()
    }

    /// Lets no source begin another listing. Runs no user code.
    pub(super) fn close(&self) {
        for source in &self.0.lock().running {
            source.source.close();
        }
    }

    pub(super) fn handles(&self) -> Vec<SourceHandle> {
        self.0.lock().handles.clone()
    }

    pub(super) fn syncing(&self) -> Syncing {
        let mut entries = self.0.lock();
        if let Some(ended) = entries.unsynced.iter().find(|source| source.synced().is_given_up()) {
            return Syncing::Ended(ended.name().to_owned());
        }
        entries.unsynced.retain(|source| !source.synced().is_open());
        if entries.unsynced.is_empty() {
            entries.synced = true;
            return Syncing::Synced;
        }
        Syncing::Missing(entries.unsynced.clone())
    }

    /// Enqueues all keys of the watches, or those that have moved to or from this process.
    pub(super) fn resync(&self, moved_only: bool) {
        // Without the lock: a resync runs mappings, which may use the controller.
        let resync = |source: &RunningSource| source.source.resync(moved_only);
        let calls: Vec<_> = self.0.lock().running.iter().filter_map(resync).collect();
        for call in calls {
            call();
        }
    }

    /// Lets all pollers list their keys now.
    pub(super) fn poll_again(&self) {
        for source in &self.0.lock().running {
            source.source.poll_again();
        }
    }

    pub(super) fn stop(&self) {
        self.end(false);
    }

    pub(super) fn abort(&self) {
        self.end(true);
    }

    fn end(&self, abort: bool) {
        // Without the lock: the end drops the sources' values and mappings, which may use the controller.
        let calls: Vec<_> = self.0.lock().running.iter().map(|source| source.source.ending(abort)).collect();
        for call in calls {
            call();
        }
    }

    pub(super) fn detach(&self) {
        for source in &mut self.0.lock().running {
            source.source.detach();
        }
    }

    /// Returns the names of the threads that have not ended.
    pub(super) fn threads(&self) -> Vec<String> {
        self.0.lock().running.iter().flat_map(|source| source.source.status().threads).collect()
    }

    /// Sets the period of all pollers. Returns whether there are any.
    pub(super) fn set_period(&self, period: Duration) -> Result<bool, StartError> {
        let entries = self.0.lock();
        let set: Vec<_> = entries.running.iter().filter_map(|source| source.source.change_period(period)).collect();
        let found = !set.is_empty();
        set.into_iter().collect::<Result<(), _>>()?;
        Ok(found)
    }

    /// Returns a function for each source. It reports whether all changes accepted by now are in the queue.
    pub(super) fn accepted(&self) -> Vec<HandedOver> {
        let entries = self.0.lock();
        entries.running.iter().filter(|source| !source.removed).map(|source| source.source.accepted()).collect()
    }

    /// Returns whether a source has not ended, except a source that the caller is in.
    pub(super) fn run_elsewhere(&self) -> bool {
        let runs = |source: &dyn KeySource| source.status().phase != RunPhase::Ended && !source.is_current();
        self.0.lock().running.iter().any(|source| runs(&*source.source))
    }

    /// Joins all sources. Does not wait for a source that the caller is in.
    pub(super) fn join(&self) {
        let sources = std::mem::take(&mut self.0.lock().running);
        // Without the lock: a join drops the source's values, which is user code.
        for mut source in sources {
            source.source.join();
        }
    }

    /// Joins the ended sources. Returns the names of the other sources' threads.
    pub(super) fn join_ended(&self) -> Vec<String> {
        let mut threads = Vec::new();
        let ended: Vec<_> = {
            let mut entries = self.0.lock();
            let ended = entries.running.extract_if(.., |source| source.source.status().phase == RunPhase::Ended);
            let ended = ended.collect();
            threads.extend(entries.running.iter().flat_map(|source| source.source.status().threads));
            ended
        };
        // Without the lock: a join drops the source's values, which is user code.
        for mut source in ended {
            source.source.join();
        }
        threads
    }
}

/// Returns a latch that is already set.
fn settled() -> Arc<Latch> {
    let latch = Latch::new(crate::base::clock::Clock::system());
    latch.set(true);
    latch
}

/// Gives a source a unique name among `others`.
fn with_own_name(source: SourceHandle, others: &[SourceHandle]) -> SourceHandle {
    let is_taken = |name: &str| others.iter().any(|other| other.name() == name);
    let (mut name, mut number) = (source.name().to_owned(), 1);
    while is_taken(&name) {
        number += 1;
        name = format!("{}-{number}", source.name());
    }
    source.named(&name)
}
