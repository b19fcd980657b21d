//! The section of the server: its traffic, its errors and refused logins.

use std::fmt::Write;

use super::data::{ChipColour, DASH, cell, chip, figure, heading, row_name, table};
use super::escape::name;
use super::units::{count, size};
use crate::http::{of_class, value};
use crate::server::ServerVitals;

/// Adds the section. `refused` is the number of refused logins in the last five minutes.
pub(super) fn section(out: &mut String, vitals: &ServerVitals, refused: u64) {
    let ServerVitals { registry, counts } = vitals;
    let (checks, replies) = (value(&counts.failed_checks), counts.replies());
    let of_class = |class| of_class(&replies, class);
    out.push_str("<section aria-labelledby=\"server\">");
    out.push_str(&heading("server", "This server", "since its start"));
    out.push_str("<dl class=\"figures\">");
    let mut add = |name: &str, number: u64, colour: &str| {
        figure(out, name, count(number), if number == 0 { "none" } else { colour });
    };
    add("without error", of_class(2) + of_class(3), "");
    add("client errors", of_class(4), "");
    add("server errors", of_class(5), "bad");
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
    // Writing to a `String` cannot fail.
    let _ = write!(out, "<p class=\"calm\">Open connections: {}.</p></section>", size(registry.connections()));
}
