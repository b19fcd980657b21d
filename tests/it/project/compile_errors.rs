//! Errors and warnings of the compiler for frequent mistakes: they name the call, and show what to write.

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

const BUILDER: &str =
    "Controller::<String>::builder(\"vm\", |_: &Context, _: &String| Ok::<_, BoxError>(Action::await_change()))";

#[test]
fn the_compiler_explains_that_a_builder_is_not_built() {
    let manager = "Manager::builder().build().unwrap()";
    let report = errors(&format!("{manager}.add({BUILDER})"));
    assert!(report.contains("`ControllerBuilder<String>: IntoComponent` is not satisfied"), "{report}");
    assert!(report.contains("note: call `.build()?` on a builder"), "{report}");
    let report = errors(&format!("{manager}.add(WorkerPool::builder().start().unwrap())"));
    assert!(report.contains("pass what runs to `Component::running`"), "{report}");
    let report = errors(&format!("{manager}.add(Watch::<u32, u32>::push())"));
    assert!(report.contains("a `Push` is not added: give its `.watch()` to a controller"), "{report}");
}

#[test]
fn the_compiler_explains_that_nothing_is_started() {
    for idle in [BUILDER.to_owned(), format!("{BUILDER}.build().unwrap()"), "WorkerPool::builder()".to_owned()] {
        let report = errors(&format!("Component::running(\"vms\", {idle})"));
        assert!(report.contains("note: call `.build()?` on a builder, and `.start()` on what it builds"), "{report}");
    }
}

#[test]
fn the_compiler_says_what_to_call_on_an_unused_value() {
    for (unused, calls) in [
        ("Manager::builder()", "until `build` is called"),
        ("Manager::builder().build().unwrap()", "until `run`, `run_until_signal` or `start` is called"),
        (BUILDER, "until `build` is called"),
        (&format!("{BUILDER}.build().unwrap()"), "until `Manager::add` or `start` is called"),
    ] {
        let report = errors(&format!("#![deny(unused_must_use)] {unused}"));
        assert!(report.contains(calls), "{unused}\n{report}");
    }
}

/// The documentation of `Reconciler` has these errors in a table, with their repairs.
#[test]
fn frequent_errors_of_closures_are_those_of_the_documentation() {
    const DONE: &str = "Ok(Action::await_change())";
    const RETURNS: &str = "-> Result<Action, BoxError>";
    let build = |closure: String| format!("Controller::builder(\"vm\", {closure}).build()");
    let typed = |before: &str, key: &str, run: &str| {
        format!("{before} {}", build(format!("move |_: &Context, _: {key}| {RETURNS} {{ {run} {DONE} }}")))
    };
    let poll = |listed: &str| {
        let poll = format!(".poll(std::time::Duration::from_secs(1), |_| {listed}).build()");
        typed("", "&String", "").replace(".build()", &poll)
    };
    let add = |rest: &str| {
        let controller = format!("let controller = {}.unwrap();", typed("", "&String", ""));
        format!("{controller} let manager = Manager::builder().build().unwrap(); {rest}")
    };
    for (body, expected, repaired) in [
        (build(format!("|_: &Context, _: &String| {DONE}")), "E0282", typed("", "&String", "")),
        (poll("Ok(vec![String::new()])"), "E0283", poll("Ok::<_, BoxError>(vec![String::new()])")),
        (build(format!("|_, _: &String| {RETURNS} {{ {DONE} }}")), "not general enough", typed("", "&String", "")),
        (typed("", "&str", ""), "`str: Clone` is not satisfied", typed("", "&&'static str", "")),
        (
            typed("let mut runs = 0;", "&String", "runs += 1;"),
            "E0525",
            typed("let runs = std::sync::Mutex::new(0);", "&String", "*runs.lock().unwrap() += 1;"),
        ),
        (
            typed("let runs = std::cell::Cell::new(0);", "&String", "runs.set(1);"),
            "cannot be shared between threads safely",
            typed(
                "let runs = std::sync::atomic::AtomicU8::new(0);",
                "&String",
                "runs.store(1, std::sync::atomic::Ordering::SeqCst);",
            ),
        ),
        (
            add("manager.add(controller); controller.handle();"),
            "E0382",
            add("let handle = controller.handle(); manager.add(controller); handle.name();"),
        ),
    ] {
        let report = errors(&body);
        assert!(report.contains(expected), "{body}\n{report}");
        let report = errors(&repaired);
        assert!(report.is_empty(), "{repaired}\n{report}");
    }
}
