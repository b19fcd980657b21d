//! Objects and sub-reconcilers for tables, and checks of reports.

use homeostat_objects::sub::{Flow, SubContext, SubResult};
use homeostat_objects::{DynamicObject, Kind};
use homeostat_testing::{Factory, SubReconcilerTable, SubReconcilerTestCase};

pub(crate) const APP: Kind = Kind::namespaced("example.com", "v1", "App");

pub(crate) type Case = SubReconcilerTestCase<DynamicObject>;
pub(crate) type Step = fn(&SubContext<'_>, &mut DynamicObject) -> SubResult;

pub(crate) fn app(name: &str) -> Factory {
    Factory::dynamic(&APP, "default", name)
}

/// Returns a case of the app `shop`.
pub(crate) fn case(name: &str) -> Case {
    Case::new(name, &app("shop"))
}

pub(crate) fn idle(_: &SubContext<'_>, _: &mut DynamicObject) -> SubResult {
    Ok(Flow::proceed())
}

/// Returns the report of a table with one case. It is empty if the case passes.
pub(crate) fn report(case: Case, step: Step) -> String {
    SubReconcilerTable::new([case]).check(|_| step).err().unwrap_or_default()
}

/// Fails unless a report equals `expected` without its common indentation.
#[track_caller]
pub(crate) fn assert_report(actual: &str, expected: &str) {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let least = expected.lines().skip(1).filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let lines = expected.lines().map(|line| &line[least.min(indent(line))..]);
    let expected = lines.collect::<Vec<_>>().join("\n");
    assert!(actual == expected, "the report is\n{actual}\nand not\n{expected}");
}
