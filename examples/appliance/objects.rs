//! Volumes and shares: their types, and how the server presents and checks them.

use std::path::Path;

use homeostat::{BoxError, Context};
use homeostat_objects::{Condition, ConditionStatus, KindDefinition, ObjectMeta, PrintColumn, set_condition};
use homeostat_serve::{AdmissionRequest, Rejection, ServedResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Keeps an object until its files are removed.
pub(crate) const FINALIZER: &str = "example.com/files";

/// Space for files.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Volume {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: VolumeSpec,
    #[serde(default)]
    pub(crate) status: Status,
}

/// The desired volume.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeSpec {
    /// The size in MiB. It can grow, but not shrink.
    #[schemars(range(min = 1, max = 1024))]
    pub(crate) size_mib: u32,
}

/// The export of a volume to the network.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Share {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ShareSpec,
    #[serde(default)]
    pub(crate) status: Status,
}

/// The desired export.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShareSpec {
    /// The name of a volume in the namespace of the share. The share is deleted with the volume.
    #[schemars(length(min = 1))]
    pub(crate) volume: String,
    /// The protocol of the clients.
    #[serde(default)]
    pub(crate) protocol: Protocol,
    /// Whether clients can only read.
    #[serde(default)]
    pub(crate) read_only: bool,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Protocol {
    #[default]
    Nfs,
    Smb,
}

/// The state of the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Status {
    /// The path of the object's file.
    pub(crate) path: String,
    pub(crate) conditions: Vec<Condition>,
}

homeostat_objects::object!(Volume, namespaced, "example.com", "v1", status: Status);
homeostat_objects::object!(Share, namespaced, "example.com", "v1", status: Status);

impl Status {
    /// Sets the path of a file that is ready, or a reason and a message. Returns whether anything has changed.
    pub(crate) fn set(
        &mut self,
        cx: &Context,
        generation: i64,
        state: Result<&Path, [&str; 2]>,
    ) -> Result<bool, BoxError> {
        let before = self.clone();
        let (is_ready, [reason, message]) = match state {
            Ok(path) => {
                self.path = path.display().to_string();
                (ConditionStatus::True, ["Ready", ""])
            }
            Err(problem) => (ConditionStatus::False, problem),
        };
        let ready = Condition::new("Ready", is_ready, reason).message(message).observed_generation(generation);
        set_condition(&mut self.conditions, ready, cx.clock().time_of_day().try_into()?);
        Ok(*self != before)
    }
}

/// Volumes, as the server serves them.
pub(crate) fn volumes() -> ServedResource {
    let definition = KindDefinition::described_by::<Volume>()
        .short_name("vol")
        .category("all")
        .column(PrintColumn::integer("MiB", ".spec.sizeMib"))
        .column(ready("Ready", "status"))
        .column(PrintColumn::string("Path", ".status.path").wide());
    ServedResource::new(definition).validate(never_shrinks)
}

/// Shares, as the server serves them.
pub(crate) fn shares() -> ServedResource {
    let definition = KindDefinition::described_by::<Share>()
        .short_name("sh")
        .category("all")
        .column(PrintColumn::string("Volume", ".spec.volume"))
        .column(PrintColumn::string("Protocol", ".spec.protocol"))
        .column(ready("Ready", "status"))
        .column(ready("Reason", "reason"));
    ServedResource::new(definition).validate(keeps_its_volume)
}

/// Returns a column that shows a field of the condition `Ready`.
fn ready(name: &str, field: &str) -> PrintColumn {
    PrintColumn::string(name, format!(r#".status.conditions[?(@.type=="Ready")].{field}"#))
}

fn never_shrinks(request: &AdmissionRequest<'_>, volume: &Value) -> Result<(), Rejection> {
    let size = |volume: &Value| volume["spec"]["sizeMib"].as_u64();
    match request.old {
        Some(old) if size(volume) < size(old) => {
            let rule = format!("must not be smaller than before, {}", old["spec"]["sizeMib"]);
            Err(Rejection::invalid("spec.sizeMib", volume["spec"]["sizeMib"].to_string(), rule))
        }
        _ => Ok(()),
    }
}

fn keeps_its_volume(request: &AdmissionRequest<'_>, share: &Value) -> Result<(), Rejection> {
    let volume = |share: &Value| share["spec"]["volume"].as_str().unwrap_or_default().to_owned();
    match request.old {
        Some(old) if volume(old) != volume(share) => {
            Err(Rejection::invalid("spec.volume", volume(share), "must not change"))
        }
        _ => Ok(()),
    }
}
