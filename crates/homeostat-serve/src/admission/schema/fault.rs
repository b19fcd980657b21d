//! Faults in values.

use std::fmt;

use serde_json::Value;

use homeostat::rt::bounded;

/// The reason of a [`FieldFault`], under its name in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FaultReason {
    Duplicate,
    Invalid,
    NotSupported,
    Required,
    TooLong,
    TooMany,
    WrongType,
}

/// A field that violates a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FieldFault {
    /// The path of the field. Empty for the whole object.
    pub(crate) field: String,
    pub(crate) reason: FaultReason,
    /// The reason, the value and the rule.
    pub(crate) message: String,
}

impl FaultReason {
    /// Returns the reason as it appears in a cause of a `Status`.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::WrongType => "FieldValueTypeInvalid",
        }
    }

    /// Returns the words at the start of a message.
    fn words(self) -> &'static str {
        match self {
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::WrongType => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Required => "Required value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

impl FieldFault {
    /// Creates the fault of a value.
    pub(crate) fn new(field: &str, reason: FaultReason, value: &Value, rule: impl fmt::Display) -> Self {
        let words = reason.words();
        let message = match reason {
            FaultReason::Required | FaultReason::TooLong | FaultReason::TooMany => format!("{words}: {rule}"),
            _ => format!("{words}: {}: {rule}", bounded(value.to_string())),
        };
        Self { field: bounded(field.to_owned()), reason, message }
    }

    /// Creates the fault of a field, given its value as text.
    pub(crate) fn of_text(field: &str, value: &str, rule: &str) -> Self {
        let message = match value {
            "" => format!("Invalid value: {rule}"),
            value => format!("Invalid value: {:?}: {rule}", bounded(value.to_owned())),
        };
        Self { field: bounded(field.to_owned()), reason: FaultReason::Invalid, message }
    }
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.field, self.message) }
    }
}
