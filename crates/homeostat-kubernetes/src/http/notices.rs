//! Log messages about requests: warnings from the server, and calls that take long because they are repeated.

use std::collections::HashSet;
use std::time::Duration;

use http::Method;

use super::request_error::RequestFault;
use crate::sync::Mutex;
use homeostat::rt::{Nanos, Rounded, one_line};
use homeostat_objects::store::report_repetition;

/// A call that is repeated for longer than this is reported.
pub(super) const LONG: Duration = Duration::from_secs(5);
/// The interval of log messages about repeated calls. Calls of many threads often fail together.
const PERIOD: Duration = Duration::from_secs(10);
/// How many warnings are remembered. At this number, all are forgotten and may be logged again.
const MOST_WARNINGS: usize = 1_000;

/// The first line of a request, for log lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLabel<'a> {
    pub(super) method: &'a Method,
    pub(super) server: &'a str,
    /// Without a query.
    pub(super) path: &'a str,
}

/// Logs notices for a client and its clones.
#[derive(Debug, Default)]
pub(super) struct RequestNotices {
    warnings: Mutex<HashSet<String>>,
    next_line: Mutex<Nanos>,
}

impl RequestNotices {
    /// Logs each warning that was not logged before.
    pub(super) fn warn(&self, target: RequestLabel<'_>, warnings: &[String]) {
        let RequestLabel { method, server, path } = target;
        for warning in warnings {
            let is_new = {
                let mut known = self.warnings.lock();
                if known.len() >= MOST_WARNINGS {
                    known.clear();
                }
                known.insert(warning.clone())
            };
            if is_new {
                let message = &*one_line(warning);
                log::warn!(method:%, server, path, message; "{method} {server}{path}: the server warns: {message}");
            }
        }
    }

    /// Reports a repeated call to the watch that makes it, or else in the log.
    pub(super) fn repeats(&self, target: RequestLabel<'_>, now: Nanos, timeout: Duration, error: &RequestFault) {
        let (RequestLabel { method, server, path }, timeout) = (target, Rounded(timeout));
        if report_repetition(|| format!("{method} {server}{path}: {error}; the call is repeated for up to {timeout}")) {
            return;
        }
        let is_first = {
            let mut next = self.next_line.lock();
            let is_first = *next <= now;
            if is_first {
                *next = now.after(PERIOD);
            }
            is_first
        };
        let level = if is_first { log::Level::Warn } else { log::Level::Debug };
        log::log!(
            level, method:%, server, path, error:%, timeout:%;
            "{method} {server}{path}: {error}; the call is repeated for up to {timeout}"
        );
    }
}
