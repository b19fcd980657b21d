//! How a dependent names its owner, and the dependents of an owner.

use super::super::json::{owners_of, uid_of};
use crate::{Client, ClientError, Kind, Object, ObjectMeta, Ownership, Query, SharedObject, set_controller};

/// How a dependent names its owner.
#[derive(Clone, Debug)]
pub(crate) enum OwnerClaim {
    /// By annotations and labels. Works across clients and namespaces.
    Marks(Ownership),
    /// By its controller reference.
    Controller,
    /// Not at all: the caller recognizes the dependents of an owner.
    Unnamed,
}

impl OwnerClaim {
    /// Returns `dependent` with its owner named.
    ///
    /// Fails with [`Invalid`](crate::ClientErrorKind::Invalid) if it names another owner.
    pub(crate) fn claim<C: Object>(&self, owner: &impl Object, mut dependent: C) -> Result<C, ClientError> {
        match self {
            Self::Marks(ownership) => ownership.mark(&owner.object_ref(), &mut dependent)?,
            Self::Controller => {
                let mut claimed = dependent.clone();
                set_controller(owner, &mut claimed)?;
                // A controller reference that the caller has set may have more fields.
                if !dependent.meta().is_controlled_by(&owner.meta().uid) {
                    dependent = claimed;
                }
            }
            Self::Unnamed => {}
        }
        Ok(dependent)
    }

    /// Whether an object with this metadata is a dependent of `owner`.
    pub(crate) fn holds(&self, owner: &impl Object, dependent: &ObjectMeta) -> bool {
        match self {
            Self::Marks(ownership) => ownership.owner_key(dependent, &owner.kind()) == Some(owner.key()),
            Self::Controller => dependent.is_controlled_by(&owner.meta().uid),
            Self::Unnamed => true,
        }
    }
}

/// Returns the object if it is a dependent of `owner`.
pub(crate) fn take<C: Object>(
    claim: &OwnerClaim,
    owner: &impl Object,
    object: &SharedObject,
) -> Result<Option<C>, ClientError> {
    // An object of another owner need not match the type of the dependents.
    let names = |uid: &str| owners_of(object).any(|reference| uid_of(reference) == uid);
    if matches!(claim, OwnerClaim::Controller) && !names(&owner.meta().uid) {
        return Ok(None);
    }
    Ok(Some(C::from_shared(object)?).filter(|dependent| claim.holds(owner, &dependent.meta())))
}

/// Lists the dependents of `owner` that `query` selects, in the order of their keys.
pub(crate) fn list<C: Object>(
    client: &dyn Client,
    kind: &Kind,
    query: &Query,
    claim: &OwnerClaim,
    owner: &impl Object,
) -> Result<Vec<C>, ClientError> {
    let listed = client.list(kind, query)?.items;
    listed.iter().filter_map(|object| take(claim, owner, object).transpose()).collect()
}
