//! Compares homeostat's object server with kube-apiserver and its etcd. One client sends the same requests to each.
//!
//! In each round, each server starts with an empty store in a temporary folder.

mod appliance;
mod load;
mod page;
mod process;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use self::load::Load;
pub(crate) use self::process::{Killed, ServerProcess, serve};
use crate::machine::Machine;
use crate::meter::Figures;

/// The servers, and their names in the table.
const SERVERS: [(&str, &str); 3] =
    [("file", "homeostat, file"), ("memory", "homeostat, memory"), ("kubernetes", "kube-apiserver, etcd")];

/// The figures of each round, by server.
type Results = BTreeMap<&'static str, Vec<Figures>>;

/// Measures the servers in interleaved rounds, and the example `appliance`, and writes the page.
pub(crate) fn measure(rounds: u32, quick: bool, page: &Path) -> Result<()> {
    let machine = Machine::look()?;
    let load = if quick { Load::QUICK } else { Load::FULL };
    let (mut results, mut appliances) = (Results::new(), Vec::new());
    let program = appliance::build(quick)?;
    for round in 0..rounds as usize {
        for place in 0..SERVERS.len() {
            let (kind, _) = SERVERS[(place + round) % SERVERS.len()];
            let server = ServerProcess::start(kind)?;
            let figures = load.run(&server).with_context(|| format!("the requests to {kind} failed"))?;
            eprintln!("round {} {kind}: {figures:.1?}", round + 1);
            results.entry(kind).or_default().push(figures);
        }
        let figures = appliance::measure(&program)?;
        eprintln!("round {} appliance: {figures:.1?}", round + 1);
        appliances.push(figures);
    }
    fs::write(page, page::markdown(&machine, load, &results, &appliances, rounds)?)?;
    eprintln!("wrote {}", page.display());
    Ok(())
}
