//! Prints the events that a program has recorded.

use homeostat_objects::{Client, ClientError, EventRecorder, Query, ValueRef};

/// Prints the recorded events: reason, object and note of each.
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
pub(crate) fn print_events(client: &dyn Client) -> Result<(), ClientError> {
    println!("Recorded events:");
    for event in client.list(&EventRecorder::KIND, &Query::all())?.items {
        let text = |field: &str| event.pointer(field).and_then(ValueRef::as_str).unwrap_or_default();
        let count = event.pointer("/series/count").and_then(ValueRef::as_u64).unwrap_or(1);
        println!("  {} {}: {} (×{count})", text("/reason"), text("/regarding/name"), text("/note"));
    }
    Ok(())
}
