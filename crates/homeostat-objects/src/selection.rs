//! The objects that a controller reconciles.

use crate::{Api, ClientError, Ignore, Object, ObjectKey, Query, changes_beside_status};
use homeostat::watch::Predicate;

/// The objects that a controller reconciles, and the events that enqueue them.
pub(crate) struct Selection<T> {
    pub(crate) query: Query,
    pub(crate) events: Predicate<ObjectKey, T>,
}

/// The object with a key, as the controller sees it.
pub(crate) enum Selected<T> {
    Object(T),
    /// The client has no such object.
    Gone,
    /// The object with this key is outside the selection, or every such object would be.
    Other,
}

impl<T: Object> Selection<T> {
    pub(crate) fn get(&self, api: &Api<T>, key: &ObjectKey) -> Result<Selected<T>, ClientError> {
        // An object outside the selection must not count as gone.
        if !self.query.may_select(key) {
            return Ok(Selected::Other);
        }
        Ok(match api.get(key).ignore_not_found()? {
            None => Selected::Gone,
            Some(object) if self.query.selects_object(&object)? => Selected::Object(object),
            Some(_) => Selected::Other,
        })
    }
}

impl<T: Object> Default for Selection<T> {
    fn default() -> Self {
        Self { query: Query::all(), events: changes_beside_status() }
    }
}

/// The settings of a selection, for a builder with a field `selection`.
macro_rules! selection_settings {
    ($controller:ident, $namespace:literal) => {
        impl<T: Object> $controller<T> {
            /// Reconciles only the objects in this namespace.
            ///
            #[doc = $namespace]
            ///
            /// Without this setting the program needs permission to list and watch in all namespaces.
            pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
                self.selection.query = self.selection.query.namespace(namespace);
                self
            }

            /// Reconciles only the objects that this selector selects. An object that leaves the selection stays as it
            /// is, with its dependents.
            pub fn labels(mut self, labels: $crate::LabelSelector) -> Self {
                self.selection.query = self.selection.query.labels(labels);
                self
            }

            /// Chooses which events of the objects enqueue their keys. Default: all except a change of the status
            /// alone. See [`changes_beside_status`]($crate::changes_beside_status).
            pub fn when(mut self, events: homeostat::watch::Predicate<ObjectKey, T>) -> Self {
                self.selection.events = events;
                self
            }
        }
    };
}
pub(crate) use selection_settings;
