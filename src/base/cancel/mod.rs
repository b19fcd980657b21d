//! Cancellation tokens. The module `node` has their locks and the three passes of a cancellation.

#[cfg(all(test, loom))]
mod models;
mod node;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::Arc;

use self::node::Node;

/// A one-time request to stop that reaches all child tokens.
///
/// Clones are handles of the same token. A [`child`](Self::child) is cancelled with its parent or alone, and never
/// cancels its parent. A cancelled token stays cancelled, together with all its descendants.
///
/// A token exists as long as one of its clones, children or [`OnCancel`] guards. Dropping a token does not cancel it.
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
    /// Creates a token without a parent. Costs one allocation.
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

    /// Creates a token that is cancelled when this one is, or alone.
    ///
    /// The child of a cancelled token is cancelled from the start. A dropped child leaves nothing behind in its parent,
    /// so a long-lived token may have any number of short-lived children. The cost grows with the logarithm of the
    /// number of children.
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
    /// When this returns, [`is_cancelled`](Self::is_cancelled) is true for all these tokens, and each
    /// [`wait`](Self::wait) on them has been woken. Callbacks run once each, outside any lock, after all these tokens
    /// are cancelled. A token's callbacks run in the order of their registration, and before the callbacks of its
    /// descendants. The order of siblings is unspecified. If a callback panics, the panic is logged as an error, and
    /// the others run.
    ///
    /// Only the first call runs callbacks. If another thread is cancelling the token, directly or through an ancestor,
    /// this returns with the token cancelled, but does not wait for the callbacks of that thread. A callback may also
    /// call this. To wait for the end of one callback, drop its [`OnCancel`].
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
        if let Some(callbacks) = self.begin_cancel() {
            callbacks();
        }
    }

    /// Cancels like [`cancel`](Self::cancel), but lets the caller run the callbacks. Returns `None` without callbacks.
    pub(crate) fn begin_cancel(&self) -> Option<impl FnOnce() + Send + use<>> {
        let nodes = Node::cancel(&self.node);
        (!nodes.is_empty()).then_some(move || nodes.iter().for_each(|node| node.run_callbacks()))
    }

    /// Returns whether this token or an ancestor was cancelled. Costs one atomic load.
    ///
    /// A thread that reads `true` here sees everything that the cancelling thread did before the cancellation.
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

    /// Returns whether the token is cancelled or is being cancelled. If a descendant is cancelled, this shows whether
    /// the cancellation came from this token or an ancestor.
    pub(crate) fn is_closed(&self) -> bool {
        self.node.is_closed()
    }

    /// Registers `f` to run once when this token is cancelled, on the cancelling thread.
    ///
    /// Use it to unblock code that does not know tokens: shut down a socket, kill a child process, notify a condition
    /// variable. If the token is already cancelled, `f` runs at once on this thread, possibly while earlier callbacks
    /// still run elsewhere. A panic of `f` is logged as an error in both cases.
    ///
    /// Dropping the returned guard unregisters `f`; see [`OnCancel`]. The guard keeps the token alive: the callback
    /// runs even if all other handles of a child are dropped before its parent is cancelled.
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
        self.register(f, false)
    }

    /// Registers `f` like [`on_cancel`](Self::on_cancel), before the callbacks of others, which may block.
    pub(crate) fn on_cancel_first(&self, f: impl FnOnce() + Send + 'static) -> OnCancel {
        self.register(f, true)
    }

    fn register(&self, f: impl FnOnce() + Send + 'static, first: bool) -> OnCancel {
        let id = self.node.register(Box::new(f), first);
        OnCancel { registered: id.map(|id| (Arc::clone(&self.node), id)) }
    }

    /// Returns whether this is a clone of the other token.
    ///
    /// # Panics
    ///
    /// Never.
    ///
    /// ```
    /// use homeostat::CancellationToken;
    ///
    /// let token = CancellationToken::new();
    /// assert!(token.is_same(&token.clone()) && !token.is_same(&token.child()));
    /// ```
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.node, &other.node)
    }

    /// Blocks until this token is cancelled. Returns at once if it already is.
    ///
    /// Only a [`cancel`](Self::cancel) of this token or an ancestor wakes it. There is no timeout. Callbacks may still
    /// be running when this returns.
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

/// The registration of a callback. Dropping it unregisters the callback.
///
/// After the drop has returned, the callback does not run:
/// - If it has not started, it never runs. It is dropped now.
/// - If it runs on another thread, the drop **blocks** until it has ended. Only that end wakes the drop.
/// - If it runs on this thread (the callback drops its own guard), the drop returns at once.
///
/// After the drop you may destroy everything that the callback uses. Beware of deadlocks: two callbacks on two threads
/// that drop each other's guards wait for ever, like any mutual join. A drop under a lock that the callback takes also
/// deadlocks.
///
/// # Panics
///
/// Dropping a guard panics only if it drops the callback, and a captured value panics as it is dropped.
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
    /// `None` if nothing must be unregistered: the token was already cancelled, or the guard is detached.
    registered: Option<(Arc<Node>, i64)>,
}

impl OnCancel {
    /// Keeps the callback registered for the life of the token.
    ///
    /// Unlike the guard, the callback does not keep the token alive. When the last clone, child and guard of the token
    /// are dropped, the callback is dropped without running. If a detached callback holds a clone of the same token,
    /// both stay alive until the token is cancelled.
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
