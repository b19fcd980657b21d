//! The recorded counts, their conditions, and the comparison with new counts.

use std::collections::BTreeMap;
use std::env;
use std::env::consts::{ARCH, OS};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// The tolerated rise of a count in percent. Two runs of one binary have the same count, but an unrelated change may
/// affect the compiled code a little.
pub(crate) const TOLERANCE: f64 = 3.0;

/// Counts and their conditions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) conditions: BTreeMap<String, String>,
    /// Instructions per operation.
    pub(crate) counts: BTreeMap<String, f64>,
}

impl Record {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {} (--bless makes it)", path.display()))?;
        Self::parse(&text).with_context(|| format!("{}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse()?;
        let section = |name| table.get(name).and_then(toml::Value::as_table).with_context(|| format!("no [{name}]"));
        let mut conditions = BTreeMap::new();
        for (name, value) in section("conditions")? {
            conditions.insert(name.clone(), value.as_str().with_context(|| format!("{name} is no string"))?.to_owned());
        }
        let mut counts = BTreeMap::new();
        for (name, value) in section("instructions")? {
            counts.insert(name.clone(), value.as_float().with_context(|| format!("{name} is no float"))?);
        }
        Ok(Self { conditions, counts })
    }

    pub(crate) fn to_toml(&self) -> String {
        let mut text = String::from("# Written by `cargo bench --bench instructions -- --bless`.\n\n[conditions]\n");
        for (name, value) in &self.conditions {
            let _ = writeln!(text, "{name} = {}", toml::Value::from(value.as_str()));
        }
        text.push_str("\n# Per operation.\n[instructions]\n");
        for (name, count) in &self.counts {
            let _ = writeln!(text, "{name:?} = {count:.1}");
        }
        text
    }
}

/// The conditions of a count besides the code: compiler, settings, target and C library, and the processor features by
/// which the C library selects functions.
pub(crate) fn conditions() -> BTreeMap<String, String> {
    let library = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    let conditions = [
        ("rustc", said("rustc", &["--version"])),
        ("settings", settings()),
        ("target", format!("{ARCH}-{OS}-{library}")),
        ("libc", said("getconf", &["GNU_LIBC_VERSION"])),
        ("cpu", cpu()),
    ];
    conditions.map(|(name, value)| (name.to_owned(), value)).into()
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success());
    output.map_or_else(|| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the profile settings that the environment overrides. (An incremental build differs by a tenth.)
fn settings() -> String {
    let all = env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let set: BTreeMap<_, _> = all
        .filter(|(name, value)| match name.as_str() {
            "RUSTFLAGS" | "CARGO_ENCODED_RUSTFLAGS" => !value.is_empty(),
            "CARGO_INCREMENTAL" => value != "0",
            other => other.starts_with("CARGO_PROFILE_"),
        })
        .collect();
    set.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Returns the relevant processor features, in capitals if the compiler uses them.
#[cfg(target_arch = "x86_64")]
fn cpu() -> String {
    macro_rules! features {
        ($($name:tt)*) => {
            [$(($name, cfg!(target_feature = $name), is_x86_feature_detected!($name))),*]
        };
    }
    let features = features!("sse4.2" "popcnt" "avx" "avx2" "bmi2");
    let there = features.into_iter().filter(|(_, _, there)| *there);
    let names = there.map(|(name, told, _)| if told { name.to_uppercase() } else { name.to_owned() });
    names.collect::<Vec<_>>().join(" ")
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> String {
    "any".to_owned()
}

/// The comparison of a count with the recorded one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Same,
    Rose,
    Fell,
}

impl Verdict {
    pub(crate) fn new(counted: f64, recorded: f64) -> Self {
        match change(counted, recorded) {
            change if change > TOLERANCE => Self::Rose,
            change if change < -TOLERANCE => Self::Fell,
            _ => Self::Same,
        }
    }
}

/// The change in percent.
pub(crate) fn change(counted: f64, recorded: f64) -> f64 {
    (counted / recorded - 1.0) * 100.0
}

/// Tests the comparison here, because this binary has no other tests.
pub(crate) fn check_itself() -> Result<()> {
    for (counted, recorded, verdict) in [
        (400.0, 400.0, Verdict::Same),
        (411.9, 400.0, Verdict::Same),
        (412.1, 400.0, Verdict::Rose),
        (388.1, 400.0, Verdict::Same),
        (387.9, 400.0, Verdict::Fell),
    ] {
        assert_eq!(Verdict::new(counted, recorded), verdict, "{counted} after {recorded}");
    }
    let counts = [("cycle/u64".to_owned(), 181.0), ("batch/u64".to_owned(), 92.5)].into();
    let record = Record { conditions: conditions(), counts };
    assert_eq!(Record::parse(&record.to_toml())?, record);
    Ok(())
}
