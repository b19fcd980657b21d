//! The fields of the supported messages, with numbers and forms from the definitions of Kubernetes.

/// The form of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum FieldForm {
    /// A text. Empty means missing.
    Text,
    /// A text that may be empty.
    OptionalText,
    /// A number. Zero means missing.
    Number,
    /// A number that may be zero.
    OptionalNumber,
    /// A boolean.
    Flag,
    /// A time with a resolution of one second.
    Time,
    /// A time with a resolution of one microsecond.
    MicroTime,
    /// Several texts.
    List,
    /// A map from text to text.
    Texts,
    /// A map from text to bytes, which are base64 in JSON.
    Bytes,
    /// A message with a single field that contains JSON text.
    Json,
    /// A message with these fields.
    Message(MessageFields),
    /// Several messages with these fields.
    Messages(MessageFields),
    /// The server ignores the value.
    Ignored,
}

use FieldForm::{
    Bytes, Flag, Ignored, Json, List, Message, Messages, MicroTime, Number, OptionalNumber, OptionalText, Text, Texts,
    Time,
};

/// The fields of a message, each with its number, name and form.
pub(super) type MessageFields = &'static [(u64, &'static str, FieldForm)];

/// Returns the fields of a kind, or `None` if the kind is not supported.
pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<MessageFields> {
    Some(match (api_version, kind) {
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Event") => CORE_EVENT,
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "Secret") => SECRET,
        ("v1", "Status") => STATUS,
        ("coordination.k8s.io/v1", "Lease") => LEASE,
        ("events.k8s.io/v1", "Event") => EVENT,
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => ACCESS_REVIEW,
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => RULES_REVIEW,
        ("authentication.k8s.io/v1", "SelfSubjectReview") => SUBJECT_REVIEW,
        // Clients send the options in the group of the deleted object.
        (_, "DeleteOptions") => DELETE_OPTIONS,
        _ => return None,
    })
}

const METADATA: MessageFields = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (4, "selfLink", Ignored),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Number),
    (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time),
    (10, "deletionGracePeriodSeconds", OptionalNumber),
    (11, "labels", Texts),
    (12, "annotations", Texts),
    (13, "ownerReferences", Messages(OWNER_REFERENCE)),
    (14, "finalizers", List),
    (17, "managedFields", Messages(MANAGED_FIELDS)),
];

const OWNER_REFERENCE: MessageFields = &[
    (1, "kind", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "controller", Flag),
    (7, "blockOwnerDeletion", Flag),
];

const MANAGED_FIELDS: MessageFields = &[
    (1, "manager", Text),
    (2, "operation", Text),
    (3, "apiVersion", Text),
    (4, "time", Time),
    (6, "fieldsType", Text),
    (7, "fieldsV1", Json),
    (8, "subresource", Text),
];

/// The metadata of a list.
pub(super) const LIST_METADATA: MessageFields = &[
    (1, "selfLink", Ignored),
    (2, "resourceVersion", Text),
    (3, "continue", Text),
    (4, "remainingItemCount", OptionalNumber),
];

const CONFIG_MAP: MessageFields =
    &[(1, "metadata", Message(METADATA)), (2, "data", Texts), (3, "binaryData", Bytes), (4, "immutable", Flag)];

const SECRET: MessageFields = &[
    (1, "metadata", Message(METADATA)),
    (2, "data", Bytes),
    (3, "type", Text),
    (4, "stringData", Texts),
    (5, "immutable", Flag),
];

const NAMESPACE: MessageFields = &[
    (1, "metadata", Message(METADATA)),
    (2, "spec", Message(&[(1, "finalizers", List)])),
    (3, "status", Message(&[(1, "phase", Text), (2, "conditions", Ignored)])),
];

const LEASE: MessageFields = &[
    (1, "metadata", Message(METADATA)),
    (
        2,
        "spec",
        Message(&[
            (1, "holderIdentity", OptionalText),
            (2, "leaseDurationSeconds", OptionalNumber),
            (3, "acquireTime", MicroTime),
            (4, "renewTime", MicroTime),
            (5, "leaseTransitions", OptionalNumber),
            (6, "strategy", OptionalText),
            (7, "preferredHolder", OptionalText),
        ]),
    ),
];

const CORE_EVENT: MessageFields = &[
    (1, "metadata", Message(METADATA)),
    (2, "involvedObject", Message(OBJECT_REFERENCE)),
    (3, "reason", Text),
    (4, "message", Text),
    (5, "source", Message(EVENT_SOURCE)),
    (6, "firstTimestamp", Time),
    (7, "lastTimestamp", Time),
    (8, "count", Number),
    (9, "type", Text),
    (10, "eventTime", MicroTime),
    (11, "series", Message(EVENT_SERIES)),
    (12, "action", Text),
    (13, "related", Message(OBJECT_REFERENCE)),
    (14, "reportingComponent", Text),
    (15, "reportingInstance", Text),
];

const EVENT: MessageFields = &[
    (1, "metadata", Message(METADATA)),
    (2, "eventTime", MicroTime),
    (3, "series", Message(EVENT_SERIES)),
    (4, "reportingController", Text),
    (5, "reportingInstance", Text),
    (6, "action", Text),
    (7, "reason", Text),
    (8, "regarding", Message(OBJECT_REFERENCE)),
    (9, "related", Message(OBJECT_REFERENCE)),
    (10, "note", Text),
    (11, "type", Text),
    (12, "deprecatedSource", Message(EVENT_SOURCE)),
    (13, "deprecatedFirstTimestamp", Time),
    (14, "deprecatedLastTimestamp", Time),
    (15, "deprecatedCount", Number),
];

const EVENT_SERIES: MessageFields = &[(1, "count", Number), (2, "lastObservedTime", MicroTime), (3, "state", Ignored)];

const EVENT_SOURCE: MessageFields = &[(1, "component", Text), (2, "host", Text)];

const OBJECT_REFERENCE: MessageFields = &[
    (1, "kind", Text),
    (2, "namespace", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "resourceVersion", Text),
    (7, "fieldPath", Text),
];

const STATUS: MessageFields = &[
    (1, "metadata", Message(LIST_METADATA)),
    (2, "status", Text),
    (3, "message", Text),
    (4, "reason", Text),
    (
        5,
        "details",
        Message(&[
            (1, "name", Text),
            (2, "group", Text),
            (3, "kind", Text),
            (4, "causes", Messages(&[(1, "reason", Text), (2, "message", Text), (3, "field", Text)])),
            (5, "retryAfterSeconds", Number),
            (6, "uid", Text),
        ]),
    ),
    (6, "code", Number),
];

const DELETE_OPTIONS: MessageFields = &[
    (1, "gracePeriodSeconds", OptionalNumber),
    (2, "preconditions", Message(&[(1, "uid", OptionalText), (2, "resourceVersion", OptionalText)])),
    (3, "orphanDependents", Flag),
    (4, "propagationPolicy", OptionalText),
    (5, "dryRun", List),
    (6, "ignoreStoreReadErrorWithClusterBreakingPotential", Flag),
];

const ACCESS_REVIEW: MessageFields = &[
    (1, "metadata", Message(METADATA)),
    (
        2,
        "spec",
        Message(&[
            (
                1,
                "resourceAttributes",
                Message(&[
                    (1, "namespace", Text),
                    (2, "verb", Text),
                    (3, "group", Text),
                    (4, "version", Text),
                    (5, "resource", Text),
                    (6, "subresource", Text),
                    (7, "name", Text),
                    (8, "fieldSelector", Ignored),
                    (9, "labelSelector", Ignored),
                ]),
            ),
            (2, "nonResourceAttributes", Message(&[(1, "path", Text), (2, "verb", Text)])),
        ]),
    ),
    (3, "status", Ignored),
];

const RULES_REVIEW: MessageFields =
    &[(1, "metadata", Message(METADATA)), (2, "spec", Message(&[(1, "namespace", Text)])), (3, "status", Ignored)];

const SUBJECT_REVIEW: MessageFields = &[(1, "metadata", Message(METADATA)), (2, "status", Ignored)];
