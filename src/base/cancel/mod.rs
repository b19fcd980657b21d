//! Cancellation tokens. The module `node` has their lock and the three passes of a cancellation.

#[cfg(all(test, loom))]
mod models;
mod node;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::Arc;

use self::node::Node;

/// A request to stop, that can be made once, seen by many, and passed down to children.
///
/// Clones are handles to the same token. A [`child`](Self::child) is cancelled with its parent or alone, and never cancels
/// its parent. A token that reads as cancelled stays so, and all its descendants read as cancelled too.
///
/// A token lives as long as a clone, a child, or an [`OnCancel`] guard of it that stands. Dropping a token does not
/// cancel it.
///
/// ```
/// use homeostat::CancellationToken;
///
/// let stop = CancellationToken::new();
/// let request = stop.child();
///
/// std::thread::scope(|scope| {
///     scope.spawn(|| request.wait());
///     stop.cancel();
/// });
/// assert!(request.is_cancelled());
/// ```
#[derive(Clone)]
#[doc(alias = "stop channel")]
pub struct CancellationToken {
    node: Arc<Node>,
}

impl CancellationToken {
    /// Makes a token without a parent, not cancelled. Costs one allocation.
    ///
    /// # Panics
    ///
    /// Never.
    ///
    /// ```
    /// use homeostat::CancellationToken;
    ///
    /// assert!(!CancellationToken::new().is_cancelled());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self { node: Node::root() }
    }

    /// Makes a token that is cancelled when this one is, and that can be cancelled alone.
    ///
    /// The child of a cancelled token is born cancelled. A child that is dropped leaves nothing behind in its parent, so a
    /// long-lived token may have any number of short-lived children. The cost does not grow with the number of children.
    ///
    /// # Panics
    ///
    /// Never.
    ///
    /// ```
    /// use homeostat::CancellationToken;
    ///
    /// let parent = CancellationToken::new();
    /// let (one, other) = (parent.child(), parent.child());
    ///
    /// one.cancel();
    /// assert!(one.is_cancelled() && !parent.is_cancelled());
    ///
    /// parent.cancel();
    /// assert!(other.is_cancelled());
    /// assert!(parent.child().is_cancelled());
    /// ```
    #[must_use]
    pub fn child(&self) -> Self {
        Self { node: Node::child(&self.node) }
    }

    /// Cancels this token and all its descendants, then runs their callbacks on this thread.
    ///
    /// When this returns, this token and all its descendants read as cancelled, and every [`wait`](Self::wait) on one of
    /// them has been woken. Each callback runs once, outside any lock, after all of them read as cancelled: a token's own
    /// in the order in which they were registered, and before those of its descendants. Siblings come in no promised
    /// order. A callback that panics is caught and logged as an error, and the others run.
    ///
    /// Only the first call runs callbacks. A call on a token that another thread is just cancelling, directly or through
    /// an ancestor, returns with the token cancelled, but without waiting for that thread: callbacks may still be running
    /// there, or be about to. A callback may call this too. To know that one callback is over, drop its
    /// [`OnCancel`].
    ///
    /// # Panics
    ///
    /// Never.
    ///
    /// ```
    /// use homeostat::CancellationToken;
    ///
    /// let token = CancellationToken::new();
    /// token.cancel();
    /// token.cancel(); // Changes nothing.
    /// assert!(token.is_cancelled());
    /// ```
    pub fn cancel(&self) {
        Node::cancel(&self.node);
    }

    /// Whether this token has been cancelled, itself or through an ancestor. Costs one atomic load.
    ///
    /// Everything that a thread did before it cancelled the token is visible to a thread that reads `true` here.
    ///
    /// # Panics
    ///
    /// Never.
    ///
    /// ```
    /// use homeostat::CancellationToken;
    ///
    /// let token = CancellationToken::new();
    /// let child = token.child();
    /// token.cancel();
    /// assert!(token.is_cancelled() && child.is_cancelled());
    /// ```
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.node.is_cancelled()
    }

    /// Whether it is cancelled or being cancelled. If a descendant reads as cancelled, this tells whether the cancellation came
    /// from here or above.
    pub(crate) fn is_closed(&self) -> bool {
        self.node.is_closed()
    }

    /// Registers `f` to run once when this token is cancelled, on the thread that cancels it.
    ///
    /// Use it to unblock code that knows no token: shut a socket down, kill a child process, notify a condition variable.
    /// On a token that reads as cancelled already, `f` runs at once on this thread, possibly while callbacks registered
    /// before it still run elsewhere. A panic of `f` is caught and logged as an error, in either case.
    ///
    /// Dropping the returned guard unregisters `f`; see [`OnCancel`]. The guard keeps the token,
    /// so the callback also of an otherwise dropped child runs when the parent is cancelled.
    ///
    /// # Panics
    ///
    /// Never.
    ///
    /// ```
    /// use homeostat::CancellationToken;
    /// use std::net::{Shutdown, TcpListener, TcpStream};
    /// use std::io::Read;
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut stream = TcpStream::connect(listener.local_addr()?)?;
    /// let other_end = listener.accept()?;
    ///
    /// let stop = CancellationToken::new();
    /// let handle = stream.try_clone()?;
    /// let unblock = stop.on_cancel(move || {
    ///     let _ = handle.shutdown(Shutdown::Both);
    /// });
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| stop.cancel());
    ///     assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0); // Would wait for `other_end` for ever.
    /// });
    /// # drop((unblock, other_end));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_cancel<F>(&self, f: F) -> OnCancel
    where
        F: FnOnce() + Send + 'static,
    {
        let id = self.node.register(Box::new(f));
        OnCancel { registered: id.map(|id| (Arc::clone(&self.node), id)) }
    }

    /// Blocks until this token is cancelled. Returns at once if it is already.
    ///
    /// Only a [`cancel`](Self::cancel) of this token or of an ancestor wakes it. There is no timeout: if nobody cancels the
    /// token, it waits for ever. Callbacks may still be running when this returns.
    ///
    /// # Panics
    ///
    /// Never.
    ///
    /// ```
    /// use homeostat::CancellationToken;
    ///
    /// let token = CancellationToken::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| token.cancel());
    ///     token.wait();
    /// });
    /// assert!(token.is_cancelled());
    /// ```
    pub fn wait(&self) {
        self.node.wait();
    }
}

impl Default for CancellationToken {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancellationToken").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

/// A registration made by [`CancellationToken::on_cancel`]; dropping it unregisters the callback.
///
/// Once the drop has returned, the callback neither runs nor will run:
/// - not yet run, it is dropped without being run; a panic in the drop of what it holds is caught and logged;
/// - running on another thread, the drop **blocks** until it has ended, and only that end wakes it;
/// - running on this very thread (the guard is dropped from inside the callback), the drop returns at once.
///
/// After the guard, you may tear down everything that the callback uses. As with any join, two callbacks that run on two threads
/// and each drop the other's guard wait for each other for ever; so does a drop under a lock that the callback takes.
///
/// # Panics
///
/// Dropping a guard never panics.
///
/// ```
/// use homeostat::CancellationToken;
///
/// let token = CancellationToken::new();
/// let guard = token.on_cancel(|| unreachable!("the guard is dropped first"));
/// drop(guard);
/// token.cancel();
/// ```
#[must_use = "dropping the guard unregisters the callback; `detach` keeps it registered"]
pub struct OnCancel {
    /// `None` when there is nothing to unregister: the token was cancelled already, or the guard is detached.
    registered: Option<(Arc<Node>, u64)>,
}

impl OnCancel {
    /// Keeps the callback registered for as long as the token lives, and gives the guard up.
    ///
    /// Unlike the guard, the callback does not keep the token: when the last clone, child and guard of the token are gone,
    /// it is dropped without being run. A detached callback that holds a clone of its own token keeps both until the
    /// token is cancelled.
    ///
    /// # Panics
    ///
    /// Never.
    ///
    /// ```
    /// use homeostat::CancellationToken;
    /// use std::sync::mpsc;
    ///
    /// let (sender, receiver) = mpsc::channel();
    /// let token = CancellationToken::new();
    /// token.on_cancel(move || sender.send("cancelled").unwrap()).detach();
    /// token.cancel();
    /// assert_eq!(receiver.recv(), Ok("cancelled"));
    /// ```
    pub fn detach(mut self) {
        self.registered = None;
    }
}

impl Drop for OnCancel {
    fn drop(&mut self) {
        if let Some((node, id)) = self.registered.take() {
            node.unregister(id);
        }
    }
}

impl fmt::Debug for OnCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnCancel").finish_non_exhaustive()
    }
}
