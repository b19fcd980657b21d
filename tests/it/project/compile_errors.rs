//! Errors of the compiler for closures that are not reconcilers: they name the call, and show how to write the closure.

use homeostat_test_support::compile_errors;

fn errors(body: &str) -> String {
    compile_errors::of("homeostat::*", body)
}

#[test]
fn a_closure_without_types_is_reported_with_the_signature_that_it_must_have() {
    let run = "Ok::<_, BoxError>(Action::await_change())";
    let bodies = [
        format!("Controller::<String>::builder(\"vm\", |cx, key| {run}).build()"),
        format!(
            "Controller::<String>::builder(\"vm\", |cx: &Context, key| {run}).max_concurrent_reconciles(2).build()"
        ),
    ];
    for body in bodies {
        let errors = errors(&body);
        assert!(errors.contains("closure with signature"), "{body}\n{errors}");
        assert!(!errors.contains("no method named"), "{body}\n{errors}");
    }
}

#[test]
fn the_compiler_explains_how_to_write_a_reconciler() {
    let report = errors("Controller::<String>::builder(\"vm\", 5).build()");
    assert!(report.contains("`{integer}` is not a reconciler of keys of type `String`"), "{report}");
    assert!(report.contains("`|cx: &Context, key: &String|`"), "{report}");
}

#[test]
fn an_untyped_closure_of_workers_is_reported_with_the_signature_that_it_must_have() {
    let start = "start(&WorkQueue::<String>::new())";
    let report = errors(&format!("Workers::new(|cx, key| Ok::<_, BoxError>(Action::await_change())).{start}"));
    assert!(report.contains("closure with signature"), "{report}");
    let report = errors(&format!("Workers::new(5).{start}"));
    // The compiler does not know the type of the key yet.
    assert!(report.contains("`|cx: &Context, key: &_|`"), "{report}");
}

#[test]
fn the_compiler_explains_that_a_closure_is_not_a_retry_policy() {
    let reconcile = "|_: &Context, _: &String| Ok::<_, BoxError>(Action::await_change())";
    for body in [
        format!("Workers::new({reconcile}).retry(|failure| failure).start(&WorkQueue::<String>::new())"),
        format!("Controller::<String>::builder(\"vm\", {reconcile}).retry(|failure| failure).build()"),
    ] {
        let report = errors(&body);
        assert!(report.contains("implement `RetryPolicy<String>` for a type"), "{body}\n{report}");
    }
}
