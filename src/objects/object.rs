//! Objects: what has a kind, metadata and perhaps a status, and is JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::{ClientError, ObjectRef};
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::{ObjectMeta, OwnerReference};

/// A type of objects: what has a kind, metadata and perhaps a status, and is written as JSON.
///
/// The macro [`object!`](crate::object) writes these lines for a type with a field `metadata`, and perhaps one `status`. The JSON
/// need not hold `apiVersion` and `kind`: they are added from [`kind`](Self::kind) where it is written. For objects whose
/// kind is known only as the program runs there is [`DynamicObject`](super::DynamicObject).
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Kind, Object, ObjectMeta};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Vm {
///     metadata: ObjectMeta,
///     cores: u32,
/// }
///
/// impl Object for Vm {
///     const KIND: Kind = Kind::namespaced("example.com", "v1", "Vm");
///     type Status = ();
///
///     fn meta(&self) -> &ObjectMeta {
///         &self.metadata
///     }
///     fn meta_mut(&mut self) -> &mut ObjectMeta {
///         &mut self.metadata
///     }
/// }
///
/// let vm = Vm { metadata: ObjectMeta::new("default", "vm-1"), cores: 4 };
/// assert_eq!(vm.key().to_string(), "default/vm-1");
/// assert_eq!(vm.to_json()?["kind"], "Vm");
/// # Ok::<_, homeostat::objects::ClientError>(())
/// ```
pub trait Object: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The kind of all objects of this type.
    const KIND: Kind;

    /// What is seen of the object, beside what is wanted of it; `()` if it has none.
    type Status: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Its metadata.
    fn meta(&self) -> &ObjectMeta;

    /// Its metadata, to be changed.
    fn meta_mut(&mut self) -> &mut ObjectMeta;

    /// Its status, if it has one.
    fn status(&self) -> Option<&Self::Status> {
        None
    }

    /// Its status, to be changed; made, if it may have one.
    fn status_mut(&mut self) -> Option<&mut Self::Status> {
        None
    }

    /// The kind of this object.
    #[must_use]
    fn kind(&self) -> Kind {
        Self::KIND
    }

    /// Its namespace and name.
    #[must_use]
    fn key(&self) -> ObjectKey {
        self.meta().key()
    }

    /// What names it in errors and log lines.
    #[must_use]
    fn object_ref(&self) -> ObjectRef {
        ObjectRef::new(&self.kind(), &self.key())
    }

    /// What an object that belongs to this one has among its owners.
    #[must_use]
    fn owner_reference(&self) -> OwnerReference {
        let meta = self.meta();
        OwnerReference::new(&self.kind(), &*meta.name, &*meta.uid)
    }

    /// What an object that this one manages has among its owners. A foreground deletion of this one waits for it.
    #[must_use]
    fn controller_reference(&self) -> OwnerReference {
        self.owner_reference().controller(true).block_owner_deletion(true)
    }

    /// Its JSON, `apiVersion` and `kind` included.
    ///
    /// # Errors
    ///
    /// [`ClientError::Invalid`], if it cannot be written as JSON, or not as an object.
    fn to_json(&self) -> Result<Value, ClientError> {
        let kind = self.kind();
        let invalid = |rule: String| ClientError::invalid(self.object_ref(), "", "", rule);
        let mut json = serde_json::to_value(self).map_err(|error| invalid(error.to_string()))?;
        let fields = json.as_object_mut().ok_or_else(|| invalid("must be a JSON object".to_owned()))?;
        fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
        fields.entry("kind").or_insert_with(|| kind.name().into());
        Ok(json)
    }

    /// The object of this JSON.
    ///
    /// # Errors
    ///
    /// [`ClientError::Invalid`], if it is not JSON of this type.
    fn from_json(json: &Value) -> Result<Self, ClientError> {
        Self::deserialize(json).map_err(|error| {
            let kind = if Self::KIND == Kind::UNKNOWN { super::json::kind_of(json) } else { Self::KIND };
            ClientError::invalid(ObjectRef::new(&kind, &super::json::key_of(json)), "", "", error.to_string())
        })
    }
}

/// Implements [`Object`] for a type with a field `metadata`, and perhaps a field `status`.
///
/// `object!(Type, namespaced | cluster, "group", "version")`, the kind having the name of the type; `kind: "Kind"` and
/// `status: Type` may follow, in this order. The field `status` is of that type, or an `Option` of it.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Object, ObjectMeta};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Vm {
///     metadata: ObjectMeta,
///     cores: u32,
///     #[serde(default)]
///     status: VmStatus,
/// }
///
/// #[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
/// struct VmStatus {
///     ready: bool,
/// }
///
/// homeostat::object!(Vm, namespaced, "example.com", "v1", kind: "VirtualMachine", status: VmStatus);
///
/// assert_eq!(Vm::KIND.to_string(), "VirtualMachine.example.com/v1");
/// ```
#[macro_export]
macro_rules! object {
    ($type:ty, $scope:ident, $group:literal, $version:literal $(, status: $status:ty)? $(,)?) => {
        $crate::object!($type, $scope, $group, $version, kind: stringify!($type) $(, status: $status)?);
    };
    ($type:ty, $scope:ident, $group:literal, $version:literal, kind: $kind:expr $(,)?) => {
        impl $crate::objects::Object for $type {
            const KIND: $crate::objects::Kind = $crate::objects::Kind::$scope($group, $version, $kind);
            type Status = ();

            fn meta(&self) -> &$crate::objects::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut $crate::objects::ObjectMeta {
                &mut self.metadata
            }
        }
    };
    ($type:ty, $scope:ident, $group:literal, $version:literal, kind: $kind:expr, status: $status:ty $(,)?) => {
        impl $crate::objects::Object for $type {
            const KIND: $crate::objects::Kind = $crate::objects::Kind::$scope($group, $version, $kind);
            type Status = $status;

            fn meta(&self) -> &$crate::objects::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut $crate::objects::ObjectMeta {
                &mut self.metadata
            }

            fn status(&self) -> Option<&$status> {
                $crate::objects::StatusField::status_field(&self.status)
            }

            fn status_mut(&mut self) -> Option<&mut $status> {
                Some($crate::objects::StatusField::status_field_mut(&mut self.status))
            }
        }
    };
}

/// A field `status` of an [`object!`](crate::object): the status, or an `Option` of it.
///
/// The trait holds for every type, so its methods have names that no other type uses: a glob import shadows nothing.
pub trait StatusField<S> {
    /// The status, if there is one.
    fn status_field(&self) -> Option<&S>;
    /// The status, made if there is none.
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
