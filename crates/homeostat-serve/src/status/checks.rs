//! Health checks by name: the parts of a manager, and the program's own checks.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use http::StatusCode;

use crate::http::Reply;
use homeostat::manager::{Health, Manager};
use homeostat::rt::{Chain, one_line, panic_message};
use homeostat::run::BoxError;

/// The question that a check answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckKind {
    /// Is nothing stuck?
    Live,
    /// Do all sources work?
    Ready,
}

/// The owner of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckOwner {
    /// The manager, or the component with the name of the check.
    Manager,
    /// The store of the served objects.
    ObjectStore,
    /// The program has added it.
    Program,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckResult {
    pub(crate) name: String,
    pub(crate) owner: CheckOwner,
    /// The reason of a failure in one line.
    pub(crate) failure: Option<String>,
}

type AddedCheck = Box<dyn Fn() -> Result<(), BoxError> + Send + Sync>;

/// The program's own checks, in addition to its manager's checks.
#[derive(Default)]
pub(crate) struct HealthChecks {
    added: Vec<(CheckKind, String, AddedCheck)>,
}

impl HealthChecks {
    pub(crate) fn add(&mut self, kind: CheckKind, name: String, check: AddedCheck) {
        self.added.push((kind, name, check));
    }

    /// Runs the checks of one kind. The manager and its components come first, by name.
    pub(crate) fn run(&self, kind: CheckKind, manager: &Manager) -> Vec<CheckResult> {
        let health = match kind {
            CheckKind::Live => manager.live(),
            CheckKind::Ready => manager.ready(),
        };
        let mut results = of_manager(&health, manager);
        for (_, name, check) in self.added.iter().filter(|(of, ..)| *of == kind) {
            let failure = match catch_unwind(AssertUnwindSafe(check)) {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(one_line(Chain(&*error))),
                Err(panic) => Some(format!("the check panicked: {}", one_line(panic_message(&*panic)))),
            };
            results.push(CheckResult { name: name.clone(), owner: CheckOwner::Program, failure });
        }
        results
    }
}

/// Returns one result for the manager and for each of its components.
fn of_manager(health: &Health, manager: &Manager) -> Vec<CheckResult> {
    let own = manager.name();
    let mut names = vec![own.to_owned()];
    names.extend(manager.components().into_iter().filter(|name| name != own));
    for (name, _) in health.by_name() {
        // The failed component may have been removed meanwhile.
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    let result = |name: String| {
        let prefix = format!("{}: ", one_line(&name));
        let of_name = health.by_name().filter(|(of, _)| *of == name);
        let reasons: Vec<_> = of_name.map(|(_, reason)| reason.strip_prefix(&prefix).unwrap_or(reason)).collect();
        let failure = (!reasons.is_empty()).then(|| reasons.join("; "));
        CheckResult { name, owner: CheckOwner::Manager, failure }
    };
    names.into_iter().map(result).collect()
}

/// Whether a client may see why checks fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureReasons {
    Shown,
    /// The client sees only the names and results of checks.
    Withheld,
}

impl FailureReasons {
    /// Returns the reason of a failure, or kube-apiserver's placeholder for it.
    fn of(self, failure: &str) -> &str {
        match self {
            Self::Shown => failure,
            Self::Withheld => "reason withheld",
        }
    }
}

/// Returns whether all checks have passed.
pub(crate) fn all_ok(results: &[CheckResult]) -> bool {
    results.iter().all(|result| result.failure.is_none())
}

/// Answers a request for a group of checks, such as `/readyz`, in the format of kube-apiserver. A failure lists all
/// checks.
pub(crate) fn reply_to_group(
    group: &str,
    results: &[CheckResult],
    verbose: bool,
    excluded: &[&str],
    reasons: FailureReasons,
) -> Reply {
    let is_excluded = |result: &CheckResult| excluded.contains(&result.name.as_str());
    let (left_out, counted): (Vec<_>, Vec<_>) = results.iter().cloned().partition(is_excluded);
    let ok = all_ok(&counted);
    if ok && !verbose {
        return Reply::text(StatusCode::OK, "ok");
    }
    let mut text = String::new();
    for result in results {
        let name = one_line(&result.name);
        // Writing to a `String` cannot fail.
        let _ = match &result.failure {
            _ if left_out.contains(result) => writeln!(text, "[+]{name} excluded: ok"),
            None => writeln!(text, "[+]{name} ok"),
            Some(failure) => writeln!(text, "[-]{name} failed: {}", reasons.of(failure)),
        };
    }
    let unknown = excluded.iter().filter(|name| !left_out.iter().any(|result| result.name == **name));
    let unknown: Vec<_> = unknown.map(|name| format!("{name:?}")).collect();
    if !unknown.is_empty() {
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {}", unknown.join(","));
    }
    let (status, end) = if ok { (StatusCode::OK, "passed") } else { (StatusCode::SERVICE_UNAVAILABLE, "failed") };
    let _ = writeln!(text, "{group} check {end}");
    Reply::text(status, text)
}

/// Answers a request for one check, such as `/readyz/vm`.
pub(crate) fn reply_to_one(name: &str, results: &[CheckResult], reasons: FailureReasons) -> Reply {
    match results.iter().find(|result| result.name == name) {
        None => Reply::text(StatusCode::NOT_FOUND, format!("there is no check {name:?}\n")),
        Some(CheckResult { failure: None, .. }) => Reply::text(StatusCode::OK, "ok"),
        Some(CheckResult { failure: Some(failure), .. }) => {
            let text = format!("[-]{} failed: {}\n", one_line(name), reasons.of(failure));
            Reply::text(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::FailureReasons::{Shown, Withheld};
    use super::*;
    use crate::http::ReplyBody;

    fn results() -> Vec<CheckResult> {
        [("manager", None), ("vm", Some("no route to host")), ("disk", None)]
            .map(|(name, failure)| CheckResult {
                name: name.into(),
                owner: CheckOwner::Manager,
                failure: failure.map(str::to_owned),
            })
            .into()
    }

    fn text(reply: Reply) -> (u16, String) {
        let ReplyBody::Full(body) = reply.body else { panic!("a stream") };
        (reply.status.as_u16(), String::from_utf8_lossy(&body).into_owned())
    }

    #[test]
    fn a_group_that_passes_answers_ok_and_lists_its_checks_if_asked() {
        let passing = [results()[0].clone(), results()[2].clone()];
        assert_eq!(text(reply_to_group("readyz", &passing, false, &[], Withheld)), (200, "ok".into()));
        let expected = "[+]manager ok\n[+]disk ok\nreadyz check passed\n";
        assert_eq!(text(reply_to_group("readyz", &passing, true, &[], Withheld)), (200, expected.into()));
    }

    #[test]
    fn a_group_that_fails_lists_its_checks_always() {
        let expected = "[+]manager ok\n[-]vm failed: no route to host\n[+]disk ok\nlivez check failed\n";
        assert_eq!(text(reply_to_group("livez", &results(), false, &[], Shown)), (503, expected.into()));
    }

    #[test]
    fn withheld_reasons_leave_names_and_results() {
        let expected = "[+]manager ok\n[-]vm failed: reason withheld\n[+]disk ok\nlivez check failed\n";
        for verbose in [true, false] {
            assert_eq!(text(reply_to_group("livez", &results(), verbose, &[], Withheld)), (503, expected.into()));
        }
        assert_eq!(text(reply_to_one("vm", &results(), Withheld)), (503, "[-]vm failed: reason withheld\n".into()));
        assert_eq!(text(reply_to_one("disk", &results(), Withheld)), (200, "ok".into()));
    }

    #[test]
    fn excluded_checks_do_not_count_and_unknown_ones_are_named() {
        assert_eq!(text(reply_to_group("readyz", &results(), false, &["vm"], Shown)), (200, "ok".into()));
        let expected = "[+]manager ok\n[+]vm excluded: ok\n[+]disk ok\n\
            warn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nreadyz check passed\n";
        assert_eq!(text(reply_to_group("readyz", &results(), true, &["a", "vm", "b"], Shown)), (200, expected.into()));
    }

    #[test]
    fn one_check_answers_for_itself() {
        assert_eq!(text(reply_to_one("disk", &results(), Shown)), (200, "ok".into()));
        assert_eq!(text(reply_to_one("vm", &results(), Shown)), (503, "[-]vm failed: no route to host\n".into()));
        assert_eq!(text(reply_to_one("<b>", &results(), Shown)), (404, "there is no check \"<b>\"\n".into()));
    }
}
