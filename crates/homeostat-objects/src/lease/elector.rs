//! The elector, its settings, and its terms.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::machine::{LeaseLoss, LeaseMachine};
use super::session::{LeasePause, LeaseSession, LeaseShared};
use super::term::LimitedTerm;
use super::timing::LeaseTiming;
use crate::sync::Mutex;
use crate::{Client, ObjectKey};
use homeostat::base::StartError;
use homeostat::manager::{Candidate, Elector, Holder, Leadership, Term};
use homeostat::run::BoxError;

/// Elects a leader among processes on several machines, by a `Lease` object (`coordination.k8s.io/v1`) in a client.
///
/// The leader renews its lease. If the others see no renewal for the lease's duration, one of them takes over. When the
/// leader stops normally, another process takes over at once. The object is the one that client-go's leader election
/// uses, and `kubectl get lease` shows it.
///
/// # Guarantees
///
/// - **No wall clock decides.** Each process measures by its own monotonic clock, which also counts the time that the
///   machine sleeps (on Linux and Apple systems). The times in the lease are for people. With the default times, clocks
///   may run up to 20 % too fast or too slow.
/// - **A leader ends before another begins.** Its deadline counts from before its last renewal was sent. At the
///   [margin](LeaseTiming::stop_margin) before the deadline, its work is cancelled. This also happens if a
///   renewal hangs.
/// - **A process that was paused for too long does not run another key.** Only while the term lasts do runs of
///   controllers begin, and [`Context::check`](homeostat::Context::check) and
///   [`Context::fence`](homeostat::Context::fence) succeed.
/// - **Each term has a greater [number](homeostat::run::Fence::number)** than all earlier ones: the field
///   `leaseTransitions`. If the server must refuse writes of a paused process, write the number with your objects
///   ([`ObjectMeta::mark_term`](crate::ObjectMeta::mark_term)). Do not delete the lease: a process that has
///   not seen it starts again at the number 0.
///
/// After the machine has slept for longer than the term, [`Context::check`](homeostat::Context::check) fails at once. A
/// token of a run is cancelled when the elector's thread wakes, within a [retry
/// period](LeaseTiming::retry_period).
///
/// Threads cannot be killed. A run that ignores its cancellation for longer than the margin may overlap with the next
/// leader's work; then only its fenced writes are refused.
///
/// # Clients
///
/// The elector calls [`Client::with_timeout`] to get its own connections. The program needs permission to get, create
/// and update leases in this namespace: `RbacRules::elect_leader` of the crate `homeostat-kubernetes`.
///
/// At its end, the manager gives the lease back. If this process also runs the server of the client, the server must
/// outlive the manager: keep its handle in a variable, and do not add it to the manager.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{LeaseElector, MemoryClient};
/// use homeostat::{Context, Elector};
/// use std::sync::Arc;
///
/// let client = Arc::new(MemoryClient::new());
/// let elector = LeaseElector::builder(client, "default", "backup").identity("node-1").build()?;
///
/// let term = elector.campaign(&Context::detached())?;
/// assert_eq!(term.fence().number(), Some(0));
/// assert!(elector.leader().unwrap().name.unwrap().starts_with("node-1_"));
///
/// drop(term); // gives the lease back
/// assert_eq!(elector.leader(), None);
/// assert_eq!(elector.campaign(&Context::detached())?.fence().number(), Some(1));
/// # Ok::<_, homeostat::BoxError>(())
/// ```
///
/// A manager that leads, and marks the objects that it writes with the number of its term:
///
/// ```
/// use homeostat_objects::{LeaseElector, MemoryClient, ObjectMeta};
/// use homeostat::{Action, BoxError, CancellationToken, Context, Controller, Manager};
/// use std::sync::Arc;
///
/// let client = Arc::new(MemoryClient::new()); // a program with several processes uses a client of a server
/// let elector = LeaseElector::builder(client, "default", "backup").identity("node-1").build()?;
/// let manager = Manager::builder().elector(elector).build()?;
///
/// let stop = CancellationToken::new();
/// let enough = stop.clone();
/// let reconcile = move |cx: &Context, disk: &&str| -> Result<Action, BoxError> {
///     let mut meta = ObjectMeta::new("default", *disk); // here the metadata of an object that was just read
///     meta.mark_term(&cx.fence()?)?;
///     assert_eq!(meta.annotations["homeostat.dev/fence"], "0");
///     enough.cancel(); // here to end the example
///     Ok(Action::await_change())
/// };
/// let disks = Controller::builder("disk", reconcile).build()?;
/// disks.handle().enqueue("disk-1");
/// manager.add(disks)?;
/// manager.run(&stop)?;
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Clone)]
#[doc(alias = "leader election")]
pub struct LeaseElector {
    shared: Arc<LeaseShared>,
}

/// The settings of a [`LeaseElector`].
///
/// # Examples
///
/// ```
/// use homeostat_objects::{LeaseElector, LeaseTiming, MemoryClient};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let timing = LeaseTiming::new(Duration::from_secs(30));
/// let elector = LeaseElector::builder(Arc::new(MemoryClient::new()), "default", "backup").timing(timing).build()?;
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use = "settings do nothing until `build` is called"]
pub struct LeaseElectorBuilder {
    client: Arc<dyn Client>,
    key: ObjectKey,
    name: Option<String>,
    timing: LeaseTiming,
}

impl LeaseElectorBuilder {
    /// Sets the name of this process in the lease. A random number is added to it, so that each term has its own
    /// identity.
    ///
    /// Default: the environment variable `HOSTNAME` (in Kubernetes the name of the pod), otherwise the process id.
    pub fn identity(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the times of the lease.
    pub fn timing(mut self, timing: LeaseTiming) -> Self {
        self.timing = timing;
        self
    }

    /// Builds the elector. Makes no calls yet.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if the times contradict each other. The error names the first one that does.
    pub fn build(self) -> Result<LeaseElector, StartError> {
        let Self { client, key, name, timing } = self;
        let client = timing.apply_to(client)?;
        let name = name.or_else(|| std::env::var("HOSTNAME").ok()).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| format!("process-{}", std::process::id()));
        Ok(LeaseElector { shared: Arc::new(LeaseShared { client, key, name, timing, leader: Mutex::new(None) }) })
    }
}

impl LeaseElector {
    /// Returns the default settings of an elector on the lease with this namespace and name.
    pub fn builder(client: Arc<dyn Client>, namespace: &str, name: &str) -> LeaseElectorBuilder {
        let (key, timing) = (ObjectKey::new(namespace, name), LeaseTiming::default());
        LeaseElectorBuilder { client, key, name: None, timing }
    }
}

impl Elector for LeaseElector {
    fn candidate(&self) -> Box<Candidate> {
        let (shared, mut kept) = (Arc::clone(&self.shared), None);
        Box::new(move |cx| {
            let mut session = kept.take().unwrap_or_else(|| {
                let session = LeaseSession::new(&shared, cx.clock());
                let elector = session.elector.as_str();
                log::info!(elector; "{elector}: campaigning for the lease");
                session
            });
            let pause = session.advance(|machine| machine.term().is_some());
            if let Some((number, work_ends)) = session.term() {
                let term = LimitedTerm::new(number, session.clock.clone(), work_ends);
                let (elector, fence) = (session.elector.clone(), term.fence().clone());
                let leadership = LeaseLeadership { session, term, pause: Duration::ZERO };
                return Ok(ControlFlow::Break(Term::fenced(elector, fence, leadership)));
            }
            let pause = if let LeasePause::For(pause) = pause { pause } else { shared.timing.retry };
            kept = Some(session);
            Ok(ControlFlow::Continue(pause))
        })
    }

    fn leader(&self) -> Option<Holder> {
        self.shared.leader.lock().clone()
    }

    fn stop_margin(&self) -> Option<Duration> {
        Some(self.shared.timing.margin)
    }

    fn longest_call(&self) -> Duration {
        self.shared.timing.call
    }
}

/// Renews the lease while this process leads, and gives it back.
struct LeaseLeadership {
    session: LeaseSession,
    term: LimitedTerm,
    /// The time until the next renewal.
    pause: Duration,
}

impl LeaseLeadership {
    /// Renews the lease if the next renewal is due. Returns after each renewal, so that a watchdog learns of the later
    /// end.
    fn extend(&mut self) -> LeasePause {
        let Self { session, term, .. } = self;
        let is_done = |machine: &LeaseMachine| {
            term.fence().check().is_err() || machine.term().is_some_and(|(_, work_ends)| term.extend(work_ends))
        };
        session.advance(is_done)
    }
}

impl Leadership for LeaseLeadership {
    fn check(&mut self) -> Result<(), BoxError> {
        match self.extend() {
            LeasePause::Ended(loss) => return Err(loss.to_string().into()),
            LeasePause::For(pause) => self.pause = pause,
            // If the call took longer than a period, the next renewal is due.
            LeasePause::Leading => self.pause = Duration::ZERO,
        }
        Ok(())
    }

    fn check_interval(&self) -> Duration {
        self.pause
    }
}

impl Drop for LeaseLeadership {
    /// Gives the lease back, unless another process has it.
    fn drop(&mut self) {
        self.session.machine.release();
        self.session.advance(|_| false);
    }
}

impl fmt::Display for LeaseLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RanOut => f.write_str("it was not renewed in time"),
            Self::Taken(holder) if holder.is_empty() => f.write_str("another process has cleared the lease"),
            Self::Taken(holder) => write!(f, "{holder} holds the lease now"),
            Self::Deleted => f.write_str("the lease was deleted"),
            Self::Released => f.write_str("the lease was given back"),
        }
    }
}

impl fmt::Debug for LeaseElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeaseShared { key, name, timing, .. } = &*self.shared;
        f.debug_struct("LeaseElector")
            .field("lease", key)
            .field("identity", name)
            .field("lease_duration", &timing.duration)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LeaseElectorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseElectorBuilder")
            .field("lease", &self.key)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}
