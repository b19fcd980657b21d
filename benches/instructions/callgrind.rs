//! Counts instructions with callgrind: this binary runs itself under it, one process per count.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::cases::{Case, KEYS, MOST_ROUNDS};

/// Returns whether valgrind is installed. Fails if it is installed but does not run.
pub(crate) fn is_there() -> Result<bool> {
    match Command::new("valgrind").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(true),
        Ok(output) => bail!("valgrind is installed but does not run: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("cannot run valgrind"),
    }
}

/// Returns the user-space instructions per operation, to a tenth. This is the difference between a number of rounds
/// and twice as many, which excludes start and set-up.
pub(crate) fn per_operation(case: &Case) -> Result<f64> {
    let some = instructions(case, MOST_ROUNDS / 2)?;
    let twice = instructions(case, MOST_ROUNDS)?;
    let more = twice.checked_sub(some).context("more rounds took fewer instructions")?;
    let exact = f64::from(u32::try_from(more)?) / f64::from(u32::try_from(MOST_ROUNDS / 2 * KEYS)?);
    Ok((exact * 10.0).round() / 10.0)
}

/// Returns the path of a case's callgrind profile, for `callgrind_annotate`.
pub(crate) fn profile(case: &Case) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind.{}.out", case.name().replace('/', "-")))
}

fn instructions(case: &Case, rounds: usize) -> Result<u64> {
    let (name, profile) = (case.name(), profile(case));
    // Remove the file of an earlier run, if any.
    let _ = fs::remove_file(&profile);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(env::current_exe()?)
        .args(["--run", &name, "--rounds", &rounds.to_string()])
        // Both variables would change the counts.
        .env_remove("VALGRIND_OPTS")
        .env_remove("GLIBC_TUNABLES")
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} under callgrind: {}\n{said}", output.status);
    let text = fs::read_to_string(&profile).with_context(|| format!("{}\n{said}", profile.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("summary:"));
    total.and_then(|total| total.trim().parse().ok()).with_context(|| format!("no total in {}", profile.display()))
}
