//! An appliance: volumes and shares in a file, two controllers, and a server for `kubectl`, health, metrics and a
//! status page.
//!
//! ```sh
//! cargo run --features serve --example appliance -- --port 8080 --data /tmp/appliance
//! ```
//!
//! It prints the address of its status page and two commands for another terminal, and runs until Ctrl-C. Run it again
//! with the same folder: the objects are still there. With the `kubeconfig` that it writes:
//!
//! ```sh
//! export KUBECONFIG=/tmp/appliance/kubeconfig
//! kubectl apply -f examples/appliance/media.yaml
//! kubectl get volumes,shares
//! kubectl get events
//! ```
//!
//! `media.yaml` has a volume with a share, and a share of a volume that does not exist. The status page shows that
//! share first. Create its volume, and the share becomes ready.
//!
//! The server listens on loopback and has no users: every process on the machine may change the objects. A real
//! appliance adds users with [`token`](homeostat_serve::ServerBuilder::token), and an authorization. `kubectl` sends
//! tokens only over TLS.
//!
//! | file | content |
//! |---|---|
//! | `objects.rs` | the two types with their schemas, columns and checks |
//! | `volumes.rs` | the controller of volumes: a folder and a file for each volume |
//! | `shares.rs` | the controller of shares: an export of a volume, its owner, events |
//! | `media.yaml` | the objects that the commands above use |

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "../cli/exit.rs"]
mod exit;
mod objects;
#[path = "../cli/paths.rs"]
mod paths;
mod shares;
mod volumes;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use homeostat::{BoxError, Component, Manager};
use homeostat_objects::{Api, Client, EventRecorder, FileClient};
use homeostat_serve::{ObjectApi, Server, StatusPages};
use serde_json::{Value, json};

use paths::at;

/// Keeps volumes and shares, for `kubectl`, `curl` and browsers.
#[derive(Parser)]
#[command(name = "appliance", version)]
struct Arguments {
    /// The folder for objects and files [default: in the system's folder for temporary files]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// The port on loopback; with 0, the system chooses one
    #[arg(long, default_value_t = 0)]
    port: u16,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    exit::exit_code(run(Arguments::parse()))
}

fn run(Arguments { data, port }: Arguments) -> Result<(), BoxError> {
    let data = data.unwrap_or_else(|| std::env::temp_dir().join("homeostat-appliance"));
    at(&data, fs::create_dir_all(&data))?;
    let data = at(&data, data.canonicalize())?;
    let file = data.join("objects.redb");
    let client = FileClient::open(&file)?;
    let client: Arc<dyn Client> = Arc::new(client);

    let recorder = EventRecorder::builder("appliance").client(client.clone()).log(false).build();
    let (volumes, shares) = (Api::new(client.clone()), Api::new(client.clone()));
    let manager = Manager::builder().name("appliance").build()?;
    volumes::add_to(&manager, volumes.clone(), data.join("volumes"), &recorder)?;
    shares::add_to(&manager, shares, volumes, data.join("exports"), &recorder)?;

    let api = ObjectApi::builder(client).serve(objects::volumes()).serve(objects::shares()).serve_events().build()?;
    let kubeconfig = data.join("kubeconfig");
    let pages = StatusPages::new(&manager)?.objects(&api).kubeconfig(&kubeconfig).version(env!("CARGO_PKG_VERSION"));
    let pages = pages.ready_check("data folder", move || at(&data, fs::metadata(&data)).map(drop));
    let server = Server::builder((Ipv4Addr::LOCALHOST, port)).objects(&api).status_pages(pages).build()?.start()?;
    let url = server.url();
    at(&kubeconfig, write_private(&kubeconfig, &cluster(&url).to_string()))?;
    manager.add(Component::running("server", server))?;

    println!("The status page is {url}/ until Ctrl-C. In another terminal:");
    println!("kubectl --kubeconfig '{}' get volumes,shares", kubeconfig.display());
    println!("curl {url}/apis/example.com/v1/namespaces/default/shares");
    manager.run_until_signal()?;
    recorder.flush();
    println!("The appliance has ended.");
    Ok(())
}

/// Writes a file that only its owner can read: the settings for `kubectl` may contain credentials.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// Returns the settings for `kubectl` and other clients of this server. JSON is valid YAML. Without TLS there is
/// nothing to verify, but the JavaScript client refuses plain HTTP unless it may skip the verification.
fn cluster(url: &str) -> Value {
    let name = "appliance";
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url, "insecure-skip-tls-verify": true}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "users": [{"name": name, "user": {}}],
    })
}
