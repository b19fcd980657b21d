//! Removes delete markers.
//!
//! # Invariants
//!
//! - A marker is removed only after every watch that selects its key can no longer miss it: the watch's consumer has
//!   sent the marker, or was created after it. A sent message that was lost leaves a gap, which leads to a new
//!   consumer.
//! - A consumer that is created later is not asked. A client of objects therefore first writes a note about the
//!   markers to remove, and then lists the consumers. A watch first creates its consumer, and then reads the note.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::super::error::NatsError;
use super::api::{CONSUMER_NOT_FOUND, WATCHES, call};
use super::bucket::KvBucket;
use super::config::stream_name;
use super::entry::KvEntry;
use super::exact::OBJECTS;
use super::watch_options::KvWatchOptions;

/// How often a consumer that has not sent a marker is asked again. The next constant is the pause in between.
const ASKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

impl KvBucket {
    /// Removes the markers of deletions that are older than `age`, with the history before them. Returns the number of
    /// markers removed.
    ///
    /// A marker stays if a watch of this library has not received it, for example because its reader is slow. Choose
    /// an `age` above the [`marker_life`](KvWatchOptions::marker_life) of all watches: a watch that loses its
    /// connection for longer can miss deletions. 30 minutes are usual. If a reader stalls for longer than its watch's
    /// `marker_life`, and the watch then needs a new consumer, the watch is *gone*.
    ///
    /// # Errors
    ///
    /// Returns an error if the bucket or its consumers cannot be listed, or if the bucket refuses writes.
    ///
    /// Returns an error for a bucket of objects, because its watches need a note about the removal: use
    /// [`NatsClient::remove_markers`](crate::NatsClient::remove_markers). A server before version 2.9.12 is
    /// [unsupported](crate::NatsErrorKind::Unsupported), because it would let watches miss changes of other keys.
    pub fn remove_markers(&self, age: Duration) -> Result<u64, NatsError> {
        self.check_purges()?;
        if self.facts()?.description == OBJECTS {
            return Err(NatsError::invalid(
                "bucket",
                self.name(),
                "one of plain values; NatsClient removes the markers of objects",
            ));
        }
        let markers = self.received_by_all(self.old_markers(age)?)?;
        self.forget_markers(&markers)
    }

    /// Returns the markers older than `age`.
    pub(crate) fn old_markers(&self, age: Duration) -> Result<Vec<KvEntry>, NatsError> {
        let now = self.connection.clock().time_of_day();
        let is_old = |entry: &KvEntry| now.duration_since(entry.created).is_ok_and(|lived| lived >= age);
        let mut entries = self.list_with(&KvWatchOptions::new().keys_only())?.entries;
        entries.retain(|entry| entry.is_marker() && is_old(entry));
        Ok(entries)
    }

    /// Removes markers, with the history before them. Returns the number of markers removed.
    pub(crate) fn forget_markers(&self, markers: &[KvEntry]) -> Result<u64, NatsError> {
        for marker in markers {
            // A later write of the key has a higher revision and stays.
            self.forget_before(&marker.key, marker.revision + 1)?;
        }
        Ok(markers.len() as u64)
    }

    /// Returns the markers that every watch selecting them has already sent.
    pub(crate) fn received_by_all(&self, mut markers: Vec<KvEntry>) -> Result<Vec<KvEntry>, NatsError> {
        if markers.is_empty() {
            return Ok(markers);
        }
        let mut asks = 0;
        for name in self.watch_consumers()? {
            while let Some(consumer) = self.consumer(&name)? {
                let was_sent =
                    |marker: &KvEntry| consumer.has_sent(&format!("{}{}", self.prefix, marker.key), marker.revision);
                if asks == ASKS || markers.iter().all(was_sent) {
                    markers.retain(was_sent);
                    break;
                }
                // Most consumers that lag behind catch up or end within a moment.
                asks += 1;
                self.connection.pause(self.connection.clock().nanos().after(PAUSE))?;
            }
        }
        Ok(markers)
    }

    /// Returns the names of all consumers that belong to watches of this bucket.
    fn watch_consumers(&self) -> Result<Vec<String>, NatsError> {
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let method = format!("CONSUMER.NAMES.{}", stream_name(self.name()));
            let page = match call::<ConsumerNames>(&self.connection, &method, &json!({"offset": offset}), true)? {
                Ok(page) => page,
                Err(error) => {
                    return Err(error.into_error(&self.connection, &format!("the consumers of {:?}", self.name())));
                }
            };
            let found = page.consumers.unwrap_or_default();
            offset += found.len();
            let is_last = found.is_empty() || offset >= page.total;
            names.extend(found.into_iter().filter(|name| name.starts_with(WATCHES)));
            if is_last {
                return Ok(names);
            }
        }
    }

    /// Returns the state of a consumer, or `None` if it no longer exists.
    fn consumer(&self, name: &str) -> Result<Option<ConsumerState>, NatsError> {
        let method = format!("CONSUMER.INFO.{}.{name}", stream_name(self.name()));
        match call(&self.connection, &method, &json!({}), true)? {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.err_code == CONSUMER_NOT_FOUND => Ok(None),
            Err(error) => Err(error.into_error(&self.connection, &format!("consumer {name:?}"))),
        }
    }
}

#[derive(Deserialize)]
struct ConsumerNames {
    /// The server sends `null` if the stream has no consumers.
    consumers: Option<Vec<String>>,
    #[serde(default)]
    total: usize,
}

/// How far a consumer has sent its messages.
#[derive(Debug, Deserialize)]
struct ConsumerState {
    config: ConsumerFilter,
    delivered: DeliveredUntil,
}

#[derive(Debug, Deserialize)]
struct ConsumerFilter {
    #[serde(default)]
    filter_subject: String,
}

#[derive(Debug, Deserialize)]
struct DeliveredUntil {
    stream_seq: u64,
}

impl ConsumerState {
    /// Returns whether the consumer has sent the message with this subject and sequence. True if it does not select
    /// the subject.
    fn has_sent(&self, subject: &str, sequence: u64) -> bool {
        self.delivered.stream_seq >= sequence || !selects(&self.config.filter_subject, subject)
    }
}

/// Returns whether a filter, which may have wildcards, selects a subject. An empty filter selects all subjects.
fn selects(filter: &str, subject: &str) -> bool {
    let mut parts = subject.split('.');
    for wanted in filter.split('.').filter(|wanted| !wanted.is_empty()) {
        match (wanted, parts.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(part)) if wanted == part => {}
            _ => return false,
        }
    }
    filter.is_empty() || parts.next().is_none()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn filters_select_by_parts() {
        for filter in ["", ">", "$KV.TEST.>", "$KV.TEST.a.*.c", "$KV.TEST.a.>", "$KV.TEST.a.b.c", "$KV.*.*.b.*"] {
            assert!(selects(filter, "$KV.TEST.a.b.c"), "{filter}");
        }
        for filter in ["$KV.TEST.a.b.c.>", "$KV.TEST.a.b", "$KV.TEST.a.*", "$KV.TEST.*.b.d", "$KV.TES.>", "a"] {
            assert!(!selects(filter, "$KV.TEST.a.b.c"), "{filter}");
        }
    }

    #[test]
    fn a_consumer_holds_back_the_markers_that_it_selects_and_has_not_sent() {
        let text =
            r#"{"config": {"filter_subject": "$KV.TEST.a.>"}, "delivered": {"consumer_seq": 3, "stream_seq": 7}}"#;
        let state: ConsumerState = serde_json::from_str(text).unwrap();
        assert!(state.has_sent("$KV.TEST.a.b", 7) && !state.has_sent("$KV.TEST.a.b", 8));
        assert!(state.has_sent("$KV.TEST.b.b", 8), "another kind");
    }
}
