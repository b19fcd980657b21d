//! The status page of a program with invented work, to look at in a browser. `.ci/status-pictures` takes its pictures.
//!
//! ```sh
//! cargo run --features serve --example status_page
//! ```
//!
//! Some keys fail, 40 of them with one error, one run hangs, a source cannot list, a controller and a failing key are
//! suspended. Keys and objects have hostile names: long, unbroken, right to left, HTML. The buttons work, and standard
//! error shows who used them. The program ends when its standard input ends: press Ctrl-D.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "cli/exit.rs"]
mod exit;

use std::io::Read;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser;
use homeostat::{
    Action, BoxError, CancellationToken, Component, Context, Controller, Enqueue, Exponential, Manager, Poller,
    Priority, terminal,
};
use homeostat_host::FileElector;
use homeostat_objects::{Client, DynamicObject, EventRecorder, EventType, Kind, MemoryClient};
use homeostat_serve::{ObjectApi, ServedResource, Server, StatusPages};
use serde_json::json;

const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");

const ERRORS: [&str; 3] = [
    "the image registry answers 503: upstream connect error or disconnect/reset before headers. reset reason: connection \
     failure, transport failure reason: delayed connect error: 111",
    "conflict: its version is 8812, not 8809",
    "spec.cores is \"two\", but must be a number",
];

/// Runs a key for some milliseconds. Some keys fail.
fn work(cx: &Context, key: &str, millis: std::ops::Range<u64>, end: &CancellationToken) -> Result<Action, BoxError> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let number = RUNS.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    cx.sleep(Duration::from_millis(millis.start + number % (millis.end - millis.start)))?;
    match key {
        // It ignores its deadline.
        "prod/stuck" => {
            end.wait();
            Ok(Action::await_change())
        }
        "default/db-7" | "default/shop" => Err(ERRORS[0].into()),
        "prod/cache" => Err(ERRORS[1].into()),
        "default/<b>x</b>" => Err(terminal(ERRORS[2]).into()),
        key if key.starts_with("edge/") => Err("connect to 10.0.0.7:6443: connection refused".into()),
        key if key.starts_with("hostile/") => Err(format!("{key}: {}", key.repeat(3)).into()),
        _ if number.is_multiple_of(23) => Err(ERRORS[1].into()),
        _ if number.is_multiple_of(7) => Ok(Action::requeue_after(Duration::from_secs(20))),
        _ => Ok(Action::await_change()),
    }
}

/// Names that try to leave their place on a page.
fn hostile_names() -> [String; 6] {
    [
        "hostile/".to_owned() + &"no-break-".repeat(60),
        "hostile/שלום-עולם-مرحبا/\u{202e}gnp.exe".to_owned(),
        "hostile/<img src=x onerror=alert(1)>\"'&".to_owned(),
        "hostile/👩‍👩‍👧‍👦🏳️‍🌈".to_owned() + &"🦀".repeat(40),
        "hostile/line\nbreak\tand\0control".to_owned(),
        "hostile/".to_owned() + &"Z̸͙a̵l̷g̶o̴".repeat(20),
    ]
}

/// Creates objects with conditions, annotations and events.
fn objects() -> Result<ObjectApi, BoxError> {
    let client: Arc<dyn Client> = Arc::new(MemoryClient::new());
    let recorder = EventRecorder::builder("sites").client(client.clone()).log(false).build();
    let long = "x".repeat(200);
    for (name, ready, message) in [
        ("home", "True", "serves 3 pages"),
        ("shop", "False", ERRORS[0]),
        (
            &*format!("a-site-with-{}", "a-long-name-".repeat(18) + "end"),
            "Unknown",
            "<script>alert(1)</script> \u{202e}",
        ),
    ] {
        let mut site = json!({
            "apiVersion": "example.com/v1", "kind": "Site",
            "metadata": {
                "namespace": "default", "name": name, "labels": {"tier": "front"},
                "annotations": {"example.com/note": "<b>not bold</b>", "example.com/long": long, "example.com/rtl": "שלום"},
            },
            "spec": {"title": name, "replicas": 3},
        });
        site = client.create(&SITE, site)?.to_value();
        let since = &site["metadata"]["creationTimestamp"];
        site["status"] = json!({"conditions": [
            {"type": "Ready", "status": ready, "reason": "Probe", "message": message, "lastTransitionTime": since},
            {"type": "CertificateValid", "status": "True", "reason": long, "message": "", "lastTransitionTime": since},
        ]});
        let site = client.update_status(&SITE, site)?;
        let about: DynamicObject = serde_json::from_value(site.to_value())?;
        let event = if ready == "True" { EventType::Normal } else { EventType::Warning };
        recorder.event(&about, event, "Probed", message);
        recorder.event(&about, EventType::Normal, "Created", "the site is created");
    }
    recorder.flush();
    Ok(ObjectApi::builder(client).serve(ServedResource::new(SITE)).serve_events().build()?)
}

type Reconcile = Box<dyn Fn(&Context, &String) -> Result<Action, BoxError> + Send + Sync>;

fn reconcile(end: &CancellationToken, millis: std::ops::Range<u64>) -> Reconcile {
    let end = end.clone();
    Box::new(move |cx, key| work(cx, key, millis.clone(), &end))
}

fn program(end: &CancellationToken) -> Result<(Manager, StatusPages), BoxError> {
    let lock = std::env::temp_dir().join(format!("appliance-{}.lock", std::process::id()));
    let manager = Manager::builder().name("appliance").threads(6).elector(FileElector::new(lock).name("box-3"));
    let manager = manager.shutdown_grace(Duration::from_millis(100)).build()?;
    let vm = Controller::builder("vm", reconcile(end, 20..900))
        .max_concurrent_reconciles(4)
        .reconcile_timeout(Duration::from_secs(5))
        .retry(Exponential::new(Duration::from_secs(2), Duration::from_secs(60)))
        .poller(Poller::new(Duration::from_secs(5), |_cx: &Context| Ok::<_, BoxError>(Vec::new())).name("vms"))
        .build()?;
    let disk = Controller::builder("disk", reconcile(end, 2..40))
        .max_concurrent_reconciles(4)
        .poller(Poller::new(Duration::from_secs(3), |_cx: &Context| Ok::<_, BoxError>(Vec::new())).name("disks"))
        .build()?;
    let link =
        |_cx: &Context| Err::<Vec<String>, _>("ip: exit status 1: Cannot open netlink socket: Operation not permitted");
    let network = Controller::builder("network", reconcile(end, 2..40))
        .max_concurrent_reconciles(2)
        .sync_timeout(Duration::from_secs(3600))
        .poller(Poller::new(Duration::from_secs(5), link).name("links"))
        .build()?;
    let zone = Controller::builder("zone", reconcile(end, 2..40)).build()?;
    // The page shows the hash in a muted colour.
    let share = Controller::builder("share", reconcile(end, 2..40))
        .poller(
            Poller::new(Duration::from_secs(9), |_cx: &Context| Ok::<_, BoxError>(Vec::new()))
                .name("shares-12f2c21bee4b8612"),
        )
        .build()?;
    let (vms, disks, networks, zones) = (vm.handle(), disk.handle(), network.handle(), zone.handle());
    for controller in [vm, disk, network, zone, share] {
        manager.add(controller)?;
    }
    zones.suspend_all();
    let pages = StatusPages::new(&manager)?.actions(&vms).actions(&zones).version(env!("CARGO_PKG_VERSION"));
    let load = move |cx: &Context| -> Result<(), BoxError> {
        let mut round = 0_u64;
        loop {
            let random = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            disks.enqueue(format!("pool-a/disk-{}", random % 5000));
            if round % 4 < 1 + random % 2 {
                vms.enqueue(format!("default/web-{}", random % 40));
            }
            if round.is_multiple_of(160) {
                let batch = vms.queue().at(Priority::Low);
                for number in 0..random % 60 {
                    batch.enqueue(format!("batch/job-{number}"));
                }
            }
            if round == 5 {
                for key in ["default/db-7", "default/shop", "prod/cache", "default/<b>x</b>"] {
                    vms.enqueue(key.to_owned());
                }
                for number in 0..40 {
                    disks.enqueue(format!("edge/node-{number}"));
                }
                networks.enqueue("eth0".to_owned());
                for name in hostile_names() {
                    vms.enqueue(name);
                }
                // Their controller is suspended.
                for number in 0..57 {
                    zones.enqueue(format!("zone-{number}"));
                }
            }
            if round == 100 {
                vms.enqueue("prod/stuck".to_owned());
                vms.suspend("prod/cache".to_owned());
            }
            round += 1;
            cx.sleep(Duration::from_millis(120 + random % 90))?;
        }
    };
    manager.add(Component::function("load", load))?;
    Ok((manager, pages))
}

/// Shows the status page of a program with invented work, until standard input ends.
#[derive(Parser)]
#[command(name = "status_page", version)]
struct Arguments {
    /// The address of the page. With port 0, the system chooses a port.
    #[arg(default_value = "127.0.0.1:0")]
    address: SocketAddr,
}

fn main() -> ExitCode {
    // Failed runs are part of the show. The lines about actions on the page are at info.
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("error,homeostat_serve=info")).init();
    exit::exit_code(run(Arguments::parse()))
}

fn run(Arguments { address }: Arguments) -> Result<(), BoxError> {
    let end = CancellationToken::new();
    let (manager, pages) = program(&end)?;
    let api = objects()?;
    let pages = pages.objects(&api).kubeconfig("/etc/appliance/kubeconfig");
    let pages = pages.fact("Store", "in memory: a restart loses all objects and queued keys");
    let pages = pages.fact("Elector", "a lock file on this host: one process of the host leads");
    let server = Server::builder(address).objects(&api).status_pages(pages).build()?.start()?;
    println!("Look at {}", server.url());
    manager.add(Component::running("door", server))?;
    let running = manager.start()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    end.cancel();
    running.shutdown(Duration::from_secs(10))?;
    Ok(())
}
