//! Describes the machine of the measurement, without names of hosts, people or folders.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) toolchain: String,
    pub(crate) commit: String,
    /// The load averages of the last 1, 5 and 15 minutes.
    pub(crate) load: String,
}

impl Machine {
    pub(crate) fn look() -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("this needs Linux' /proc")?;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let kib: f64 =
            field(&meminfo, "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse().ok()).unwrap_or(0.0);
        Ok(Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            memory: format!("{:.0} GiB", kib / 1024.0 / 1024.0),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            toolchain: output("rustc", &["-V"])?,
            commit: commit()?,
            load: fs::read_to_string("/proc/loadavg")?.split(' ').take(3).collect::<Vec<_>>().join(", "),
        })
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// Returns the measured commit. The result files may differ from it.
fn commit() -> Result<String> {
    let head = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    let changes = ["status", "--porcelain", "--", ":/", ":!/benches/*.md", ":!/benches/results.svg"];
    let clean = output("git", &changes)?.is_empty();
    Ok(if clean { head } else { format!("{head} with uncommitted changes") })
}

fn output(program: &str, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program} {args:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
