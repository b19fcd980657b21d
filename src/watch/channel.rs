//! A producer that reads a channel.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded, select};

use super::Watch;
use super::builder::WatchBuilder;
use super::push::{Push, PushMessage};
use crate::base::error::StartError;
use crate::base::group::{ThreadGroup, ThreadGroupKind};
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
        // A disconnected channel is always ready, so the thread keeps `stopped` connected after a detach.
        let (fed, keep) = (push.clone(), stop.clone());
        let receive = move || {
            while !fed.watch().is_stopped() {
                select! {
                    recv(stopped) -> _ => {}
                    recv(receiver) -> message => match message {
                        Ok(message) => apply(&fed, message),
                        Err(_) => fed.stop(),
                    }
                }
            }
            drop(keep);
        };
        let on_stop = move || {
            push.stop();
            let _ = stop.try_send(());
        };
        let handle = group.start_function(&threads, receive, on_stop)?;
        Ok(Running::new(watch, handle.that_may_end(), Duration::MAX))
    }
}

/// Applies a message. A panic skips the message.
fn apply<K: Key + Sync, T: Send + Sync + 'static>(push: &Push<K, T>, message: impl Into<PushMessage<K, T>>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| push.apply(message.into()))) {
        let (source, message) = (push.watch().name(), panic_message(&*panic));
        log::error!(source, panic = message; "{source}: a message of the watch panicked: {message}");
    }
}
