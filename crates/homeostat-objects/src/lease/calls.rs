//! The calls for a lease, and their answers.

use serde_json::Value;

use super::machine::LeaseAnswer;
use super::record::{LEASE, found};
use crate::json::meta_string;
use crate::{Client, ClientError, ObjectKey, SharedObject};

/// The answer to a call and the lease that came with it, or the error of a call that failed.
pub(crate) type LeaseReply = Result<(LeaseAnswer, Option<SharedObject>), ClientError>;

/// Reads a lease.
pub(crate) fn read_lease(client: &dyn Client, key: &ObjectKey) -> LeaseReply {
    match client.get(&LEASE, key) {
        Ok(lease) => Ok((LeaseAnswer::Found(found(&lease)), Some(lease))),
        Err(error) if error.is_not_found() => Ok((LeaseAnswer::Missing, None)),
        Err(error) => Err(error),
    }
}

/// Writes a lease in its version. Creates a lease without a version.
pub(crate) fn write_lease(client: &dyn Client, lease: Value) -> LeaseReply {
    let creates = meta_string(&lease, "resourceVersion").is_empty();
    match if creates { client.create(&LEASE, lease) } else { client.update(&LEASE, lease) } {
        Ok(lease) => Ok((LeaseAnswer::Written(lease.resource_version().to_owned()), Some(lease))),
        Err(error) if error.is_conflict() || error.is_already_exists() => Ok((LeaseAnswer::Refused, None)),
        // If this write creates the lease, the missing object is its namespace.
        Err(error) if error.is_not_found() && !creates => Ok((LeaseAnswer::Missing, None)),
        Err(error) => Err(error),
    }
}
