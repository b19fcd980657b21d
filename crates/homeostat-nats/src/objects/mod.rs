//! A client that keeps objects in a bucket of `JetStream`.
//!
//! `key`, `version` and `entry` define how objects are stored. `store` reads entries. `transact` runs the transactions
//! of `homeostat_objects::store` on a `view` of the bucket, and stores their changes. `cascade` does the work that a
//! write causes. `list` and `watch` read many objects.
//!
//! # Writes
//!
//! A write reads its object's entry, applies the rules, and stores the result on condition that the entry is still the
//! same. If it is not, the write starts again. Many processes can write to one bucket without a lock.
//!
//! # Dependents
//!
//! A bucket has no index of owners. Before an object with an owner is stored, the client writes two keys:
//! `_owners.<uid>`, unless it exists, and then `_owners.<uid>.<dependent>`. The second key stays until the dependent
//! is removed or no longer names the owner, and the work that this causes is done. These keys name every dependent.
//! They may also name other objects, so readers check the references.
//!
//! An owner and its dependent can be written at the same time. The writer of the dependent looks for the owner *after*
//! its write. The writer that removes the owner, or makes it wait for its dependents, looks for them *after* that
//! write. At least one of them sees the other's write.
//!
//! A process can be killed between a write and the work that it causes. The keys still name the dependent, or at least
//! the owner: another process may have removed its last dependent just before it began to wait. Each new client checks
//! all owners that these keys name, and does the remaining work. If a killed process leaves keys that
//! name no dependent, they stay, because another writer may be about to create it.
//!
//! # Full buckets
//!
//! Deletions must work in a full bucket. `reserve` keeps an entry that can be removed to make room.

mod cascade;
mod client;
mod delivered;
mod entry;
mod key;
mod list;
mod reserve;
mod store;
#[cfg(all(test, unix, not(loom)))]
mod tests;
mod transact;
mod verbs;
mod version;
mod view;
mod watch;

pub use self::client::NatsClient;
