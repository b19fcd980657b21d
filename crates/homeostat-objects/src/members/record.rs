//! The JSON of a group's objects. All of them are leases, so a program needs permissions for only one kind.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::assignment::{Assignment, EarlierAssignment};
use super::machine::FoundMember;
use crate::json::micros;
use crate::lease::{LEASE, LeaseWrite, found, written};
use crate::{ObjectKey, SharedObject};

/// The label of a member's lease: the name of its group.
pub(super) const GROUP_LABEL: &str = "homeostat.dev/group";
/// The annotation of a member's lease: the number of the last assignment that it has announced.
const ANNOUNCED: &str = "homeostat.dev/announced-division";
/// The annotations of the assignment: its members, and the number and the members of each earlier one.
const MEMBERS: &str = "homeostat.dev/members";
const EARLIER: &str = "homeostat.dev/earlier-assignments";

/// Reads the lease of a member.
pub(super) fn found_member(lease: &SharedObject) -> FoundMember {
    let spec = found(lease).spec;
    let announced = annotation(lease, ANNOUNCED).and_then(|text| text.parse().ok()).unwrap_or_default();
    FoundMember {
        name: lease.name().to_owned(),
        version: lease.resource_version().to_owned(),
        is_gone: spec.holder.is_empty(),
        duration: spec.duration,
        announced,
    }
}

fn annotation(lease: &SharedObject, name: &str) -> Option<String> {
    Some(lease.to_value()["metadata"]["annotations"][name].as_str()?.to_owned())
}

/// Returns the lease of a member, with the number of the assignment that it announces.
pub(super) fn member_lease(
    write: &LeaseWrite,
    key: &ObjectKey,
    group: &str,
    announced: u64,
    last: Option<&Value>,
    now: SystemTime,
) -> Value {
    let mut lease = written(write, key, last, now);
    lease["metadata"]["labels"][GROUP_LABEL] = json!(group);
    lease["metadata"]["annotations"][ANNOUNCED] = json!(announced.to_string());
    lease
}

/// Returns the lease of a member that is gone.
pub(super) fn cleared_lease(key: &ObjectKey, group: &str, lease: Option<&SharedObject>) -> Value {
    let mut cleared = lease.map_or_else(
        || {
            let metadata = json!({"namespace": key.namespace(), "name": key.name(), "labels": {GROUP_LABEL: group}});
            json!({"apiVersion": LEASE.api_version(), "kind": LEASE.name(), "metadata": metadata, "spec": {}})
        },
        SharedObject::to_value,
    );
    cleared["spec"]["holderIdentity"] = json!("");
    cleared["spec"]["leaseDurationSeconds"] = json!(1);
    cleared
}

/// Reads the assignment. `None` if the object holds none, as a new lease of another program does.
pub(super) fn found_assignment(lease: &SharedObject) -> Option<(String, Assignment)> {
    let mut members: Vec<String> = serde_json::from_str(&annotation(lease, MEMBERS)?).ok()?;
    members.sort_unstable();
    let earlier: Vec<(u64, Vec<String>)> = serde_json::from_str(&annotation(lease, EARLIER)?).ok()?;
    let earlier = earlier.into_iter().map(|(number, mut members)| {
        members.sort_unstable();
        EarlierAssignment { number, members }
    });
    let earlier = earlier.collect();
    let number = found(lease).spec.number;
    Some((lease.resource_version().to_owned(), Assignment { number, members, earlier }))
}

/// Returns the object of an assignment. `author` is the member that writes it.
pub(super) fn assignment_lease(
    key: &ObjectKey,
    version: Option<&str>,
    assignment: &Assignment,
    author: &str,
    duration: Duration,
    now: SystemTime,
) -> Value {
    let now = micros(Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH));
    let earlier: Vec<_> = assignment.earlier.iter().map(|earlier| (earlier.number, &earlier.members)).collect();
    let mut lease = json!({
        "apiVersion": LEASE.api_version(),
        "kind": LEASE.name(),
        "metadata": {
            "namespace": key.namespace(),
            "name": key.name(),
            "annotations": {
                MEMBERS: json!(assignment.members).to_string(),
                EARLIER: json!(earlier).to_string(),
            },
        },
        "spec": {
            "holderIdentity": author,
            "leaseDurationSeconds": duration.as_secs(),
            "leaseTransitions": assignment.number,
            "acquireTime": now,
            "renewTime": now,
        },
    });
    if let Some(version) = version {
        lease["metadata"]["resourceVersion"] = json!(version);
    }
    lease
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::lease::{LeasePurpose, LeaseSpec};

    #[test]
    fn an_assignment_is_read_as_it_was_written() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let earlier = |number, members| EarlierAssignment { number, members: names(members) };
        let earlier = vec![earlier(5, &["a", "c"]), earlier(6, &["a"])];
        let assignment = Assignment { number: 7, members: names(&["a", "b"]), earlier };
        let key = ObjectKey::new("default", "sites");
        let lease = assignment_lease(&key, Some("12"), &assignment, "a", Duration::from_secs(15), UNIX_EPOCH);
        assert_eq!(lease["spec"]["leaseTransitions"], 7);
        assert_eq!(lease["metadata"]["annotations"][EARLIER], r#"[[5,["a","c"]],[6,["a"]]]"#);
        let read = found_assignment(&SharedObject::from(&lease));
        assert_eq!(read, Some(("12".to_owned(), assignment)));
        let foreign = json!({"metadata": {"name": "sites", "resourceVersion": "3"}, "spec": {"holderIdentity": "x"}});
        assert_eq!(found_assignment(&SharedObject::from(&foreign)), None);
    }

    #[test]
    fn the_lease_of_a_member_names_its_group_and_its_assignment() {
        let spec = LeaseSpec { holder: "a".to_owned(), duration: Some(Duration::from_secs(15)), number: 0 };
        let write = LeaseWrite { version: None, spec, purpose: LeasePurpose::Acquire };
        let key = ObjectKey::new("default", "a");
        let mut lease = member_lease(&write, &key, "sites", 3, None, UNIX_EPOCH);
        assert_eq!(lease["metadata"]["labels"][GROUP_LABEL], "sites");
        lease["metadata"]["resourceVersion"] = json!("5");
        let shared = SharedObject::from(&lease);
        let member = found_member(&shared);
        assert_eq!((member.announced, member.is_gone, member.version.as_str()), (3, false, "5"));
        let cleared = SharedObject::from(&cleared_lease(&key, "sites", Some(&shared)));
        let gone = found_member(&cleared);
        assert_eq!((gone.announced, gone.is_gone, gone.version.as_str()), (3, true, "5"));
        assert!(found_member(&SharedObject::from(&cleared_lease(&key, "sites", None))).is_gone);
    }
}
