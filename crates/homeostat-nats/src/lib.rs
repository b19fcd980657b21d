//! NATS on blocking sockets: protocol, connection, key-value buckets of `JetStream`, and a client that keeps objects
//! in a bucket. Feature `nats`.
//!
//! Start with [`NatsOptions`], which opens a connection. [`NatsClient`] keeps objects in a bucket. [`KvBucket`] keeps
//! plain values.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;
mod sync;

mod address;
mod connection;
mod error;
mod kv;
mod nkey;
mod objects;
mod options;
pub mod protocol;

#[cfg(all(test, not(loom)))]
use homeostat_test_support::until;

pub use self::connection::{NatsConnection, NatsStatus, NatsSubscription};
pub use self::error::NatsError;
pub use self::kv::{
    KvBucket, KvConfig, KvEntry, KvListing, KvOperation, KvPosition, KvStatus, KvUpdate, KvWatch, KvWatchOptions,
    KvWatchStopper,
};
pub use self::objects::NatsClient;
pub use self::options::NatsOptions;
pub use self::protocol::{NatsHeaders, NatsMessage};
