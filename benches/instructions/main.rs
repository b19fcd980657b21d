//! Instruction counts of the queue's hot path, to find regressions without noise.
//!
//! `counts.toml` records the counts per operation and their conditions. A count that rises by more than the tolerance
//! fails the check.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the counts are what this is for")]

mod callgrind;
mod cases;
#[path = "../keys/mod.rs"]
mod keys;
mod record;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use self::cases::{CASES, Case};
use self::record::{Record, TOLERANCE, Verdict, change, conditions};

/// Counts instructions per operation with callgrind and compares them with those recorded.
///
/// Exits with 1 if a count has risen by more than 3 %, or was never recorded. Without valgrind, or under other
/// conditions than the recorded ones (compiler, settings, target, C library, processor), it prints the counts and
/// judges nothing. To judge a change there, record the counts before it with `--bless --counts FILE`, and compare with
/// `--counts FILE` after it.
#[derive(Debug, Parser)]
#[command(name = "instructions", bin_name = "cargo bench --bench instructions --", after_help = AFTER)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of a command line are what they are")]
struct Args {
    /// Select the cases with this text in their names
    #[arg(conflicts_with = "bless")]
    filter: Option<String>,
    /// Record the counts instead of comparing them
    #[arg(long)]
    bless: bool,
    /// The file of recorded counts
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions/counts.toml"))]
    counts: PathBuf,
    /// Run each case once, without callgrind
    #[arg(long)]
    test: bool,
    /// List the cases
    #[arg(long)]
    list: bool,
    /// Run one case under callgrind
    #[arg(long, hide = true, requires = "rounds", value_name = "CASE")]
    run: Option<String>,
    #[arg(long, hide = true, requires = "run")]
    rounds: Option<usize>,
    /// The flag of `cargo bench`. Without it this is a test, like the other benches.
    #[arg(long, hide = true)]
    bench: bool,
    #[command(flatten)]
    runner: TestRunner,
}

/// The flags that test runners pass to a bench.
#[derive(Debug, clap::Args)]
struct TestRunner {
    #[arg(long, hide = true)]
    exact: bool,
    #[arg(long, hide = true)]
    ignored: bool,
    #[arg(long, hide = true)]
    nocapture: bool,
    #[arg(long, hide = true)]
    format: Option<String>,
}

const AFTER: &str = "\
Where the instructions of a case are, callgrind_annotate says of the file named beside a count that has changed.
Options of the other benches go to them alone: cargo bench --bench queue -- OPTIONS";

const REFRESH: &str = "record them with `cargo bench --bench instructions -- --bless`";

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(args: &Args) -> Result<ExitCode> {
    if let (Some(name), Some(rounds)) = (&args.run, args.rounds) {
        let mut cases = CASES.iter().filter(|case| case.name() == *name);
        (cases.next().with_context(|| format!("there is no case {name}"))?.run)(rounds);
    } else if args.list {
        let listed = args.cases().filter(|_| !args.runner.ignored);
        listed.for_each(|case| println!("{}: benchmark", case.name()));
    } else if args.test || !args.bench {
        test(args)?;
    } else if !callgrind::is_there()? {
        println!("instruction counts: skipped, valgrind is not installed");
        ensure!(!args.bless, "no counts to record");
    } else if args.bless {
        bless(args)?;
    } else {
        return compare(args);
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn cases(&self) -> impl Iterator<Item = &'static Case> {
        CASES.iter().filter(|case| match &self.filter {
            Some(filter) if self.runner.exact => case.name() == *filter,
            Some(filter) => case.name().contains(filter.as_str()),
            None => true,
        })
    }
}

/// Runs each case once, and tests the comparison.
fn test(args: &Args) -> Result<()> {
    record::check_itself()?;
    for case in args.cases() {
        (case.run)(1);
        println!("Testing {}\nSuccess\n", case.name());
    }
    Ok(())
}

fn bless(args: &Args) -> Result<()> {
    let mut record = Record { conditions: conditions(), counts: BTreeMap::new() };
    for case in &CASES {
        let count = callgrind::per_operation(case)?;
        println!("{:<24}{count:>10.1}", case.name());
        record.counts.insert(case.name(), count);
    }
    std::fs::write(&args.counts, record.to_toml()).with_context(|| format!("{}", args.counts.display()))?;
    println!("instruction counts: recorded in {}", args.counts.display());
    Ok(())
}

fn compare(args: &Args) -> Result<ExitCode> {
    let record = Record::read(&args.counts)?;
    let here = conditions();
    let judged = here == record.conditions;
    if args.cases().next().is_none() {
        println!("instruction counts: no case has such a name");
        return Ok(ExitCode::SUCCESS);
    }
    let (mut bad, mut fell) = (0, 0);
    println!("{:<24}{:>10}{:>10}", "per operation", "counted", "recorded");
    for case in args.cases() {
        let (name, count) = (case.name(), callgrind::per_operation(case)?);
        let Some(&recorded) = record.counts.get(&name) else {
            bad += 1;
            println!("{name:<24}{count:>10.1}{:>10}  NOT RECORDED", "-");
            continue;
        };
        let verdict = Verdict::new(count, recorded);
        bad += usize::from(verdict == Verdict::Rose);
        fell += usize::from(verdict == Verdict::Fell);
        let note = match verdict {
            Verdict::Rose if judged => format!("  ROSE: callgrind_annotate {}", callgrind::profile(case).display()),
            Verdict::Fell if judged => "  fell".to_owned(),
            _ => String::new(),
        };
        println!("{name:<24}{count:>10.1}{recorded:>10.1}{:>+9.1} %{note}", change(count, recorded));
    }
    for name in record.counts.keys().filter(|name| CASES.iter().all(|case| case.name() != **name)) {
        bad += 1;
        println!("{name:<24}{:>10}  RECORDED, but there is no such case", "-");
    }
    if !judged {
        println!("instruction counts: shown but NOT JUDGED, they were recorded under other conditions");
        for (name, here) in &here {
            let there = record.conditions.get(name).map_or("", String::as_str);
            if here != there {
                println!("  {name}: {here:?} here, {there:?} when recorded");
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    if fell > 0 {
        println!("instruction counts: {fell} fell by more than {TOLERANCE} %; {REFRESH}");
    }
    if bad > 0 {
        println!(
            "instruction counts: {bad} rose by more than {TOLERANCE} % or do not match the record; if that is meant, {REFRESH}"
        );
        return Ok(ExitCode::FAILURE);
    }
    println!("instruction counts: none rose by more than {TOLERANCE} %");
    Ok(ExitCode::SUCCESS)
}
