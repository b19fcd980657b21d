//! Listings: watches that stop once they are synced.

use std::collections::BTreeMap;

use super::super::connection::NatsConnection;
use super::super::error::NatsError;
use super::entry::KvEntry;
use super::watch::{KvUpdate, KvWatch};
use super::watch_options::KvPosition;

/// The entries of a bucket at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KvListing {
    /// The last entry of each key, sorted by key.
    pub entries: Vec<KvEntry>,
    /// The position of the listing. A watch that continues after it misses no change.
    pub position: KvPosition,
    /// The last revision before the listing started, if the listing was interrupted. It may lack markers that were
    /// removed since then.
    pub(crate) interrupted_since: Option<u64>,
}

impl KvListing {
    /// Keeps the last entry of each key. A key that changes during the listing arrives more than once.
    pub(super) fn last_of_each(self) -> Self {
        let by_key: BTreeMap<_, _> = self.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        Self { entries: by_key.into_values().collect(), ..self }
    }
}

/// Reads a watch until it is synced. A key may arrive more than once.
pub(super) fn collect(mut watch: KvWatch, connection: &NatsConnection) -> Result<KvListing, NatsError> {
    let mut entries = Vec::new();
    while let KvUpdate::Entry(entry) = watch.recv_timeout(connection.request_timeout())? {
        entries.push(entry);
    }
    let position = watch.position().ok_or_else(|| NatsError::answer("a listing", "it has no position"))?;
    Ok(KvListing { entries, position, interrupted_since: watch.interrupted_since() })
}
