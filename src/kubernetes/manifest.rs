//! Manifests: objects as the text that `kubectl apply` reads.

use serde_json::Value;

/// Returns the objects as YAML documents.
///
/// # Examples
///
/// ```
/// use homeostat::kubernetes::to_yaml;
/// use serde_json::json;
///
/// let objects = [json!({"apiVersion": "v1", "kind": "Namespace"}), json!({"kind": "List", "items": ["yes"]})];
/// assert_eq!(to_yaml(&objects), "apiVersion: v1\nkind: Namespace\n---\nitems:\n- \"yes\"\nkind: List\n");
/// ```
pub fn to_yaml<'a>(objects: impl IntoIterator<Item = &'a Value>) -> String {
    // JSON is YAML too.
    let document = |object: &Value| serde_saphyr::to_string(object).unwrap_or_else(|_| format!("{object}\n"));
    objects.into_iter().map(document).collect::<Vec<_>>().join("---\n")
}
