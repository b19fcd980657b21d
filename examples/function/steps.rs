//! The business logic: two steps in a sequence.

use homeostat_objects::sub::{
    ChildReconciler, Config, DesiredChild, Flow, ResourceReconciler, Sequence, StashKey, SubContext, SubReconciler,
    SubResult, SyncReconciler, UpdatingObjectManager,
};
use homeostat_objects::{
    Api, ClientError, Condition, ConditionStatus, DynamicObject, Ignore, Object, ObjectKey, ObjectMeta,
};

use crate::objects::{CONDITIONS, CONFIG_MAP, Function, IMAGES, Image, ImageSpec};

/// The builder that the config map names. The first step stashes it for the second.
pub(crate) const BUILDER: StashKey<String> = StashKey::new("builder");

/// Makes functions ready.
pub(crate) fn function(config: Config) -> ResourceReconciler<Function> {
    ResourceReconciler::new("function", config, Sequence::new().then(target_image()).then(child_image()))
        .observed_generation(|status, generation| status.observed_generation = generation)
        .conditions(CONDITIONS.kinds(), |status| &mut status.conditions)
}

/// Resolves the name of the image and the builder from a config map. The function tracks it.
pub(crate) fn target_image() -> impl SubReconciler<Function> + use<> {
    SyncReconciler::new(resolve).named("target-image").setup(|setup| {
        let config_maps = Api::<DynamicObject>::of_kind(setup.config().client().clone(), CONFIG_MAP);
        Ok(setup.tracked(&config_maps)?)
    })
}

fn resolve(cx: &SubContext<'_>, function: &mut Function) -> SubResult {
    let config_maps = Api::<DynamicObject>::of_kind(cx.config().client().clone(), CONFIG_MAP);
    let images = ObjectKey::new(&function.metadata.namespace, IMAGES);
    let found = cx.track_and_get(&config_maps, &images).ignore_not_found()?;
    let value = |name: &str| found.as_ref()?.pointer(&format!("/data/{name}"))?.as_str();
    let (Some(prefix), Some(builder)) = (value("prefix"), value("builder")) else {
        let message = format!("the config map {images} is missing, or has no prefix or no builder");
        mark(cx, function, "ImageResolved", ConditionStatus::False, "NoConfig", &message);
        // A change of the config map enqueues the function.
        return Ok(Flow::halt());
    };
    let name = || format!("{prefix}/{}", function.metadata.name);
    function.status.target_image = function.spec.image.clone().unwrap_or_else(name);
    cx.stash().put(BUILDER, builder.to_owned());
    mark(cx, function, "ImageResolved", ConditionStatus::True, "Resolved", "");
    Ok(Flow::proceed())
}

/// Keeps one image for the function, and copies the state of its build into the status.
pub(crate) fn child_image() -> ChildReconciler<Function, Image> {
    let manager = UpdatingObjectManager::new(|current: &mut Image, desired| current.spec = desired.spec.clone());
    ChildReconciler::new(desired, reflect, manager).named("child-image")
}

fn desired(cx: &SubContext<'_>, function: &mut Function) -> Result<DesiredChild<Image>, homeostat::BoxError> {
    let spec = ImageSpec {
        tag: function.status.target_image.clone(),
        builder: cx.stashed(BUILDER)?,
        commit: function.spec.commit.clone(),
    };
    let metadata = ObjectMeta::new(&function.metadata.namespace, format!("{}-image", function.metadata.name));
    Ok(DesiredChild::This(Image { metadata, spec, status: <_>::default() }))
}

#[expect(clippy::unnecessary_wraps, reason = "what a step returns")]
fn reflect(cx: &SubContext<'_>, function: &mut Function, image: Result<Option<&Image>, &ClientError>) -> SubResult {
    let (status, reason, message) = match image {
        Ok(Some(image)) if !image.status.latest_image.is_empty() => {
            function.status.latest_image.clone_from(&image.status.latest_image);
            (ConditionStatus::True, "Built", String::new())
        }
        Ok(_) => (ConditionStatus::Unknown, "Building", String::new()),
        Err(error) => (ConditionStatus::False, "NoImage", error.to_string()),
    };
    mark(cx, function, "Built", status, reason, &message);
    Ok(Flow::proceed())
}

fn mark(
    cx: &SubContext<'_>,
    function: &mut Function,
    kind: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
) {
    let generation = function.meta().generation;
    let condition = Condition::new(kind, status, reason).message(message).observed_generation(generation);
    CONDITIONS.set(&mut function.status.conditions, condition, cx.now());
}
