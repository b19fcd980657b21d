//! Admission reviews: the same hooks as webhooks of a Kubernetes API server.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::admit::{AdmissionFailure, Admitted, UnknownFields, admit, admit_deletion};
use super::hooks::{AdmissionHooks, AdmissionOperation, AdmissionRequest};
use super::schema::FieldFault;
use crate::access::UserInfo;
use crate::kinds::{KindRegistry, ServedResource};
use homeostat_objects::DefinitionError;

/// Answers `AdmissionReview` requests of a Kubernetes API server with the hooks of served kinds.
///
/// A webhook configuration on the API server names the kinds, and one URL for each of two calls: the first may change
/// objects, the second only checks them. Both send an `AdmissionReview` of version `admission.k8s.io/v1`.
///
/// The reviewer also fills in schema defaults, removes unknown fields and checks the schema. It allows objects of
/// unknown kinds unchanged.
///
/// [`ServerBuilder::admission_reviews`](crate::ServerBuilder::admission_reviews) answers reviews over HTTP, and
/// its documentation shows a webhook configuration. The crate
/// [`homeostat-testing`](https://docs.rs/homeostat-testing) has tables of cases for the hooks.
///
/// # Examples
///
/// ```
/// use homeostat_objects::Kind;
/// use homeostat_serve::{AdmissionReviewer, Rejection, ServedResource};
/// use serde_json::json;
///
/// let vms = ServedResource::new(Kind::namespaced("example.com", "v1", "Vm")).validate(|_, vm| {
///     if vm["spec"]["cores"] == 0 { Err(Rejection::invalid("spec.cores", "0", "must be at least 1")) } else { Ok(()) }
/// });
/// let reviewer = AdmissionReviewer::new([vms])?;
/// let review = reviewer.validate(&json!({
///     "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
///     "request": {
///         "uid": "u-1", "operation": "CREATE", "kind": {"group": "example.com", "version": "v1", "kind": "Vm"},
///         "namespace": "default", "name": "a", "object": {"spec": {"cores": 0}},
///     },
/// }));
/// assert_eq!(review["response"]["allowed"], false);
/// # Ok::<_, homeostat_objects::DefinitionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdmissionReviewer {
    kinds: KindRegistry,
}

/// The webhook call that a review answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewStage {
    /// The answer may change the object.
    Mutate,
    /// The answer only allows or refuses the object.
    Validate,
}

impl AdmissionReviewer {
    /// Creates a reviewer for these kinds.
    ///
    /// # Errors
    ///
    /// Returns an error if a kind is registered twice, or has an invalid schema or name.
    pub fn new(kinds: impl IntoIterator<Item = ServedResource>) -> Result<Self, DefinitionError> {
        Ok(Self { kinds: KindRegistry::new(kinds)? })
    }

    /// Answers a mutating webhook: allows the object, with a JSON patch, or refuses it.
    ///
    /// Refuses if `review` is not an `AdmissionReview` with a request.
    #[must_use]
    pub fn mutate(&self, review: &Value) -> Value {
        self.answer(review, ReviewStage::Mutate)
    }

    /// Answers a validating webhook: allows or refuses the object. No hook changes it.
    ///
    /// Refuses if `review` is not an `AdmissionReview` with a request.
    #[must_use]
    pub fn validate(&self, review: &Value) -> Value {
        self.answer(review, ReviewStage::Validate)
    }

    pub(super) fn answer(&self, review: &Value, stage: ReviewStage) -> Value {
        let request = &review["request"];
        let is_review = review["apiVersion"] == "admission.k8s.io/v1" && review["kind"] == "AdmissionReview";
        let mut response = if is_review && request.is_object() {
            self.response(request, stage).unwrap_or_else(refused)
        } else {
            let message = "the body is not an AdmissionReview of admission.k8s.io/v1 with a request";
            json!({"allowed": false, "status": {"code": 400, "reason": "BadRequest", "message": message}})
        };
        response["uid"] = json!(request["uid"].as_str().unwrap_or_default());
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    fn response(&self, review: &Value, stage: ReviewStage) -> Result<Value, AdmissionFailure> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |field: &str| text(&review["kind"][field]);
        let (group, version, name) = (of("group"), of("version"), of("kind"));
        let known = self.known(&group, &version, &name);
        let operation = match review["operation"].as_str() {
            Some("CREATE") => AdmissionOperation::Create,
            Some("UPDATE") => AdmissionOperation::Update,
            Some("DELETE") => AdmissionOperation::Delete,
            _ => return Ok(json!({"allowed": true})),
        };
        let (Some(resource), "" | "status") = (known, &*text(&review["subResource"])) else {
            return Ok(json!({"allowed": true}));
        };
        let groups = review["userInfo"]["groups"].as_array().into_iter().flatten();
        let user = UserInfo { name: text(&review["userInfo"]["username"]), groups: groups.map(text).collect() };
        let (namespace, name) = (text(&review["namespace"]), text(&review["name"]));
        let (object, old) = (&review["object"], &review["oldObject"]);
        let request = AdmissionRequest {
            operation,
            kind: resource.kind(),
            namespace: &namespace,
            name: &name,
            status: review["subResource"] == "status",
            user: &user,
            old: old.is_object().then_some(old),
            dry_run: review["dryRun"] == true,
        };
        let deletes = operation == AdmissionOperation::Delete;
        let object = if deletes && old.is_object() { old } else { object };
        let Admitted { object: admitted, warnings } = decide(resource, stage, &request, object)?;
        let mut response = json!({"allowed": true});
        if stage == ReviewStage::Mutate && !deletes {
            let patch = json_patch::diff(object, &admitted);
            if !patch.0.is_empty() {
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(BASE64_STANDARD.encode(json!(patch).to_string()));
            }
            if !warnings.is_empty() {
                response["warnings"] = json!(warnings);
            }
        }
        Ok(response)
    }

    fn known(&self, group: &str, version: &str, name: &str) -> Option<&ServedResource> {
        self.kinds.iter().find(|resource| {
            let kind = resource.kind();
            (kind.group(), kind.version(), kind.name()) == (group, version, name)
        })
    }

    /// Decides about a request like both reviews together, but runs each hook only once. Returns `None` for an unknown
    /// kind.
    #[must_use]
    pub fn decide(&self, request: &AdmissionRequest<'_>, object: &Value) -> Option<AdmissionAnswer> {
        let resource = self.known(request.kind.group(), request.kind.version(), request.kind.name())?;
        let deletes = request.operation == AdmissionOperation::Delete;
        let stage = if deletes { ReviewStage::Validate } else { ReviewStage::Mutate };
        let texts = |faults: Vec<FieldFault>| faults.iter().map(ToString::to_string).collect();
        Some(match decide(resource, stage, request, object) {
            Ok(Admitted { object, warnings }) => AdmissionAnswer::Allowed { object, warnings },
            Err(AdmissionFailure::Invalid(faults)) => AdmissionAnswer::Invalid(texts(faults)),
            Err(AdmissionFailure::UnknownFields(fields)) => AdmissionAnswer::Invalid(fields),
            Err(AdmissionFailure::Forbidden(reason)) => AdmissionAnswer::Forbidden(reason),
            Err(AdmissionFailure::Panicked(message)) => AdmissionAnswer::Panicked(message),
        })
    }
}

/// The answer of [`AdmissionReviewer::decide`].
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionAnswer {
    /// The object may be written.
    Allowed {
        /// The object with its defaults and the changes of the hooks.
        object: Value,
        /// Texts for the user.
        warnings: Vec<String>,
    },
    /// Fields of the object break rules. Each text has the path of a field and the rule.
    Invalid(Vec<String>),
    /// The user may not do this, for this reason.
    Forbidden(String),
    /// A hook panicked with this message.
    Panicked(String),
}

/// Runs the hooks of one stage. Deletions have only validating hooks.
fn decide(
    resource: &ServedResource,
    stage: ReviewStage,
    request: &AdmissionRequest<'_>,
    object: &Value,
) -> Result<Admitted, AdmissionFailure> {
    let hooks = resource.hooks();
    if request.operation == AdmissionOperation::Delete {
        if stage == ReviewStage::Validate {
            admit_deletion(hooks, request, object)?;
        }
        return Ok(Admitted { object: object.clone(), warnings: Vec::new() });
    }
    let unchanging;
    let hooks = match stage {
        ReviewStage::Mutate => hooks,
        ReviewStage::Validate => {
            unchanging = AdmissionHooks { mutate: Vec::new(), ..hooks.clone() };
            &unchanging
        }
    };
    admit(resource.compiled_schema(), hooks, request, object.clone(), UnknownFields::Warn)
}

/// Returns the response for a refused object.
fn refused(failure: AdmissionFailure) -> Value {
    let status = match failure {
        AdmissionFailure::Invalid(faults) => {
            let causes = faults
                .iter()
                .map(|fault| json!({"reason": fault.reason.cause(), "message": fault.message, "field": fault.field}));
            let causes: Vec<_> = causes.collect();
            let message: Vec<_> = faults.iter().map(ToString::to_string).collect();
            let message = message.join(", ");
            json!({"code": 422, "reason": "Invalid", "message": message, "details": {"causes": causes}})
        }
        AdmissionFailure::UnknownFields(fields) => {
            let message = format!("unknown fields: {}", fields.join(", "));
            json!({"code": 400, "reason": "BadRequest", "message": message})
        }
        AdmissionFailure::Forbidden(reason) => json!({"code": 403, "reason": "Forbidden", "message": reason}),
        AdmissionFailure::Panicked(panic) => {
            json!({"code": 500, "reason": "InternalError", "message": format!("a hook panicked: {panic}")})
        }
    };
    json!({"allowed": false, "status": status})
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

    use super::*;
    use crate::admission::Rejection;
    use homeostat_objects::{Kind, KindDefinition};

    fn reviewer() -> AdmissionReviewer {
        let spec = json!({"type": "object", "properties": {
            "cores": {"type": "integer", "minimum": 1}, "disk": {"type": "string", "default": "ssd"}, "owner": {"type": "string"},
        }});
        let vms = KindDefinition::new(Kind::namespaced("example.com", "v1", "Vm"))
            .schema(json!({"type": "object", "properties": {"spec": spec}}));
        let vms = ServedResource::new(vms)
            .mutate(|request, vm| {
                vm["spec"]["owner"] = json!(request.user.name);
                Ok(())
            })
            .validate(|request, vm| match request.old {
                Some(old) if old["spec"]["disk"] != vm["spec"]["disk"] => {
                    Err(Rejection::invalid("spec.disk", "", "must not change"))
                }
                _ => Ok(()),
            })
            .validate_deletion(|_, vm| {
                if vm["spec"]["cores"] == 7 { Err(Rejection::forbidden("seven is kept")) } else { Ok(()) }
            });
        AdmissionReviewer::new([vms]).unwrap()
    }

    /// A case: the fields of the request, and the response without its `uid`. The patch is compared as operations.
    struct ReviewCase {
        name: &'static str,
        stage: ReviewStage,
        request: Value,
        response: Value,
        patch: Value,
    }

    fn run(case: &ReviewCase) {
        let mut request = json!({
            "uid": "u-1", "operation": "CREATE", "kind": {"group": "example.com", "version": "v1", "kind": "Vm"},
            "namespace": "default", "name": "a", "userInfo": {"username": "eve", "groups": ["g"]},
        });
        for (name, value) in case.request.as_object().unwrap() {
            request[name.as_str()] = value.clone();
        }
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let answer = match case.stage {
            ReviewStage::Mutate => reviewer().mutate(&review),
            ReviewStage::Validate => reviewer().validate(&review),
        };
        let mut response = answer["response"].clone();
        assert_eq!((&answer["kind"], &response["uid"]), (&json!("AdmissionReview"), &json!("u-1")), "{}", case.name);
        let fields = response.as_object_mut().unwrap();
        fields.remove("uid");
        let patch = fields.remove("patch").map_or(Value::Null, |patch| {
            let text = BASE64_STANDARD.decode(patch.as_str().unwrap()).unwrap();
            serde_json::from_slice(&text).unwrap()
        });
        assert_eq!(patch, case.patch, "{}", case.name);
        assert_eq!(response, case.response, "{}", case.name);
    }

    #[test]
    fn reviews_follow_the_table() {
        let vm = |cores: i64, disk: &str| json!({"spec": {"cores": cores, "disk": disk, "owner": "eve"}});
        let allowed = || json!({"allowed": true});
        let refused = |code: u16, reason: &str, message: &str| json!({"allowed": false, "status": {"code": code, "reason": reason, "message": message}});
        let invalid = |field: &str, message: &str| {
            let cause = json!({"reason": "FieldValueInvalid", "message": message, "field": field});
            let mut response = refused(422, "Invalid", &format!("{field}: {message}"));
            response["status"]["details"] = json!({"causes": [cause]});
            response
        };
        let cases = [
            ReviewCase {
                name: "defaults, hooks and pruning become a patch",
                stage: ReviewStage::Mutate,
                request: json!({"object": {"spec": {"cores": 1, "coers": 2}}}),
                response: json!({
                    "allowed": true, "patchType": "JSONPatch", "warnings": ["unknown field \"spec.coers\""],
                }),
                patch: json!([
                    {"op": "add", "path": "/spec/disk", "value": "ssd"},
                    {"op": "add", "path": "/spec/owner", "value": "eve"},
                    {"op": "remove", "path": "/spec/coers"},
                ]),
            },
            ReviewCase {
                name: "an object without changes has no patch",
                stage: ReviewStage::Mutate,
                request: json!({"object": vm(1, "ssd")}),
                response: allowed(),
                patch: Value::Null,
            },
            ReviewCase {
                name: "a validating call changes nothing",
                stage: ReviewStage::Validate,
                request: json!({"object": {"spec": {"cores": 1}}}),
                response: allowed(),
                patch: Value::Null,
            },
            ReviewCase {
                name: "the schema is checked",
                stage: ReviewStage::Validate,
                request: json!({"object": vm(0, "ssd")}),
                response: invalid("spec.cores", "Invalid value: 0: must be at least 1"),
                patch: Value::Null,
            },
            ReviewCase {
                name: "hooks compare with the old object",
                stage: ReviewStage::Validate,
                request: json!({"operation": "UPDATE", "object": vm(1, "tape"), "oldObject": vm(1, "ssd")}),
                response: invalid("spec.disk", "Invalid value: must not change"),
                patch: Value::Null,
            },
            ReviewCase {
                name: "a deletion is refused",
                stage: ReviewStage::Validate,
                request: json!({"operation": "DELETE", "object": null, "oldObject": vm(7, "ssd")}),
                response: refused(403, "Forbidden", "seven is kept"),
                patch: Value::Null,
            },
            ReviewCase {
                name: "a mutating call does not refuse a deletion",
                stage: ReviewStage::Mutate,
                request: json!({"operation": "DELETE", "object": null, "oldObject": vm(7, "ssd")}),
                response: allowed(),
                patch: Value::Null,
            },
            ReviewCase {
                name: "an unknown kind is allowed",
                stage: ReviewStage::Validate,
                request: json!({"kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": {"spec": {"cores": 0}}}),
                response: allowed(),
                patch: Value::Null,
            },
            ReviewCase {
                name: "another subresource is allowed",
                stage: ReviewStage::Validate,
                request: json!({"subResource": "scale", "object": vm(0, "ssd")}),
                response: allowed(),
                patch: Value::Null,
            },
        ];
        cases.iter().for_each(run);
    }

    #[test]
    fn a_body_that_is_no_review_is_refused() {
        for body in
            [json!({}), json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {}})]
        {
            let answer = reviewer().validate(&body);
            assert_eq!(
                (&answer["response"]["allowed"], &answer["response"]["status"]["code"]),
                (&json!(false), &json!(400))
            );
        }
    }
}
