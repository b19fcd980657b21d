//! The messages of errors, and how the run loop treats them.

use std::error::Error;
use std::time::Duration;

use crate::{Cause, ClientError, FieldConflict, Kind, ObjectKey, ObjectRef};
use homeostat::rt::{Chain, find};
use homeostat::run::RetryAfter;

fn object() -> ObjectRef {
    ObjectRef::new(&Kind::namespaced("example.com", "v1", "Widget"), &ObjectKey::new("default", "a"))
}

#[test]
fn messages_name_the_object_the_reason_and_a_remedy() {
    let causes = vec![
        Cause::new("spec.size", "-1", "must be positive"),
        Cause::new("spec.title", "", "must be set"),
        Cause::new("", "", "must have a spec"),
    ];
    let fields = vec![FieldConflict::new("spec.size", "ops"), FieldConflict::new("spec.x", "kubectl")];
    let delay = Some(Duration::from_secs(5));
    let definition = Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definition = ObjectRef::new(&definition, &ObjectKey::cluster("widgets.example.com"));
    for (error, expected) in [
        (
            ClientError::with_causes(object(), causes),
            "Widget default/a is invalid: spec.size is \"-1\", but must be positive; spec.title: must be set; must \
             have a spec",
        ),
        (
            ClientError::field_conflicts(object(), fields),
            "Widget default/a: conflict: \"ops\" has applied another value to spec.size, \"kubectl\" has applied another \
             value to spec.x",
        ),
        (
            ClientError::forbidden(object(), "User \"ops\" cannot delete widgets"),
            "Widget default/a is forbidden: User \"ops\" cannot delete widgets",
        ),
        (ClientError::gone(object(), "7"), "Widget default/a: version 7 is too old or unknown: list again"),
        (
            ClientError::ahead(object(), "7"),
            "Widget default/a: the server has not reached version 7: it lags behind, or its storage was restored or \
             replaced; list again",
        ),
        (
            ClientError::unauthorized(object(), "the token has expired"),
            "Widget default/a: not logged in: the token has expired (check whether the credentials are missing, wrong or \
             expired)",
        ),
        (
            ClientError::too_many_requests(object(), delay, "storage is (re)initializing"),
            "Widget default/a: the server has too many requests: storage is (re)initializing (retry after 5s)",
        ),
        (
            ClientError::kind_not_served(object(), "404 page not found"),
            "Widget default/a: the server does not serve Widget.example.com/v1: 404 page not found (install the definition \
             of the kind, or let the program of the server serve it, or check its group, version and plural)",
        ),
        (
            ClientError::kind_not_served(definition, "404 page not found"),
            "CustomResourceDefinition widgets.example.com: the server does not serve \
             CustomResourceDefinition.apiextensions.k8s.io/v1: 404 page not found (the server accepts no definitions: let its \
             program serve the kind)",
        ),
    ] {
        assert_eq!(error.to_string(), expected);
        assert_eq!(Chain(&error).to_string(), expected, "sources repeat nothing");
    }
}

#[test]
fn the_delay_of_a_busy_server_is_found_below_any_wrapper() {
    let busy = || ClientError::too_many_requests(object(), Some(Duration::from_secs(5)), "busy");
    let boxed: Box<dyn Error + Send + Sync> = std::io::Error::other(busy()).into();
    assert_eq!(find::<RetryAfter>(&*boxed), Some(&RetryAfter::new(Duration::from_secs(5))));
    let endless = ClientError::too_many_requests(object(), Some(Duration::from_secs(86_400)), "maintenance");
    assert_eq!(find(&endless), Some(&RetryAfter::new(Duration::from_secs(600))));
    assert!(find::<RetryAfter>(&ClientError::too_many_requests(object(), None, "busy")).is_none());
}
