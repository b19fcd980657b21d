//! The trait of object types, and the macro that implements it.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::{ClientError, ObjectRef};
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::{ObjectMeta, OwnerReference};
use super::meta_mut::MetaMut;
use super::shared::SharedObject;

/// A type of objects with a kind, metadata and optionally a status. Objects are read from JSON and written as JSON.
///
/// The macro [`object!`](crate::object!) implements the trait for a type with a field `metadata`, and optionally a
/// field `status`. The JSON of the type need not contain `apiVersion` and `kind`: [`to_json`](Self::to_json) adds them.
/// If the kind is known only at run time, use [`DynamicObject`](super::DynamicObject). With the feature `k8s-openapi`,
/// the types of that crate, such as `Deployment`, implement the trait.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Kind, MetaMut, Object, ObjectMeta};
/// use serde::{Deserialize, Serialize};
/// use std::borrow::Cow;
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Vm {
///     metadata: ObjectMeta,
///     cores: u32,
/// }
///
/// impl Object for Vm {
///     const KIND: Kind = Kind::namespaced("example.com", "v1", "Vm");
///     type Status = ();
///
///     fn meta(&self) -> Cow<'_, ObjectMeta> {
///         Cow::Borrowed(&self.metadata)
///     }
///     fn meta_mut(&mut self) -> MetaMut<'_> {
///         (&mut self.metadata).into()
///     }
/// }
///
/// let vm = Vm { metadata: ObjectMeta::new("default", "vm-1"), cores: 4 };
/// assert_eq!(vm.key().to_string(), "default/vm-1");
/// assert_eq!(vm.to_json()?["kind"], "Vm");
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
pub trait Object: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The kind of all objects of this type.
    const KIND: Kind;

    /// The type of the status; `()` if the objects have no status.
    type Status: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Returns the metadata. If the type has a field for it, borrows the field; a
    /// [`DynamicObject`](super::DynamicObject) as it was read builds it.
    fn meta(&self) -> Cow<'_, ObjectMeta>;

    /// Returns the metadata for changes. Dropping the result completes the changes.
    fn meta_mut(&mut self) -> MetaMut<'_>;

    /// Returns the status; `None` if it is not set.
    fn status(&self) -> Option<Cow<'_, Self::Status>> {
        None
    }

    /// Returns the status for changes, created if necessary; `None` if objects of this type have no status.
    fn status_mut(&mut self) -> Option<&mut Self::Status> {
        None
    }

    /// Returns the kind of this object.
    #[must_use]
    fn kind(&self) -> Kind {
        Self::KIND
    }

    /// Returns the namespace and name.
    #[must_use]
    fn key(&self) -> ObjectKey {
        self.meta().key()
    }

    /// Returns whether two objects have the same version.
    #[must_use]
    fn has_version_of(&self, other: &Self) -> bool {
        self.meta().resource_version == other.meta().resource_version
    }

    /// Reduces the memory that the object takes, without changing its content. The default does nothing.
    ///
    /// A watch calls it after a [transformation](super::ObjectWatch::transform).
    fn compact(&mut self) {}

    /// Returns the kind and key, for errors and log lines.
    #[must_use]
    fn object_ref(&self) -> ObjectRef {
        ObjectRef::new(&self.kind(), &self.key())
    }

    /// Returns a reference to this object as an owner.
    #[must_use]
    fn owner_reference(&self) -> OwnerReference {
        let meta = self.meta();
        OwnerReference::new(&self.kind(), &*meta.name, &*meta.uid)
    }

    /// Returns a reference to this object as the owner that manages another object. A foreground deletion of this
    /// object waits for the other.
    #[must_use]
    fn controller_reference(&self) -> OwnerReference {
        self.owner_reference().controller(true).block_owner_deletion(true)
    }

    /// Returns the JSON of the object, with `apiVersion` and `kind`.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ClientErrorKind::Invalid) if the value cannot be written as a JSON object.
    fn to_json(&self) -> Result<Value, ClientError> {
        let kind = self.kind();
        let invalid = |rule: String| ClientError::invalid(self.object_ref(), "", "", rule);
        let mut json = serde_json::to_value(self).map_err(|error| invalid(error.to_string()))?;
        let fields = json.as_object_mut().ok_or_else(|| invalid("must be a JSON object".to_owned()))?;
        fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
        fields.entry("kind").or_insert_with(|| kind.name().into());
        Ok(json)
    }

    /// Reads an object that a client has returned.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ClientErrorKind::Invalid) if the JSON does not match the type.
    fn from_shared(object: &SharedObject) -> Result<Self, ClientError> {
        read(object, &Self::KIND)
    }
}

/// Reads an object of this kind into a type.
pub(super) fn read<T: DeserializeOwned>(object: &SharedObject, kind: &Kind) -> Result<T, ClientError> {
    let invalid =
        |error: serde_json::Error| ClientError::invalid(ObjectRef::new(kind, &object.key()), "", "", error.to_string());
    object.to_typed().map_err(invalid)
}

/// Implements [`Object`] for a type with a field `metadata`, and optionally a field `status`.
///
/// Write `object!(Type, namespaced | cluster, "group", "version")`. The kind has the name of the type, unless
/// `kind: "Kind"` follows. If the type has a field `status`, `status: Type` follows as the last argument; the field has
/// the type `Type` or `Option<Type>`.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Object, ObjectMeta};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Vm {
///     metadata: ObjectMeta,
///     cores: u32,
///     #[serde(default)]
///     status: VmStatus,
/// }
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
/// struct VmStatus {
///     ready: bool,
/// }
///
/// homeostat_objects::object!(Vm, namespaced, "example.com", "v1", kind: "VirtualMachine", status: VmStatus);
///
/// assert_eq!(Vm::KIND.to_string(), "VirtualMachine.example.com/v1");
/// ```
///
/// With the feature `k8s-openapi` the field `metadata` can have the type of `k8s-openapi`. Then the macro also works
/// for a type that kube-rs derives with `#[derive(CustomResource)]`:
///
/// ```
/// # #[cfg(feature = "k8s-openapi")]
/// # mod derived {
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Site {
///     metadata: ObjectMeta,
///     spec: String,
/// }
///
/// homeostat_objects::object!(Site, namespaced, "example.com", "v1");
/// # }
/// ```
#[macro_export]
macro_rules! object {
    ($type:ty, $scope:ident, $group:literal, $version:literal $(, status: $status:ty)? $(,)?) => {
        $crate::object!($type, $scope, $group, $version, kind: stringify!($type) $(, status: $status)?);
    };
    ($type:ty, $scope:ident, $group:literal, $version:literal, kind: $kind:expr $(,)?) => {
        impl $crate::Object for $type {
            const KIND: $crate::Kind = $crate::Kind::$scope($group, $version, $kind);
            type Status = ();

            fn meta(&self) -> ::std::borrow::Cow<'_, $crate::ObjectMeta> {
                $crate::MetaField::meta_field(&self.metadata)
            }

            fn meta_mut(&mut self) -> $crate::MetaMut<'_> {
                $crate::MetaField::meta_field_mut(&mut self.metadata)
            }
        }
    };
    ($type:ty, $scope:ident, $group:literal, $version:literal, kind: $kind:expr, status: $status:ty $(,)?) => {
        impl $crate::Object for $type {
            const KIND: $crate::Kind = $crate::Kind::$scope($group, $version, $kind);
            type Status = $status;

            fn meta(&self) -> ::std::borrow::Cow<'_, $crate::ObjectMeta> {
                $crate::MetaField::meta_field(&self.metadata)
            }

            fn meta_mut(&mut self) -> $crate::MetaMut<'_> {
                $crate::MetaField::meta_field_mut(&mut self.metadata)
            }

            fn status(&self) -> Option<::std::borrow::Cow<'_, $status>> {
                $crate::StatusField::status_field(&self.status).map(::std::borrow::Cow::Borrowed)
            }

            fn status_mut(&mut self) -> Option<&mut $status> {
                Some($crate::StatusField::status_field_mut(&mut self.status))
            }
        }
    };
}

/// The field `status` of an [`object!`](crate::object!): `S` or `Option<S>`. Only the macro calls its methods.
///
/// Every type implements this trait, so its methods have unusual names: a glob import hides no other method.
pub trait StatusField<S> {
    /// Returns the status; `None` if it is not set.
    fn status_field(&self) -> Option<&S>;
    /// Returns the status for changes, created if it is not set.
    fn status_field_mut(&mut self) -> &mut S;
}

impl<S> StatusField<S> for S {
    fn status_field(&self) -> Option<&S> {
        Some(self)
    }

    fn status_field_mut(&mut self) -> &mut S {
        self
    }
}

impl<S: Default> StatusField<S> for Option<S> {
    fn status_field(&self) -> Option<&S> {
        self.as_ref()
    }

    fn status_field_mut(&mut self) -> &mut S {
        self.get_or_insert_default()
    }
}
