//! Glob imports of the public modules hide no method of a caller's value.

use std::collections::HashMap;
use std::sync::Arc;

/// Method names of other crates, on a type to which all blanket implementations apply.
trait Common {
    fn boxed(&self) -> u8 {
        1
    }
    fn is_equal(&self, _other: &Self) -> u8 {
        2
    }
    fn type_name(&self) -> u8 {
        3
    }
    fn sample(&self) -> u8 {
        4
    }
    fn stash(&self) -> u8 {
        5
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Plain;

impl Common for Plain {}

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

#[test]
#[allow(unused_imports, reason = "only the imports matter: they must hide nothing")]
fn glob_imports_of_all_modules_leave_common_method_names_alone() {
    use homeostat::*;
    use homeostat_objects::sub::*;
    use homeostat_objects::*;
    #[cfg(feature = "testing")]
    use homeostat_testing::*;

    let plain = Plain;
    let numbers = [plain.boxed(), plain.is_equal(&Plain), plain.type_name(), plain.sample(), plain.stash()];
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}
