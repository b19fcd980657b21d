//! Glob imports of the public modules hide no method of a caller's value.

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
#[allow(unused_imports, reason = "only the imports matter: they must hide nothing")]
fn glob_imports_of_all_modules_leave_common_method_names_alone() {
    use homeostat::*;
    use homeostat_objects::sub::*;
    use homeostat_objects::*;
    use homeostat_testing::*;

    let plain = Plain;
    let numbers = [plain.boxed(), plain.is_equal(&Plain), plain.type_name(), plain.sample(), plain.stash()];
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}
