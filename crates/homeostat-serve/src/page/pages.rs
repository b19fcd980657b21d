//! The handler for all pages about a manager: health, metrics, status and the pages for people.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};

use super::data::PageData;
use super::history::History;
use super::key_page::{KeyStatus, PageTime};
use super::shell::{live_part, protect, whole_page};
use super::{attention, controllers, key_page, objects, sources, summary, timeline};
use crate::access::{Access, AccessRequest, AccessTarget, Authorizer, UserInfo};
use crate::api::{KindCount, ObjectApi};
use crate::http::{Handler, IncomingRequest, Reply};
use crate::server::{PageContext, ServerBuilder};
use crate::status::{
    CONTENT_TYPE, CheckKind, CheckResult, FailureReasons, HealthChecks, ProcessFacts, all_ok, metrics_text,
    reply_to_group, reply_to_one, status_json,
};
use homeostat::base::{Running, StartError};
use homeostat::manager::{Manager, WeakManager};
use homeostat::rt::panic_message;
use homeostat::run::BoxError;
use homeostat_objects::Kind;

/// The default number of keys and runs of each kind in `/statusz`.
const MOST_KEYS: usize = 1000;

/// The name of the object store's check.
const STORE_CHECK: &str = "objects";

/// The path of the status. Users who may read it may also read why checks fail.
const STATUS_PATH: &str = "/statusz";

/// The pages about a manager: health, metrics, status, and a page for people. They change nothing.
///
/// | path | answer |
/// |---|---|
/// | `/` | the status page: troubles, controllers, runs, sources and [objects](Self::objects); it works without scripts |
/// | `/keys/<controller>/<key>` | the page of a key: why it ran, its last runs, its next run |
/// | `/livez`, `/healthz` | 200 if [`Manager::live`] and the added checks pass, otherwise 503 and all checks |
/// | `/readyz` | the same for [`Manager::ready`], and for the store of the served [objects](ServerBuilder::objects) |
/// | `/livez/<name>`, `/readyz/<name>` | one check: the manager, a component or an added check |
/// | `/metrics` | metrics in the text format of Prometheus, with the names that [`homeostat::export`] lists, and see below |
/// | `/statusz` | the status as JSON; `?limit=` sets how many keys and runs of each kind it contains (1000) |
/// | `/statusz?format=text` | the status as a table |
///
/// The health pages support `?verbose`, which lists all checks, and `?exclude=<name>`, which skips one. Users with
/// access to `/statusz` see the reasons of failures. Others see only names, results and `reason withheld`, as in
/// Kubernetes.
///
/// The check `objects` fails if the store's last read or write failed within the last minute. A server that gets no
/// requests while it is not ready therefore becomes ready again, and its next request shows whether the store works.
///
/// # Metrics of the server
///
/// The server counts under the names of a Kubernetes API server, where these exist. Only this page shows them.
///
/// | metric | labels | value |
/// |---|---|---|
/// | `apiserver_request_total` | `verb` (`LIST`, `WATCH`, …; `other` if the request cannot be read), `code` | replies |
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
/// and ends when this value is dropped.
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
/// | `process` | `pid`, `startTimeSeconds`, `cpuSeconds`, `residentBytes`, `virtualBytes`, `openFiles`, `maxFiles`, `threads` |
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
/// | `maxConcurrentReconciles` | the limit on active runs |
/// | `running` | the active runs: `key`, `thread`, `ageSeconds`, `overdue` |
/// | `queue` | `depth`, `high`, `normal`, `low`, `delayed`, `processing`, `adds` |
/// | `oldestWaiting` | `key`, `ageSeconds` |
/// | `nextDue` | the delayed key that is due first: `key`, `inSeconds` |
/// | `runs` | counts: `total`, `successes`, `requeues`, `retries`, `drops`, `terminalErrors`, `errors`, `aborted`, `panics`, `timeouts`, `overruns` |
/// | `queueTime`, `workTime` | `count`, `sumSeconds`, `buckets`: `upToSeconds` (null: any time), `count` of this bucket alone |
/// | `failingCount`, `parkedCount`, `suspendedCount` | all keys of that kind |
/// | `failing`, `parked` | the oldest first: `key`, `error`, `tries`, `failingForSeconds`, `lastTryAgoSeconds`, `nextTryInSeconds` (null: never, or now) |
/// | `suspended` | keys |
/// | `recentRuns` | the newest last: `key`, `reasons`, `try`, `queuedSeconds`, `startedAgoSeconds`, `tookSeconds`, `thread`, `result`, `error`, `againInSeconds` |
/// | `sources` | its sources |
///
/// A source: `name`, `synced`, `listings`, `failures`, `failuresInARow`, `failingForSeconds`, `lastError`,
/// `listingForSeconds`, `overdue`, `undecodable`, `undecodableError`.
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
    name: String,
    manager: WeakManager,
    checks: HealthChecks,
    pub(super) history: Arc<History>,
    objects: Option<ObjectApi>,
    /// The server of these pages. Its authorizer decides who may see the reasons of failed checks and the kinds of
    /// objects. `None` means that everyone may see everything.
    server: Option<PageContext>,
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
            server: None,
            _sampler: sampler,
        })
    }

    /// Shows these objects' kinds on the status page, with the number of objects and the command that lists them.
    ///
    /// A user sees only kinds that they may `list`. If the client is [local](homeostat_objects::Capabilities::local),
    /// the objects are counted each time the page is viewed. Otherwise the page shows no numbers.
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
    fn reply(&self, request: &IncomingRequest, manager: &Manager) -> Reply {
        let parts: Vec<_> = request.segments.iter().map(String::as_str).collect();
        match parts.as_slice() {
            [] => self.overview(request, manager),
            ["livez" | "healthz", name @ ..] => self.health(CheckKind::Live, parts[0], name, request, manager),
            ["readyz", name @ ..] => self.health(CheckKind::Ready, parts[0], name, request, manager),
            ["metrics"] => {
                let server = self.server.as_ref().map(|server| &server.vitals);
                let text = metrics_text(&manager.summary(), server, &ProcessFacts::read());
                Reply::new(StatusCode::OK, CONTENT_TYPE, text)
            }
            ["statusz"] => self.status(request, manager),
            // A slash in a key belongs to the segment.
            ["keys", controller, key] => self.key(request, manager, controller, key),
            _ => Reply::text(StatusCode::NOT_FOUND, "there is no such page\n"),
        }
    }

    fn health(
        &self,
        kind: CheckKind,
        group: &str,
        name: &[&str],
        request: &IncomingRequest,
        manager: &Manager,
    ) -> Reply {
        let results = self.run_checks(kind, manager);
        let reasons = self.reasons_for(&request.user, &results);
        if !name.is_empty() {
            return reply_to_one(&name.join("/"), &results, reasons);
        }
        let excluded = request.query.iter().filter(|(name, _)| name == "exclude").map(|(_, value)| value.as_str());
        let is_verbose = request.parameter("verbose").is_some_and(|value| !matches!(value, "0" | "false"));
        reply_to_group(group, &results, is_verbose, &excluded.collect::<Vec<_>>(), reasons)
    }

    fn authorizer(&self) -> Option<&Authorizer> {
        self.server.as_ref().map(|server| &server.authorizer)
    }

    /// Runs the checks of one kind. The object store is not ready while its calls fail.
    fn run_checks(&self, kind: CheckKind, manager: &Manager) -> Vec<CheckResult> {
        let mut results = self.checks.run(kind, manager);
        let shown = self.objects.as_ref().map(ObjectApi::store);
        let served = self.server.as_ref().and_then(|server| server.store.as_ref());
        if kind == CheckKind::Ready
            && let Some(store) = served.or(shown)
        {
            results.push(CheckResult { name: STORE_CHECK.to_owned(), failure: store.fault() });
        }
        results
    }

    /// Returns whether a user may see why checks fail. Does not ask the authorizer if no check has failed.
    fn reasons_for(&self, user: &UserInfo, results: &[CheckResult]) -> FailureReasons {
        let Some(authorizer) = self.authorizer().filter(|_| !all_ok(results)) else {
            return FailureReasons::Shown;
        };
        match authorizer(&AccessRequest::new(user.clone(), "get", AccessTarget::Path(STATUS_PATH.to_owned()))) {
            Access::Allow => FailureReasons::Shown,
            Access::Deny(_) => FailureReasons::Withheld,
        }
    }

    /// Returns the kinds that a user may list.
    fn counts_for(&self, user: &UserInfo) -> Vec<KindCount> {
        let may_list = |kind: &Kind| {
            let target = AccessTarget::objects(kind.group(), kind.plural(), "", "");
            let request = AccessRequest::new(user.clone(), "list", target);
            self.authorizer().is_none_or(|authorizer| authorizer(&request) == Access::Allow)
        };
        self.objects.as_ref().map(|api| api.counts(may_list)).unwrap_or_default()
    }

    fn status(&self, request: &IncomingRequest, manager: &Manager) -> Reply {
        if request.parameter("format") == Some("text") {
            return Reply::text(StatusCode::OK, manager.status().to_string());
        }
        let most = match request.parameter("limit").map(str::parse) {
            None => MOST_KEYS,
            Some(Ok(most)) => most,
            Some(Err(_)) => return Reply::text(StatusCode::BAD_REQUEST, "limit must be a number\n"),
        };
        let (live, ready) = (self.run_checks(CheckKind::Live, manager), self.run_checks(CheckKind::Ready, manager));
        let json = status_json(&manager.status(), &self.history.runs, &live, &ready, &ProcessFacts::read(), most);
        Reply::json(StatusCode::OK, &json)
    }

    fn overview(&self, request: &IncomingRequest, manager: &Manager) -> Reply {
        let data = PageData {
            status: &manager.status(),
            live: &self.run_checks(CheckKind::Live, manager),
            ready: &self.run_checks(CheckKind::Ready, manager),
            process: &ProcessFacts::read(),
            history: &self.history,
        };
        let mut live = String::new();
        summary::header(&mut live, &data);
        live.push_str("<main id=\"main\">");
        summary::figures(&mut live, data.status);
        attention::section(&mut live, &data);
        controllers::section(&mut live, &data);
        timeline::section(&mut live, &data);
        sources::section(&mut live, &data);
        objects::section(&mut live, &self.counts_for(&request.user));
        live.push_str("</main>");
        page(request, StatusCode::OK, manager.name(), live)
    }

    /// Returns the page of a key.
    fn key(&self, request: &IncomingRequest, manager: &Manager, controller: &str, shown: &str) -> Reply {
        let clock = manager.clock();
        let page_time = PageTime { manager: manager.name(), now: clock.now(), time: clock.time_of_day() };
        let title = format!("{shown} · {controller} · {}", page_time.manager);
        match KeyStatus::find(manager, &self.history.runs, controller, shown) {
            Some(key) => page(request, StatusCode::OK, &title, key_page::live_part(controller, &key, &page_time)),
            None => page(request, StatusCode::NOT_FOUND, &title, key_page::unknown(controller, shown, &page_time)),
        }
    }
}

/// Returns a complete page, or only its changing part if the request asks for it.
fn page(request: &IncomingRequest, status: StatusCode, title: &str, live: String) -> Reply {
    match request.parameter("live") {
        // The page's script also shows the part about a key that is no longer known.
        Some(_) => live_part(StatusCode::OK, live),
        None => whole_page(status, title, &live),
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
        self.page_handler(move |server| Arc::new(StatusPages { server: Some(server), ..pages }))
    }
}

impl Handler for StatusPages {
    fn handle(&self, request: &IncomingRequest) -> Reply {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let mut reply = Reply::text(StatusCode::METHOD_NOT_ALLOWED, "this page can only be read\n");
            reply.headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        let mut reply = match self.manager.upgrade() {
            None => Reply::text(StatusCode::SERVICE_UNAVAILABLE, "the manager has ended\n"),
            // Formatting a key runs user code.
            Some(manager) => catch_unwind(AssertUnwindSafe(|| self.reply(request, &manager))).unwrap_or_else(|panic| {
                let (manager, path, message) = (self.name.as_str(), request.path.as_str(), panic_message(&*panic));
                log::error!(manager, path, panic = message; "{manager}: the page {path} panicked: {message}");
                Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "the page panicked; the log has the message\n")
            }),
        };
        protect(&mut reply.headers);
        reply
    }
}

impl fmt::Debug for StatusPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusPages").field("manager", &self.name).finish_non_exhaustive()
    }
}
