//! Builds images for functions, on an embedded client. This is the example in the documentation of reconciler-runtime.
//!
//! ```sh
//! cargo run --features objects --example function
//! cargo test --features testing --example function
//! ```
//!
//! The first command shows a few changes and ends. The second tests the steps with tables.
//!
//! | | |
//! |---|---|
//! | resource | [`Function`](objects::Function): one step resolves the name of its image, another one builds it |
//! | child | [`Image`](objects::Image): the build; a second controller pretends to do it |
//! | tracked | the config map `images`: the prefix of image names, and the builder |

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "../cli/exit.rs"]
mod exit;
mod objects;
#[path = "../cli/recorded.rs"]
mod recorded;
mod steps;
#[cfg(all(test, feature = "testing"))]
mod tests;
#[path = "../cli/until.rs"]
mod until;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use homeostat::{Action, BoxError, Context, Controller, Manager, Subscriber};
use homeostat_objects::sub::Config;
use homeostat_objects::{
    Api, Client, DeleteOptions, DynamicObject, EventRecorder, Ignore, MemoryClient, Object, ObjectKey, ObjectMeta,
    ObjectWatch, Query,
};
use serde_json::json;

use self::objects::{CONDITIONS, CONFIG_MAP, Function, FunctionSpec, FunctionStatus, IMAGES, Image};
use self::until::until;

const RESYNC: Duration = Duration::from_secs(600);

/// Builds images for functions on an embedded client: shows a few changes and ends.
#[derive(Parser)]
#[command(name = "function", version)]
struct Arguments {}

fn main() -> ExitCode {
    let Arguments {} = Arguments::parse();
    exit::exit_code(run())
}

fn run() -> Result<(), BoxError> {
    let client = Arc::new(MemoryClient::new());
    let recorder = EventRecorder::builder("function").client(client.clone()).build();
    let config = Config::new(client.clone()).with_recorder(recorder.clone());

    let manager = Manager::builder().build()?;
    add_to(&manager, config)?;
    let running = manager.start()?;

    let tour = Tour { functions: Api::new(client.clone()), client: client.clone(), cx: Context::detached() };
    let done = tour.go();
    manager.stop();
    running.join()?;
    done?;

    recorder.flush();
    recorded::print_events(&*client)?;
    Ok(())
}

/// Adds the controller of functions, and one that builds their images.
fn add_to(manager: &Manager, config: Config) -> Result<(), BoxError> {
    let (clock, images) = (manager.clock(), config.api::<Image>());
    let reconciler = steps::function(config);
    let sources = reconciler.setup(manager)?;
    let functions = Controller::builder("function", reconciler).sources(sources).resync(RESYNC);
    manager.add(functions.clock(clock.clone()).build()?)?;

    let watch = manager.watch("built-images", || ObjectWatch::new(images.clone()).clock(clock.clone()).start())?;
    let builder = Controller::builder("builder", move |_: &Context, key: &ObjectKey| build(&images, key));
    manager.add(builder.subscribe(&watch, Subscriber::to_itself).clock(clock.clone()).build()?)?;
    Ok(())
}

/// Writes the built image to the status. A real build would take some time.
fn build(images: &Api<Image>, key: &ObjectKey) -> Result<Action, BoxError> {
    let Some(mut image) = images.get(key).ignore_not_found()? else { return Ok(Action::await_change()) };
    let built = format!("{}@{}-by-{}", image.spec.tag, image.spec.commit, image.spec.builder);
    if image.status.latest_image != built {
        println!("  the builder builds {built}");
        image.status.latest_image = built;
        images.update_status(&image)?;
    }
    Ok(Action::await_change())
}

/// The changes. After each one, the tour waits for its effect.
struct Tour {
    functions: Api<Function>,
    client: Arc<MemoryClient>,
    cx: Context,
}

impl Tour {
    fn go(&self) -> Result<(), BoxError> {
        println!("A function is created, and no config map names the registry.");
        let mut square = self.functions.create(&Function {
            metadata: ObjectMeta::new("default", "square"),
            spec: FunctionSpec { commit: "c0ffee".to_owned(), image: None },
            status: FunctionStatus::default(),
        })?;
        let key = square.key();
        self.until(&key, |status| status.observed_generation == 1 && !CONDITIONS.is_happy(&status.conditions))?;

        println!("The config map is created: the function tracks it.");
        let config_maps = Api::<DynamicObject>::of_kind(self.client.clone(), CONFIG_MAP);
        let data = |builder: &str| json!({"prefix": "registry.example.com", "builder": builder});
        let mut images =
            config_maps.create(&DynamicObject::new(&CONFIG_MAP, "default", IMAGES).with("data", data("bob-1")))?;
        self.until(&key, |status| status.latest_image.ends_with("c0ffee-by-bob-1"))?;

        println!("The config map names a new builder.");
        images.fields_mut()["data"] = data("bob-2");
        config_maps.update(&images)?;
        self.until(&key, |status| status.latest_image.ends_with("c0ffee-by-bob-2"))?;

        println!("The function gets new code.");
        square = self.functions.get(&key)?;
        "decade".clone_into(&mut square.spec.commit);
        self.functions.update(&square)?;
        self.until(&key, |status| status.observed_generation == 2 && status.latest_image.contains("@decade"))?;

        println!("The function is deleted, and its image with it.");
        self.functions.delete(&key, &DeleteOptions::default())?;
        until(&self.cx, || Ok(self.client.list(&Image::KIND, &Query::all())?.items.is_empty()))
    }

    /// Waits until the function's status is in this state, and shows it.
    fn until(&self, key: &ObjectKey, holds: impl Fn(&FunctionStatus) -> bool) -> Result<(), BoxError> {
        until(&self.cx, || Ok(holds(&self.functions.get(key)?.status)))?;
        let status = self.functions.get(key)?.status;
        for condition in &status.conditions {
            println!("  {} is {:?}: {} {}", condition.kind, condition.status, condition.reason, condition.message);
        }
        Ok(())
    }
}
