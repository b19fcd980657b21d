//! Dependents: the objects and external resources that a controller keeps for an owner.
//!
//! [`PrimaryController`](super::PrimaryController) and the [child steps](crate::sub) share this engine. It works in
//! stages:
//!
//! | stage | where |
//! |---|---|
//! | find | [`list`] and [`take`]: by controller reference or by marks |
//! | claim | [`OwnerClaim`]: writes the owner into a dependent, and refuses one that belongs to another owner |
//! | decide | [`plan()`] for all dependents that were found; [`DependentWriter`] compares one with its desired state |
//! | write | [`DependentWriter`] creates, updates and deletes; [`put_or_adopt`] handles a dependent that already exists |
//! | record | [`WriteJournal`]: events, log lines and tracks |
//! | collect | [`garbage`]: the dependents of a missing owner |
//!
//! External resources are outside all clients: see [`External`].

mod claim;
mod external;
pub(super) mod garbage;
mod mutation_cache;
mod plan;
mod writer;

pub use self::external::External;
pub use self::garbage::{Collected, OwnedBy, Owner, garbage_collect, owner_exists};
pub use self::writer::OperationResult;

pub(crate) use self::claim::{OwnerClaim, list, take};
pub(crate) use self::external::ExternalResource;
pub(crate) use self::plan::{Plan, foremost, plan};
pub(crate) use self::writer::{DependentWrite, DependentWriter, Session, WriteJournal, check_term, put_or_adopt};
