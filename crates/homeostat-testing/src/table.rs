//! Tables of cases.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use super::case::{Subject, TestCase};
use super::difference::Mismatch;

/// A table of cases: a [`SubReconcilerTable`](super::SubReconcilerTable), a [`ReconcilerTable`](super::ReconcilerTable)
/// or an [`AdmissionTable`](super::AdmissionTable).
///
/// All cases run, even after failures, and the report lists all mismatches. If cases are in [focus](TestCase::focus),
/// only they run, and the table fails.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{DynamicObject, Kind};
/// use homeostat_objects::sub::{Flow, SubContext, SubResult};
/// use homeostat_testing::{Factory, SubReconcilerTable, SubReconcilerTestCase};
///
/// fn idle(_: &SubContext<'_>, _: &mut DynamicObject) -> SubResult {
///     Ok(Flow::proceed())
/// }
///
/// let app = Factory::config_map("default", "app");
/// let table = SubReconcilerTable::new([
///     SubReconcilerTestCase::new("one", &app),
///     SubReconcilerTestCase::new("two", &app).focus(),
/// ]);
/// assert_eq!(table.check(|_given| idle).unwrap_err(), "1 of 2 cases are in focus, 1 were skipped");
/// ```
#[must_use = "a table does nothing until it is run"]
pub struct Table<S: Subject>(Vec<TestCase<S>>);

impl<S: Subject> Table<S> {
    /// Creates a table of these cases. Each needs a unique name.
    pub fn new(cases: impl IntoIterator<Item = TestCase<S>>) -> Self {
        Self(cases.into_iter().collect())
    }

    pub(super) fn check_each(&self, check: impl Fn(&TestCase<S>) -> Vec<Mismatch>) -> Result<(), String> {
        let Self(cases) = self;
        let mut names = BTreeSet::new();
        if let Some(case) = cases.iter().find(|case| !names.insert(&case.name)) {
            return Err(format!("two cases are named {:?}; no case was run", case.name));
        }
        let focused = cases.iter().filter(|case| case.focus).count();
        let (mut text, mut run, mut failed) = (String::new(), 0, 0);
        for case in cases.iter().filter(|case| case.focus || focused == 0) {
            run += 1;
            let mismatches = check(case);
            if !mismatches.is_empty() {
                failed += 1;
                let _ = writeln!(text, "case {:?}:", case.name);
                for mismatch in &mismatches {
                    mismatch.print(&mut text);
                }
            }
        }
        if failed > 0 {
            text = format!("{failed} of {run} cases failed\n{text}");
        }
        if focused > 0 {
            let (all, left) = (cases.len(), cases.len() - focused);
            text = format!("{focused} of {all} cases are in focus, {left} were skipped\n{text}");
        }
        if text.is_empty() { Ok(()) } else { Err(text.trim_end().to_owned()) }
    }
}

impl<S: Subject> fmt::Debug for Table<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.0).finish()
    }
}
