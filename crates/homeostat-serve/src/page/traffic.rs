//! The section of the server: its traffic, its errors and refused logins.

use super::data::{ChipColour, cell, figure, heading, number, row_name, table};
use super::units::{count, size};
use crate::http::value;
use crate::server::ServerVitals;

/// Adds the section.
pub(super) fn section(out: &mut String, vitals: &ServerVitals) {
    let ServerVitals { registry, counts } = vitals;
    // A failed health check is an answer of a server that works.
    let (checks, replies) = (value(&counts.failed_checks), counts.replies_without_checks());
    let of_class = |class: u16| -> u64 {
        replies.iter().filter(|((_, code), _)| code / 100 == class).map(|(_, count)| count).sum()
    };
    out.push_str("<section aria-labelledby=\"server\">");
    out.push_str(&heading("server", "This server", "since its start"));
    out.push_str("<dl class=\"figures\">");
    let mut add = |name: &str, number: u64, colour: &str| {
        figure(out, name, count(number), if number == 0 { "none" } else { colour });
    };
    add("answered", of_class(2) + of_class(3), "");
    add("client errors", of_class(4), "");
    add("server errors", of_class(5), "bad");
    add("refused logins", value(&counts.unauthenticated), "warn");
    add("refused connections", value(&counts.refused_by_server) + value(&counts.refused_by_client), "warn");
    add("failed TLS", value(&counts.failed_handshakes), "warn");
    add("cut watches", value(&counts.dropped_streams), "warn");
    let open = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    add("open now", open(registry.connections()), "");
    out.push_str("</dl>");
    let errors: Vec<_> = replies.iter().filter(|((_, code), _)| *code >= 400).collect();
    if !errors.is_empty() || checks > 0 {
        table(out, "now", "Replies with errors", &[("", "verb"), ("n", "status"), ("n", "replies")]);
        if checks > 0 {
            row_name(out, "<small>failed health checks</small>");
            cell(out, "n", "status", 503);
            cell(out, "n", "replies", count(checks));
            out.push_str("</tr>");
        }
        for ((verb, code), replies) in errors {
            row_name(out, verb);
            cell(out, "n", "status", code);
            let replies = usize::try_from(*replies).unwrap_or(usize::MAX);
            cell(out, "n", "replies", if *code >= 500 { number(replies, ChipColour::Bad) } else { size(replies) });
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table>");
    }
    out.push_str("</section>");
}
