//! A bug that shows only in some orders, and the seed that repeats it.

use std::process::Command;
use std::sync::Arc;

use homeostat::{Action, Context, Controller};
use homeostat_objects::{Api, DynamicObject, Kind, MemoryClient, ObjectKey, ObjectWatch};
use homeostat_testing::Simulation;

use super::{CHILD, MINUTE, Notes, Outcome, panic_of, pool};
use homeostat::Running;
use homeostat::Watch;

const CONFIG: Kind = Kind::namespaced("", "v1", "ConfigMap");
const SECRET: Kind = Kind::namespaced("", "v1", "Secret");

fn key() -> ObjectKey {
    ObjectKey::new("default", "app")
}

fn watch(sim: &Simulation, client: &MemoryClient, kind: &Kind) -> Running<Watch<ObjectKey, DynamicObject>> {
    let api = Api::of_kind(Arc::new(client.clone()), kind.clone());
    ObjectWatch::new(api).clock(sim.clock()).start().unwrap()
}

/// Runs an app that needs a config and a secret. The config is created first, so the app expects it as soon as it
/// sees the secret. This order holds in the client, but not across two watches.
fn app(sim: &Simulation, relies_on_order: bool) {
    let client = MemoryClient::builder().clock(sim.clock()).build();
    let (configs, secrets) = (watch(sim, &client, &CONFIG), watch(sim, &client, &SECRET));
    let (notes, pool) = (Notes::new(sim), pool(sim, 1));
    let (config, secret) = (configs.watch().store(), secrets.watch().store());
    let report = notes.clone();
    let reconcile = move |_cx: &Context, key: &ObjectKey| -> Outcome {
        if secret.contains(key) && (relies_on_order || config.contains(key)) {
            report.add(if config.contains(key) { "runs" } else { "crashes" });
        }
        Ok(Action::await_change())
    };
    let apps = Controller::builder("app", reconcile)
        .watch(configs.watch(), |event| event.key().cloned())
        .watch(secrets.watch(), |event| event.key().cloned())
        .clock(sim.clock())
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    sim.run_until(MINUTE, || apps.has_synced());
    for kind in [CONFIG, SECRET] {
        let api = Api::of_kind(Arc::new(client.clone()), kind.clone());
        api.create(&DynamicObject::new(&kind, "default", key().name())).unwrap();
    }
    sim.run_until(MINUTE, || !notes.all().is_empty());
    assert_eq!(notes.whats()[0], "runs");
}

const SEEDS: std::ops::Range<u64> = 0..100;

#[test]
fn code_that_relies_on_no_order_works_in_every_order() {
    Simulation::seeds(SEEDS, |sim| app(sim, false));
}

/// The next test runs this test with a seed in the environment.
#[test]
fn the_seed_of_the_environment() {
    if std::env::var_os(CHILD).is_some() {
        Simulation::seeds(SEEDS, |sim| app(sim, true));
    }
}

#[test]
fn code_that_relies_on_an_order_fails_repeatably() {
    let text = panic_of(|| Simulation::seeds(SEEDS, |sim| app(sim, true)));
    let (seed, rest) = text
        .strip_prefix("failed with seed ")
        .unwrap()
        .split_once(" (to run this seed only, set HOMEOSTAT_SEED=")
        .unwrap();
    assert!(rest.starts_with(&format!("{seed}): ")) && rest.contains("crashes"), "{text}");
    let bad: u64 = seed.parse().unwrap();
    assert!(panic_of(|| app(&Simulation::new(bad), true)).contains("crashes"));

    let alone = |seed: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "simulation::races::the_seed_of_the_environment", "--nocapture"]);
        let output = child.env(CHILD, "1").env("HOMEOSTAT_SEED", seed).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (passed, report) = alone(seed);
    assert!(!passed && report.contains(&text), "{report}");
    let good = SEEDS
        .filter(|seed| *seed != bad)
        .find(|seed| std::panic::catch_unwind(|| app(&Simulation::new(*seed), true)).is_ok());
    let (passed, report) = alone(&good.unwrap().to_string());
    assert!(passed, "{report}");
    let (passed, report) = alone("many");
    assert!(!passed && report.contains("HOMEOSTAT_SEED is \"many\", but must be a number"), "{report}");
}
