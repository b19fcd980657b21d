//! Values that earlier steps store for later steps. With the cases of reconciler.io's `stash/stash_test.go`.

use std::collections::BTreeMap;

use homeostat::BoxError;
use homeostat_objects::sub::{Flow, Sequence, Stash, StashError, StashKey, Stashed, SubContext, SubResult};

use crate::support::{Thing, config, spy, step};

const TEXT: StashKey<String> = StashKey::new("text");
const NUMBER: StashKey<i32> = StashKey::new("number");
const MAP: StashKey<BTreeMap<String, u8>> = StashKey::new("map");
/// A key with the same name as another one.
const OTHER: StashKey<String> = StashKey::new("number");
const NONE: StashKey<Option<u8>> = StashKey::new("none");

fn stash() -> Stash {
    Stash::new(Thing::reference())
}

fn comes_back<V: Stashed + Clone + PartialEq>(key: StashKey<V>, value: &V) {
    let stash = stash();
    assert!(stash.get(key).unwrap().is_none());
    stash.put(key, value.clone());
    assert!(stash.get(key).unwrap().as_ref() == Some(value) && stash.require(key).unwrap() == *value);
    assert!(stash.remove(key) && !stash.remove(key));
    assert!(matches!(stash.require(key), Err(StashError::Missing { .. })));
}

#[test]
fn returns_and_removes_values_of_any_type() {
    comes_back(TEXT, &"value".to_owned());
    comes_back(NUMBER, &42);
    comes_back(MAP, &BTreeMap::from([("one".to_owned(), 1)]));
    comes_back(NONE, &None);
}

#[test]
fn replaces_the_value_of_the_same_name_only() {
    let stash = stash();
    stash.put(NUMBER, 1);
    stash.put(NUMBER, 2);
    stash.put(TEXT, "two".to_owned());
    assert_eq!((stash.require(NUMBER), stash.require(TEXT)), (Ok(2), Ok("two".to_owned())));
    let names: Vec<_> = stash.snapshot().into_iter().map(|(name, value)| format!("{name} {value:?}")).collect();
    assert_eq!(names, ["number 2", "text \"two\""]);
}

#[test]
fn errors_name_the_object_and_the_key() {
    let stash = stash();
    assert_eq!(stash.require(NUMBER).unwrap_err().to_string(), "Thing default/web: nothing is stashed as \"number\"");
    stash.put(NUMBER, 1);
    let error = stash.get(OTHER).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Thing default/web: the value stashed as \"number\" is a i32, not a alloc::string::String"
    );
    assert_eq!(stash.require(OTHER).unwrap_err(), error);
}

#[test]
fn stashed_values_are_equal_if_type_and_value_are() {
    let values: [Box<dyn Stashed>; 4] = [Box::new(1_i32), Box::new(2_i32), Box::new(1_i64), Box::new("1".to_owned())];
    for (one_number, one) in values.iter().enumerate() {
        for (other_number, other) in values.iter().enumerate() {
            assert_eq!((**one).stashed_eq(&**other), one_number == other_number);
        }
    }
    assert!((*(*values[0]).stashed_clone()).stashed_eq(&*values[0]));
}

#[test]
fn a_step_finds_values_of_the_same_run_only() {
    let put = |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        if thing.spec.contains_key("stash") {
            cx.stash().put(TEXT, "found".to_owned());
        }
        Ok(Flow::proceed())
    };
    let take = |cx: &SubContext<'_>, thing: &mut Thing| -> SubResult {
        let text = cx.named("inner").stashed(TEXT)?;
        thing.status.fields.insert("text".to_owned(), text);
        Ok(Flow::proceed())
    };
    let steps = Sequence::new().then(put).then(take);
    let (config, _events) = config(&spy());
    let mut thing = Thing::new("web");
    thing.spec.insert("stash".to_owned(), String::new());
    let _ = step(&steps, &config, &mut thing).unwrap();
    assert_eq!(thing.status.fields["text"], "found");

    thing.spec.clear();
    let error: BoxError = step(&steps, &config, &mut thing).unwrap_err();
    assert_eq!(error.to_string(), "Thing default/web: nothing is stashed as \"text\"");
}
