//! Divides keys among processes, by leases in a client.
//!
//! `machine.rs` decides about the members of a group, `session.rs` calls the client, `record.rs` has the JSON.

mod assignment;
mod machine;
mod record;
mod session;
mod shards;
mod shared;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::session::MemberTask;
pub(super) use self::shards::ShardGate;
pub use self::shards::{ShardHash, ShardStatus, Shards};
use self::shared::MembersShared;
use super::lease::LeaseTiming;
use super::validate::{DNS_LABEL, is_dns_label};
use crate::Client;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use homeostat::base::{Clock, Running, StartError, ThreadOptions};
use homeostat::rt::{AutoResetEvent, ThreadGroup, ThreadGroupKind};

/// Divides keys among processes on several machines, by `Lease` objects (`coordination.k8s.io/v1`) in a client.
///
/// Other names for this are sharding and partitioning. Each process of a group renews its own lease. Each key belongs
/// to one member, by rendezvous hashing: if a process joins or leaves, only its own keys move. Controllers with these
/// [`shards`](Self::shards) run only the keys of their process.
///
/// # Guarantees
///
/// - **A key does not run in two processes.** The new owner waits until the earlier owner has ended its runs of lost
///   keys and has said so in its lease, or was expelled because its lease ran out. A process that was paused for too
///   long begins no run.
/// - **Each later owner of a key has a greater number.** [`Context::fence`](homeostat::Context::fence) has the number
///   of the assignment. [`ObjectMeta::mark_term`](crate::ObjectMeta::mark_term) writes it into objects, so that a write
///   of an earlier owner is refused.
/// - **Keys that a watch shows are not forgotten.** After each change of the members, the watches of the controllers
///   enqueue the moved keys once more (reason [`RESYNC`](homeostat::Reasons::RESYNC)), and the pollers poll. Events of
///   keys of other processes are remembered, and run here if the key moves here.
///
/// # Limits
///
/// | case | effect | remedy |
/// |---|---|---|
/// | a run ignores its cancellation, or its process is paused | it may overlap with a run of the next owner, as with a [`LeaseElector`](super::LeaseElector) | mark objects with `cx.fence()?` |
/// | a run of a lost key does not end | its process hands over none of its lost keys | set a [timeout](homeostat::controller::ControllerBuilder::reconcile_timeout), and heed the cancellation |
/// | … during sixteen changes of the members (fewer with more than 128 KiB of names) | no process can join, and the keys of a dead one have no owner | the same |
/// | an object is deleted, and its key moves after three lease durations or 100,000 events of other keys | the new owner does not handle the deletion | use finalizers |
/// | a key that no source shows moves | it is forgotten | feed keys by a watch or a poller |
/// | a key moves | its suspension, failures and scheduled run stay in its former process | |
/// | the watch of a new owner lags | it may not show the last writes of the old owner | none needed: an update in an old version is refused |
/// | processes of a group use different hashes | two of them may run one key | stop all processes before you change the hashes |
/// | leases are deleted by hand | the numbers begin again | never delete them |
///
/// # Objects
///
/// The group has one lease with its own name, which holds the members in annotations, and one lease for each member,
/// with the label `homeostat.dev/group`. Leases of members that are gone are deleted. The program needs permission to
/// get, list, create, update and delete leases in this namespace: `RbacRules::divide_keys` of the crate
/// `homeostat-kubernetes`.
///
/// If this process also runs the server of the client, the server must outlive the members: do not add both to one
/// manager.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{ControllerExt, MemoryClient, Members, ObjectKey, ShardHash};
/// use homeostat::{Action, BoxError, Component, Context, Controller, Manager};
/// use std::sync::Arc;
///
/// let members = Members::builder(Arc::new(MemoryClient::new()), "default", "sites").identity("node-1").build()?;
/// let reconcile = |cx: &Context, site: &ObjectKey| -> Result<Action, BoxError> {
///     log::info!("{site} belongs to this process, number {:?}", cx.fence()?.number());
///     Ok(Action::await_change())
/// };
/// let sites = Controller::builder("sites", reconcile)
///     .shards(members.shards(), |site: &ObjectKey| ShardHash::of([site.namespace(), site.name()]))
///     .build()?;
///
/// let manager = Manager::builder().build()?;
/// manager.add(Component::running("sites-member", members.start()?))?; // before the controllers, so that it stops after them
/// manager.add(sites)?;
/// # Ok::<_, BoxError>(())
/// ```
#[derive(Clone)]
#[doc(alias = "sharding")]
pub struct Members {
    shared: Arc<MembersShared>,
    options: ThreadOptions,
    clock: Clock,
    grace: Duration,
}

/// The settings of [`Members`].
///
/// # Examples
///
/// ```
/// use homeostat_objects::{MemoryClient, Members};
/// use std::sync::Arc;
///
/// let members = Members::builder(Arc::new(MemoryClient::new()), "default", "sites");
/// let error = members.identity("Node 1").build().unwrap_err();
/// assert!(error.to_string().starts_with("identity is \"Node 1\", but must be a DNS label"));
/// ```
#[must_use = "settings do nothing until `build` is called"]
pub struct MembersBuilder {
    client: Arc<dyn Client>,
    namespace: String,
    group: String,
    identity: Option<String>,
    timing: LeaseTiming,
    options: ThreadOptions,
    clock: Clock,
    grace: Duration,
}

impl MembersBuilder {
    /// Sets the name of this process in its lease: a DNS label. A random number is added to it, so that each start is a
    /// new member.
    ///
    /// Default: the environment variable `HOSTNAME` (in Kubernetes the name of the pod) in lower case if it is a DNS
    /// label, otherwise the process id.
    pub fn identity(mut self, name: impl Into<String>) -> Self {
        self.identity = Some(name.into());
        self
    }

    /// Sets the times of the leases. The others expel a member that does not renew its lease in time.
    pub fn timing(mut self, timing: LeaseTiming) -> Self {
        self.timing = timing;
        self
    }

    /// Sets the clock. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the options of the thread.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how long active runs may continue after a running member is dropped. Default: 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Builds the member. Makes no calls yet.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if a name is not a DNS label, or if the times contradict each other. The error names the
    /// first wrong setting.
    pub fn build(self) -> Result<Members, StartError> {
        let Self { client, namespace, group, identity, timing, options, clock, grace } = self;
        let client = timing.apply_to(client)?;
        let host =
            || std::env::var("HOSTNAME").ok().map(|host| host.to_ascii_lowercase()).filter(|host| is_dns_label(host));
        let identity = identity.or_else(host).unwrap_or_else(|| format!("process-{}", std::process::id()));
        for (field, name) in [("group", &group), ("identity", &identity)] {
            if !is_dns_label(name) {
                return Err(StartError::setting(field, name, DNS_LABEL.trim_start_matches("must be ")));
            }
        }
        let shards = Shards::new(3 * timing.duration);
        let shared =
            MembersShared { client, namespace, group, identity, timing, shards, is_running: AtomicBool::new(false) };
        Ok(Members { shared: Arc::new(shared), options, clock, grace })
    }
}

impl Members {
    /// Returns the default settings for a member of this group. `namespace` is the namespace of the leases, and `group`
    /// is a DNS label.
    pub fn builder(client: Arc<dyn Client>, namespace: impl Into<String>, group: impl Into<String>) -> MembersBuilder {
        MembersBuilder {
            client,
            namespace: namespace.into(),
            group: group.into(),
            identity: None,
            timing: LeaseTiming::default(),
            options: ThreadOptions::default(),
            clock: Clock::system(),
            grace: Duration::from_secs(30),
        }
    }

    /// Returns the share of this process, for [controllers](super::ControllerExt::shards).
    #[must_use]
    pub fn shards(&self) -> &Shards {
        &self.shared.shards
    }

    /// Returns the members as this process knows them.
    #[must_use]
    pub fn status(&self) -> ShardStatus {
        self.shared.shards.status()
    }

    /// Starts a thread that joins the group and divides keys until it is stopped.
    ///
    /// A stop begins no further run, waits until all runs have ended, and releases the lease. An abort does not wait:
    /// then the lease runs out.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if the operating system refuses a thread, or if this value or a clone is already running.
    pub fn start(&self) -> Result<Running<Self>, StartError> {
        if self.shared.is_running.swap(true, SeqCst) {
            return Err(StartError::named("group", &self.shared.group, "has been joined by these members already"));
        }
        let name = format!("{}-member", self.shared.group);
        let group = ThreadGroup::new(ThreadGroupKind::Component, name, self.clock.clone(), 1);
        let event = AutoResetEvent::new(self.clock.clone());
        let woken = Arc::clone(&event);
        self.shared.shards.on_left(move || woken.set());
        let task = MemberTask::new(Arc::clone(&self.shared), Arc::clone(&group));
        let name = self.shared.group.clone();
        let watchdog = Arc::new(move || {
            let group = name.as_str();
            log::error!(group; "{group}: this process is no longer a member: a call does not return, and its lease has run out");
        });
        let handle = group.start_one(&self.options, task, event, Some(watchdog), || ())?;
        Ok(Running::new(self.clone(), handle, self.grace))
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members")
            .field("group", &self.shared.group)
            .field("identity", &self.shared.identity)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MembersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MembersBuilder")
            .field("group", &self.group)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}
