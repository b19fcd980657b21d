//! A producer that reads a channel.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Select, Sender, TryRecvError, bounded};

use super::Watch;
use super::builder::WatchBuilder;
use super::push::{Push, PushMessage};
use crate::base::error::StartError;
use crate::base::group::{Handle, ThreadGroup, ThreadGroupKind};
use crate::base::running::Running;
use crate::base::thread::panic_message;
use crate::queue::Key;

impl<K: Key + Sync, T: Send + Sync + 'static> WatchBuilder<K, T> {
    /// Starts a watch that is fed by the messages of a channel.
    ///
    /// The watch has its own thread (`<name>-0`). It stops when the channel is disconnected and empty, or when its
    /// handle is stopped. A stop wakes the thread, even if the channel is empty.
    ///
    /// The thread stores and delivers each message before it takes the next one. Make a subscriber
    /// [`buffered`](crate::Subscriber::buffered) if its mapping sends to this channel. Otherwise the thread would wait
    /// for itself once the channel is full.
    ///
    /// # Errors
    ///
    /// If the name contains a NUL character, or the system cannot start the thread.
    ///
    /// ```
    /// use crossbeam_channel::bounded;
    /// use homeostat::{Subscriber, Watch, WorkQueue};
    /// use homeostat::watch::PushMessage;
    ///
    /// let (vms, receiver) = bounded(16);
    /// let watched = Watch::builder().name("vms").from_receiver(receiver)?;
    /// let queue = WorkQueue::new();
    /// let subscription = watched.watch().subscribe(Subscriber::to_itself(&queue))?;
    ///
    /// vms.send(PushMessage::Set("vm-1", 1))?;
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// watched.stop();
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn from_receiver<M>(mut self, receiver: Receiver<M>) -> Result<Running<Watch<K, T>>, StartError>
    where
        M: Into<PushMessage<K, T>> + Send + 'static,
    {
        let threads = std::mem::take(&mut self.threads);
        let push = self.push();
        let watch = push.watch().clone();
        let source = watch.name();
        let group = ThreadGroup::new(ThreadGroupKind::Watch, source.to_owned(), watch.clock(), 1);
        // The channel has room for one message, and one is enough to wake the thread.
        let (stop, stopped) = bounded(1);
        log::info!(source; "{source}: the watch starts");
        let task = Receiving { group: Arc::clone(&group), push: push.clone(), receiver, stopped, _stop: stop.clone() };
        let joiners = vec![group.start_function(&threads, move || task.run())?];
        let on_stop = move || {
            push.stop();
            let _ = stop.try_send(());
        };
        let handle = Handle::new(group, joiners, on_stop).that_may_end();
        Ok(Running::new(watch, handle, Duration::MAX))
    }
}

/// The body of the thread that reads the channel. It blocks on the channel, so it cannot use the loop of a thread
/// group.
struct Receiving<K: Key + Sync, T: Send + Sync + 'static, M> {
    group: Arc<ThreadGroup>,
    push: Push<K, T>,
    receiver: Receiver<M>,
    /// Receives a message when the thread group is stopping.
    stopped: Receiver<()>,
    /// Keeps `stopped` connected after a detach: a disconnected channel is always ready.
    _stop: Sender<()>,
}

impl<K, T, M> Receiving<K, T, M>
where
    K: Key + Sync,
    T: Send + Sync + 'static,
    M: Into<PushMessage<K, T>>,
{
    fn run(self) {
        let mut goes_on = true;
        while goes_on && !self.group.is_stopping() {
            match self.receiver.try_recv() {
                Ok(message) => goes_on = self.apply(message),
                Err(TryRecvError::Empty) => self.wait(),
                Err(TryRecvError::Disconnected) => goes_on = false,
            }
        }
        self.push.stop();
    }

    /// Applies a message. Returns whether the watch is still running. A panic skips the message.
    fn apply(&self, message: M) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.push.apply(message.into()))).unwrap_or_else(|panic| {
            let (source, message) = (self.group.name.as_str(), panic_message(&*panic));
            log::error!(source, panic = message; "{source}: a message of the watch panicked: {message}");
            true
        })
    }

    /// Blocks until a message arrives, the last sender is dropped, or the watch is stopped.
    fn wait(&self) {
        let mut select = Select::new();
        select.recv(&self.receiver);
        select.recv(&self.stopped);
        select.ready();
    }
}
