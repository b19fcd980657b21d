//! Refused commands, and questions about access.

use super::*;

#[test]
fn faults_name_the_field() {
    let door = Door::new();
    let create = |object: Value, options: &[&str]| {
        door.run_with(&[&["create", "-f", "-"], options].concat(), &object.to_string())
    };
    let mut wrong = site("blue", "Blue");
    wrong["spec"]["pages"] = json!(-1);
    let error = create(wrong, &[]).fails();
    assert!(
        error.contains("The Site \"blue\" is invalid: spec.pages: Invalid value: -1: must be at least 0"),
        "{error}"
    );
    let taken = create(site("blue", "Taken"), &[]).fails();
    assert!(taken.contains("spec.title") && taken.contains("is the title of another site"), "{taken}");
    let mut unknown = site("blue", "Blue");
    unknown["spec"]["titel"] = json!("x");
    let strict = create(unknown.clone(), &[]).fails();
    assert!(strict.contains("unknown field") && strict.contains("titel"), "{strict}");
    create(unknown, &["--validate=false"]).ok();
    assert_eq!(door.get("blue")["spec"], json!({"title": "Blue", "pages": 1}));
    assert!(create(site("blue", "Blue"), &[]).fails().contains("already exists"));
}

#[test]
fn can_i_shows_a_users_own_access() {
    let door = Door::new();
    assert_eq!(door.run(&["auth", "can-i", "create", "sites"]).ok().trim(), "yes");
    let no = door.run(&["auth", "can-i", "get", "secrets"]);
    assert_eq!(no.out.lines().next().map(|line| line.starts_with("no")), Some(true), "{no:?}");
    assert!(!no.success);
    let list = door.run(&["auth", "can-i", "--list"]).ok();
    assert!(list.contains("sites.example.com") && list.contains("deletecollection"), "{list}");
    assert!(door.run(&["version"]).ok().contains("Server Version"));
}
