//! The section of objects: their kinds, and the commands that list them.

use super::data::{ChipColour, DASH, cell, chip, detail, heading, number, row_name, table};
use super::escape::{line, name, path};
use super::units::size;
use crate::api::{KindCount, ObjectCount, full_name};
use homeostat::rt::Chain;

/// Returns the number of objects that are not ready, as far as it is known.
pub(super) fn not_ready(kinds: &[KindCount]) -> usize {
    let known = kinds.iter().filter_map(|kind| kind.count.as_ref()?.as_ref().ok());
    known.map(|count: &ObjectCount| count.not_ready).sum()
}

/// Adds the section.
pub(super) fn section(out: &mut String, kinds: &[KindCount], kubectl: &str) {
    if kinds.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"objects\">");
    out.push_str(&heading("objects", "Objects", &size(kinds.len())));
    let heads = [("", "kind"), ("", "version"), ("n", "objects"), ("n", "not ready"), ("", "command")];
    table(out, "", "Kinds of objects", &heads);
    for KindCount { kind, command, count } in kinds {
        let link = path(&["objects", &full_name(kind)]);
        row_name(out, format_args!("<a href=\"{link}\">{}</a>", name(kind.name())));
        cell(out, "wide", "version", name(&kind.api_version()));
        let shown = match count {
            Some(Ok(count)) => number(count.all, ChipColour::Calm),
            Some(Err(error)) => {
                let why = detail(&format!("objects {kind}"), &Chain(error).to_string());
                format!("{} {why}", chip(ChipColour::Bad, "cannot be listed"))
            }
            None => DASH.to_owned(),
        };
        cell(out, "n", "objects", shown);
        let not_ready = count.as_ref().and_then(|count| Some(number(count.as_ref().ok()?.not_ready, ChipColour::Bad)));
        cell(out, "n", "not ready", not_ready.unwrap_or_else(|| DASH.to_owned()));
        let command = command.strip_prefix("kubectl").unwrap_or(command);
        cell(
            out,
            "full",
            "command",
            format_args!("<code class=\"key\">{}</code>", line(&format!("{kubectl}{command}"))),
        );
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}
