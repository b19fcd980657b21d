//! An operator: it makes a config map and a deployment for each [`Site`](objects::Site), in an embedded store or in a
//! Kubernetes cluster.
//!
//! ```sh
//! cargo run --features kubernetes --example operator
//! cargo run --features kubernetes --example operator -- --kubeconfig
//! ```
//!
//! The first command shows the operator at work on an embedded store, and ends. The second one works on the cluster of
//! your kubeconfig until Ctrl-C. In another terminal, create a site:
//!
//! ```sh
//! kubectl create -f - <<END
//! {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "garden"},
//!  "spec": {"title": "Garden", "pages": {"index": "Roses"}}}
//! END
//! kubectl get sites,configmaps,deployments
//! ```
//!
//! | file | content |
//! |---|---|
//! | `objects.rs` | the type of sites, its definition, the objects that a site has, the access rules |
//! | `reconcile.rs` | the controller: children, status, conditions, finalizer, events |
//! | `manifests.rs` | the manifests that install the operator in a cluster |
//! | `tour.rs` | the changes that the first command shows |

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

#[expect(dead_code, reason = "the other examples need the rest")]
#[path = "../cli/mod.rs"]
mod cli;
#[path = "../cli/ending.rs"]
mod ending;
#[path = "../cli/exit.rs"]
mod exit;
#[path = "../cli/interrupt.rs"]
mod interrupt;
mod manifests;
mod objects;
mod reconcile;
#[path = "../cli/recorded.rs"]
mod recorded;
mod tour;
#[path = "../cli/until.rs"]
mod until;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use homeostat::{BoxError, Context, Manager};
use homeostat_kubernetes::{ClusterConfig, Kubeconfig, KubernetesClient};
use homeostat_objects::{Client, EventRecorder, MemoryClient};

use ending::stop_after;
use objects::{NAME, definition, rules};
use tour::Tour;

/// How long to wait until the server accepts the definition of sites.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a config map and a deployment for each site.
#[derive(Parser)]
#[command(name = "operator", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Work on a cluster until Ctrl-C. Without a path, use the settings of `kubectl`, or else those of the pod
    #[arg(long, value_name = "PATH", conflicts_with = "stay")]
    #[expect(clippy::option_option, reason = "how `clap` distinguishes an option without its value from no option")]
    kubeconfig: Option<Option<PathBuf>>,
    /// Without a cluster: continue for this long after the last step: `60s`
    #[arg(long = "for", value_parser = cli::parse_duration, default_value = "0s", value_name = "DURATION")]
    stay: Duration,
}

#[derive(Subcommand)]
enum Command {
    /// Print the access rules that the operator needs
    Rules,
    /// Write the manifests that install the operator in a cluster
    Manifests {
        /// The folder for the manifests
        folder: PathBuf,
        /// The namespace of the operator
        #[arg(long, default_value = "site-operator")]
        namespace: String,
        /// The image of the operator
        #[arg(long, default_value = "site-operator:latest")]
        image: String,
    },
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    exit::exit_code(run(Arguments::parse()))
}

fn run(Arguments { command, kubeconfig, stay }: Arguments) -> Result<(), BoxError> {
    match (command, kubeconfig) {
        (Some(Command::Rules), _) => cli::say(&mut io::stdout(), &rules().to_string()),
        (Some(Command::Manifests { folder, namespace, image }), _) => {
            for path in manifests::write(&folder, &namespace, &image)? {
                cli::say(&mut io::stdout(), &format!("{}\n", path.display()));
            }
        }
        (None, None) => show(stay)?,
        (None, Some(path)) => operate(path.as_deref())?,
    }
    Ok(())
}

/// Works on a cluster until SIGINT or SIGTERM. Without a path, finds the settings itself.
fn operate(path: Option<&Path>) -> Result<(), BoxError> {
    let config = match path {
        Some(path) => Kubeconfig::read(path)?.config()?,
        None => ClusterConfig::load()?,
    };
    let client: Arc<dyn Client> = Arc::new(KubernetesClient::builder(config).field_manager(NAME).build()?);
    definition()?.install(&Context::detached(), &*client, NAME, PATIENCE)?;
    let recorder = EventRecorder::builder(NAME).client(client.clone()).build();
    let manager = Manager::builder().build()?;
    reconcile::add_to(&manager, &client, recorder)?;
    println!("Sites are served. Ctrl-C ends the operator.");
    manager.run_until_signal()?;
    println!("The operator has ended.");
    Ok(())
}

/// Shows the operator at work on an embedded store.
fn show(stay: Duration) -> Result<(), BoxError> {
    let client: Arc<dyn Client> = Arc::new(MemoryClient::new());
    let recorder = EventRecorder::builder(NAME).client(client.clone()).log(false).build();
    let manager = Manager::builder().build()?;
    reconcile::add_to(&manager, &client, recorder.clone())?;
    let running = manager.start()?;
    let tour = Tour { client: client.clone(), cx: Context::detached() };
    stop_after(tour.go(), stay, &manager, running)?;

    recorder.flush();
    recorded::print_events(&*client)?;
    println!("The operator has ended.");
    Ok(())
}
