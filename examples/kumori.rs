//! Services in NATS, as in Kumori: instances in a second bucket, configurations in a file, and names outside of both.
//!
//! Start a server (Debian: `apt-get install nats-server`) and one controller or more, each in its own terminal:
//!
//! ```sh
//! nats-server -js
//! cargo run --features nats --example kumori -- serve --name one
//! cargo run --features nats --example kumori -- serve --name two
//! ```
//!
//! Then make changes, and kill one of the controllers at the same time:
//!
//! ```sh
//! cargo run --features nats --example kumori -- apply web 3
//! cargo run --features nats --example kumori -- delete web
//! ```
//!
//! | part | here |
//! |---|---|
//! | primary | [`Service`], in the bucket `kumori-services` |
//! | secondaries | [`Instance`], in the bucket `kumori-instances`; [`Settings`], in a file of each controller |
//! | external client | [`Names`]: a file for each service, checked after each run and once a second |
//! | `EnqueueKeyAfter` | an instance takes a moment to start, so the controller checks its service again |
//! | resync, `GarbageSecondaries` | a controller deletes the secondaries of services that were deleted while it did not run |
//!
//! All controllers do the same work. Each write applies only to the version that was read, so they do not disturb each
//! other.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

#[expect(dead_code, reason = "the other examples need the rest")]
#[path = "cli/mod.rs"]
mod cli;
#[path = "cli/exit.rs"]
mod exit;
#[path = "cli/interrupt.rs"]
mod interrupt;
#[path = "cli/paths.rs"]
mod paths;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{env, fs};

use clap::{Parser, Subcommand};
use homeostat::{Action, BoxError, Context, Manager};
use homeostat_nats::{NatsClient, NatsConnection, NatsOptions};
use homeostat_objects::{
    Api, DeleteOptions, External, FileClient, Ignore, Object, ObjectKey, ObjectMeta, OperationResult, Patch,
    PrimaryContext, PrimaryController, PrimaryReconciler, Query, Secondary,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::paths::at;

const SECOND: Duration = Duration::from_secs(1);
/// The time that an instance takes to start.
const START: Duration = SECOND;

/// Keeps services in NATS, and everything that belongs to them.
#[derive(Parser)]
#[command(name = "kumori", version)]
struct Arguments {
    /// The server
    #[arg(long, global = true, default_value = "nats://127.0.0.1:4222")]
    server: String,
    /// The folder of names and settings [default: in the system's folder for temporary files]
    #[arg(long, global = true)]
    folder: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a controller until Ctrl-C
    Serve {
        /// The name of this controller, and of its file
        #[arg(long, default_value = "one")]
        name: String,
        /// End after this long: `60s`
        #[arg(long = "for", value_parser = cli::parse_period, value_name = "DURATION")]
        stay: Option<Duration>,
    },
    /// Create or change a service, and wait until its instances are ready
    Apply { service: String, instances: u32 },
    /// Delete a service, and wait until its instances are gone
    Delete { service: String },
}

/// The wanted number of instances.
#[derive(Clone, Serialize, Deserialize)]
struct Service {
    metadata: ObjectMeta,
    instances: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<ServiceStatus>,
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
struct ServiceStatus {
    ready: u32,
}

/// One instance of a service. It is ready a moment after its creation.
#[derive(Clone, Serialize, Deserialize)]
struct Instance {
    metadata: ObjectMeta,
    service: String,
}

/// The facts about a service on the machine of a controller.
#[derive(Clone, Serialize, Deserialize)]
struct Settings {
    metadata: ObjectMeta,
    instances: u32,
}

homeostat_objects::object!(Service, namespaced, "kumori.example.com", "v1", kind: "Service", status: ServiceStatus);
homeostat_objects::object!(Instance, namespaced, "kumori.example.com", "v1");
homeostat_objects::object!(Settings, namespaced, "kumori.example.com", "v1");

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// Makes the instances and the settings of a service, and writes the number of ready instances into its status.
struct Reconcile {
    services: Api<Service>,
    instances: Secondary<Instance>,
    settings: Secondary<Settings>,
}

impl PrimaryReconciler<Service> for Reconcile {
    fn sync(&self, cx: &PrimaryContext<'_>, service: &Service) -> Result<Action, BoxError> {
        let name = &service.metadata.name;
        let (mut keep, mut ready) = (Vec::new(), 0);
        for number in 0..service.instances {
            let metadata = ObjectMeta::new("default", format!("{name}-{number}"));
            let ensured = self.instances.ensure(cx, service, Instance { metadata, service: name.clone() })?;
            if let OperationResult::Created(instance) = &ensured {
                println!("{name}: instance {} is created ({})", instance.metadata.name, cx.operation());
            }
            ready += u32::from(is_ready(ensured.object(), cx.clock().time_of_day()));
            keep.push(ensured.object().key());
        }
        for instance in self.instances.prune(cx, service, keep)? {
            println!("{name}: instance {} is no longer desired ({})", instance.name(), cx.operation());
        }
        let metadata = ObjectMeta::new("default", name);
        self.settings.ensure(cx, service, Settings { metadata, instances: service.instances })?;

        let status = Some(ServiceStatus { ready });
        if service.status != status {
            self.services.update_status(&Service { status, ..service.clone() })?;
            println!("{name}: {ready} of {} instances are ready", service.instances);
        }
        // No event reports that an instance has started.
        Ok(if ready < service.instances { Action::requeue_after(START / 2) } else { Action::await_change() })
    }

    fn gone(&self, cx: &PrimaryContext<'_>, key: &ObjectKey) -> Result<(), BoxError> {
        println!("{}: gone, with everything that belonged to it ({})", key.name(), cx.operation());
        Ok(())
    }
}

fn is_ready(instance: &Instance, now: SystemTime) -> bool {
    let created = instance.metadata.creation_timestamp.map(SystemTime::from);
    created.and_then(|created| now.duration_since(created).ok()).is_some_and(|age| age >= START)
}

/// The folder of names: a file for each service, with the number of its instances.
struct Names(PathBuf);

impl Names {
    fn file(&self, service: &str) -> PathBuf {
        self.0.join(service)
    }
}

impl External<Service> for Names {
    fn observe(&self, _cx: &Context, service: &Service) -> Result<bool, BoxError> {
        let file = self.file(&service.metadata.name);
        match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            text => Ok(at(&file, text)? == service.instances.to_string()),
        }
    }

    fn converge(&self, _cx: &Context, service: &Service) -> Result<(), BoxError> {
        let file = self.file(&service.metadata.name);
        at(&file, fs::write(&file, service.instances.to_string()))
    }

    fn list(&self, _cx: &Context) -> Result<Vec<ObjectKey>, BoxError> {
        let files = at(&self.0, fs::read_dir(&self.0))?;
        files.map(|file| Ok(key(&at(&self.0, file)?.file_name().to_string_lossy()))).collect()
    }

    fn remove(&self, _cx: &Context, owner: &ObjectKey) -> Result<bool, BoxError> {
        let file = self.file(owner.name());
        match fs::remove_file(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            removed => at(&file, removed.map(|()| true)),
        }
    }
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    exit::exit_code(run(Arguments::parse()))
}

fn run(Arguments { server, folder, command }: Arguments) -> Result<(), BoxError> {
    let folder = folder.unwrap_or_else(|| env::temp_dir().join("homeostat-kumori"));
    let connection = NatsOptions::new(server).connect()?;
    let services = Api::<Service>::new(bucket(&connection, "kumori-services")?);
    let instances = Api::<Instance>::new(bucket(&connection, "kumori-instances")?);
    match command {
        Command::Serve { name, stay } => serve(services, instances, &folder, &name, stay),
        Command::Apply { service, instances } => apply(&services, &service, instances),
        Command::Delete { service } => delete(&services, &instances, &folder, &service),
    }
}

/// Returns a client of a bucket, which is created if it does not exist.
fn bucket(connection: &NatsConnection, name: &str) -> Result<Arc<NatsClient>, BoxError> {
    Ok(Arc::new(NatsClient::create(connection, &NatsClient::bucket(name))?))
}

/// Runs a controller.
fn serve(
    services: Api<Service>,
    instances: Api<Instance>,
    folder: &Path,
    name: &str,
    stay: Option<Duration>,
) -> Result<(), BoxError> {
    let names = folder.join("names");
    at(&names, fs::create_dir_all(&names))?;
    let file = folder.join(format!("{name}.redb"));
    let settings = FileClient::open(file)?;
    let instances = Secondary::new(instances);
    let settings = Secondary::new(Api::<Settings>::new(Arc::new(settings)));
    let reconcile = Reconcile { services: services.clone(), instances: instances.clone(), settings: settings.clone() };

    let manager = Manager::builder().build()?;
    PrimaryController::new("services", services, reconcile)
        .secondary(&instances)
        .secondary(&settings)
        .external("the names", Names(names))
        .resync(SECOND)
        .clean_up(|| println!("The controller has ended."))
        .add_to(&manager)?;
    println!("Controller {name} serves.");
    let Some(stay) = stay else { return Ok(manager.run_until_signal()?) };
    let running = manager.start()?;
    interrupt::wait_or_interrupt(&Context::detached(), stay)?;
    manager.stop();
    Ok(running.join()?)
}

/// Creates or changes a service, and waits until a controller has made its instances.
fn apply(services: &Api<Service>, name: &str, instances: u32) -> Result<(), BoxError> {
    let key = key(name);
    if services.get(&key).ignore_not_found()?.is_none() {
        services.create(&Service { metadata: ObjectMeta::new("default", name), instances, status: None })?;
    } else {
        // A patch names no version, so it does not conflict with a controller that writes the status at the same time.
        services.patch(&key, &Patch::Merge(json!({"instances": instances})))?;
    }
    until(&format!("{instances} ready instances"), || {
        let status = services.get(&key)?.status;
        Ok(status.is_some_and(|status| status.ready == instances))
    })?;
    println!("{name}: all {instances} instances are ready.");
    Ok(())
}

/// Deletes a service, and waits until a controller has deleted its instances and its name.
fn delete(services: &Api<Service>, instances: &Api<Instance>, folder: &Path, name: &str) -> Result<(), BoxError> {
    services.delete(&key(name), &DeleteOptions::default())?;
    until("end of all instances", || {
        let left = instances.list(&Query::all())?.items;
        Ok(left.iter().all(|instance| instance.service != name) && !Names(folder.join("names")).file(name).exists())
    })?;
    println!("{name}: all instances are gone.");
    Ok(())
}

/// Waits until a condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool, BoxError>) -> Result<(), BoxError> {
    let cx = Context::detached();
    for _ in 0..600 {
        if is_so()? {
            return Ok(());
        }
        cx.sleep(Duration::from_millis(50))?;
    }
    Err(format!("no {what} within 30 s: is a controller running?").into())
}
