//! Clients of tests around other ones: what they have nothing to say about they hand on.

use std::sync::Arc;

use homeostat::objects::ClientError;
use serde_json::Value;

pub(crate) type Answer = Result<Arc<Value>, ClientError>;

/// In an `impl Client`: these methods are those of the client in this field.
macro_rules! hand_on {
    ($this:ident.$inner:tt: $($method:ident),+) => {
        $($crate::clients::hand_on!(@$method $this $inner);)+
    };
    (@get $this:ident $inner:tt) => {
        fn get(&$this, kind: &homeostat::objects::Kind, key: &homeostat::objects::ObjectKey) -> $crate::clients::Answer {
            $this.$inner.get(kind, key)
        }
    };
    (@patch $this:ident $inner:tt) => {
        fn patch(
            &$this,
            kind: &homeostat::objects::Kind,
            key: &homeostat::objects::ObjectKey,
            patch: &homeostat::objects::Patch,
            target: homeostat::objects::PatchTarget,
        ) -> $crate::clients::Answer {
            $this.$inner.patch(kind, key, patch, target)
        }
    };
    (@apply $this:ident $inner:tt) => {
        fn apply(
            &$this,
            kind: &homeostat::objects::Kind,
            object: serde_json::Value,
            owner: &homeostat::objects::FieldOwner,
        ) -> $crate::clients::Answer {
            $this.$inner.apply(kind, object, owner)
        }
    };
    (@delete $this:ident $inner:tt) => {
        fn delete(
            &$this,
            kind: &homeostat::objects::Kind,
            key: &homeostat::objects::ObjectKey,
            options: &homeostat::objects::DeleteOptions,
        ) -> $crate::clients::Answer {
            $this.$inner.delete(kind, key, options)
        }
    };
    (@watch $this:ident $inner:tt) => {
        fn watch(
            &$this,
            kind: &homeostat::objects::Kind,
            query: &homeostat::objects::Query,
            from: Option<&str>,
            stop: &homeostat::CancellationToken,
        ) -> Result<homeostat::objects::ObjectStream, homeostat::objects::ClientError> {
            $this.$inner.watch(kind, query, from, stop)
        }
    };
    // `create`, `update` and `update_status`.
    (@$write:ident $this:ident $inner:tt) => {
        fn $write(&$this, kind: &homeostat::objects::Kind, object: serde_json::Value) -> $crate::clients::Answer {
            $this.$inner.$write(kind, object)
        }
    };
}
pub(crate) use hand_on;
