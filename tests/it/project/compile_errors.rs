//! Errors of the compiler for closures that are not reconcilers: they name the call, and show how to write the closure.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Returns the errors of `rustc` for a program that uses a built library of this crate.
fn errors(body: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.rs");
    let imports = "use homeostat_objects::sub::*; use homeostat::*;";
    fs::write(&program, format!("#![allow(unused)] {imports}\nfn main() {{ {body}; }}\n")).unwrap();
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    for library in libraries(&deps) {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition", "2024", "--emit", "metadata", "--out-dir"]).arg(folder.path());
        rustc.arg("-L").arg(&deps).arg("--extern").arg(format!("homeostat={}", library.display()));
        let output = rustc.arg(&program).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        // This library has other features, is from another compiler, or is incomplete.
        if !["E0432", "E0433", "E0460", "E0463", "E0514", "E0786"]
            .iter()
            .any(|unfit| errors.contains(&format!("[{unfit}]")))
        {
            return errors;
        }
    }
    panic!("no library of the crate in {}", deps.display());
}

fn libraries(deps: &PathBuf) -> Vec<PathBuf> {
    let paths = fs::read_dir(deps).unwrap().map(|entry| entry.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libhomeostat-") && name.ends_with(".rlib")
    };
    let mut libraries: Vec<_> = paths.filter(is_library).collect();
    libraries.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().modified().unwrap()));
    libraries
}

#[test]
fn a_closure_without_types_is_reported_with_the_signature_that_it_must_have() {
    let run = "Ok::<_, BoxError>(Action::await_change())";
    let bodies = [
        format!("Controller::<String>::builder(\"vm\", |cx, key| {run}).build()"),
        format!(
            "Controller::<String>::builder(\"vm\", |cx: &Context, key| {run}).max_concurrent_reconciles(2).build()"
        ),
        "Sequence::<String>::new().then(|cx, vm| Ok(Flow::default()))".to_owned(),
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
    let errors = errors("Sequence::<String>::new().then(5)");
    assert!(errors.contains("is not a step of the reconciliation of `String`"), "{errors}");
    assert!(errors.contains("`|cx: &SubContext<'_>, resource: &mut String| -> SubResult`"), "{errors}");
}
