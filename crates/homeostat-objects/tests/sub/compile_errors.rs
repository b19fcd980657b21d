//! Errors of the compiler for frequent mistakes. Each shows the correct code.

use homeostat_test_support::compile_errors;

#[test]
fn the_compiler_explains_how_to_write_a_step() {
    let errors = |body: &str| compile_errors::of("homeostat_objects::sub::*", body);
    let report = errors("Sequence::<String>::new().then(|cx, vm| Ok(Flow::default()))");
    assert!(report.contains("closure with signature"), "{report}");
    assert!(!report.contains("no method named"), "{report}");
    let report = errors("Sequence::<String>::new().then(5)");
    assert!(report.contains("is not a step of the reconciliation of `String`"), "{report}");
    assert!(report.contains("`|cx: &SubContext<'_>, resource: &mut String| -> SubResult`"), "{report}");
}

#[test]
fn the_compiler_explains_how_to_write_a_reconciler_of_primaries() {
    let errors = |reconciler: &str| {
        let api = "let api: Api<DynamicObject> = panic!()";
        let body = format!("{api}; PrimaryController::new(\"site\", api, {reconciler})");
        compile_errors::of("homeostat_objects::*", &body)
    };
    let report = errors("|cx, site| Ok::<_, std::io::Error>(panic!())");
    assert!(report.contains("closure with signature"), "{report}");
    let report = errors("5");
    assert!(report.contains("`{integer}` is not a reconciler of primaries of type"), "{report}");
    assert!(report.contains("`|cx: &PrimaryContext<'_>, primary: &homeostat_objects::DynamicObject|`"), "{report}");
}

#[test]
fn the_compiler_explains_that_a_client_is_not_built() {
    let body = "Api::<DynamicObject>::of_kind(std::sync::Arc::new(MemoryClient::builder()), panic!())";
    let report = compile_errors::of("homeostat_objects::*", body);
    assert!(report.contains("note: call `build` on the builder of a client"), "{report}");
}
