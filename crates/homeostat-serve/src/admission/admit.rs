//! Admits objects: removes unknown fields, fills in defaults, runs the hooks and checks the schema.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::hooks::{AdmissionHooks, AdmissionRequest, Rejection, ValidateHook};
use super::schema::{FieldFault, StructuralSchema};
use homeostat::rt::{one_line, panic_message};
use homeostat_objects::{ObjectKey, ObjectRef};

/// How to treat fields that the schema does not know. They are never stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    Ignore,
    #[default]
    Warn,
    Refuse,
}

/// An object that may be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Admitted {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// Why an object may not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionFailure {
    /// Some fields violate rules.
    Invalid(Vec<FieldFault>),
    /// The schema does not know these fields.
    UnknownFields(Vec<String>),
    Forbidden(String),
    /// A hook panicked.
    Panicked(String),
}

/// Admits an object with the schema and the hooks of its kind.
pub(crate) fn admit(
    schema: Option<&StructuralSchema>,
    hooks: &AdmissionHooks,
    request: &AdmissionRequest<'_>,
    mut object: Value,
    unknown: UnknownFields,
) -> Result<Admitted, AdmissionFailure> {
    let fit = |object: &mut Value| {
        schema.map_or_else(Vec::new, |schema| {
            let removed = schema.prune(object);
            schema.fill_in(object);
            removed
        })
    };
    let removed = fit(&mut object);
    let warnings = match unknown {
        UnknownFields::Refuse if !removed.is_empty() => return Err(AdmissionFailure::UnknownFields(removed)),
        UnknownFields::Warn => removed.iter().map(|path| format!("unknown field \"{path}\"")).collect(),
        _ => Vec::new(),
    };
    for hook in &hooks.mutate {
        guarded(request, || hook(request, &mut object))?;
    }
    if !hooks.mutate.is_empty() {
        fit(&mut object);
    }
    if let Some(schema) = schema {
        // A fault that is already stored must not block other changes, such as the removal of a finalizer.
        let faults = schema.faults(&object, request.old);
        if !faults.is_empty() {
            return Err(AdmissionFailure::Invalid(faults));
        }
    }
    validated(&hooks.validate, request, &object)?;
    Ok(Admitted { object, warnings })
}

/// Admits a deletion.
pub(crate) fn admit_deletion(
    hooks: &AdmissionHooks,
    request: &AdmissionRequest<'_>,
    object: &Value,
) -> Result<(), AdmissionFailure> {
    validated(&hooks.delete, request, object)
}

/// Runs all hooks, and collects the fields that they refuse.
fn validated(hooks: &[ValidateHook], request: &AdmissionRequest<'_>, object: &Value) -> Result<(), AdmissionFailure> {
    let mut faults = Vec::new();
    for hook in hooks {
        match guarded(request, || hook(request, object)) {
            Err(AdmissionFailure::Invalid(more)) => faults.extend(more),
            other => other?,
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(AdmissionFailure::Invalid(faults)) }
}

/// Calls a hook, and logs a panic in it.
fn guarded(
    request: &AdmissionRequest<'_>,
    hook: impl FnOnce() -> Result<(), Rejection>,
) -> Result<(), AdmissionFailure> {
    match catch_unwind(AssertUnwindSafe(hook)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Rejection::Forbidden(reason))) => Err(AdmissionFailure::Forbidden(reason)),
        Ok(Err(Rejection::Invalid(causes))) => {
            let faults = causes.iter().map(|cause| FieldFault::of_text(&cause.field, &cause.value, &cause.rule));
            Err(AdmissionFailure::Invalid(faults.collect()))
        }
        Err(panic) => {
            let key = ObjectKey::new(request.namespace, request.name);
            let object = one_line(ObjectRef::new(request.kind, &key));
            let (object, message) = (object.as_str(), panic_message(&*panic));
            log::error!(object, panic = message; "an admission hook of {object} panicked: {message}");
            Err(AdmissionFailure::Panicked(message.to_owned()))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

    use std::sync::Arc;

    use serde_json::json;

    use super::super::hooks::AdmissionOperation;
    use super::*;
    use crate::access::UserInfo;
    use homeostat_objects::Kind;

    const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");

    fn schema() -> StructuralSchema {
        let spec = json!({"type": "object", "required": ["cores"], "properties": {
            "cores": {"type": "integer", "minimum": 1}, "disk": {"type": "string", "default": "ssd"},
        }});
        StructuralSchema::new(&json!({"type": "object", "properties": {"spec": spec}})).unwrap()
    }

    fn run(
        hooks: &AdmissionHooks,
        old: Option<&Value>,
        spec: &Value,
        unknown: UnknownFields,
    ) -> Result<Admitted, AdmissionFailure> {
        let user = UserInfo::default();
        let operation = if old.is_some() { AdmissionOperation::Update } else { AdmissionOperation::Create };
        let request = AdmissionRequest {
            operation,
            kind: &VM,
            namespace: "default",
            name: "a",
            status: false,
            user: &user,
            old,
            dry_run: false,
        };
        admit(Some(&schema()), hooks, &request, json!({"spec": spec}), unknown)
    }

    #[test]
    fn unknown_fields_are_removed_with_a_warning_or_refused() {
        let spec = json!({"cores": 1, "coers": 2});
        let warned = run(&AdmissionHooks::default(), None, &spec, UnknownFields::Warn).unwrap();
        assert_eq!(warned.object, json!({"spec": {"cores": 1, "disk": "ssd"}}));
        assert_eq!(warned.warnings, ["unknown field \"spec.coers\""]);
        let silent = run(&AdmissionHooks::default(), None, &spec, UnknownFields::Ignore).unwrap();
        assert_eq!((silent.object, silent.warnings), (warned.object, vec![]));
        let refused = run(&AdmissionHooks::default(), None, &spec, UnknownFields::Refuse).unwrap_err();
        assert_eq!(refused, AdmissionFailure::UnknownFields(vec!["spec.coers".to_owned()]));
    }

    #[test]
    fn changes_of_hooks_are_pruned_and_checked_too() {
        let mut hooks = AdmissionHooks::default();
        hooks.mutate.push(Arc::new(|_, vm| {
            vm["spec"]["cores"] = json!(vm["spec"]["cores"].as_i64().unwrap_or_default() - 1);
            vm["spec"]["trace"] = json!(true);
            Ok(())
        }));
        let admitted = run(&hooks, None, &json!({"cores": 3}), UnknownFields::Refuse).unwrap();
        assert_eq!(admitted.object["spec"], json!({"cores": 2, "disk": "ssd"}));
        let Err(AdmissionFailure::Invalid(faults)) = run(&hooks, None, &json!({"cores": 1}), UnknownFields::Refuse)
        else {
            panic!("zero cores were admitted");
        };
        assert_eq!(faults[0].to_string(), "spec.cores: Invalid value: 0: must be at least 1");
    }

    #[test]
    fn a_stored_fault_does_not_prevent_other_changes() {
        let old = json!({"spec": {"cores": 0, "disk": "ssd"}});
        assert!(
            run(&AdmissionHooks::default(), Some(&old), &json!({"cores": 0, "disk": "tape"}), UnknownFields::Warn)
                .is_ok()
        );
        assert!(run(&AdmissionHooks::default(), Some(&old), &json!({"cores": -1}), UnknownFields::Warn).is_err());
        assert!(run(&AdmissionHooks::default(), None, &json!({"cores": 0}), UnknownFields::Warn).is_err());
    }

    #[test]
    fn faults_after_many_stored_ones_are_found() {
        let schema = StructuralSchema::new(&json!({"type": "object", "properties": {
            "numbers": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        }}));
        let schema = schema.unwrap();
        let numbers = |last: i64| json!({"numbers": vec![-1; 200].into_iter().chain([last]).collect::<Vec<i64>>()});
        let old = numbers(0);
        assert_eq!(schema.faults(&numbers(5), Some(&old)), []);
        let faults = schema.faults(&numbers(-5), Some(&old));
        assert_eq!(faults.iter().map(|fault| &*fault.field).collect::<Vec<_>>(), ["numbers[200]"]);
        // The number of other faults is still limited.
        assert_eq!(schema.faults(&json!({"numbers": vec![-2; 200]}), Some(&old)).len(), 50);
    }

    #[test]
    fn all_validate_hooks_run_and_a_panic_is_an_error() {
        let mut hooks = AdmissionHooks::default();
        hooks.validate.push(Arc::new(|_, _| {
            Err(Rejection::invalid("spec.a", "1", "must be 2").and("spec.b", "", "must be set"))
        }));
        hooks.validate.push(Arc::new(|_, _| Err(Cause::new("spec.c", "x", "must be y").into())));
        let Err(AdmissionFailure::Invalid(faults)) = run(&hooks, None, &json!({"cores": 1}), UnknownFields::Warn)
        else {
            panic!("faults were admitted");
        };
        assert_eq!(faults.iter().map(|fault| &*fault.field).collect::<Vec<_>>(), ["spec.a", "spec.b", "spec.c"]);
        hooks.validate.push(Arc::new(|_, _| Err(Rejection::forbidden("closed"))));
        let closed = run(&hooks, None, &json!({"cores": 1}), UnknownFields::Warn).unwrap_err();
        assert_eq!(closed, AdmissionFailure::Forbidden("closed".to_owned()));
        hooks.mutate.push(Arc::new(|_, _| panic!("oh no")));
        let panicked = run(&hooks, None, &json!({"cores": 1}), UnknownFields::Warn).unwrap_err();
        assert_eq!(panicked, AdmissionFailure::Panicked("oh no".to_owned()));
    }

    use homeostat_objects::Cause;
}
