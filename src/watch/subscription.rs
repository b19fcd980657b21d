//! A subscriber that runs: its thread, and the handle that ends it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::backlog::Told;
use super::event::EventKind;
use super::hub::WatchCore;
use super::line::{Line, Take, discard};
use super::subscriber::Subscriber;
use crate::base::error::StartError;
use crate::base::group::{Handle, StillRunning, ThreadGroup, ThreadGroupKind};
use crate::base::running::{EndHook, RunStatus, Runnable};
use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::base::task::{Next, Task};
use crate::base::thread::{panic_message, shielded};
use crate::base::time::Nanos;
use crate::base::wait::{HandedOver, Latch, Progress};
use crate::queue::Key;

/// A subscriber that is told what changes, on a thread of its own. Dropping it ends it and joins the thread;
/// [`detach`](Self::detach) opts out. It ends by itself when its watch has stopped and it has been told everything.
///
/// # What a subscriber that lags is told
///
/// What it has not been told yet waits in a buffer that holds one entry for each key, however much happens: nobody waits for it,
/// and it costs no more memory than the keys that have changed since. Of a key it is told in the end what is true; what lies
/// between may be left out:
///
/// - updates in a row are one update, from what it was told last to the newest;
/// - what was created and updated is created;
/// - a deletion is never left out: what was deleted and created again is told as both, what was created and deleted is told as
///   deleted, and before a deletion comes an update to the last value if it was not told that one.
///
/// So of a value that changes twice before the subscriber comes to look (one owner, another, a third; on, off, on), a mapping or
/// a predicate is not asked about the one in the middle.
///
/// # Panics of a predicate or a mapping
///
/// They are caught, logged and counted, and the event is skipped. So is one of a key's own code on this thread, with all that
/// there was to say of the key.
///
/// # Examples
///
/// ```
/// use homeostat::{Subscriber, Watch, WorkQueue};
/// use std::time::Duration;
///
/// let push = Watch::push();
/// push.replace_all([("vm-1", 1), ("vm-2", 1)]);
///
/// let queue = WorkQueue::new();
/// let subscription = push.watch().subscribe(Subscriber::to_itself(&queue))?;
/// assert!(subscription.wait_synced(Duration::from_secs(1)));
/// assert_eq!(queue.len(), 2);
///
/// drop(subscription);
/// push.set("vm-3", 1);
/// assert_eq!(queue.len(), 2);
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[must_use = "dropping the handle ends the subscription"]
pub struct Subscription {
    handle: Handle,
    attachment: Box<dyn Attached>,
    counters: Arc<Counters>,
    /// Open once it has been told of the whole initial list; given up if it ends before.
    pub(crate) synced: Arc<Latch>,
}

#[derive(Debug, Default)]
struct Counters {
    delivered: AtomicU64,
    refused: AtomicU64,
    panics: AtomicU64,
}

/// What a handle needs of its watch and its line, whose types it does not know.
trait Attached: Send + Sync {
    fn waiting(&self) -> usize;
    fn resync(&self);
    fn leave(&self);
    fn on_progress(&self, progress: Progress);
    fn accepted(&self) -> HandedOver;
}

struct Attachment<K, T> {
    hub: Arc<WatchCore<K, T>>,
    line: Arc<Line<K, T>>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Attached for Attachment<K, T> {
    fn waiting(&self) -> usize {
        self.line.len()
    }

    fn resync(&self) {
        self.hub.resync(|line| Arc::ptr_eq(line, &self.line));
    }

    fn leave(&self) {
        self.line.leave();
    }

    fn on_progress(&self, progress: Progress) {
        self.line.on_progress(progress);
    }

    fn accepted(&self) -> HandedOver {
        let (line, accepted) = (Arc::clone(&self.line), self.line.accepted());
        Box::new(move || line.has_handled(accepted))
    }
}

/// The thread's body.
struct Delivering<K: Key, T> {
    line: Arc<Line<K, T>>,
    subscriber: Subscriber<K, T>,
    counters: Arc<Counters>,
    crew: Arc<ThreadGroup>,
    /// Where turns are played, others come between two events.
    one_a_step: bool,
}

pub(super) fn start<K: Key + Sync, T: Send + Sync + 'static>(
    mut subscriber: Subscriber<K, T>,
    hub: &Arc<WatchCore<K, T>>,
) -> Result<Subscription, StartError> {
    let (line, number) = hub.attach(subscriber.with_unchanged)?;
    let name = subscriber.name.take().unwrap_or_else(|| format!("{}-subscription-{number}", hub.name));
    let subscription = name.as_str();
    log::info!(subscription; "{subscription}: the subscription starts");
    let crew = ThreadGroup::new(ThreadGroupKind::Subscription, name, hub.clock.clone(), 1);
    let threads = subscriber.threads.take().unwrap_or_default();
    let counters = Arc::<Counters>::default();
    let task = Delivering {
        line: Arc::clone(&line),
        subscriber,
        counters: Arc::clone(&counters),
        crew: Arc::clone(&crew),
        one_a_step: hub.clock.scheduler().is_some(),
    };
    let signal = Arc::clone(&line.signal);
    let joiners = crew.start_one(&threads, task, &signal, None)?;
    let handle = Handle::new(crew, joiners, Box::new(move || signal.set()), Duration::MAX);
    let synced = Arc::clone(&line.synced);
    let attachment = Box::new(Attachment { hub: Arc::clone(hub), line });
    Ok(Subscription { handle, attachment, counters, synced })
}

impl<K: Key + Sync, T: Send + Sync + 'static> Delivering<K, T> {
    fn tell(&mut self, told: Told<K, T>) {
        let name = self.crew.name.as_str();
        let kind = told.event.kind();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.subscriber.tell(&told.event, told.initial)));
        let counter = match outcome {
            Ok(Some(tally)) => {
                let keys = tally.total();
                log::trace!(subscription = name, event:% = kind, keys; "{name}: an event ({kind}) was delivered, keys: {keys}");
                &self.counters.delivered
            }
            Ok(None) => &self.counters.refused,
            Err(panic) => {
                let message = panic_message(&*panic);
                log::error!(
                    subscription = name, event:% = kind, panic = message;
                    "{name}: the subscriber panicked at an event ({kind}): {message}"
                );
                shielded("the drop of a panic", || drop(panic));
                &self.counters.panics
            }
        };
        counter.fetch_add(1, SeqCst);
        if kind == EventKind::Synced {
            self.line.synced.settle(true);
        }
        let (key, values) = told.event.into_parts();
        discard(key, values);
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> Task for Delivering<K, T> {
    fn step(&mut self, _now: Nanos) -> Next {
        loop {
            let taken = catch_unwind(AssertUnwindSafe(|| self.line.take()));
            self.line.tell_progress();
            match taken {
                Ok(Take::Tell(told)) => self.tell(told),
                // Whoever adds to an empty line sets the signal, and so does who stops the watch or the subscription.
                Ok(Take::Wait) => return Next::At(Nanos::NEVER),
                Ok(Take::Finish) => return Next::Finished,
                Err(panic) => {
                    let subscription = self.crew.name.as_str();
                    let message = panic_message(&*panic);
                    log::error!(subscription, panic = message; "{subscription}: the code of a key panicked: {message}");
                    shielded("the drop of a panic", || drop(panic));
                    self.counters.panics.fetch_add(1, SeqCst);
                    self.line.skip();
                }
            }
            if self.one_a_step {
                return Next::At(Nanos::ZERO);
            }
        }
    }
}

impl<K: Key, T> Drop for Delivering<K, T> {
    fn drop(&mut self) {
        self.line.leave();
    }
}

impl Subscription {
    /// The name in log lines.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.handle.crew.name
    }

    /// Has `progress` called after each event that has been handed over. The first call counts.
    pub(crate) fn on_progress(&self, progress: Progress) {
        self.attachment.on_progress(progress);
    }

    /// Says later whether the subscriber has handled every change that its watch has stored by now.
    pub(crate) fn accepted(&self) -> HandedOver {
        self.attachment.accepted()
    }

    /// Whether the subscriber has been told of all that the initial list held, and its keys are in line.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced.is_open()
    }

    /// Waits until [`has_synced`](Self::has_synced), for at most `timeout` by the watch's clock. Returns whether it has. That wakes
    /// it, or the end of the subscription: then it never will.
    #[must_use]
    pub fn wait_synced(&self, timeout: Duration) -> bool {
        self.synced.wait_for(timeout)
    }

    /// How many events have been handed to the mapping, and what it made of them to the queue.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.counters.delivered.load(SeqCst)
    }

    /// How many events a predicate has refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.counters.refused.load(SeqCst)
    }

    /// How many events a predicate, the mapping or the `Clone` of a key has panicked at.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.counters.panics.load(SeqCst)
    }

    /// Of how many keys the subscriber has yet to be told something: how far it lags. The end of the initial list counts as one.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.attachment.waiting()
    }

    /// As [`Watch::resync`](crate::Watch::resync), for this subscriber alone: tells it of every key that is known, as
    /// [`Event::Unchanged`](crate::Event::Unchanged) unless it has yet to be told more. Returns at once; does nothing once the
    /// watch or this subscription has stopped.
    ///
    /// ```
    /// use homeostat::{Reasons, Subscriber, Watch, WorkQueue};
    ///
    /// let push = Watch::push();
    /// push.replace_all([("vm-1", 1)]);
    /// let (queue, other) = (WorkQueue::new(), WorkQueue::new());
    /// let subscription = push.watch().subscribe(Subscriber::to_itself(&queue))?;
    /// let beside = push.watch().subscribe(Subscriber::to_itself(&other))?;
    /// queue.dequeue()?.done();
    /// other.dequeue()?.done();
    ///
    /// subscription.resync();
    /// assert_eq!(queue.dequeue()?.reasons(), Reasons::RESYNC);
    /// assert!(other.is_empty());
    /// # drop((subscription, beside));
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn resync(&self) {
        self.attachment.resync();
    }

    /// Tells it nothing more; an event that it is being told of is told to the end. What waits is dropped. Returns at once.
    pub fn stop(&self) {
        // In this order: it is woken to find that it has left.
        self.attachment.leave();
        self.handle.stop();
    }

    /// Waits until it has ended: by [`stop`](Self::stop), or because its watch has stopped and it has been told everything.
    pub fn join(mut self) {
        self.handle.join();
    }

    /// As [`join`](Self::join), for at most `timeout` by the watch's clock.
    ///
    /// # Errors
    ///
    /// [`StillRunning`] if it has not ended by then.
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        self.handle.join_timeout(timeout)
    }

    /// Lets it run on until its watch stops. What it feeds stays open for as long: a subscriber holds a handle of it.
    pub fn detach(mut self) {
        self.handle.detach();
    }
}

impl Drop for Subscription {
    /// Ends it and joins its thread, unless this runs on that very thread. Blocks while a mapping does.
    fn drop(&mut self) {
        if !self.handle.is_detached() {
            self.stop();
            self.handle.join();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("name", &self.name())
            .field("backlog", &self.backlog())
            .field("delivered", &self.delivered())
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}

impl Runnable for Subscription {
    fn stop(&self) {
        Subscription::stop(self);
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        self.handle.join_timeout(timeout)
    }

    fn detach(&mut self) {
        self.handle.detach();
    }

    fn status(&self) -> RunStatus {
        self.handle.status()
    }

    fn on_end(&self, hook: EndHook) {
        self.handle.on_end(hook);
    }

    fn may_end(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "subscription"
    }
}
