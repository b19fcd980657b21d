//! Cases for admission hooks: one request to write an object.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

use serde_json::Value;

use super::case::{CaseContext, Ends, Subject, TestCase, check, sealed};
use super::client::{TestClient, json_of};
use super::config::Give;
use super::difference::{Mismatch, of_texts, pretty};
use super::factory::{Sample, whole};
use super::table::Table;
use super::writes::comparable;
use homeostat::run::BoxError;
use homeostat_objects::{Kind, Object, ObjectKey};
use homeostat_serve::{
    AdmissionAnswer, AdmissionOperation, AdmissionRequest, AdmissionReviewer, ServedResource, UserInfo,
};

/// A case for the admission of a kind: one request to write an object.
///
/// Schema and hooks decide as on a server: defaults are filled in, unknown fields are removed, and each hook runs once.
/// By default the case expects that the request is allowed, that the object does not change, and that there are no
/// warnings. A hook that panics fails the case, unless the case [expects](TestCase::expect_panic) it.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Client, Ignore, Kind, ObjectKey};
/// use homeostat_serve::{Rejection, ServedResource, UserInfo};
/// use homeostat_testing::{AdmissionTable, AdmissionTestCase, Factory};
/// use serde_json::{Value, json};
///
/// const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
/// const IMAGE: Kind = Kind::namespaced("example.com", "v1", "Image");
///
/// /// Machines get an owner, need an image that exists, and keep their disk.
/// fn vms(images: impl Client + 'static) -> ServedResource {
///     let image = move |namespace: &str, vm: &Value| ObjectKey::new(namespace, vm["spec"]["image"].as_str().unwrap_or_default());
///     ServedResource::new(VM)
///         .mutate(|request, vm| {
///             vm["spec"]["owner"] = request.user.name.as_str().into();
///             Ok(())
///         })
///         .validate(move |request, vm| match images.get(&IMAGE, &image(request.namespace, vm)).ignore_not_found() {
///             Ok(Some(_)) => Ok(()),
///             _ => Err(Rejection::invalid("spec.image", "", "must exist")),
///         })
///         .validate(|request, vm| match request.old {
///             Some(old) if old["spec"]["disk"] != vm["spec"]["disk"] => Err(Rejection::forbidden("the disk stays")),
///             _ => Ok(()),
///         })
/// }
///
/// let image = Factory::dynamic(&IMAGE, "default", "debian");
/// let vm = Factory::dynamic(&VM, "default", "a").field("/spec", json!({"image": "debian", "disk": "ssd", "owner": "ada"}));
/// let ada = UserInfo::new("ada");
/// AdmissionTable::new([
///     AdmissionTestCase::create("is allowed as it is", &vm).user(ada.clone()).given(&image),
///     AdmissionTestCase::create("gets an owner", &vm.without("/spec/owner"))
///         .user(ada.clone())
///         .given(&image)
///         .expect_object(&vm),
///     AdmissionTestCase::create("needs its image", &vm)
///         .user(ada.clone())
///         .expect_invalid("spec.image: Invalid value: must exist"),
///     AdmissionTestCase::update("keeps its disk", &vm, &vm.field("/spec/disk", "tape"))
///         .user(ada)
///         .given(&image)
///         .expect_forbidden("the disk stays"),
///     AdmissionTestCase::delete("can be deleted", &vm),
/// ])
/// .run(|given| vms(given.client().clone()));
/// ```
pub type AdmissionTestCase = TestCase<AdmissionSubject>;

/// A table of cases for the admission of a kind.
///
/// # Examples
///
/// See [`AdmissionTestCase`]. The report of a case that fails:
///
/// ```
/// # use homeostat_objects::Kind;
/// # use homeostat_serve::{Rejection, ServedResource};
/// # use homeostat_testing::{AdmissionTable, AdmissionTestCase, Factory};
/// # const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
/// let closed = ServedResource::new(VM).validate(|_, _| Err(Rejection::forbidden("the site is closed")));
/// let vm = Factory::dynamic(&VM, "default", "a");
/// let table = AdmissionTable::new([AdmissionTestCase::create("is allowed", &vm)]);
/// let report = table.check(|_given| closed.clone()).unwrap_err();
/// assert_eq!(report.lines().collect::<Vec<_>>(), [
///     "1 of 1 cases failed",
///     "case \"is allowed\":",
///     "  result differs (-expected +actual)",
///     "      -Allowed",
///     "      +Forbidden(",
///     "      +    \"the site is closed\",",
///     "      +)",
/// ]);
/// ```
pub type AdmissionTable = Table<AdmissionSubject>;

/// Puts an object into the client of a case.
type GiveStored = dyn Fn(&TestClient) + Send + Sync;

/// A request to write an object, for the admission of its kind.
pub struct AdmissionSubject {
    operation: AdmissionOperation,
    kind: Kind,
    key: ObjectKey,
    /// The object of the request. For a deletion it is the stored object.
    object: Value,
    old: Option<Value>,
    /// Puts the stored object into a client.
    stored: Option<Arc<GiveStored>>,
    user: UserInfo,
    status: bool,
    dry_run: bool,
    /// The admitted object. `None` if it equals the object of the request.
    expected: Option<Value>,
    warnings: Vec<String>,
    is_denied: bool,
}

/// The decision about the request of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionDecision {
    /// The object may be written or deleted.
    Allowed,
    /// Fields of the object break rules. Each text has the path of a field and the rule.
    Invalid(Vec<String>),
    /// The user may not do this, for this reason.
    Forbidden(String),
}

impl sealed::Sealed for AdmissionSubject {
    fn give(&self) -> Option<Give> {
        let stored = Arc::clone(self.stored.as_ref()?);
        Some(Box::new(move |client| stored(client)))
    }
}

impl Subject for AdmissionSubject {
    type Outcome = AdmissionDecision;
}

impl TestCase<AdmissionSubject> {
    /// Creates a case for a request that creates an object.
    pub fn create(name: impl Into<String>, object: &impl Sample) -> Self {
        let object = object.sample();
        Self::with_request(name, AdmissionOperation::Create, &object, None)
    }

    /// Creates a case for a request that changes an object. The client of the case has the old object.
    ///
    /// Missing metadata of both objects is filled in, as [`Factory::created`](super::Factory::created) does.
    pub fn update<T: Object>(
        name: impl Into<String>,
        old: &impl Sample<Object = T>,
        object: &impl Sample<Object = T>,
    ) -> Self {
        let (old, object) = (whole(old.sample(), 0), whole(object.sample(), 0));
        Self::with_request(name, AdmissionOperation::Update, &object, Some(&old))
    }

    /// Creates a case for a request that deletes an object. The client of the case has the object.
    ///
    /// Missing metadata is filled in, as [`Factory::created`](super::Factory::created) does.
    pub fn delete(name: impl Into<String>, object: &impl Sample) -> Self {
        let object = whole(object.sample(), 0);
        Self::with_request(name, AdmissionOperation::Delete, &object, Some(&object))
    }

    fn with_request<T: Object>(
        name: impl Into<String>,
        operation: AdmissionOperation,
        object: &T,
        old: Option<&T>,
    ) -> Self {
        let stored =
            old.cloned().map(|old| -> Arc<GiveStored> { Arc::new(move |client: &TestClient| client.give(&old)) });
        let subject = AdmissionSubject {
            operation,
            kind: object.kind(),
            key: object.key(),
            object: json_of(object),
            old: old.map(json_of),
            stored,
            user: UserInfo::default(),
            status: false,
            dry_run: false,
            expected: None,
            warnings: Vec::new(),
            is_denied: false,
        };
        Self::with(name, subject, AdmissionDecision::Allowed)
    }

    /// Sets the user of the request. Default: an anonymous user.
    pub fn user(mut self, user: UserInfo) -> Self {
        self.subject.user = user;
        self
    }

    /// Makes the request a dry run, which stores nothing.
    pub fn dry_run(mut self) -> Self {
        self.subject.dry_run = true;
        self
    }

    /// Makes the request write only the status.
    pub fn status(mut self) -> Self {
        self.subject.status = true;
        self
    }

    /// Expects the object to be this after the hooks.
    ///
    /// The `resourceVersion` is not compared. Fields that a client sets, and the times of conditions, are compared only
    /// if the expected object has them. Conditions are compared by type, in any order.
    pub fn expect_object(mut self, object: &impl Sample) -> Self {
        self.subject.expected = Some(json_of(&object.sample()));
        self
    }

    /// Expects a warning with exactly this text, such as `unknown field "spec.coers"`. Several warnings are expected in
    /// this order.
    pub fn expect_warning(mut self, text: impl Into<String>) -> Self {
        self.subject.warnings.push(text.into());
        self
    }

    /// Expects the request to be denied because a field breaks a rule. The text has the path, the value and the rule,
    /// as clients see it: `spec.cores: Invalid value: "0": must be at least 1`. Several faults are expected in this
    /// order.
    pub fn expect_invalid(mut self, text: impl Into<String>) -> Self {
        self.subject.is_denied = true;
        match &mut self.ends {
            Ends::With(AdmissionDecision::Invalid(faults)) => faults.push(text.into()),
            other => *other = Ends::With(AdmissionDecision::Invalid(vec![text.into()])),
        }
        self
    }

    /// Expects the request to be denied for exactly this reason.
    pub fn expect_forbidden(mut self, reason: impl Into<String>) -> Self {
        self.subject.is_denied = true;
        self.ends = Ends::With(AdmissionDecision::Forbidden(reason.into()));
        self
    }
}

impl Table<AdmissionSubject> {
    /// Runs all cases, each with a new client, clock and kind. `make` returns the kind with its schema and hooks.
    ///
    /// # Panics
    ///
    /// Panics with the report of [`check`](Self::check) if a case fails.
    #[track_caller]
    pub fn run(&self, make: impl Fn(&CaseContext<'_>) -> ServedResource) {
        if let Err(mismatches) = self.check(make) {
            panic!("{mismatches}");
        }
    }

    /// Runs all cases, each with a new client, clock and kind. `make` returns the kind with its schema and hooks.
    ///
    /// # Errors
    ///
    /// Returns a report of all mismatches, by case.
    pub fn check(&self, make: impl Fn(&CaseContext<'_>) -> ServedResource) -> Result<(), String> {
        let run = |resource: &ServedResource,
                   subject: &AdmissionSubject,
                   _: &CaseContext<'_>,
                   mismatches: &mut Vec<Mismatch>| { subject.decide(resource, mismatches) };
        self.check_each(|case| check(case, &make, &run))
    }
}

impl AdmissionSubject {
    fn decide(&self, resource: &ServedResource, mismatches: &mut Vec<Mismatch>) -> Result<AdmissionDecision, BoxError> {
        let Self { operation, kind, key, object, user, status, dry_run, .. } = self;
        let mut request = AdmissionRequest::new(*operation, kind, key, user);
        request.status = *status;
        request.old = self.old.as_ref();
        request.dry_run = *dry_run;
        let answer = AdmissionReviewer::new([resource.clone()])?.decide(&request, object);
        match answer.ok_or_else(|| format!("the hooks are of {}, but the object is of {kind}", resource.kind()))? {
            AdmissionAnswer::Allowed { object, warnings } => {
                if !self.is_denied {
                    self.check(&object, &warnings, mismatches);
                }
                Ok(AdmissionDecision::Allowed)
            }
            AdmissionAnswer::Invalid(faults) => Ok(AdmissionDecision::Invalid(faults)),
            AdmissionAnswer::Forbidden(reason) => Ok(AdmissionDecision::Forbidden(reason)),
            // The panic of a hook is the panic of the run.
            AdmissionAnswer::Panicked(panic) => resume_unwind(Box::new(panic)),
        }
    }

    fn check(&self, object: &Value, warnings: &[String], mismatches: &mut Vec<Mismatch>) {
        let expected = self.expected.as_ref().unwrap_or(&self.object);
        let (expected, actual) = comparable(expected, object);
        mismatches.extend(Mismatch::differs("object", &pretty(&expected), &pretty(&actual)));
        of_texts("warning", &self.warnings, warnings, mismatches);
    }
}

impl fmt::Debug for AdmissionSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, kind, key, .. } = self;
        f.debug_struct("AdmissionSubject")
            .field("operation", operation)
            .field("kind", kind)
            .field("key", key)
            .finish_non_exhaustive()
    }
}
