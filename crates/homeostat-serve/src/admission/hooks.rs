//! The admission hooks of a kind.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::access::UserInfo;
use homeostat_objects::{Cause, Kind, ObjectKey};

/// The kind of change that a hook checks.
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
/// A hook that makes a field immutable:
///
/// ```
/// use homeostat_objects::Kind;
/// use homeostat_serve::{AdmissionRequest, Rejection, ServedResource};
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
    /// The kind of change.
    pub operation: AdmissionOperation,
    /// The kind of the object.
    pub kind: &'a Kind,
    /// The object's namespace. Empty if the object is cluster-wide.
    pub namespace: &'a str,
    /// The object's name. Empty if the server will generate it.
    pub name: &'a str,
    /// Whether only the status is written.
    pub status: bool,
    /// The user who makes the request.
    pub user: &'a UserInfo,
    /// The stored object. `None` for a creation.
    pub old: Option<&'a Value>,
    /// Whether nothing will be stored. The hook must then have no side effects.
    pub dry_run: bool,
}

impl<'a> AdmissionRequest<'a> {
    /// Creates a request that changes a whole object and stores it. Set the other fields afterwards.
    #[must_use]
    pub fn new(operation: AdmissionOperation, kind: &'a Kind, key: &'a ObjectKey, user: &'a UserInfo) -> Self {
        let (namespace, name) = (key.namespace(), key.name());
        Self { operation, kind, namespace, name, status: false, user, old: None, dry_run: false }
    }
}

/// A hook's refusal of a change.
///
/// # Examples
///
/// ```
/// use homeostat_serve::Rejection;
///
/// let odd = Rejection::invalid("spec.cores", "3", "must be even").and("spec.memory", "7", "must be even");
/// let closed = Rejection::forbidden("the site is closed for maintenance");
/// # let _ = (odd, closed);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// Fields of the object violate rules.
    Invalid(Vec<Cause>),
    /// The user may not make this change, for this reason.
    Forbidden(String),
}

impl Rejection {
    /// Creates a refusal because of a field, given its path, its value and the violated rule.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Invalid(vec![Cause::new(field, value, rule)])
    }

    /// Creates a refusal for any other reason.
    #[must_use]
    pub fn forbidden(reason: impl Into<String>) -> Self {
        Self::Forbidden(reason.into())
    }

    /// Adds another field that violates a rule. Has no effect on a [`Forbidden`](Self::Forbidden) refusal.
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
    /// Returns whether there are no hooks for writes.
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
