//! Watches of the stored objects.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::response::Body;
use super::status::status_of;
use homeostat::base::CancellationToken;
use homeostat_objects::{Client, Kind, MemoryClient, Query, SharedObject, WatchEvent};

/// A watch that a client has asked for.
pub(super) struct StoredWatch {
    pub(super) kind: Kind,
    pub(super) query: Query,
    pub(super) from: Option<String>,
    /// Whether a bookmark marks the end of the initial events.
    pub(super) marks_initial: bool,
    pub(super) bookmarks: bool,
    pub(super) metadata_only: bool,
    pub(super) timeout: Option<Duration>,
}

/// Sends events until the token is cancelled. An error is the last event.
pub(super) fn send_events(
    client: &MemoryClient,
    mut body: Body<'_>,
    watch: &StoredWatch,
    bookmarks: bool,
    closed: &CancellationToken,
) -> io::Result<()> {
    let mut send = |kind: &str, object: &Value| {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        body.send(line.as_bytes())
    };
    let events = match client.watch(&watch.kind, &watch.query, watch.from.as_deref(), closed) {
        Ok(events) => events,
        Err(error) => {
            send("ERROR", &status_of(&error).1)?;
            return body.end();
        }
    };
    let mut marks_initial = watch.marks_initial;
    for event in events {
        match event {
            Ok(WatchEvent::Added(object)) => send("ADDED", &shown(&object, watch.metadata_only))?,
            Ok(WatchEvent::Modified(object)) => send("MODIFIED", &shown(&object, watch.metadata_only))?,
            Ok(WatchEvent::Deleted(object)) => send("DELETED", &shown(&object, watch.metadata_only))?,
            Ok(WatchEvent::Bookmark(version)) => {
                if bookmarks && watch.bookmarks {
                    send("BOOKMARK", &bookmark(&watch.kind, &version, std::mem::take(&mut marks_initial)))?;
                }
            }
            Err(error) => send("ERROR", &status_of(&error).1)?,
        }
    }
    body.end()
}

fn bookmark(kind: &Kind, version: &str, ends_initial: bool) -> Value {
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": kind.name(),
        "metadata": {"resourceVersion": version, "creationTimestamp": null},
    });
    if ends_initial {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    object
}

/// Returns an object in the form that the client asked for.
pub(super) fn shown(object: &SharedObject, metadata_only: bool) -> Value {
    let object = object.to_value();
    if !metadata_only {
        return object;
    }
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"]})
}
