//! The hooks of a kind.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::objects::{Cause, Kind};
use crate::serve::access::UserInfo;

/// The change that a hook decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionOperation {
    /// An object is created.
    Create,
    /// An object or its status is changed.
    Update,
    /// An object is deleted.
    Delete,
}

/// A request to write an object, as hooks see it.
///
/// # Examples
///
/// A hook that lets nobody change a field:
///
/// ```
/// use homeostat::objects::Kind;
/// use homeostat::serve::{AdmissionRequest, Rejection, ServedResource};
/// use serde_json::Value;
///
/// let keeps_disk = |request: &AdmissionRequest<'_>, vm: &Value| match request.old {
///     Some(old) if old["spec"]["disk"] != vm["spec"]["disk"] => {
///         Err(Rejection::invalid("spec.disk", vm["spec"]["disk"].to_string(), "must not change"))
///     }
///     _ => Ok(()),
/// };
/// let vms = ServedResource::new(Kind::namespaced("example.com", "v1", "Vm")).validate(keeps_disk);
/// # let _ = vms;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AdmissionRequest<'a> {
    /// The change.
    pub operation: AdmissionOperation,
    /// The kind of the object.
    pub kind: &'a Kind,
    /// The namespace of the object. Empty if the object is cluster-wide.
    pub namespace: &'a str,
    /// The name of the object. Empty if the name will be generated.
    pub name: &'a str,
    /// Whether only the status is written.
    pub status: bool,
    /// The user of the request.
    pub user: &'a UserInfo,
    /// The object as it is stored. `None` if it is created.
    pub old: Option<&'a Value>,
    /// Whether nothing will be written. A hook must have no side effects then.
    pub dry_run: bool,
}

/// The refusal of a hook.
///
/// # Examples
///
/// ```
/// use homeostat::serve::Rejection;
///
/// let odd = Rejection::invalid("spec.cores", "3", "must be even").and("spec.memory", "7", "must be even");
/// let closed = Rejection::forbidden("the site is closed for maintenance");
/// # let _ = (odd, closed);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// Fields of the object break rules.
    Invalid(Vec<Cause>),
    /// The user must not do this, for this reason.
    Forbidden(String),
}

impl Rejection {
    /// Returns a refusal because of a field: its path, its value and the rule that the value breaks.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Invalid(vec![Cause::new(field, value, rule)])
    }

    /// Returns a refusal for another reason.
    #[must_use]
    pub fn forbidden(reason: impl Into<String>) -> Self {
        Self::Forbidden(reason.into())
    }

    /// Adds a field that breaks a rule. Has no effect on a refusal for another reason.
    #[must_use]
    pub fn and(mut self, field: impl Into<String>, value: impl Into<String>, rule: impl Into<String>) -> Self {
        if let Self::Invalid(causes) = &mut self {
            causes.push(Cause::new(field, value, rule));
        }
        self
    }
}

impl From<Cause> for Rejection {
    fn from(cause: Cause) -> Self {
        Self::Invalid(vec![cause])
    }
}

pub(crate) type MutateHook = Arc<dyn Fn(&AdmissionRequest<'_>, &mut Value) -> Result<(), Rejection> + Send + Sync>;
pub(crate) type ValidateHook = Arc<dyn Fn(&AdmissionRequest<'_>, &Value) -> Result<(), Rejection> + Send + Sync>;

/// The hooks of a kind, in the order in which they run.
#[derive(Clone, Default)]
pub(crate) struct AdmissionHooks {
    pub(crate) mutate: Vec<MutateHook>,
    pub(crate) validate: Vec<ValidateHook>,
    pub(crate) delete: Vec<ValidateHook>,
}

impl AdmissionHooks {
    /// Returns whether no hook looks at a write.
    pub(crate) fn ignore_writes(&self) -> bool {
        self.mutate.is_empty() && self.validate.is_empty()
    }
}

impl fmt::Debug for AdmissionHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutate, validate, delete } = self;
        write!(f, "{} mutate, {} validate, {} delete", mutate.len(), validate.len(), delete.len())
    }
}
