//! The section of the program: its parts, the pages for tools, and the metrics for alerts.

use std::fmt::Write;

use super::data::{PageData, cell, row_name, table};
use super::escape::{lines, name};
use super::units::size;
use crate::api::ObjectApi;
use crate::server::PageContext;
use crate::status::LIBRARY_VERSION;

/// The signs of trouble: the word on the page, the metric, and the condition of an alert.
pub(super) const ALERTS: [[&str; 3]; 18] = [
    ["live", "kubernetes_healthcheck", "{type=\"livez\"} is 0"],
    ["ready", "kubernetes_healthcheck", "{type=\"readyz\"} is 0 for some minutes"],
    ["overdue", "homeostat_overdue_runs", "above 0"],
    ["parked", "homeostat_parked_keys", "above 0"],
    ["failing", "homeostat_failing_keys", "above 0 for longer than some retries take"],
    ["suspended controller", "homeostat_suspended", "1 for longer than the work of a person takes"],
    ["suspended key", "homeostat_suspended_keys", "above 0 for as long"],
    ["sources failing", "homeostat_source_failing_seconds", "above 300"],
    ["waiting and held", "workqueue_depth", "rising for some minutes"],
    [
        "oldest wait",
        "workqueue_queue_duration_seconds",
        "the 99th percentile is too high; keys that still wait are not in it",
    ],
    ["running", "controller_runtime_active_workers", "at controller_runtime_max_concurrent_reconciles all the time"],
    [
        "busy",
        "homeostat_pool_threads",
        "sum( controller_runtime_active_workers ) - sum( homeostat_overdue_runs ) reaches it for some minutes",
    ],
    ["errors", "controller_runtime_reconcile_errors_total", "the rate, by controller"],
    ["server errors", "apiserver_request_total", "the rate with {code=~\"5..\"}"],
    ["failed probes", "homeostat_server_failed_health_checks_total", "rising: a prober sees a failed check"],
    ["refused connections", "homeostat_server_refused_connections_total", "rising"],
    ["refused logins", "authentication_attempts", "the rate with {result=\"failure\"}"],
    ["leads", "leader_election_master_status", "the sum over all processes is not 1"],
];

/// Adds the section. `server` is the server of the pages, which counts its requests. `own` are facts that the program
/// tells.
pub(super) fn section(
    out: &mut String,
    data: &PageData<'_>,
    objects: Option<&ObjectApi>,
    server: Option<&PageContext>,
    own: &[(String, String)],
) {
    let status = data.status;
    out.push_str("<section aria-labelledby=\"program\"><h2 id=\"program\">This program</h2><dl class=\"about\">");
    let mut fact = |title: &str, value: &str| {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "<div><dt>{title}</dt><dd>{value}</dd></div>");
    };
    let tls = if cfg!(feature = "tls") { ", with the feature tls" } else { "" };
    let version = data.version.map_or_else(|| "it tells no version".to_owned(), |of| format!("version {}", name(of)));
    fact("Program", &format!("{}, {version}", name(&status.name)));
    fact("Library", &format!("homeostat {LIBRARY_VERSION}{tls}"));
    fact("Pool", &format!("{} threads run the keys of all controllers", size(status.threads)));
    let elected = if status.elected { "one process at a time leads" } else { "none: this process always runs keys" };
    fact("Election", elected);
    fact(
        "Objects",
        match objects.map(|api| api.client().capabilities().local) {
            Some(true) if own.iter().any(|(title, _)| title == "Store") => "in a store of this process",
            Some(true) => "in a store of this process; its program knows whether a restart keeps it",
            Some(false) => "on a server",
            None => "none on these pages",
        },
    );
    let of_controllers = status.controllers.iter().flat_map(|controller| &controller.sources);
    let (polled, watched): (Vec<_>, Vec<_>) =
        status.sources.iter().chain(of_controllers).partition(|source| source.period.is_some());
    fact("Sources", &format!("{} polled, {} watched", size(polled.len()), size(watched.len())));
    if let Some(server) = server {
        fact("Server", &door(server));
    }
    for (title, text) in own {
        fact(&name(title), &lines(text).to_string());
    }
    let pages = ["/metrics", "/statusz", "/livez?verbose", "/readyz?verbose"];
    fact("For tools", &pages.map(|page| format!("<a href=\"{page}\">{page}</a>")).join(" "));
    out.push_str("</dl><details data-id=\"metrics\"><summary>Metrics for alerts</summary>");
    table(out, "now", "Metrics for alerts", &[("", "metric"), ("", "on this page"), ("", "alert if")]);
    for [word, metric, condition] in ALERTS {
        let is_there = match word {
            "server errors" | "failed probes" | "refused connections" | "refused logins" => server.is_some(),
            "leads" => status.elected,
            _ => true,
        };
        if is_there {
            row_name(out, format_args!("<code class=\"key\">{metric}</code>"));
            cell(out, "", "on this page", word);
            cell(out, "full", "alert if", condition.replace('"', "&quot;"));
            out.push_str("</tr>");
        }
    }
    out.push_str("</tbody></table>");
    if objects.is_some() {
        out.push_str("<p class=\"calm\">Objects that are not ready have no metric: read their conditions.</p>");
    }
    out.push_str("</details></section>");
}

/// Describes how clients reach a server: its addresses, TLS and logins.
fn door(server: &PageContext) -> String {
    let addresses = server.vitals.addresses.get().into_iter().flatten().map(ToString::to_string);
    let addresses = addresses.collect::<Vec<_>>().join(", ");
    let at = if addresses.is_empty() { "not started".to_owned() } else { format!("at {addresses}") };
    let tls = if server.has_tls { "with TLS" } else { "without TLS" };
    let logins = match (server.has_users, server.allows_anonymous) {
        (false, _) => "no login: everyone who reaches it may do all that the program allows",
        (true, true) => "logins, and clients without one are served too",
        (true, false) => "only with a login",
    };
    format!("{at}; {tls}; {logins}")
}
