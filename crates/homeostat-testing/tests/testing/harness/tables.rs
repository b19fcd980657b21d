//! Tables: names, focus, and the run and the report of all cases.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use homeostat_testing::SubReconcilerTable;

use super::support::{Case, assert_report, case, idle};

/// Returns the report of a table, and the cases that ran.
fn run(cases: impl IntoIterator<Item = Case>) -> (String, Vec<String>) {
    let names = RefCell::new(Vec::new());
    let made = SubReconcilerTable::new(cases).check(|given| {
        names.borrow_mut().push(given.name().to_owned());
        idle
    });
    (made.err().unwrap_or_default(), names.into_inner())
}

#[test]
fn all_cases_are_run_in_their_order() {
    assert_eq!(run([case("b"), case("a"), case("c")]), (String::new(), ["b", "a", "c"].map(str::to_owned).to_vec()));
    assert_eq!(run([]), (String::new(), vec![]));
}

#[test]
fn all_failures_are_reported_by_case_name() {
    let (report, names) = run([case("one").expect_error("a"), case("two"), case("three").expect_panic("b")]);
    assert_eq!(names, ["one", "two", "three"]);
    assert_report(
        &report,
        r#"2 of 3 cases failed
        case "one":
          expected an error
              Flow {
                  requeue: None,
                  halted: false,
              }
        case "three":
          expected a panic
              Ok(
                  Flow {
                      requeue: None,
                      halted: false,
                  },
              )"#,
    );
}

/// The original, reconcilerio/runtime, `testing/subreconciler.go` (`SubReconcilerTestSuite.Run`), runs only the first
/// focused case.
#[test]
fn all_focused_cases_are_run_and_the_table_fails() {
    let (report, names) = run([case("a"), case("b").focus(), case("c"), case("d").focus()]);
    assert_eq!(names, ["b", "d"]);
    assert_eq!(report, "2 of 4 cases are in focus, 2 were skipped");
    let (report, names) = run([case("a").focus()]);
    assert_eq!((&*report, names.len()), ("1 of 1 cases are in focus, 0 were skipped", 1));
    let (report, _) = run([case("a").expect_panic("x"), case("b").focus().expect_error("x"), case("c").focus()]);
    assert_report(
        &report,
        r#"2 of 3 cases are in focus, 1 were skipped
        1 of 2 cases failed
        case "b":
          expected an error
              Flow {
                  requeue: None,
                  halted: false,
              }"#,
    );
}

#[test]
fn names_are_unique() {
    let (report, names) = run([case("a"), case("b"), case("a")]);
    assert_eq!(report, "two cases are named \"a\"; no case was run");
    assert!(names.is_empty());
}

/// `run` panics with the error of `check`.
#[test]
fn a_table_that_is_run_panics_with_all_failures() {
    SubReconcilerTable::new([case("a")]).run(|_| idle);
    let table = SubReconcilerTable::new([case("a").expect_error("x"), case("b").expect_error("y")]);
    let panic = catch_unwind(AssertUnwindSafe(|| table.run(|_| idle))).unwrap_err();
    assert_eq!(*panic.downcast_ref::<String>().unwrap(), table.check(|_| idle).unwrap_err());
}
