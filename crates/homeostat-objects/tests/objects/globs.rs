//! Glob imports of the public modules hide no method of a caller's value.

use std::collections::HashMap;
use std::sync::Arc;

#[test]
fn a_glob_import_of_objects_leaves_get_to_the_client() {
    use homeostat_objects::*;

    let client = Arc::new(MemoryClient::new());
    let kind = Kind::of("v1", "ConfigMap");
    assert!(client.get(&kind, &ObjectKey::new("default", "a")).is_err_and(|error| error.is_not_found()));
    let shared: Arc<dyn Client> = client;
    assert!(shared.get(&kind, &ObjectKey::new("default", "a")).is_err());
    let api = Api::<DynamicObject>::of_kind(shared, kind);
    assert!(Arc::new(api).get(&ObjectKey::new("default", "a")).is_err());
    let mut numbers = Arc::new(HashMap::from([(1, 2)]));
    assert_eq!(numbers.get(&1), Some(&2));
    assert_eq!(Arc::get_mut(&mut numbers).and_then(|numbers| numbers.get_mut(&1)), Some(&mut 2));
}
