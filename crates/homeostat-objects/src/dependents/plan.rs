//! Decides which of the dependents that were found stay, and which are deleted. Pure: no client, no lock, no clock.

use crate::Object;

/// The writes after which only the desired dependent remains.
#[derive(Debug)]
pub(crate) struct Plan<C> {
    /// To delete, before any other write.
    pub(crate) delete: Vec<C>,
    /// The dependent that stays.
    pub(crate) keep: Option<C>,
    /// The content for `keep`, or for a new dependent.
    pub(crate) desired: Option<C>,
}

/// Plans the writes for dependents if at most one is desired.
///
/// If none is desired, all are deleted. Otherwise one stays: preferably one that is not being deleted, then the one
/// with the desired name, then the oldest. The others are deleted unless their deletion has begun.
pub(crate) fn plan<C: Object>(found: Vec<C>, desired: Option<C>) -> Plan<C> {
    let Some(desired) = desired else {
        return Plan { delete: found, keep: None, desired: None };
    };
    let mut found = ranked(found, &desired.meta().name);
    let keep = found.next();
    Plan { delete: found.filter(|other| !other.meta().is_deleting()).collect(), keep, desired: Some(desired) }
}

/// Returns the dependent that stays if there is no desired one.
pub(crate) fn foremost<C: Object>(found: Vec<C>) -> Option<C> {
    ranked(found, "").next()
}

fn ranked<C: Object>(mut found: Vec<C>, name: &str) -> std::vec::IntoIter<C> {
    found.sort_by_cached_key(|dependent| {
        let meta = dependent.meta();
        (meta.is_deleting(), meta.name != name, meta.creation_timestamp, dependent.key())
    });
    found.into_iter()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{DynamicObject, Kind};

    const PAGE: Kind = Kind::namespaced("example.com", "v1", "Page");

    fn page(name: &str, created: i64, is_deleting: bool) -> DynamicObject {
        let mut page = DynamicObject::new(&PAGE, "default", name);
        page.meta_mut().creation_timestamp = Timestamp::from_second(created).ok();
        page.meta_mut().deletion_timestamp = is_deleting.then_some(Timestamp::UNIX_EPOCH);
        page
    }

    fn names<'a>(pages: impl IntoIterator<Item = &'a DynamicObject>) -> Vec<String> {
        pages.into_iter().map(|page| page.meta().name.clone()).collect()
    }

    #[test]
    fn keeps_the_desired_name_then_the_oldest_and_prefers_those_that_stay() {
        let found = || vec![page("a", 3, false), page("b", 1, true), page("c", 2, false), page("d", 2, false)];
        for (desired, keep, delete) in [("a", "a", ["c", "d"]), ("b", "c", ["d", "a"]), ("x", "c", ["d", "a"])] {
            let plan = plan(found(), Some(page(desired, 0, false)));
            assert_eq!(
                (names(&plan.keep), names(&plan.delete)),
                (vec![keep.to_owned()], delete.map(str::to_owned).to_vec()),
                "{desired}"
            );
            assert_eq!(plan.desired.unwrap().meta().name, desired);
        }
        assert_eq!(foremost(found()).unwrap().meta().name, "c");
    }

    #[test]
    fn deletes_all_if_none_is_desired() {
        let plan = plan(vec![page("a", 1, false), page("b", 1, true)], None);
        assert_eq!((names(&plan.keep), names(&plan.delete)), (vec![], vec!["a".to_owned(), "b".to_owned()]));
        assert!(plan.desired.is_none());
    }

    #[test]
    fn creates_if_none_is_found() {
        let plan = plan(vec![], Some(page("a", 0, false)));
        assert!(plan.keep.is_none() && plan.delete.is_empty() && plan.desired.is_some());
    }
}
