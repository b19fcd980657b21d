//! The search for keys, controllers, sources and objects by a part of their names.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::ops::ControlFlow;

use super::clock_times::happened;
use super::controllers::phase;
use super::data::{DASH, PageData, cell, controller_link, detail, heading, key_link, remark, row_name, table};
use super::escape::{name, plain, segment, source_name};
use super::event_pages::is_events;
use super::key_page::{KeyStatus, LastError};
use super::known_keys::{MOST_VISITED, visit_keys};
use super::object_parts::{object_link, readiness};
use super::past_actions::PastActions;
use super::suspension::is_suspended;
use super::tab::Tab;
use super::units::{ago, size};
use super::{runs, sources};
use crate::status::RunLogs;
use homeostat::base::StartError;
use homeostat::manager::{Manager, ManagerStatus};
use homeostat::queue::{Key, KeyState};
use homeostat_objects::{Client, Kind, ObjectKey, Query, SharedObject};

/// The largest number of results without a request for all.
const MOST_ROWS: usize = 100;

/// Keys with their controllers and their states in the queue. `Debug` formats the keys.
pub(super) type FoundKeys = BTreeMap<(String, String), KeyState>;

/// Returns the known keys that `is_wanted` accepts, without the quotes of `Debug`.
pub(super) fn find(manager: &Manager, runs: &RunLogs, is_wanted: impl Fn(&str) -> bool) -> FoundKeys {
    let mut found = FoundKeys::new();
    for controller in manager.controllers() {
        visit_wanted(manager, &controller.name, &is_wanted, &mut found);
        add_recent(runs, &controller.name, &is_wanted, &mut found);
    }
    found
}

/// Returns the known keys with the name of an object. Keys that are texts or keys of objects are looked up, however
/// many keys a controller has.
pub(super) fn find_of_object(manager: &Manager, runs: &RunLogs, key: &ObjectKey) -> FoundKeys {
    let (mut found, text) = (FoundKeys::new(), key.to_string());
    let is_wanted = |name: &str| name == text;
    for controller in manager.controllers() {
        let name = controller.name;
        match state_of(manager, &name, key).or_else(|_| state_of(manager, &name, &text)) {
            Ok(Some((shown, state))) => drop(found.insert((name.clone(), shown), state)),
            Ok(None) => {}
            Err(_) => visit_wanted(manager, &name, &is_wanted, &mut found),
        }
        add_recent(runs, &name, &is_wanted, &mut found);
    }
    found
}

/// Returns a key of this controller as `Debug` formats it, and its state. `None` if the controller does not know it.
/// Fails if the keys of the controller have another type.
fn state_of<K: Key + Sync + Debug>(
    manager: &Manager,
    controller: &str,
    key: &K,
) -> Result<Option<(String, KeyState)>, StartError> {
    let handle = manager.controller::<K>(controller)?;
    let (shown, state) = (format!("{key:?}"), handle.queue().state(key));
    let is_parked = || handle.parked().iter().any(|failed| failed.key == *key);
    let is_known = state != KeyState::Idle || is_parked() || is_suspended(&handle.status(), &shown);
    Ok(is_known.then_some((shown, state)))
}

/// Adds the wanted keys among those that a page looks at.
fn visit_wanted(manager: &Manager, controller: &str, is_wanted: &impl Fn(&str) -> bool, found: &mut FoundKeys) {
    visit_keys(manager, controller, |key| {
        let shown = format!("{key:?}");
        if is_wanted(plain(&shown)) {
            found.entry((controller.to_owned(), shown)).or_insert_with(|| (key.state_reader())());
        }
        ControlFlow::Continue(())
    });
}

/// Adds the wanted keys among those of the recent runs.
fn add_recent(runs: &RunLogs, controller: &str, is_wanted: &impl Fn(&str) -> bool, found: &mut FoundKeys) {
    for run in runs.of(controller).iter().filter(|run| is_wanted(plain(&run.key))) {
        found.entry((controller.to_owned(), run.key.clone())).or_insert_with(|| run.key_state());
    }
}

/// The text of a search. Letters match in both cases. No name contains an empty text.
pub(super) struct SearchText<'a> {
    shown: &'a str,
    /// In lower case, without spaces around it.
    wanted: String,
}

impl<'a> SearchText<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { shown: text, wanted: text.trim().to_lowercase() }
    }

    /// Returns whether a name contains the text.
    pub(super) fn is_in(&self, name: &str) -> bool {
        !self.wanted.is_empty() && name.to_lowercase().contains(&self.wanted)
    }

    /// Returns how far a name is from the text: an exact match, the begin of the name, or a part of it.
    fn distance(&self, name: &str) -> u8 {
        let name = name.to_lowercase();
        if name == self.wanted { 0 } else { 2 - u8::from(name.starts_with(&self.wanted)) }
    }
}

/// Returns the stored objects of these kinds whose names contain a text. Kinds that cannot be listed have none.
pub(super) fn find_objects(client: &dyn Client, kinds: &[Kind], text: &SearchText<'_>) -> Vec<(Kind, SharedObject)> {
    let of_kind = |kind: &Kind| -> Vec<(Kind, SharedObject)> {
        let objects = client.list(kind, &Query::all()).map(|list| list.items).unwrap_or_default();
        objects.into_iter().filter(|object| text.is_in(object.name())).map(|object| (kind.clone(), object)).collect()
    };
    let mut found: Vec<_> = kinds.iter().flat_map(of_kind).collect();
    found.sort_by_key(|(kind, object)| (is_events(kind), text.distance(object.name())));
    found
}

/// Returns the part of the page that changes.
pub(super) fn live_part(
    data: &PageData<'_>,
    text: &SearchText<'_>,
    found: &FoundKeys,
    objects: &[(Kind, SharedObject)],
    tab: &Tab,
) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<header {}><nav aria-label=\"Breadcrumb\"><a href=\"/\">{}</a></nav><h1>Search for “{}”</h1></header>\
         <main id=\"main\">",
        tab.attributes(),
        name(&data.status.name),
        name(text.shown),
    );
    let query = segment(text.shown);
    let most = data.most(MOST_ROWS);
    let of = |id: &str, shown: usize, all: usize| {
        remark(shown, all, &if data.all { String::new() } else { format!("?q={query}&amp;all=1#{id}") })
    };
    parts(&mut out, data, text);
    out.push_str("<section aria-labelledby=\"found\">");
    out.push_str(&heading("found", "Keys", &of("found", found.len().min(most), found.len())));
    if found.is_empty() {
        let _ = write!(
            out,
            "<p>No key that runs, waits, has failed, is suspended or has run lately contains this text. The search looks \
             at {} keys of each controller. {}</p>",
            size(MOST_VISITED),
            known_since(data)
        );
    } else {
        let mut found: Vec<_> = found.iter().collect();
        found.sort_by_key(|((_, key), _)| text.distance(plain(key)));
        keys(&mut out, data, &found[..found.len().min(most)]);
    }
    out.push_str("</section>");
    if !objects.is_empty() {
        out.push_str("<section aria-labelledby=\"objects\">");
        out.push_str(&heading("objects", "Objects", &of("objects", objects.len().min(most), objects.len())));
        let heads = [("", "name"), ("", "ready"), ("", "kind"), ("", "namespace"), ("why", "message")];
        table(&mut out, "", "Objects", &heads);
        for (kind, object) in objects.iter().take(most) {
            let ready = readiness(object);
            row_name(&mut out, object_link(kind, &object.key()));
            cell(&mut out, "state", "ready", ready.chip);
            cell(&mut out, "", "kind", name(kind.name()));
            cell(&mut out, "wide", "namespace", name(object.namespace()));
            let id = format!("object {kind} {}", object.key());
            cell(&mut out, "why", "message", detail(&id, &ready.message));
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></section>");
    }
    out.push_str("</main>");
    out
}

/// Describes since when the runs of all controllers are known.
fn known_since(data: &PageData<'_>) -> String {
    let names = data.status.controllers.iter().map(|of| &of.name);
    let since = names.filter_map(|of| Some((data.history.runs.cut_since(of)?, of))).max();
    let further = if data.status.controllers.len() > 1 { " Other controllers reach further back." } else { "" };
    since.map_or_else(
        || "It finds all keys that have run since the start of these pages.".to_owned(),
        |(since, of)| {
            let since = happened(data.status.time_of_day, data.now().saturating_duration_since(since));
            format!(
                "A key that succeeded before {since} and is idle may be missing: {} runs so often that its older runs \
                 are no longer kept.{further}",
                controller_link(of)
            )
        },
    )
}

/// Adds the controllers and sources whose names contain a text.
fn parts(out: &mut String, data: &PageData<'_>, text: &SearchText<'_>) {
    let status = data.status;
    let controllers: Vec<_> = status.controllers.iter().filter(|of| text.is_in(&of.name)).collect();
    let of_controllers =
        status.controllers.iter().flat_map(|of| of.sources.iter().map(move |source| (Some(of), source)));
    let sources = status.sources.iter().map(|source| (None, source)).chain(of_controllers);
    let sources: Vec<_> = sources.filter(|(_, source)| text.is_in(&source.name)).collect();
    if controllers.is_empty() && sources.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"parts\">");
    out.push_str(&heading("parts", "Controllers and sources", &size(controllers.len() + sources.len())));
    table(out, "", "Controllers and sources", &[("", "name"), ("", "state"), ("", "part"), ("why", "last error")]);
    let mut row = |subject: String, state: String, part: String, error: String| {
        row_name(out, subject);
        cell(out, "state", "state", state);
        cell(out, "wide", "part", part);
        cell(out, "why", "last error", error);
        out.push_str("</tr>");
    };
    for of in controllers {
        let failed = of.failing.iter().chain(&of.parked).max_by_key(|failed| failed.since);
        let error = failed.map(|failed| detail(&format!("controller {}", of.name), &failed.error));
        row(controller_link(&of.name), phase(of, data.live), "controller".to_owned(), error.unwrap_or_default());
    }
    for (of, source) in sources {
        let part = of.map(|of| format!(" of {}", controller_link(&of.name))).unwrap_or_default();
        let id = format!("source {} {}", of.map_or("", |of| &of.name), source.name);
        let error = detail(&id, source.last_error.as_deref().unwrap_or_default());
        row(source_name(&source.name), sources::state(source), format!("source{part}"), error);
    }
    out.push_str("</tbody></table></section>");
}

/// Names these keys, each with its state.
pub(super) fn states(manager: &ManagerStatus, runs: &RunLogs, past: &PastActions, found: &FoundKeys) -> String {
    let of_key = |((controller, key), state): (&(String, String), &KeyState)| {
        let status = manager.controllers.iter().find(|status| status.name == *controller)?;
        let status = KeyStatus::new(status, (&runs.of(controller), runs.complete_since(controller)), key, *state, past);
        let state = status.in_short((manager.taken_at, manager.time_of_day));
        Some(format!("{} of {} ({state})", key_link(controller, key), controller_link(controller)))
    };
    found.iter().filter_map(of_key).collect::<Vec<_>>().join(", ")
}

fn keys(out: &mut String, data: &PageData<'_>, found: &[(&(String, String), &KeyState)]) {
    let heads =
        [("", "key"), ("", "state"), ("", "controller"), ("", "last result"), ("n", "when"), ("why", "last error")];
    table(out, "", "Keys", &heads);
    let mut recent = BTreeMap::new();
    let today = data.status.time_of_day;
    for ((controller, key), state) in found {
        let logs = &data.history.runs;
        let known = recent.entry(controller).or_insert_with(|| (logs.of(controller), logs.complete_since(controller)));
        let status = data.status.controllers.iter().find(|status| status.name == *controller);
        let status = status.map(|status| KeyStatus::new(status, (&known.0, known.1), key, **state, data.past));
        let last = status.as_ref().and_then(KeyStatus::last_run);
        let or_later = if status.as_ref().is_some_and(|of| of.gap().is_some()) { " or later" } else { "" };
        row_name(out, key_link(controller, key));
        cell(out, "state", "state", status.as_ref().map_or_else(|| DASH.to_owned(), KeyStatus::chips));
        cell(out, "", "controller", controller_link(controller));
        cell(out, "", "last result", last.map_or(DASH, |last| runs::ended_as(last)));
        cell(
            out,
            "n",
            "when",
            last.map_or_else(|| DASH.to_owned(), |last| happened(today, last.ended_ago(data.now())) + or_later),
        );
        let id = format!("key {controller} {key}");
        // An error of the past stays visible, in a muted colour.
        let (class, error) = match status.as_ref().and_then(KeyStatus::last_error) {
            Some(LastError { error, recovered_from: None }) => ("why", detail(&id, error)),
            Some(LastError { error, recovered_from: Some(run) }) => (
                "why none",
                format!(
                    "failed {} ago, recovered since: {}",
                    ago(today, run.ended_ago(data.now())),
                    detail(&id, error)
                ),
            ),
            None => ("why", String::new()),
        };
        cell(out, class, "last error", error);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
}
