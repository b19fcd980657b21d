//! The JSON of a `Lease`, as other Kubernetes tools read it.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::machine::{FoundLease, LeasePurpose, LeaseSpec, LeaseWrite};
use crate::json::micros;
use crate::{Kind, ObjectKey, SharedObject, ValueRef};

/// The kind of leases.
pub(crate) const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");

/// Reads the fields of a lease that the decisions use. Missing and malformed fields count as empty.
pub(crate) fn found(lease: &SharedObject) -> FoundLease {
    let field = |name: &str| lease.pointer(&format!("/spec/{name}")).map(ValueRef::to_value);
    let seconds = field("leaseDurationSeconds").and_then(|seconds| seconds.as_u64());
    let spec = LeaseSpec {
        holder: field("holderIdentity").and_then(|holder| Some(holder.as_str()?.to_owned())).unwrap_or_default(),
        duration: seconds.map(Duration::from_secs),
        number: field("leaseTransitions").and_then(|number| number.as_u64()).unwrap_or_default(),
    };
    FoundLease { version: lease.resource_version().to_owned(), spec }
}

/// Returns since when the holder leads, by the holder's wall clock.
pub(crate) fn since(lease: &SharedObject) -> Option<SystemTime> {
    let time = lease.pointer("/spec/acquireTime")?.to_value();
    Some(time.as_str()?.parse::<Timestamp>().ok()?.into())
}

/// Returns the object to write. `last` is the lease as it was read; its other fields are kept.
pub(crate) fn written(write: &LeaseWrite, key: &ObjectKey, last: Option<&Value>, now: SystemTime) -> Value {
    let mut lease = last.filter(|_| write.version.is_some()).cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": LEASE.api_version(),
            "kind": LEASE.name(),
            "metadata": {"namespace": key.namespace(), "name": key.name()},
        })
    });
    if let Some(version) = &write.version {
        lease["metadata"]["resourceVersion"] = json!(version);
    }
    if !lease["spec"].is_object() {
        lease["spec"] = Value::Object(Map::new());
    }
    let now = micros(Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH));
    let spec = &mut lease["spec"];
    spec["holderIdentity"] = json!(write.spec.holder);
    spec["leaseDurationSeconds"] = json!(write.spec.duration.unwrap_or_default().as_secs());
    spec["leaseTransitions"] = json!(write.spec.number);
    spec["renewTime"] = json!(now);
    if write.purpose != LeasePurpose::Renew {
        spec["acquireTime"] = json!(now);
    }
    lease
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn write(version: Option<&str>, purpose: LeasePurpose) -> LeaseWrite {
        let spec = LeaseSpec { holder: "a_1".to_owned(), duration: Some(Duration::from_secs(15)), number: 3 };
        LeaseWrite { version: version.map(str::to_owned), spec, purpose }
    }

    #[test]
    fn a_new_lease_has_the_fields_that_other_tools_read() {
        let now = UNIX_EPOCH + Duration::from_nanos(1_500_000_123);
        let lease = written(&write(None, LeasePurpose::Acquire), &ObjectKey::new("ns", "leader"), None, now);
        let expected = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": "ns", "name": "leader"},
            "spec": {
                "holderIdentity": "a_1",
                "leaseDurationSeconds": 15,
                "leaseTransitions": 3,
                "acquireTime": "1970-01-01T00:00:01.500000Z",
                "renewTime": "1970-01-01T00:00:01.500000Z",
            },
        });
        assert_eq!(lease, expected);
        let read = found(&SharedObject::from(&lease));
        assert_eq!(read.spec, write(None, LeasePurpose::Acquire).spec);
        assert_eq!(since(&SharedObject::from(&lease)), Some(UNIX_EPOCH + Duration::from_millis(1500)));
    }

    #[test]
    fn a_renewal_keeps_the_other_fields() {
        let last = json!({
            "metadata": {"namespace": "ns", "name": "leader", "labels": {"a": "b"}, "resourceVersion": "6"},
            "spec": {"acquireTime": "1970-01-01T00:00:00.000000Z", "strategy": "OldestEmulationVersion"},
        });
        let key = ObjectKey::new("ns", "leader");
        let now = UNIX_EPOCH + Duration::from_secs(9);
        let renewed = written(&write(Some("7"), LeasePurpose::Renew), &key, Some(&last), now);
        assert_eq!(renewed["metadata"]["resourceVersion"], "7");
        assert_eq!(renewed["metadata"]["labels"]["a"], "b");
        assert_eq!(renewed["spec"]["strategy"], "OldestEmulationVersion");
        assert_eq!(renewed["spec"]["acquireTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(renewed["spec"]["renewTime"], "1970-01-01T00:00:09.000000Z");
        let acquired = written(&write(Some("7"), LeasePurpose::Acquire), &key, Some(&last), now);
        assert_eq!(acquired["spec"]["acquireTime"], "1970-01-01T00:00:09.000000Z");
    }

    #[test]
    fn a_malformed_lease_has_no_holder_and_no_duration() {
        for spec in
            [json!(null), json!(7), json!({"holderIdentity": 7, "leaseDurationSeconds": -1, "leaseTransitions": "x"})]
        {
            let lease = json!({"metadata": {"name": "l", "resourceVersion": "2"}, "spec": spec});
            let spec = LeaseSpec { holder: String::new(), duration: None, number: 0 };
            assert_eq!(found(&SharedObject::from(&lease)), FoundLease { version: "2".to_owned(), spec });
        }
    }
}
