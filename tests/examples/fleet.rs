//! The fleet: processes that divide jobs, while some of them end, are killed or are paused.

use std::process::Command;

use homeostat_test_support::example;

#[test]
fn the_fleet_keeps_all_jobs_owned_while_workers_come_and_go() {
    let output = Command::new(example!("fleet")).output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
    // A worker that is paused while it waits for an answer finds that its lease has run out before it reads the answer.
    for error in errors.lines() {
        assert!(error.contains("this process is no longer a member"), "{text}{errors}");
    }
    // After each change, the last line shows that only these workers own jobs.
    let steps = [
        ("start a, b and c", "abc"),
        ("kill b", "ac"),
        ("pause c", "a"),
        ("add d", "ad"),
        ("continue c", "acd"),
        ("end a", "cd"),
    ];
    let mut assignment = 0;
    for (step, workers) in steps {
        let (_, after) = text.split_once(step).unwrap_or_else(|| panic!("no {step:?} in {text}"));
        let shown = after.lines().skip(1).take_while(|line| line.contains("assignment")).last().unwrap();
        let mut parts = shown.split_whitespace();
        let (picture, number) = (parts.nth(1).unwrap(), parts.nth(1).unwrap());
        let mut owners: Vec<_> = picture.chars().collect();
        owners.sort_unstable();
        owners.dedup();
        assert_eq!(owners.into_iter().collect::<String>(), workers, "{step}: {text}");
        let number: u64 = number.trim_end_matches(':').parse().unwrap();
        assert!(number > assignment, "{step}: {text}");
        assignment = number;
    }
    assert!(text.ends_with("The fleet has ended.\n"), "{text}");
}
