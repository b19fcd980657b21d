//! A client of objects in a bucket of `JetStream`.
//!
//! `key`, `version` and `entry` say how objects are kept. `store` reads entries, and `transact` runs the transactions of
//! `objects::rules` on a `view` of the bucket and stores their changes. `cascade` does the work that follows a write. `list` and `watch` read many objects.
//!
//! # Writes
//!
//! A write reads the entry of its object, runs the rules, and stores the result on condition that the entry is still the same. If it
//! is not, all begins again. Many processes can write to one bucket: no rule needs a lock.
//!
//! # Dependents
//!
//! A bucket has no index of owners. Before an object is stored that names an owner, a key `_owners.<uid>.<dependent>` is written, and
//! before that a key `_owners.<uid>`, if there is none.
//! It stays until the dependent is removed or no longer names the owner, and all work that follows is done. These keys name every
//! dependent. They may also name other objects, so a reader checks the references.
//!
//! An owner and its dependent can be written at the same time. The writer of the dependent looks for the owner *after* its write. The
//! writer that removes the owner, or makes it wait for its dependents, looks for them *after* that write. At least one of them sees
//! the other.
//!
//! A process can be killed between a write and the work that follows. Then the keys still name the dependent. Each new client
//! looks at all owners that these keys name, and does the work that is left. The keys of killed processes that name no dependent
//! stay: nobody can know that no writer is about to create it.
//!
//! # Full buckets
//!
//! A deletion must be possible in a full bucket. `reserve` keeps an entry that makes room for it.

mod cascade;
mod client;
mod delivered;
mod entry;
mod key;
mod list;
mod reserve;
mod store;
mod transact;
mod verbs;
mod version;
mod view;
mod watch;

pub use self::client::NatsClient;
