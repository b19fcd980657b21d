//! A step for objects of another type.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::SubReconciler;
use super::context::SubContext;
use super::flow::{SubResult, both};
use super::setup::Setup;
use crate::ClientError;
use homeostat::run::{BoxError, terminal};

mod changes;

/// Passes an object of type `T` to a step as a `D`, through their JSON. One step can then serve several types that have
/// fields in common.
///
/// The JSON includes `apiVersion` and `kind`. Changes by the step are copied to the object, even if the step fails.
/// Fields that `D` does not know stay; in a list, an entry that the step both moves and changes loses them. Fields that
/// `T` does not know are dropped. After a change, the object loses all data that `T` does not write as JSON.
///
/// # Errors
///
/// [`Invalid`](crate::ClientErrorKind::Invalid) with the object and the field as a JSON pointer:
///
/// - The object does not match `D`. The step is not called, and the error is terminal.
/// - The result of the step does not match `T`, or the step changed a [read-only](Self::read_only) field. The object is
///   not changed. An error of the step is reported too.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Condition, ObjectMeta};
/// use homeostat_objects::sub::{CastResource, Flow, SubContext, SubResult};
/// use serde::{Deserialize, Serialize};
///
/// /// Any object with an image.
/// #[derive(Serialize, Deserialize)]
/// struct ImageRef {
///     metadata: ObjectMeta,
///     image: String,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Function {
///     metadata: ObjectMeta,
///     image: String,
///     memory: u64,
/// }
///
/// fn pin(_cx: &SubContext<'_>, image_ref: &mut ImageRef) -> SubResult {
///     if !image_ref.image.contains(':') {
///         image_ref.image.push_str(":latest");
///     }
///     Ok(Flow::proceed())
/// }
///
/// let step = CastResource::<Function, ImageRef>::new(pin);
/// # let _ = step;
/// ```
#[must_use]
pub struct CastResource<T, D> {
    step: Box<dyn SubReconciler<D>>,
    read_only: bool,
    of: PhantomData<fn(&mut T)>,
}

impl<T, D> CastResource<T, D> {
    /// Calls `step` with a `D`.
    pub fn new(step: impl SubReconciler<D> + 'static) -> Self {
        Self { step: Box::new(step), read_only: false, of: PhantomData }
    }

    /// Fails if the step changes a field in any other way than by [writing finalizers](SubContext::add_finalizer).
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }
}

impl<T, D> CastResource<T, D>
where
    T: Serialize + DeserializeOwned,
    D: Serialize + DeserializeOwned,
{
    /// Copies the changes since `before` to the object.
    fn write_back(
        &self,
        cx: &SubContext<'_>,
        resource: &mut T,
        mut whole: Value,
        before: &Value,
        cast: &D,
    ) -> Result<(), ClientError> {
        let after = json_of(cx, cast)?;
        if self.read_only
            && let Some(field) = changes::first(&written(before, &after), &after)
        {
            let rule = "must not be changed by a cast that is read only";
            return Err(ClientError::invalid(cx.object().clone(), &field, value_at(&after, &field), rule));
        }
        if *before != after {
            changes::carry(before, &after, &mut whole);
            *resource = fit(cx, &whole)?;
        }
        Ok(())
    }
}

impl<T, D> SubReconciler<T> for CastResource<T, D>
where
    T: Serialize + DeserializeOwned,
    D: Serialize + DeserializeOwned,
{
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        self.step.setup(setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let whole = json_of(cx, resource)?;
        let mut shown = whole.clone();
        if let Some(fields) = shown.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| cx.kind().api_version().into());
            fields.entry("kind").or_insert_with(|| cx.kind().name().into());
        }
        let mut cast: D = fit(cx, &shown).map_err(terminal)?;
        let before = json_of(cx, &cast)?;
        let result = self.step.reconcile(cx, &mut cast);
        match self.write_back(cx, resource, whole, &before, &cast) {
            Ok(()) => result,
            Err(error) => both(result, Err(error.into())),
        }
    }
}

/// Returns `before` with the fields that the client changes when it writes a [finalizer](SubContext::add_finalizer).
fn written(before: &Value, after: &Value) -> Value {
    let mut written = before.clone();
    if let (Some(before), Some(after)) = (written.get_mut("metadata"), after.get("metadata"))
        && let Some(fields) = before.as_object_mut()
    {
        for field in ["finalizers", "resourceVersion", "generation"] {
            match after.get(field) {
                Some(value) => fields.insert(field.to_owned(), value.clone()),
                None => fields.remove(field),
            };
        }
    }
    written
}

fn json_of<V: Serialize>(cx: &SubContext<'_>, value: &V) -> Result<Value, ClientError> {
    serde_json::to_value(value).map_err(|error| {
        let rule = format!("must be written as JSON by {}: {error}", type_name::<V>());
        ClientError::invalid(cx.object().clone(), "", "", rule)
    })
}

fn fit<V: DeserializeOwned>(cx: &SubContext<'_>, json: &Value) -> Result<V, ClientError> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let field: String = error.path().iter().filter_map(pointer).collect();
        let rule = format!("must fit {}: {}", type_name::<V>(), error.inner());
        let value = value_at(json, &field);
        ClientError::invalid(cx.object().clone(), field, value, rule)
    })
}

fn pointer(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Seq { index } => Some(format!("/{index}")),
        Segment::Map { key } => Some(changes::token(key)),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// Returns the value at a JSON pointer, in a readable form.
fn value_at(json: &Value, pointer: &str) -> String {
    match json.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

impl<T, D> fmt::Debug for CastResource<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CastResource")
            .field("to", &type_name::<D>())
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}
