//! The settings of all pages about a manager: health, metrics, status and the pages for people.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::actions::FormTokens;
use super::history::History;
use super::past_actions::PastActions;
use crate::api::ObjectApi;
use crate::server::{PageContext, ServerBuilder};
use crate::status::{CheckKind, Controls, HealthChecks};
use homeostat::base::{Running, StartError};
use homeostat::controller::ControllerHandle;
use homeostat::manager::{Manager, WeakManager};
use homeostat::queue::Key;
use homeostat::run::BoxError;

/// The pages about a manager: health, metrics, status, and pages for people. They change nothing, unless
/// [actions](Self::actions) are allowed. They work without scripts.
///
/// | path | answer |
/// |---|---|
/// | `/` | the status page: troubles, health checks, controllers and their last hour, runs, sources, [objects](Self::objects), the server with its open connections, the program with metrics for alerts; its tab shows the health |
/// | `/controllers/<name>` | the page of a controller: its last hour, failed and suspended keys, sources, last runs |
/// | `/keys/<controller>/<key>` | the page of a key: why it ran, its last runs, its next run |
/// | `/search?q=<text>` | the controllers, sources, known keys and objects whose names contain a text, with their states |
/// | `/objects/<kind>`, such as `/objects/sites.v1.example.com` | the objects of a kind |
/// | `/objects/<kind>/<namespace>/<name>` | an object with its conditions and events, or what an event tells; without a namespace for cluster-wide kinds |
/// | `/livez`, `/healthz` | 200 if [`Manager::live`] and the added checks pass, otherwise 503 and all checks |
/// | `/readyz` | the same for [`Manager::ready`], and for the store of the served [objects](ServerBuilder::objects) |
/// | `/livez/<name>`, `/readyz/<name>` | one check: the manager, a component or an added check |
/// | `/metrics` | metrics in the text format of Prometheus, with the names that [`homeostat::export`] lists, and see below |
/// | `/statusz` | the status as JSON; `?limit=` sets how many keys and runs of each kind it contains (1000) |
/// | `/statusz?format=text` | the status as a table |
///
/// Lists show their first rows. With `?all=1`, a page shows up to 1,000 rows of each list.
///
/// The health pages support `?verbose`, which lists all checks, and `?exclude=<name>`, which skips one. Users with
/// access to `/statusz` see the reasons of failures. Others see only names, results and `reason withheld`, as in
/// Kubernetes.
///
/// The check `objects` fails if the store's last read or write failed within the last minute. A server that gets no
/// requests while it is not ready therefore becomes ready again, and its next request shows whether the store works.
///
/// # Metrics of these pages
///
/// The names are those of a Kubernetes API server, where these exist. Only this page shows them.
///
/// | metric | labels | value |
/// |---|---|---|
/// | `kubernetes_healthcheck` | `name`, `type`: `livez` or `readyz` | whether a health check passes; each request runs the added checks |
/// | `homeostat_build_info` | `version` of this library, `program_version` if it is [set](Self::version) | 1 |
/// | `homeostat_pool_threads` | | the threads that run the keys of all controllers |
/// | `apiserver_request_total` | `verb` (`LIST`, `WATCH`, …; `other` if the request cannot be read), `code` | replies, except failed health checks |
/// | `homeostat_server_failed_health_checks_total` | | replies that told a failed health check |
/// | `apiserver_longrunning_requests` | | open streams, for example watches |
/// | `apiserver_terminated_watchers_total` | | watches that ended early, because other replies used the memory |
/// | `authentication_attempts` | `result` | requests with credentials: `success` or `failure` |
/// | `apiserver_tls_handshake_errors_total` | | connections that ended before TLS was set up |
/// | `homeostat_server_connections` | | open connections |
/// | `homeostat_server_accepted_connections_total` | | accepted connections |
/// | `homeostat_server_refused_connections_total` | `limit`: of the `server` or of one `client` address | refused ones |
/// | `homeostat_server_reply_bytes` | | [memory](ServerBuilder::reply_memory) of large replies that are being sent |
///
/// This value does not keep the manager alive, so it may belong to a component of the same manager. It lets all
/// controllers [tell their runs](Manager::observe_runs): the last 256 failed runs and the last 512 other runs of each
/// controller are kept. Its thread, `<manager>-history-0`, samples their counters every five seconds for the charts,
/// and ends when this value is dropped. It keeps an hour, in 6 KiB for each controller.
///
/// # The fields of `/statusz`
///
/// Names are stable and in lowerCamelCase: fields may be added, but existing ones do not change. A field with the
/// suffix `Seconds` has seconds. `timeSeconds`, `startTimeSeconds` and `sinceSeconds` count from the start of 1970,
/// and all others are durations. A field without a value is null. Keys are formatted with `Debug`.
///
/// | field | value |
/// |---|---|
/// | `name`, `phase` | the name of the manager, and its activity in a few words |
/// | `timeSeconds` | the time of this status |
/// | `live`, `ready` | `ok`, and `checks`: `name`, `ok`, `reason` |
/// | `leadership` | `elected` (whether there is an elector), `leading`, `leader`: `name`, `pid`, `sinceSeconds`, `forSeconds` |
/// | `process` | `pid`, `startTimeSeconds`, `cpuSeconds`, `residentBytes`, `virtualBytes`, `openFiles`, `maxFiles`, `threads`, `host`, `version` (of the program) |
/// | `poolThreads` | the number of threads that the controllers share |
/// | `components` | the names of all components |
/// | `failure` | the failure that stopped the manager: `component`, `error` |
/// | `controllers` | a list, see below |
/// | `sources` | the pollers and watches of the manager, see below |
///
/// A controller:
///
/// | field | value |
/// |---|---|
/// | `name`, `phase` | its name; `syncing`, `standby`, `suspended`, `running` or `stopped` |
/// | `maxConcurrentReconciles`, `overdueCount` | the limit on active runs, and how many are past their deadline |
/// | `running` | the active runs: `key`, `thread`, `reasons`, `requestedBy`, `ageSeconds`, `timeoutSeconds` (from the start of the run to its deadline), `overdue` |
/// | `queue` | `depth`, `high`, `normal`, `low`, `delayed`, `processing`, `adds` |
/// | `oldestWaiting` | `key`, `ageSeconds` |
/// | `nextDue` | the delayed key that is due first: `key`, `inSeconds` |
/// | `runs` | counts: `total`, `successes`, `requeues`, `retries`, `drops`, `terminalErrors`, `errors`, `aborted`, `panics`, `timeouts`, `overruns` |
/// | `queueTime`, `workTime` | `count`, `sumSeconds`, `buckets`: `upToSeconds` (null: any time), `count` of this bucket alone |
/// | `failingCount`, `parkedCount`, `suspendedCount` | all keys of that kind |
/// | `failing`, `parked` | the oldest first: `key`, `error`, `tries`, `failingForSeconds`, `lastTryAgoSeconds`, `nextTryInSeconds` (null: never, or now) |
/// | `suspendedForSeconds` | how long the controller has been suspended |
/// | `suspended`, `suspensions` | the suspended keys; the same with `key`, `forSeconds` |
/// | `recentRuns` | the newest last: `key`, `reasons`, `requestedBy` (a person), `try` (its number since the last success), `queuedSeconds`, `startedAgoSeconds`, `tookSeconds`, `thread`, `result`, `error`, `againInSeconds` |
/// | `sources` | its sources |
///
/// The `reasons` of a run are those of [`Reasons`](homeostat::queue::Reasons), separated by commas, or `none`. In place
/// of `manual`, a run has the reason `enqueued` if the program asked for it, and `requested` if a person did so on a
/// page.
///
/// A source: `name`, `synced`, `listings`, `failures`, `failuresInARow`, `failingForSeconds`, `lastError`,
/// `lastSuccessAgoSeconds` (null: never), `periodSeconds` (null: a watch), `nextTryInSeconds` (null: none is planned,
/// or it is due), `listingForSeconds`, `overdue`, `undecodable`, `undecodableError`.
///
/// # Examples
///
/// ```
/// use homeostat_serve::StatusPages;
/// use homeostat::{BoxError, Manager};
///
/// let manager = Manager::builder().build()?;
/// let pages = StatusPages::new(&manager)?
///     .ready_check("disk", || if std::fs::exists("/")? { Ok(()) } else { Err(BoxError::from("there is no disk")) });
/// # let _ = pages;
/// # Ok::<_, BoxError>(())
/// ```
#[must_use = "the pages are not served until a server has them"]
pub struct StatusPages {
    pub(super) name: String,
    pub(super) manager: WeakManager,
    pub(super) checks: HealthChecks,
    pub(super) history: Arc<History>,
    pub(super) objects: Option<ObjectApi>,
    /// The version of the program.
    pub(super) version: Option<String>,
    /// Facts that the program tells, each with its title.
    pub(super) facts: Vec<(String, String)>,
    /// The command `kubectl` with its options.
    pub(super) kubectl: String,
    pub(super) tokens: FormTokens,
    pub(super) past_actions: PastActions,
    /// The server of these pages. Its authorizer decides who may see the reasons of failed checks and the kinds of
    /// objects. `None` means that everyone may see everything.
    pub(super) server: Option<PageContext>,
    /// Ends the sampling thread on drop.
    _sampler: Running<()>,
}

impl StatusPages {
    /// Creates the pages of a manager.
    ///
    /// # Errors
    ///
    /// Returns a [`StartError`] if the system cannot start the sampling thread.
    pub fn new(manager: &Manager) -> Result<Self, StartError> {
        let (history, sampler) = History::start(manager)?;
        Ok(Self {
            name: manager.name().to_owned(),
            manager: manager.downgrade(),
            checks: HealthChecks::default(),
            history,
            objects: None,
            version: None,
            facts: Vec::new(),
            kubectl: "kubectl".to_owned(),
            tokens: FormTokens::default(),
            past_actions: PastActions::default(),
            server: None,
            _sampler: sampler,
        })
    }

    /// Shows these objects' kinds on the status page, with the number of objects and the command that lists them.
    ///
    /// Each kind has a page with its objects, and each object a page with its conditions and events. A page shows the
    /// `spec` and the `status` of an object, but no other content, such as the data of a secret.
    ///
    /// A user sees only kinds that they may `list`, and objects that they may `get`. If the client is
    /// [local](homeostat_objects::Capabilities::local), the objects are counted each time the page is viewed, and the
    /// search finds them. Otherwise the page shows no numbers.
    pub fn objects(self, api: &ObjectApi) -> Self {
        Self { objects: Some(api.clone()), ..self }
    }

    /// Adds a check to `/livez`. It runs on each request and must return quickly.
    ///
    /// An error or a panic fails the check. A process that is not live is usually restarted.
    pub fn live_check<E: Into<BoxError>>(
        self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.with_check(CheckKind::Live, name.into(), check)
    }

    /// Adds a check to `/readyz`. It runs on each request and must return quickly.
    ///
    /// An error or a panic fails the check. A process that is not ready usually receives no work.
    pub fn ready_check<E: Into<BoxError>>(
        self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.with_check(CheckKind::Ready, name.into(), check)
    }

    fn with_check<E: Into<BoxError>>(
        mut self,
        kind: CheckKind,
        name: String,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.checks.add(kind, name, Box::new(move || check().map_err(Into::into)));
        self
    }

    /// Lets users act on this controller and its keys: retry, suspend, resume.
    ///
    /// The pages of the controller and of its keys then have buttons. A form is sent to the path of its page and the
    /// action, such as `POST /keys/vm/%22a%22/suspend` or `POST /controllers/vm/retry`. The
    /// [authorization](ServerBuilder::authorize) decides with the verb `create` and this path, and users see only
    /// buttons that they may use. A form has a secret token of its user, so a page of another site cannot send it.
    ///
    /// Each action is logged at *info* with its user and client, so the logger must keep these lines. The pages show
    /// the last actions, and who suspended a key.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::{Action, BoxError, Context, Controller, Manager};
    /// use homeostat_serve::{Access, Server, StatusPages, UserInfo};
    ///
    /// let manager = Manager::builder().build()?;
    /// let reconcile = |_cx: &Context, _vm: &String| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    /// let controller = Controller::builder("vm", reconcile).build()?;
    /// let vms = controller.handle();
    /// manager.add(controller)?;
    /// let server = Server::builder(([127, 0, 0, 1], 0))
    ///     .password("a-long-secret", UserInfo::new("ada").group("admins"))
    ///     .authorize(|request| match request.verb {
    ///         "create" if !request.user.groups.iter().any(|group| group == "admins") => {
    ///             Access::Deny("only admins may act".to_owned())
    ///         }
    ///         _ => Access::Allow,
    ///     })
    ///     .status_pages(StatusPages::new(&manager)?.actions(&vms))
    ///     .build()?;
    /// # let _ = server;
    /// # Ok::<_, BoxError>(())
    /// ```
    pub fn actions<K: Key + Sync + fmt::Debug>(self, controller: &ControllerHandle<K>) -> Self {
        self.history.runs.allow(controller.name(), Controls::new::<K>(controller.name()));
        self
    }

    /// Shows the version of the program, such as `env!("CARGO_PKG_VERSION")`.
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// Adds a fact about the program to the section *This program*. A person on call needs it and the library does not
    /// know it: that a restart loses the objects (under the title `Store`), or the address of the runbook.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::{BoxError, Manager};
    /// use homeostat_serve::StatusPages;
    ///
    /// let manager = Manager::builder().build()?;
    /// let pages = StatusPages::new(&manager)?.fact("Store", "in memory: a restart loses all objects");
    /// # let _ = pages;
    /// # Ok::<_, BoxError>(())
    /// ```
    pub fn fact(mut self, title: impl Into<String>, text: impl Into<String>) -> Self {
        self.facts.push((title.into(), text.into()));
        self
    }

    /// Adds this file to the `kubectl` commands on the pages, as `--kubeconfig`.
    pub fn kubeconfig(self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().display().to_string();
        let is_plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+:@".contains(&byte));
        // A shell takes everything between single quotes literally.
        let path = if is_plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) };
        Self { kubectl: format!("kubectl --kubeconfig {path}"), ..self }
    }
}

impl ServerBuilder {
    /// Serves these pages at all paths that do not belong to objects.
    ///
    /// The pages show the program's names and errors to every user who may `get` their paths. To let probes ask
    /// without credentials, add `/livez` and `/readyz` to the [public paths](Self::public_path). Clients without the
    /// right to `get` `/statusz` then see which checks fail, but not why.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_serve::{Server, StatusPages};
    /// use homeostat::{BoxError, Component, Manager};
    ///
    /// let manager = Manager::builder().build()?;
    /// let pages = StatusPages::new(&manager)?;
    /// let server = Server::builder(([127, 0, 0, 1], 0)).status_pages(pages).build()?.start()?;
    /// manager.add(Component::running("status", server))?;
    /// # Ok::<_, BoxError>(())
    /// ```
    pub fn status_pages(self, pages: StatusPages) -> Self {
        self.page_handler(move |server| {
            pages.history.watch_logins(Arc::clone(&server.vitals.counts));
            Arc::new(StatusPages { server: Some(server), ..pages })
        })
    }
}

impl fmt::Debug for StatusPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusPages").field("manager", &self.name).finish_non_exhaustive()
    }
}
