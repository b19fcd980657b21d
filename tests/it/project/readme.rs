//! Checks that the README is true: something runs its commands, and its links work where others show it.

use std::fs;
use std::path::Path;

use super::tidy::read;

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the commands of Cargo in a page that work in the repository: lines of blocks in `sh`, and code in sentences
/// and tables.
fn commands(page: &str) -> Vec<&str> {
    let mut commands = Vec::new();
    let mut fence = None;
    for line in page.lines() {
        match (fence, line.strip_prefix("```")) {
            (None, Some(language)) => fence = Some(language),
            (Some(_), Some("")) => fence = None,
            (Some("sh"), None) => commands.push(line),
            (None, None) => commands.extend(line.split('`').skip(1).step_by(2)),
            (Some(_), _) => {}
        }
    }
    commands.retain(|command| command.starts_with("cargo ") && *command != "cargo run");
    commands
}

/// Returns the examples of all packages with the features that they need.
fn examples() -> Vec<(String, String)> {
    let manifests = text("examples/Cargo.toml") + &text("examples/first/Cargo.toml");
    let value = |entry: &str, name: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        line.unwrap_or_default().replace(['[', ']', '"', ' '], "")
    };
    manifests
        .split("[[example]]")
        .skip(1)
        .map(|entry| (value(entry, "name"), value(entry, "required-features")))
        .collect()
}

/// Returns the next word after this word of a command.
fn after<'a>(command: &'a str, word: &str) -> Option<&'a str> {
    command.split(' ').skip_while(|part| *part != word).nth(1)
}

#[test]
fn the_readme_lists_each_example_with_its_features_and_something_runs_each_command() {
    let (readme, ci) = (text("README.md"), text(".ci/run"));
    let commands = commands(&readme);
    let tests: String = ["tests", "crates"].into_iter().flat_map(read).map(|(_, text)| text).collect();
    let is_run = |command: &str| match after(command, "--example") {
        // The tests build an example, and run it as a process.
        Some(name) => ci.contains(&format!("--example {name}\n")) || tests.contains(&format!("example!(\"{name}\")")),
        None => ci.lines().any(|line| line.ends_with(command)),
    };
    let idle: Vec<_> = commands.iter().filter(|command| !is_run(command)).collect();
    assert!(idle.is_empty(), "nothing runs {idle:?}");

    for (name, features) in examples() {
        let mut shown = commands.iter().filter(|command| after(command, "--example") == Some(&name)).peekable();
        assert!(shown.peek().is_some(), "the README does not list the example {name}");
        for command in shown {
            assert_eq!(after(command, "--features").unwrap_or_default(), features, "{command}");
        }
    }
    let services = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/services.toml");
    assert!(services.exists(), "the README names it");
}

/// crates.io and docs.rs show the README without the other files of the repository.
#[test]
fn the_readme_has_no_relative_links() {
    let readme = text("README.md");
    let targets = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let relative: Vec<_> =
        targets.filter(|target| !target.starts_with("https://") && !target.starts_with('#')).collect();
    assert!(relative.is_empty(), "the README has relative links: {relative:?}");
}
