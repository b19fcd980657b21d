//! Answers the requests for all pages about a manager.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::{HeaderValue, Method, StatusCode, header};

use super::actions::UserRights;
use super::data::PageData;
use super::effects::KnownControllers;
use super::escape::plain;
use super::key_page::{KeyStatus, PageTime};
use super::object_pages::ObjectPage;
use super::pages::StatusPages;
use super::past_actions::ActionTarget;
use super::search::SearchText;
use super::shell::{live_part, protect, whole_page};
use super::tab::Tab;
use super::{
    actions, attention, checks, controller_page, controllers, key_page, objects, program, search, sources, summary,
    timeline, traffic,
};
use crate::access::{Access, AccessRequest, AccessTarget, Authorizer, UserInfo};
use crate::api::{KindCount, ObjectApi};
use crate::http::{Handler, IncomingRequest, Reply, canonical_path};
use crate::status::{
    BegunRun, CONTENT_TYPE, CheckKind, CheckOwner, CheckResult, FailureReasons, ProcessFacts, RecentRun, UserAction,
    all_ok, metrics_text, reply_to_group, reply_to_one, status_json,
};
use homeostat::manager::Manager;
use homeostat::rt::{one_line, panic_message};
use homeostat_objects::{EventRecorder, Kind, ObjectKey};

/// The default number of keys and runs of each kind in `/statusz`.
const MOST_KEYS: usize = 1000;

/// The name of the object store's check.
const STORE_CHECK: &str = "objects";

/// The path of the status. Users who may read it may also read why checks fail.
const STATUS_PATH: &str = "/statusz";

impl StatusPages {
    fn reply(&self, request: &IncomingRequest, manager: &Manager) -> Reply {
        let parts: Vec<_> = request.segments.iter().map(String::as_str).collect();
        match parts.as_slice() {
            [] => self.overview(request, manager),
            ["livez" | "healthz", name @ ..] => self.health(CheckKind::Live, parts[0], name, request, manager),
            ["readyz", name @ ..] => self.health(CheckKind::Ready, parts[0], name, request, manager),
            ["metrics"] => {
                let server = self.server.as_ref().map(|server| &server.vitals);
                let [live, ready] = [CheckKind::Live, CheckKind::Ready].map(|kind| self.run_checks(kind, manager));
                let (process, version) = (ProcessFacts::read(), self.version.as_deref());
                let text = metrics_text(&manager.summary(), (&live, &ready), server, &process, version);
                Reply::new(StatusCode::OK, CONTENT_TYPE, text)
            }
            ["statusz"] => self.status(request, manager),
            ["search"] => self.search(request, manager),
            ["controllers", controller] => self.controller(request, manager, controller),
            // A slash in a key belongs to the segment.
            ["keys", controller, key] => self.key(request, manager, controller, key),
            ["objects", kind] => self.object_page(request, manager, kind, None),
            ["objects", kind, name] => self.object_page(request, manager, kind, Some(ObjectKey::cluster(name))),
            ["objects", kind, namespace, name] => {
                self.object_page(request, manager, kind, Some(ObjectKey::new(namespace, name)))
            }
            _ => refusal(request, StatusCode::NOT_FOUND, "there is no such page"),
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
        let reply = match name {
            [] => health_of_group(group, request, &results, reasons),
            _ => reply_to_one(&name.join("/"), &results, reasons),
        };
        Reply { is_failed_check: reply.status == StatusCode::SERVICE_UNAVAILABLE, ..reply }
    }

    fn authorizer(&self) -> Option<&Authorizer> {
        self.server.as_ref().map(|server| &server.authorizer)
    }

    fn may(&self, user: &UserInfo, verb: &'static str, target: AccessTarget) -> bool {
        let request = AccessRequest::new(user.clone(), verb, target);
        self.authorizer().is_none_or(|authorizer| authorizer(&request) == Access::Allow)
    }

    /// Runs the checks of one kind. The object store is not ready while its calls fail.
    fn run_checks(&self, kind: CheckKind, manager: &Manager) -> Vec<CheckResult> {
        let mut results = self.checks.run(kind, manager);
        let shown = self.objects.as_ref().map(ObjectApi::store);
        let served = self.server.as_ref().and_then(|server| server.store.as_ref());
        if kind == CheckKind::Ready
            && let Some(store) = served.cloned().or(shown)
        {
            let (name, owner) = (STORE_CHECK.to_owned(), CheckOwner::ObjectStore);
            results.push(CheckResult { name, owner, failure: store.fault() });
        }
        results
    }

    /// Returns whether a user may see why checks fail. Does not ask the authorizer if no check has failed.
    fn reasons_for(&self, user: &UserInfo, results: &[CheckResult]) -> FailureReasons {
        if all_ok(results) || self.may(user, "get", AccessTarget::Path(STATUS_PATH.to_owned())) {
            FailureReasons::Shown
        } else {
            FailureReasons::Withheld
        }
    }

    /// Returns whether a user may list the objects of a kind.
    fn may_list(&self, user: &UserInfo, kind: &Kind) -> bool {
        self.may(user, "list", AccessTarget::objects(kind.group(), kind.plural(), "", ""))
    }

    /// Returns the kinds that a user may list.
    fn counts_for(&self, user: &UserInfo) -> Vec<KindCount> {
        self.objects.as_ref().map(|api| api.counts(|kind| self.may_list(user, kind))).unwrap_or_default()
    }

    fn status(&self, request: &IncomingRequest, manager: &Manager) -> Reply {
        if request.parameter("format") == Some("text") {
            return Reply::text(StatusCode::OK, manager.status().to_string());
        }
        let most = match request.parameter("limit").map(str::parse) {
            None => MOST_KEYS,
            Some(Ok(most)) => most,
            Some(Err(_)) => return refusal(request, StatusCode::BAD_REQUEST, "limit must be a number"),
        };
        let (live, ready) = (self.run_checks(CheckKind::Live, manager), self.run_checks(CheckKind::Ready, manager));
        let (process, version) = (ProcessFacts::read(), self.version.as_deref());
        let requester = |controller: &str, run: BegunRun<'_>, previous: Option<&RecentRun>| {
            Some(self.past_actions.request_of(controller, run, previous)?.user)
        };
        let (status, runs) = (manager.status(), &self.history.runs);
        let json = status_json(&status, runs, &requester, (&live, &ready), &process, version, most);
        Reply::json(StatusCode::OK, &json)
    }

    /// Calls `show` with the data of this moment.
    fn with_data(
        &self,
        request: &IncomingRequest,
        manager: &Manager,
        show: impl FnOnce(&PageData<'_>) -> Reply,
    ) -> Reply {
        show(&PageData {
            status: &manager.status(),
            live: &self.run_checks(CheckKind::Live, manager),
            ready: &self.run_checks(CheckKind::Ready, manager),
            process: &ProcessFacts::read(),
            history: &self.history,
            version: self.version.as_deref(),
            past: &self.past_actions,
            all: request.parameter("all").is_some(),
        })
    }

    fn overview(&self, request: &IncomingRequest, manager: &Manager) -> Reply {
        self.with_data(request, manager, |data| {
            let kinds = self.counts_for(&request.user);
            let tab = Tab::of(data.status, &kinds, data.live, data.ready);
            let mut live = String::new();
            summary::header(&mut live, data, &tab);
            summary::sections(&mut live, data, &kinds, self.server.is_some());
            live.push_str("<main id=\"main\">");
            summary::figures(&mut live, data);
            attention::section(&mut live, data, &kinds);
            controllers::section(&mut live, data);
            summary::hour(&mut live, data);
            timeline::section(&mut live, data);
            sources::section(&mut live, data);
            objects::section(&mut live, &kinds, &self.kubectl);
            checks::section(&mut live, data);
            if let Some(server) = &self.server {
                traffic::section(&mut live, &server.vitals, self.history.refused_logins());
            }
            let known = KnownControllers::new(&self.history.runs, &data.status.controllers);
            actions::section(&mut live, &self.past_actions, known, data.times(), |_| true);
            program::section(&mut live, data, self.objects.as_ref(), self.server.as_ref(), &self.facts);
            live.push_str("</main>");
            page(request, StatusCode::OK, &tab, live)
        })
    }

    /// Returns the page of a controller.
    fn controller(&self, request: &IncomingRequest, manager: &Manager, name: &str) -> Reply {
        self.with_data(request, manager, |data| {
            let Some(controller) = data.status.controllers.iter().find(|controller| controller.name == name) else {
                let tab = Tab::plain(format!("{name} · {}", manager.name()));
                let unknown = controller_page::unknown(name, &page_time(manager), &tab);
                return page(request, StatusCode::NOT_FOUND, &tab, unknown);
            };
            let tab = controller_page::tab(controller, manager.name());
            let target = ActionTarget::controller(name);
            let is_offered = self.history.runs.controls(name).is_some();
            let mut actions = if is_offered { UserAction::ALL.to_vec() } else { Vec::new() };
            actions.retain(|action| self.may_act(&request.user, &target, *action));
            let rights = self.rights(&request.user, is_offered, !actions.is_empty());
            let live = controller_page::live_part(controller, data, (&rights, &actions), &tab);
            page(request, StatusCode::OK, &tab, live)
        })
    }

    fn rights(&self, user: &UserInfo, is_offered: bool, may_act: bool) -> UserRights {
        UserRights { user: user.name.clone(), token: self.tokens.of(&user.name), is_offered, may_act }
    }

    /// Returns the page of a key.
    fn key(&self, request: &IncomingRequest, manager: &Manager, controller: &str, shown: &str) -> Reply {
        let page_time = page_time(manager);
        let (key, status) = match KeyStatus::find(manager, &self.history.runs, controller, shown, &self.past_actions) {
            Ok(key) => key,
            Err(unknown) => {
                let tab = Tab::plain(format!("{shown} · {controller} · {}", manager.name()));
                let unknown = key_page::unknown(controller, shown, &unknown, &page_time, &tab);
                return page(request, StatusCode::NOT_FOUND, &tab, unknown);
            }
        };
        let tab = key.tab(controller, manager.name());
        let target = ActionTarget::key(controller, shown);
        let mut actions = key.actions(page_time.now);
        actions.retain(|(action, _)| self.may_act(&request.user, &target, *action));
        let rights = self.rights(&request.user, key.control().is_some(), !actions.is_empty());
        let objects = self.objects_of(&request.user, shown);
        let past = (&self.past_actions, &*self.history.runs, &status);
        let live = key_page::live_part(controller, &key, &page_time, (&rights, &actions), past, &objects, &tab);
        page(request, StatusCode::OK, &tab, live)
    }

    /// Returns the stored objects with the name of a key that a user may get. None if that would need the network.
    fn objects_of(&self, user: &UserInfo, shown: &str) -> Vec<(Kind, ObjectKey)> {
        let api = self.objects.as_ref().filter(|api| api.client().capabilities().local);
        let (Some(api), Ok(key)) = (api, plain(shown).parse::<ObjectKey>()) else { return Vec::new() };
        let client = api.client();
        let mut kinds = api.stored_kinds();
        kinds.retain(|kind| {
            let is_of_kind = kind.is_namespaced() != key.namespace().is_empty();
            is_of_kind && self.may_get(user, kind, &key) && client.get(kind, &key).is_ok()
        });
        kinds.into_iter().map(|kind| (kind, key.clone())).collect()
    }

    fn may_get(&self, user: &UserInfo, kind: &Kind, key: &ObjectKey) -> bool {
        self.may(user, "get", AccessTarget::objects(kind.group(), kind.plural(), key.namespace(), key.name()))
    }

    fn search(&self, request: &IncomingRequest, manager: &Manager) -> Reply {
        let shown = request.parameter("q").unwrap_or_default();
        let text = SearchText::new(shown);
        let found = search::find(manager, &self.history.runs, |name| text.is_in(name));
        let objects = self.objects.as_ref().filter(|api| api.client().capabilities().local).map(|api| {
            let mut kinds = api.stored_kinds();
            kinds.retain(|kind| self.may_list(&request.user, kind));
            search::find_objects(&*api.client(), &kinds, &text)
        });
        let tab = Tab::plain(format!("{shown} · search · {}", manager.name()));
        self.with_data(request, manager, |data| {
            let live = search::live_part(data, &text, &found, objects.as_deref().unwrap_or_default(), &tab);
            page(request, StatusCode::OK, &tab, live)
        })
    }

    /// Returns the page of a kind, or of one object.
    fn object_page(&self, request: &IncomingRequest, manager: &Manager, kind: &str, key: Option<ObjectKey>) -> Reply {
        let api = self.objects.as_ref();
        let Some((api, kind)) = api.and_then(|api| Some((api, api.stored_kind(kind)?))) else {
            return refusal(request, StatusCode::NOT_FOUND, "there is no such kind of objects");
        };
        let of_kind = |key: &ObjectKey| kind.is_namespaced() != key.namespace().is_empty();
        if !key.as_ref().is_none_or(of_kind) {
            return refusal(request, StatusCode::NOT_FOUND, "there is no such object");
        }
        let user = &request.user;
        let is_allowed = match &key {
            None => self.may_list(user, &kind),
            Some(key) => self.may_get(user, &kind, key),
        };
        if !is_allowed {
            return refusal(request, StatusCode::FORBIDDEN, "you may not read these objects");
        }
        let client = api.client();
        let kinds = api.stored_kinds();
        let object_page = ObjectPage {
            manager: manager.name(),
            client: &*client,
            kind: &kind,
            kubectl: &self.kubectl,
            time: manager.clock().time_of_day(),
            kinds: &kinds,
            all: request.parameter("all").is_some(),
        };
        let Some(key) = key else {
            let tab = Tab::plain(format!("{} · {}", kind.name(), manager.name()));
            return page(request, StatusCode::OK, &tab, object_page.list(&tab));
        };
        let tab = Tab::plain(format!("{} · {} · {}", key.name(), kind.name(), manager.name()));
        let events = EventRecorder::KIND;
        let target = AccessTarget::objects(events.group(), events.plural(), key.namespace(), "");
        let has_events = api.kinds().contains(&events) && self.may(user, "list", target);
        let path = |of: &str, key: &str| ["keys", of, key].map(str::to_owned);
        let mut keys = search::find_of_object(manager, &self.history.runs, &key);
        let may_see = |of: &str, key: &str| self.may(user, "get", AccessTarget::Path(canonical_path(&path(of, key))));
        // Others must not learn whether such keys exist.
        let texts = [format!("{:?}", key.to_string()), key.to_string()];
        let may_see_all =
            || manager.status().controllers.iter().all(|of| texts.iter().all(|text| may_see(&of.name, text)));
        let keys = if keys.is_empty() {
            if may_see_all() { "none: no controller knows a key with this name".to_owned() } else { String::new() }
        } else {
            keys.retain(|(of, key), _| may_see(of, key));
            search::states(&manager.status(), &self.history.runs, &self.past_actions, &keys)
        };
        let (live, exists) = object_page.object(&key, &keys, has_events, &tab);
        page(request, if exists { StatusCode::OK } else { StatusCode::NOT_FOUND }, &tab, live)
    }
}

/// Returns the reply to all checks of one kind, without the excluded ones.
fn health_of_group(group: &str, request: &IncomingRequest, results: &[CheckResult], reasons: FailureReasons) -> Reply {
    let excluded = request.query.iter().filter(|(name, _)| name == "exclude").map(|(_, value)| value.as_str());
    let is_verbose = request.parameter("verbose").is_some_and(|value| !matches!(value, "0" | "false"));
    reply_to_group(group, results, is_verbose, &excluded.collect::<Vec<_>>(), reasons)
}

/// Returns an error as text that names the path.
pub(super) fn refusal(request: &IncomingRequest, status: StatusCode, reason: &str) -> Reply {
    Reply::text(status, format!("{}: {reason}\n", one_line(&request.path)))
}

fn page_time(manager: &Manager) -> PageTime<'_> {
    let clock = manager.clock();
    PageTime { manager: manager.name(), now: clock.now(), time: clock.time_of_day() }
}

/// Returns a complete page, or only its changing part if the request asks for it.
fn page(request: &IncomingRequest, status: StatusCode, tab: &Tab, live: String) -> Reply {
    match request.parameter("live") {
        // The page's script also shows the part about a key that is no longer known.
        Some(_) => live_part(StatusCode::OK, live),
        None => whole_page(status, tab, &request.user.name, &live),
    }
}

impl Handler for StatusPages {
    fn handle(&self, request: &IncomingRequest) -> Reply {
        let is_read = matches!(request.method, Method::GET | Method::HEAD);
        let form = self.form_of(request);
        if !is_read && form.is_none() {
            let mut reply = refusal(request, StatusCode::METHOD_NOT_ALLOWED, "this page can only be read");
            reply.headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        // Formatting a key runs user code.
        let answer = |manager: &Manager| match form {
            Some((target, action)) => self.act(request, manager, &target, action),
            None => self.reply(request, manager),
        };
        let mut reply = match self.manager.upgrade() {
            None => refusal(request, StatusCode::SERVICE_UNAVAILABLE, "the manager has ended"),
            Some(manager) => catch_unwind(AssertUnwindSafe(|| answer(&manager))).unwrap_or_else(|panic| {
                let (manager, path, message) = (self.name.as_str(), request.path.as_str(), panic_message(&*panic));
                log::error!(manager, path, panic = message; "{manager}: the page {path} panicked: {message}");
                refusal(request, StatusCode::INTERNAL_SERVER_ERROR, "the page panicked; the log has the message")
            }),
        };
        protect(&mut reply.headers);
        reply
    }
}
