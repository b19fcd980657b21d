//! The search for keys, controllers, sources and objects by a part of their names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use super::controllers::phase;
use super::data::{DASH, PageData, cell, controller_link, detail, heading, key_link, remark, row_name, table};
use super::escape::{name, plain, segment, source_name};
use super::event_pages::is_events;
use super::key_page::KeyStatus;
use super::known_keys::{MOST_VISITED, visit_keys};
use super::object_parts::{object_link, readiness};
use super::sources;
use super::tab::Tab;
use super::units::size;
use crate::status::RunLogs;
use homeostat::manager::Manager;
use homeostat::queue::KeyState;
use homeostat_objects::{Client, Kind, Query, SharedObject};

/// The largest number of results without a request for all.
const MOST_ROWS: usize = 100;

/// Keys with their controllers and their states in the queue. `Debug` formats the keys.
pub(super) type FoundKeys = BTreeMap<(String, String), KeyState>;

/// Returns the known keys that `is_wanted` accepts, without the quotes of `Debug`.
pub(super) fn find(manager: &Manager, runs: &RunLogs, is_wanted: impl Fn(&str) -> bool) -> FoundKeys {
    let mut found = FoundKeys::new();
    for controller in manager.controllers() {
        let mut add = |shown: String, state: &dyn Fn() -> KeyState| {
            if is_wanted(plain(&shown)) {
                found.entry((controller.name.clone(), shown)).or_insert_with(state);
            }
        };
        visit_keys(manager, &controller.name, |key| {
            add(format!("{key:?}"), &|| (key.state_reader())());
            ControlFlow::Continue(())
        });
        runs.of(&controller.name).iter().for_each(|run| add(run.key.clone(), &|| run.key_state()));
    }
    found
}

/// Returns a test for names that contain a text. Letters match in both cases. No name contains an empty text.
pub(super) fn contains(text: &str) -> impl Fn(&str) -> bool {
    let text = text.trim().to_lowercase();
    move |name| !text.is_empty() && name.to_lowercase().contains(&text)
}

/// Returns the stored objects of these kinds whose names contain a text. Kinds that cannot be listed have none.
pub(super) fn find_objects(client: &dyn Client, kinds: &[Kind], text: &str) -> Vec<(Kind, SharedObject)> {
    let is_wanted = contains(text);
    let wanted = text.trim().to_lowercase();
    let of_kind = |kind: &Kind| -> Vec<(Kind, SharedObject)> {
        let objects = client.list(kind, &Query::all()).map(|list| list.items).unwrap_or_default();
        objects.into_iter().filter(|object| is_wanted(object.name())).map(|object| (kind.clone(), object)).collect()
    };
    let mut found: Vec<_> = kinds.iter().flat_map(of_kind).collect();
    found.sort_by_key(|(kind, object)| (is_events(kind), distance(&wanted, object.name())));
    found
}

/// Returns how far a name is from a text in lower case: an exact match, the begin of the name, or a part of it.
fn distance(wanted: &str, name: &str) -> u8 {
    let name = name.to_lowercase();
    if name == wanted { 0 } else { 2 - u8::from(name.starts_with(wanted)) }
}

/// Returns the part of the page that changes.
pub(super) fn live_part(
    data: &PageData<'_>,
    text: &str,
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
        name(text),
    );
    let query = segment(text);
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
             at {} keys of each controller.</p>",
            size(MOST_VISITED)
        );
    } else {
        let wanted = text.trim().to_lowercase();
        let mut found: Vec<_> = found.iter().collect();
        found.sort_by_key(|((_, key), _)| distance(&wanted, plain(key)));
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

/// Adds the controllers and sources whose names contain a text.
fn parts(out: &mut String, data: &PageData<'_>, text: &str) {
    let (is_wanted, status) = (contains(text), data.status);
    let controllers: Vec<_> = status.controllers.iter().filter(|of| is_wanted(&of.name)).collect();
    let of_controllers =
        status.controllers.iter().flat_map(|of| of.sources.iter().map(move |source| (Some(of), source)));
    let sources = status.sources.iter().map(|source| (None, source)).chain(of_controllers);
    let sources: Vec<_> = sources.filter(|(_, source)| is_wanted(&source.name)).collect();
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

fn keys(out: &mut String, data: &PageData<'_>, found: &[(&(String, String), &KeyState)]) {
    table(out, "", "Keys", &[("", "key"), ("", "state"), ("", "controller"), ("why", "last error")]);
    let mut recent = BTreeMap::new();
    for ((controller, key), state) in found {
        let runs = recent.entry(controller).or_insert_with(|| data.history.runs.of(controller));
        let status = data.status.controllers.iter().find(|status| status.name == *controller);
        let status = status.map(|status| KeyStatus::new(status, runs, key, **state, data.past));
        row_name(out, key_link(controller, key));
        cell(out, "state", "state", status.as_ref().map_or_else(|| DASH.to_owned(), KeyStatus::chips));
        cell(out, "", "controller", controller_link(controller));
        // An error of the past stays visible, in a muted colour.
        let (error, fails) = status.as_ref().and_then(KeyStatus::last_error).unwrap_or_default();
        let class = if fails { "why" } else { "why none" };
        cell(out, class, "last error", detail(&format!("key {controller} {key}"), error));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
}
