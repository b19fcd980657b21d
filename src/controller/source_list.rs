//! The sources of a running controller.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::base::running::{RunPhase, Runnable};
use crate::base::sync::Mutex;
use crate::base::wait::Latch;
use crate::watch::key_source::KeySource;
use crate::watch::source::SourceHandle;

/// The sources of one controller. Sources can be added and removed while it runs.
#[derive(Default)]
pub(super) struct SourceList(Mutex<SourceEntries>);

#[derive(Default)]
struct SourceEntries {
    /// The sources with threads that have not been joined.
    running: Vec<RunningSource>,
    /// All sources that were started and not removed, including ended ones. The latch is set when the source has ended.
    listed: Vec<(SourceHandle, Arc<Latch>)>,
    /// The number of sources that were ever started.
    started: usize,
}

/// A started source.
pub(super) struct RunningSource {
    pub(super) source: Arc<dyn KeySource>,
    pub(super) running: Box<dyn Runnable>,
    pub(super) handle: SourceHandle,
    /// Set when the source has ended.
    pub(super) ended: Arc<Latch>,
    /// The gate that a watch brings. Kept while the source reads that watch.
    pub(super) gate: Option<Box<dyn Any + Send + Sync>>,
    pub(super) removed: bool,
}

impl RunningSource {
    fn has_ended(&self) -> bool {
        self.running.status().phase == RunPhase::Ended
    }
}

/// The state of the initial listings.
pub(super) enum Syncing {
    Synced,
    /// The initial listings of these sources are missing.
    Missing(Vec<SourceHandle>),
    /// The source with this name ended before its initial listing was complete.
    Ended(String),
}

/// The changes that each source has accepted at one time.
#[derive(Default)]
pub(super) struct AcceptedChanges(Vec<(Arc<dyn KeySource>, u64)>);

impl AcceptedChanges {
    /// Returns whether all these changes have been enqueued.
    pub(super) fn are_enqueued(&self) -> bool {
        self.0.iter().all(|(source, accepted)| source.progress().has_enqueued(*accepted))
    }
}

impl SourceList {
    /// Returns the number of the next source.
    pub(super) fn next_number(&self) -> usize {
        let mut entries = self.0.lock();
        entries.started += 1;
        entries.started - 1
    }

    /// Adds a source, unless `is_closed` returns true under the lock. Makes the name of its handle unique.
    pub(super) fn add(
        &self,
        mut source: RunningSource,
        is_closed: impl FnOnce() -> bool,
    ) -> Result<SourceHandle, Box<RunningSource>> {
        let mut entries = self.0.lock();
        if is_closed() {
            return Err(Box::new(source));
        }
        let handle = with_own_name(source.handle, &entries.listed);
        source.handle = handle.clone();
        entries.listed.push((handle.clone(), Arc::clone(&source.ended)));
        entries.running.push(source);
        Ok(handle)
    }

    /// Stops the source with this name and removes it. Returns a latch that is set when the source has ended. `None` if
    /// there is no such source.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<Latch>> {
        let (ended, removed) = {
            let mut entries = self.0.lock();
            let index = entries.listed.iter().position(|(handle, _)| handle.name() == name)?;
            let (_, ended) = entries.listed.remove(index);
            let found = entries.running.iter_mut().find(|source| Arc::ptr_eq(&source.ended, &ended));
            let removed = found.map(|source| {
                source.removed = true;
                (Arc::clone(&source.source), source.gate.take())
            });
            (ended, removed)
        };
        // Without the lock: the end drops the source's values and its mapping, which may use the controller.
        if let Some((source, _gate)) = removed {
            source.end(false);
        }
        Some(ended)
    }

    /// Aborts the removed source with this latch. Returns the names of its threads that have not ended.
    pub(super) fn abort_removed(&self, ended: &Arc<Latch>) -> Vec<String> {
        let of_latch = |source: &&RunningSource| Arc::ptr_eq(&source.ended, ended);
        let source = self.0.lock().running.iter().find(of_latch).map(|source| Arc::clone(&source.source));
        // Without the lock: the cancellation of a listing may call user code.
        if let Some(source) = source {
            source.end(true);
        }
        let entries = self.0.lock();
        entries.running.iter().find(of_latch).map(|source| source.running.status().threads).unwrap_or_default()
    }

    /// Lets no source begin another listing. Runs no user code.
    pub(super) fn close(&self) {
        for source in &self.0.lock().running {
            source.running.close();
        }
    }

    pub(super) fn handles(&self) -> Vec<SourceHandle> {
        self.0.lock().listed.iter().map(|(handle, _)| handle.clone()).collect()
    }

    pub(super) fn syncing(&self) -> Syncing {
        let mut missing = self.handles();
        if let Some(ended) = missing.iter().find(|source| source.synced().is_given_up()) {
            return Syncing::Ended(ended.name().to_owned());
        }
        missing.retain(|source| !source.synced().is_open());
        if missing.is_empty() { Syncing::Synced } else { Syncing::Missing(missing) }
    }

    /// Calls `call` for each source, without the lock: it may run mappings or drop values, which may use the
    /// controller.
    pub(super) fn for_each(&self, call: impl Fn(&dyn KeySource)) {
        let sources: Vec<_> = self.0.lock().running.iter().map(|source| Arc::clone(&source.source)).collect();
        for source in sources {
            call(&*source);
        }
    }

    pub(super) fn detach(&self) {
        for source in &mut self.0.lock().running {
            source.running.detach();
        }
    }

    /// Returns the names of the threads that have not ended.
    pub(super) fn threads(&self) -> Vec<String> {
        self.0.lock().running.iter().flat_map(|source| source.running.status().threads).collect()
    }

    /// Sets the period of all pollers. Returns whether there are any.
    pub(super) fn set_period(&self, period: Duration) -> bool {
        let mut is_set = false;
        for source in &self.0.lock().running {
            is_set |= source.source.set_period(period);
        }
        is_set
    }

    /// Returns the changes that the sources have accepted by now.
    pub(super) fn accepted(&self) -> AcceptedChanges {
        let entries = self.0.lock();
        let sources = entries.running.iter().filter(|source| !source.removed);
        AcceptedChanges(
            sources.map(|source| (Arc::clone(&source.source), source.source.progress().accepted())).collect(),
        )
    }

    /// Returns whether any source has not ended, without counting a source that the caller runs in.
    pub(super) fn run_elsewhere(&self) -> bool {
        self.0.lock().running.iter().any(|source| !source.has_ended() && !source.source.is_current())
    }

    /// Joins all sources. Does not wait for a source that the caller runs in.
    pub(super) fn join(&self) {
        let sources = std::mem::take(&mut self.0.lock().running);
        join(sources);
    }

    /// Joins the ended sources. Returns the names of the other sources' threads.
    pub(super) fn join_ended(&self) -> Vec<String> {
        let mut threads = Vec::new();
        let ended: Vec<_> = {
            let mut entries = self.0.lock();
            let ended = entries.running.extract_if(.., |source| source.has_ended()).collect();
            threads.extend(entries.running.iter().flat_map(|source| source.running.status().threads));
            ended
        };
        join(ended);
        threads
    }
}

/// Joins sources. Call it without the lock: a join drops the source's values, which is user code.
fn join(sources: Vec<RunningSource>) {
    for mut source in sources {
        drop(source.running.join());
    }
}

/// Gives a source a unique name among `others`.
fn with_own_name(source: SourceHandle, others: &[(SourceHandle, Arc<Latch>)]) -> SourceHandle {
    let is_taken = |name: &str| others.iter().any(|(other, _)| other.name() == name);
    let (mut name, mut number) = (source.name().to_owned(), 1);
    while is_taken(&name) {
        number += 1;
        name = format!("{}-{number}", source.name());
    }
    source.named(&name)
}
