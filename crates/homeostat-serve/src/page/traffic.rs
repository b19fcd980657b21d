//! The section of the server: its traffic, its errors and refused logins.

use std::fmt::Write;

use super::actions::shown_user;
use super::data::{ChipColour, DASH, cell, chip, figure, heading, row_name, table};
use super::escape::{line, name};
use super::units::{count, size, time};
use crate::http::{SeenConnection, of_class, value};
use crate::server::ServerVitals;

/// The largest number of connections in the list.
const MOST_CONNECTIONS: usize = 50;

/// Adds the section. `refused` is the number of refused logins in the last five minutes.
pub(super) fn section(out: &mut String, vitals: &ServerVitals, refused: u64) {
    let ServerVitals { registry, counts, .. } = vitals;
    let (checks, replies) = (value(&counts.failed_checks), counts.replies());
    let of_class = |class| of_class(&replies, class);
    out.push_str("<section aria-labelledby=\"server\">");
    out.push_str(&heading("server", "This server", "since its start"));
    out.push_str("<dl class=\"figures\">");
    let mut add = |name: &str, number: u64, colour: &str| {
        figure(out, name, count(number), if number == 0 { "none" } else { colour });
    };
    add("replies without error", of_class(2) + of_class(3), "");
    add("client errors (4xx)", of_class(4), "");
    add("server errors (5xx)", of_class(5), "bad");
    add("failed probes", checks, "");
    add("refused connections", value(&counts.refused_by_server) + value(&counts.refused_by_client), "warn");
    add("failed TLS", value(&counts.failed_handshakes), "warn");
    add("cut watches", value(&counts.dropped_streams), "warn");
    let logins = value(&counts.unauthenticated);
    let class = match (logins, refused) {
        (0, _) => "none",
        (_, 0) => "",
        _ => "warn",
    };
    let rate = if logins > 0 { format!(" <small>{} in 5 min</small>", count(refused)) } else { String::new() };
    figure(out, "refused logins", count(logins) + &rate, class);
    out.push_str("</dl>");
    let errors: Vec<_> = replies.iter().filter(|((_, code), _)| *code >= 400).collect();
    if !errors.is_empty() {
        let heads = [("", "verb"), ("", "status"), ("n", "replies"), ("", "last path")];
        table(out, "now", "Replies with errors", &heads);
        for ((verb, code), replies) in errors {
            row_name(out, verb);
            let colour = if *code >= 500 { ChipColour::Bad } else { ChipColour::Calm };
            cell(out, "state", "status", chip(colour, code));
            cell(out, "n", "replies", count(replies.count));
            let path = if replies.path.is_empty() { DASH.to_owned() } else { name(&replies.path) };
            cell(out, "full", "last path", path);
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table>");
    }
    connections(out, &registry.oldest(MOST_CONNECTIONS), registry.connections());
    out.push_str("</section>");
}

/// Adds the list of the open connections.
fn connections(out: &mut String, shown: &[SeenConnection], all: usize) {
    if shown.is_empty() {
        out.push_str("<p class=\"calm\">No connection is open.</p>");
        return;
    }
    let number = if shown.len() < all { format!("{}, the oldest {}", size(all), size(shown.len())) } else { size(all) };
    // Writing to a `String` cannot fail.
    let _ = write!(out, "<details data-id=\"connections\"><summary>Open connections: {number}</summary>");
    let heads = [("", "client"), ("", "user"), ("", "since"), ("n", "requests"), ("", "now")];
    table(out, "now", "Open connections, the oldest first", &heads);
    for SeenConnection { peer, is_idle, activity } in shown {
        row_name(out, line(&peer.to_string()));
        let user = if activity.requests == 0 { DASH.to_owned() } else { name(shown_user(&activity.user)) };
        cell(out, "", "user", user);
        cell(out, "", "since", activity.since.map_or_else(|| DASH.to_owned(), time));
        cell(out, "n", "requests", count(activity.requests));
        let now = match (activity.last.as_str(), is_idle) {
            ("", _) => "no request so far".to_owned(),
            (last, true) => format!("idle after {}", name(last)),
            (last, false) => name(last),
        };
        cell(out, "full", "now", now);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></details>");
}
