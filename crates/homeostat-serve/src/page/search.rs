//! The search for keys and objects by a part of their names.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::data::{cell, controller_link, heading, key_link, row_name, table};
use super::escape::{name, plain};
use super::object_parts::object_link;
use super::tab::Tab;
use super::units::size;
use crate::status::RunLogs;
use homeostat::manager::Manager;
use homeostat_objects::{Client, Kind, ObjectKey, Query};

/// The largest number of results.
const MOST_ROWS: usize = 100;

/// Returns the known keys that contain a text, as `Debug` formats them, with their controllers. Letters match in both
/// cases.
pub(super) fn find(manager: &Manager, runs: &RunLogs, text: &str) -> BTreeSet<(String, String)> {
    let text = text.trim().to_lowercase();
    let mut found = BTreeSet::new();
    for controller in manager.controllers() {
        let mut add = |shown: String| {
            if plain(&shown).to_lowercase().contains(&text) {
                found.insert((controller.name.clone(), shown));
            }
        };
        manager.visit_keys(&controller.name, |key| add(format!("{key:?}")));
        runs.of(&controller.name).iter().for_each(|run| add(run.key.clone()));
    }
    found
}

/// Returns the stored objects of these kinds whose names contain a text. Kinds that cannot be listed have none.
pub(super) fn find_objects(client: &dyn Client, kinds: &[&Kind], text: &str) -> Vec<(Kind, ObjectKey)> {
    let text = text.trim().to_lowercase();
    let of_kind = |kind: &&Kind| -> Vec<(Kind, ObjectKey)> {
        let objects = client.list(kind, &Query::all()).map(|list| list.items).unwrap_or_default();
        let found = objects.iter().filter(|object| object.name().to_lowercase().contains(&text));
        found.map(|object| ((*kind).clone(), object.key())).collect()
    };
    kinds.iter().flat_map(of_kind).take(MOST_ROWS).collect()
}

/// Returns the part of the page that changes.
pub(super) fn live_part(
    manager: &str,
    text: &str,
    found: &BTreeSet<(String, String)>,
    objects: &[(Kind, ObjectKey)],
    tab: &Tab,
) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<header {}><nav aria-label=\"Breadcrumb\"><a href=\"/\">{}</a></nav><h1>Search for “{}”</h1></header>\
         <main id=\"main\"><section aria-labelledby=\"found\">",
        tab.attributes(),
        name(manager),
        name(text),
    );
    let shown = found.len().min(MOST_ROWS);
    let remark = if shown < found.len() { format!("{shown} of {}", size(found.len())) } else { size(shown) };
    out.push_str(&heading("found", "Keys", &remark));
    if found.is_empty() {
        out.push_str(
            "<p>No key that runs, waits first, has failed, is suspended or has run lately contains this text.</p>",
        );
    } else {
        table(&mut out, "now", "Keys", &[("", "key"), ("", "controller")]);
        for (controller, key) in found.iter().take(MOST_ROWS) {
            row_name(&mut out, key_link(controller, key));
            cell(&mut out, "", "controller", controller_link(controller));
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table>");
    }
    out.push_str("</section>");
    if !objects.is_empty() {
        out.push_str("<section aria-labelledby=\"objects\">");
        out.push_str(&heading("objects", "Objects", &size(objects.len())));
        table(&mut out, "now", "Objects", &[("", "name"), ("", "kind"), ("", "namespace")]);
        for (kind, object) in objects {
            row_name(&mut out, object_link(kind, object));
            cell(&mut out, "", "kind", name(kind.name()));
            cell(&mut out, "wide", "namespace", name(object.namespace()));
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></section>");
    }
    out.push_str("</main>");
    out
}
