//! `Debug` of errors: the text, with its causes.

use std::error::Error;
use std::io;

use homeostat::rt::Chain;
use homeostat_objects::{ClientError, Kind, LabelSelector, ObjectKey, ObjectRef, sub};

fn shown(error: &(dyn Error + 'static)) -> String {
    let text = format!("{error:?}");
    assert_eq!(text, format!("{:?}", Chain(error)));
    text
}

#[test]
fn errors_print_their_text_and_their_causes() {
    let object = ObjectRef::new(&Kind::namespaced("example.com", "v1", "Widget"), &ObjectKey::new("default", "a"));
    let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "the server is down");
    for (error, expected) in [
        (
            ClientError::transport(object.clone(), refused),
            "Widget default/a: the call failed\nCaused by: the server is down",
        ),
        (ClientError::not_found(object.clone()), "Widget default/a is not found"),
        (
            ClientError::conflict(object.clone(), "it has another version"),
            "Widget default/a: conflict: it has another version",
        ),
        (
            ClientError::too_many_requests(object, None, "try later"),
            "Widget default/a: the server has too many requests: try later",
        ),
    ] {
        assert_eq!(shown(&error), expected);
    }
    let key = "a/b/c".parse::<ObjectKey>().unwrap_err();
    assert_eq!(shown(&key), "\"a/b/c\" is not a key: expected `name` or `namespace/name`");
    let selector = "=x".parse::<LabelSelector>().unwrap_err();
    assert_eq!(shown(&selector), selector.to_string());
    let quiet = sub::quiet(io::Error::other("no image yet"));
    assert_eq!(shown(&quiet), "no image yet");
}

#[cfg(feature = "file-client")]
#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let error = homeostat_objects::FileClient::open("/no/such/place/objects.redb").unwrap_err();
    assert_eq!(shown(&error), "/no/such/place/objects.redb: No such file or directory (os error 2)");
}
