//! A fleet: several processes of one program divide jobs among themselves, while one of them is killed, paused or
//! added.
//!
//! ```sh
//! cargo run --features kubernetes,serve --example fleet
//! ```
//!
//! The program keeps the jobs in its memory, and serves them on a free port as a Kubernetes API server does. It starts
//! three workers: processes of the same program, each with a
//! [`KubernetesClient`](homeostat_kubernetes::KubernetesClient) and [`Members`](homeostat_objects::Members). Each
//! worker repeatedly writes its name into the jobs that it owns. The program shows each change of the owners:
//!
//! ```text
//!   0.1s  cabcabbabacbbaabbaacbcaa  assignment 1: a 10, b 9, c 5
//! kill b
//!   3.3s  caacacaaaacaaaaaaaacccaa  assignment 2: a 17, c 7
//! ```
//!
//! | file | content |
//! |---|---|
//! | `objects.rs` | jobs |
//! | `worker.rs` | one worker |
//! | `tour.rs` | the server, the processes, and the picture of the owners |

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "../cli/exit.rs"]
mod exit;
mod objects;
mod tour;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Divides jobs among several processes.
#[derive(Parser)]
#[command(name = "fleet", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run one worker until its standard input ends
    Worker {
        /// The name of the worker, a lower-case letter
        name: String,
        /// The URL of the server with the jobs
        #[arg(long)]
        server: String,
    },
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    exit::exit_code(match Arguments::parse().command {
        None => tour::go(),
        Some(Command::Worker { name, server }) => worker::run(&name, &server),
    })
}
