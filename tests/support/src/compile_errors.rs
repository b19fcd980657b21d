//! Errors of the compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the errors of `rustc` for a function body. The program imports the path `import` of a built library of its
/// crate: `homeostat_objects::sub::*`.
///
/// # Panics
///
/// If no library of that crate is beside the program of the test.
pub fn of(import: &str, body: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.rs");
    fs::write(&program, format!("#![allow(unused)]\nuse {import};\nfn main() {{ {body}; }}\n")).unwrap();
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let name = import.split("::").next().unwrap();
    for library in libraries(&deps, name) {
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition", "2024", "--emit", "metadata", "--out-dir"]).arg(folder.path());
        rustc.arg("-L").arg(&deps).arg("--extern").arg(format!("{name}={}", library.display()));
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
    panic!("no library of {name} in {}", deps.display());
}

/// Returns the built libraries of a crate, the newest first.
fn libraries(deps: &Path, name: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(deps).unwrap().map(|entry| entry.unwrap().path());
    let begin = format!("lib{name}-");
    let is_library = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy();
        file.starts_with(&begin) && file.ends_with(".rlib")
    };
    let mut libraries: Vec<_> = paths.filter(is_library).collect();
    libraries.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().modified().unwrap()));
    libraries
}
