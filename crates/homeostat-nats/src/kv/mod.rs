//! Key-value buckets of `JetStream`.
//!
//! A bucket is a stream with one subject for each key. `api.rs` has the server's requests. `ordered/` decides when a
//! watch needs a new consumer, `progress/` decides when it is up to date, and `watch.rs` and `consumer.rs` act on
//! these decisions. `markers.rs` removes markers, and `room.rs` makes deletions possible in a full bucket.

mod api;
mod bucket;
mod config;
mod consumer;
mod entry;
mod exact;
mod key;
mod listing;
mod markers;
mod ordered;
mod progress;
mod room;
mod watch;
mod watch_options;
mod writing;

pub(crate) use self::api::need_version;
pub use self::bucket::{KvBucket, KvStatus};
pub use self::config::KvConfig;
pub(crate) use self::entry::NOTE;
pub use self::entry::{KvEntry, KvOperation};
pub(crate) use self::exact::{BucketFacts, OBJECTS};
pub use self::listing::KvListing;
pub(crate) use self::room::RoomyWrite;
pub use self::watch::{KvUpdate, KvWatch, KvWatchStopper};
pub use self::watch_options::{KvPosition, KvWatchOptions};
pub(crate) use self::writing::operation;
