//! The objects: functions, their images, and the config map that functions refer to.

use homeostat_objects::{Condition, ConditionSet, Kind, ObjectMeta};
use serde::{Deserialize, Serialize};

/// The kind of the config map `images`, which holds the prefix of image names and the builder.
pub(crate) const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
pub(crate) const IMAGES: &str = "images";

/// A function is ready once its image is named and built.
pub(crate) const CONDITIONS: ConditionSet = ConditionSet::new("Ready", &["ImageResolved", "Built"]);

/// Code to build an image from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Function {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: FunctionSpec,
    #[serde(default)]
    pub(crate) status: FunctionStatus,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FunctionSpec {
    /// The commit to build.
    pub(crate) commit: String,
    /// The name of the image. Default: the prefix and the name of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FunctionStatus {
    pub(crate) observed_generation: i64,
    pub(crate) conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) target_image: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) latest_image: String,
}

/// The build of one image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Image {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ImageSpec,
    #[serde(default)]
    pub(crate) status: ImageStatus,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ImageSpec {
    pub(crate) tag: String,
    pub(crate) builder: String,
    pub(crate) commit: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ImageStatus {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) latest_image: String,
}

homeostat_objects::object!(Function, namespaced, "example.com", "v1", status: FunctionStatus);
homeostat_objects::object!(Image, namespaced, "build.example.com", "v1", status: ImageStatus);
