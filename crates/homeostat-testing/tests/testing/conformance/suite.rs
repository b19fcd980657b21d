//! Reports of the suite.

use std::panic::{AssertUnwindSafe, catch_unwind};

use homeostat_testing::conformance::{self, Verdict};

use super::{Memory, Plain};

#[test]
fn cases_that_do_not_apply_are_reported_as_skipped() {
    let report = conformance::check(&Plain);
    let skipped: Vec<_> = report.skipped().collect();
    assert!(skipped.contains(&"a_chain_of_owners_is_deleted") && skipped.contains(&"watch_resumes_from_every_version"));
    assert!(report.to_string().contains("skipped a_chain_of_owners_is_deleted: the client does not cascade"));
    assert_eq!(report.verdicts.len(), conformance::names().count());
    let passed = report.verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Passed).count();
    assert_eq!(passed + skipped.len(), report.verdicts.len());
    assert!(passed > 80, "{report}");
}

#[test]
fn a_skipped_case_must_be_listed() {
    let said = |run: &dyn Fn()| *catch_unwind(AssertUnwindSafe(run)).unwrap_err().downcast::<String>().unwrap();
    let case = "a_chain_of_owners_is_deleted";
    conformance::verify(&Plain, case, &[case]);
    assert!(
        said(&|| conformance::verify(&Plain, case, &[]))
            .contains("does not list a_chain_of_owners_is_deleted as skipped")
    );
    assert!(
        said(&|| conformance::verify(&Memory, case, &[case]))
            .contains("lists a_chain_of_owners_is_deleted as skipped, but the case applies")
    );
    assert!(said(&|| drop(conformance::run(&Memory, "no_such_case"))).contains("no_such_case"));
}
