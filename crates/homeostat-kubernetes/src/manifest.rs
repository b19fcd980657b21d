//! Manifests: objects in the text form that `kubectl apply` reads.

use serde_json::Value;

/// Returns the objects as YAML documents. Each begins with `---`, so several texts can be joined to one file.
///
/// # Examples
///
/// ```
/// use homeostat_kubernetes::to_yaml;
/// use serde_json::json;
///
/// let objects = [json!({"apiVersion": "v1", "kind": "Namespace"}), json!({"kind": "List", "items": ["yes"]})];
/// assert_eq!(to_yaml(&objects), "---\napiVersion: v1\nkind: Namespace\n---\nitems:\n- \"yes\"\nkind: List\n");
/// ```
pub fn to_yaml<'a>(objects: impl IntoIterator<Item = &'a Value>) -> String {
    let documents = objects.into_iter().flat_map(|object| ["---\n".to_owned(), yaml_of(object)]);
    documents.collect()
}

/// Returns a value as YAML, without a `---` line.
pub(super) fn yaml_of(value: &Value) -> String {
    // JSON is YAML too.
    serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value}\n"))
}
