//! Tests of each step and of the whole reconciler: given objects and all expectations.

use std::sync::Arc;
use std::time::Duration;

use homeostat::Manager;
use homeostat_objects::sub::{Config, ErrorClass, Flow};
use homeostat_objects::{
    Api, Condition, ConditionStatus, DynamicObject, EventType, MemoryClient, Object, ObjectMeta, Verb, set_condition,
};
use homeostat_testing::{
    Factory, Reactor, ReconcilerTable, ReconcilerTestCase, Simulation, SubReconcilerTable, SubReconcilerTestCase,
};

use crate::add_to;
use crate::objects::{
    CONDITIONS, CONFIG_MAP, Function, FunctionSpec, FunctionStatus, IMAGES, Image, ImageSpec, ImageStatus,
};
use crate::steps::{BUILDER, child_image, function, target_image};

const TAG: &str = "registry.example.com/square";

fn square() -> Factory<Function> {
    Factory::of(Function {
        metadata: ObjectMeta::new("default", "square"),
        spec: FunctionSpec { commit: "c0ffee".to_owned(), image: None },
        status: FunctionStatus::default(),
    })
}

fn images() -> Factory<DynamicObject> {
    Factory::config_map("default", IMAGES).data("prefix", "registry.example.com").data("builder", "bob-1")
}

/// The image that the function `square` wants.
fn image() -> Factory<Image> {
    Factory::of(Image {
        metadata: ObjectMeta::new("default", "square-image"),
        spec: ImageSpec { tag: TAG.to_owned(), builder: "bob-1".to_owned(), commit: "c0ffee".to_owned() },
        status: ImageStatus::default(),
    })
    .controlled_by(&square())
}

fn built(image: &Factory<Image>) -> Factory<Image> {
    image.created(2).status(|status| status.latest_image = format!("{TAG}@1"))
}

/// Sets conditions of the function `square`.
trait Marked {
    fn marked(&self, kind: &str, status: ConditionStatus, reason: &str, message: &str) -> Self;
    fn resolved(&self) -> Self;
}

impl Marked for Factory<Function> {
    fn marked(&self, kind: &str, status: ConditionStatus, reason: &str, message: &str) -> Self {
        let condition = Condition::new(kind, status, reason).message(message).observed_generation(1);
        self.status(|status| {
            CONDITIONS.set(&mut status.conditions, condition, <_>::default());
        })
    }

    fn resolved(&self) -> Self {
        self.status(|status| TAG.clone_into(&mut status.target_image)).marked(
            "ImageResolved",
            ConditionStatus::True,
            "Resolved",
            "",
        )
    }
}

const NO_CONFIG: &str = "the config map default/images is missing, or has no prefix or no builder";

#[test]
fn the_target_image() {
    let unresolved = square().marked("ImageResolved", ConditionStatus::False, "NoConfig", NO_CONFIG);
    let case = |name: &str| SubReconcilerTestCase::new(name, &square()).expect_track(&images(), &square());
    let own = square().change(|function| function.spec.image = Some("example.org/mine".to_owned()));
    SubReconcilerTable::new([
        case("is the prefix with the name of the function")
            .given(&images())
            .expect_stashed(BUILDER, "bob-1".to_owned())
            .expect_resource(&square().resolved()),
        SubReconcilerTestCase::new("is the function's own", &own)
            .given(&images())
            .expect_track(&images(), &own)
            .expect_stashed(BUILDER, "bob-1".to_owned())
            .expect_resource(&own.resolved().status(|status| "example.org/mine".clone_into(&mut status.target_image))),
        case("waits for the config map").expect_flow(Flow::halt()).expect_resource(&unresolved),
        case("waits for the builder in it")
            .given(&images().without("/data/builder"))
            .expect_flow(Flow::halt())
            .expect_resource(&unresolved),
        case("is retried if the config map cannot be read")
            .reactor(Reactor::fail(Verb::Get))
            .expect_error("default/images")
            .expect_error_class(ErrorClass::Transient),
    ])
    .run(|_| target_image());
}

#[test]
fn the_child_image() {
    let resolved = square().resolved();
    let building = resolved.marked("Built", ConditionStatus::Unknown, "Building", "");
    let done = resolved.status(|status| status.latest_image = format!("{TAG}@1")).marked(
        "Built",
        ConditionStatus::True,
        "Built",
        "",
    );
    let case = |name: &str| SubReconcilerTestCase::new(name, &resolved).given_stashed(BUILDER, "bob-1".to_owned());
    let old = built(&image()).change(|image| "bob-0".clone_into(&mut image.spec.builder));
    let foreign = image().meta(|meta| meta.owner_references.clear()).created(2);
    SubReconcilerTable::new([
        case("is created")
            .expect_create(&image())
            .expect_event(&square(), EventType::Normal, "Created", "Created Image \"square-image\"")
            .expect_resource(&building),
        case("is left as it is while it is being built").given(&image().created(2)).expect_resource(&building),
        case("has been built").given(&built(&image())).expect_resource(&done),
        case("is built by the new builder")
            .given(&old)
            .expect_update(&built(&image()))
            .expect_event(&square(), EventType::Normal, "Updated", "Updated Image \"square-image\"")
            .expect_resource(&done),
        case("belongs to another owner")
            .given(&foreign)
            .expect_track(&foreign, &square())
            .verify(|result| {
                assert!(
                    result.is_ok(),
                    "the status shows the error, and the deletion of the other image enqueues the function"
                );
            })
            .expect_create(&image())
            .expect_event(
                &square(),
                EventType::Warning,
                "CreationFailed",
                "Failed to create Image \"square-image\": Image default/square-image already exists",
            )
            .expect_resource(&resolved.marked(
                "Built",
                ConditionStatus::False,
                "NoImage",
                "Image default/square-image already exists",
            )),
        SubReconcilerTestCase::new("needs a builder", &resolved)
            .expect_error("Function default/square: nothing is stashed as \"builder\""),
    ])
    .run(|_| child_image());
}

#[test]
fn the_whole_function() {
    let initial = |factory: Factory<Function>| {
        factory.status(|status| {
            let mut conditions = Vec::new();
            CONDITIONS.initialize(&mut conditions, <_>::default());
            for condition in std::mem::replace(&mut status.conditions, conditions) {
                set_condition(&mut status.conditions, condition, <_>::default());
            }
            status.observed_generation = 1;
        })
    };
    let updated =
        |case: ReconcilerTestCase| case.expect_event(&square(), EventType::Normal, "StatusUpdated", "Updated status");
    let ready = initial(
        square()
            .resolved()
            .marked("Built", ConditionStatus::True, "Built", "")
            .status(|status| status.latest_image = format!("{TAG}@1")),
    );
    ReconcilerTable::new([
        ReconcilerTestCase::new("is gone", &square()),
        ReconcilerTestCase::new("is being deleted", &square()).given(&square().deleted(3)),
        updated(
            ReconcilerTestCase::new("becomes ready", &square())
                .given(&square())
                .given(&images())
                .given(&built(&image()))
                .expect_track(&images(), &square())
                .expect_status_update(&ready),
        ),
        ReconcilerTestCase::new("is ready", &square())
            .given(&ready)
            .given(&images())
            .given(&built(&image()))
            .expect_track(&images(), &square()),
        updated(
            ReconcilerTestCase::new("waits for the config map", &square())
                .given(&square())
                .expect_track(&images(), &square())
                .expect_status_update(&initial(square().marked(
                    "ImageResolved",
                    ConditionStatus::False,
                    "NoConfig",
                    NO_CONFIG,
                ))),
        ),
    ])
    .run(|given| function(given.config()));
}

/// Runs everything in many orders. Each order ends with an image of the last code by the last
/// builder.
#[test]
fn every_order_ends_with_the_same_image() {
    Simulation::seeds(0..20, |sim| {
        let client = Arc::new(MemoryClient::builder().clock(sim.clock()).build());
        let (functions, config_maps) = (Api::<Function>::new(client.clone()), Api::of_kind(client.clone(), CONFIG_MAP));
        let manager = Manager::builder().clock(sim.clock()).build().unwrap();
        add_to(&manager, Config::new(client).with_clock(sim.clock())).unwrap();
        let running = manager.start().unwrap();

        let mut wanted = functions.create(&square().build()).unwrap();
        config_maps.create(&images().build()).unwrap();
        sim.run_for(Duration::ZERO);
        wanted = functions.get(&wanted.key()).unwrap();
        "decade".clone_into(&mut wanted.spec.commit);
        functions.update(&wanted).unwrap();
        let latest = || functions.get(&wanted.key()).unwrap().status.latest_image;
        sim.run_until(Duration::from_secs(60), || latest() == format!("{TAG}@decade-by-bob-1"));
        manager.stop();
        running.join().unwrap();
    });
}
