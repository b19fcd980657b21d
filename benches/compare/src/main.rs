//! Measures homeostat's queue and its alternatives side by side, and writes the results.

mod cluster;
mod keys;
mod machine;
mod meter;
mod nats;
mod peers;
mod plot;
mod report;
mod rows;
mod runner;
mod servers;
mod workloads;

use std::path::PathBuf;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};

use self::machine::Machine;
use self::runner::Selection;
use self::workloads::{PLAN, Scale};

/// Measures homeostat and its peers in one interleaved run, and writes RESULTS.md and results.svg.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Use small sizes, to test that everything runs. Writes meaningless figures to a temporary folder.
    #[arg(long)]
    quick: bool,
    /// Run only these workloads, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "W1,W4")]
    only: Vec<String>,
    /// The number of measurements of each cell, each in a new process.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The folder of the results [default: the folder `benches` of this checkout].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Measures one cell in this process and prints its figures as JSON. The command starts itself with this.
    #[command(hide = true)]
    Cell {
        workload: String,
        variant: String,
        peer: String,
        #[arg(long)]
        quick: bool,
    },
    /// Compares homeostat and kube-rs against one Kubernetes API server, and writes KUBERNETES.md.
    Cluster {
        /// The server. Objects named `compare-…` are created in its namespace `default` [default: a new server].
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        /// The number of objects.
        #[arg(long, default_value_t = 10_000)]
        objects: usize,
    },
    /// Runs one peer of `cluster`.
    #[command(hide = true)]
    ClusterCell { peer: String, objects: usize, kubeconfig: PathBuf },
    /// Measures homeostat's NATS client and `async-nats` side by side, and writes NATS.md.
    Nats,
    /// Measures one cell of `nats` in this process and prints its figures as JSON.
    #[command(hide = true)]
    NatsCell(nats::CellArgs),
    /// Compares homeostat's server with kube-apiserver and etcd, and writes SERVERS.md.
    Servers,
    /// Serves a store's objects until standard input ends. `servers` starts this.
    #[command(hide = true)]
    ServerProcess { store: String, folder: PathBuf },
}

fn main() -> Result<()> {
    let args = Args::parse();
    let out = args.out.unwrap_or_else(|| match (&args.command, args.quick) {
        (None, true) => env::temp_dir().join("homeostat-compare-quick"),
        _ => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
    });
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    match args.command {
        Some(Command::Cell { workload, variant, peer, quick }) => {
            let figures = workloads::run(&workload, &variant, &peer, Scale { quick })?;
            println!("{}", serde_json::to_string(&figures)?);
            return Ok(());
        }
        Some(Command::ClusterCell { peer, objects, kubeconfig }) => return cluster::cell(&peer, &kubeconfig, objects),
        Some(Command::Cluster { kubeconfig, objects }) => {
            return cluster::measure(kubeconfig, objects, args.rounds, &out.join("KUBERNETES.md"));
        }
        Some(Command::ServerProcess { store, folder }) => return servers::serve(&store, &folder),
        Some(Command::Servers) => {
            return servers::measure(args.rounds, args.quick, &out.join("SERVERS.md"));
        }
        Some(Command::NatsCell(cell)) => {
            println!("{}", serde_json::to_string(&nats::run(&cell)?)?);
            return Ok(());
        }
        Some(Command::Nats) => {
            return nats::measure(args.rounds, args.quick, &args.only, &out.join("NATS.md"));
        }
        None => {}
    }
    for name in &args.only {
        let mut names: Vec<_> = PLAN.iter().map(|workload| workload.name).collect();
        names.dedup();
        ensure!(names.contains(&name.as_str()), "no workload {name}; there are {names:?}");
    }
    if cfg!(debug_assertions) && !args.quick {
        anyhow::bail!("figures of a debug build mean nothing: use `cargo run --release`, or --quick");
    }
    let machine = Machine::look()?;
    let results = runner::measure(&Selection { only: args.only, rounds: args.rounds, quick: args.quick })?;
    let (table, plot) = (out.join("RESULTS.md"), out.join("results.svg"));
    fs::write(&table, report::markdown(&machine, &results, args.rounds, args.quick))?;
    svg::save(&plot, &plot::bars(&results, &machine, args.quick))?;
    eprintln!("wrote {} and {}", table.display(), plot.display());
    Ok(())
}
