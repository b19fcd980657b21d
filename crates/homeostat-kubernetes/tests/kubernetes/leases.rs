//! Leases in a real cluster.

use std::sync::Arc;
use std::time::Duration;

use homeostat::{Context, Elector};
use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::{
    Client, DeleteOptions, Ignore, Kind, LeaseElector, LeaseElectorBuilder, LeaseTiming, ObjectKey, SharedObject,
};
use serde_json::json;

use crate::cases::silent::{client_through, target};
use crate::cluster;
use crate::forwarder::{Flow, Forwarder};
use homeostat_test_support::system::pause;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");
const MS: Duration = Duration::from_millis(1);

/// The name of a lease that does not exist at first.
struct LeaseOf<'a> {
    direct: KubernetesClient,
    name: &'a str,
}

impl<'a> LeaseOf<'a> {
    fn new(name: &'a str) -> Self {
        let lease = Self { direct: cluster::client(&cluster::shared()), name };
        lease.direct.delete(&LEASE, &lease.key(), &DeleteOptions::default()).ignore_not_found().unwrap();
        lease
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new("default", self.name)
    }

    fn get(&self) -> SharedObject {
        self.direct.get(&LEASE, &self.key()).unwrap()
    }

    fn builder(&self, client: &KubernetesClient, identity: &str) -> LeaseElectorBuilder {
        LeaseElector::builder(Arc::new(client.clone()), "default", self.name).identity(identity)
    }

    /// Returns an elector with short times.
    fn short(&self, identity: &str) -> LeaseElector {
        short(self.builder(&self.direct, identity))
    }
}

fn short(builder: LeaseElectorBuilder) -> LeaseElector {
    let timing = LeaseTiming::new(3000 * MS).stop_margin(500 * MS).retry_period(300 * MS);
    builder.timing(timing).build().unwrap()
}

#[test]
fn a_lease_is_acquired_renewed_given_back_and_taken_over() {
    let (lease, cx) = (LeaseOf::new("lease-turns"), Context::detached());
    let mut term = lease.builder(&lease.direct, "one").build().unwrap().campaign(&cx).unwrap();
    let mut before = lease.get();
    assert_eq!(before.pointer("/spec/leaseDurationSeconds").unwrap(), json!(15));
    for _ in 0..3 {
        while lease.get().resource_version() == before.resource_version() {
            term.check().unwrap();
            pause(term.check_interval());
        }
        let renewed = lease.get();
        for field in ["acquireTime", "leaseTransitions", "holderIdentity"] {
            let field = format!("/spec/{field}");
            assert_eq!(renewed.pointer(&field).unwrap().to_value(), before.pointer(&field).unwrap().to_value());
        }
        before = renewed;
    }
    drop(term);
    assert!(lease.get().pointer("/spec/holderIdentity").is_none_or(|holder| holder.to_value() == json!("")));

    // This lease is not renewed.
    let second = lease.short("two").campaign(&cx).unwrap();
    assert_eq!(second.fence().number(), Some(1));
    let third = lease.short("three").campaign(&cx).unwrap();
    assert_eq!(third.fence().number(), Some(2));
    assert!(second.fence().check().is_err() && third.fence().check().is_ok());
    drop(second);
    assert_eq!(lease.get().pointer("/spec/leaseTransitions").unwrap(), json!(2), "the third one has it still");
}

/// The connection stays open and silent. The elector's calls have a limit, and the term ends before the next one
/// begins.
#[test]
fn a_renewal_into_a_black_hole_ends_the_term_in_time() {
    let lease = LeaseOf::new("lease-hole");
    let forwarder = Forwarder::to(&target(&lease.direct));
    let through = client_through(&forwarder, Duration::from_secs(60));
    let mut term = short(lease.builder(&through, "one")).campaign(&Context::detached()).unwrap();
    forwarder.set_flow(Flow::Lost);
    let fence = term.fence().clone();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let second = lease.short("two").campaign(&Context::detached()).unwrap();
            assert!(fence.check().is_err(), "the first term ends before the second begins");
            second.fence().number()
        });
        while term.check().is_ok() {
            pause(term.check_interval());
        }
        assert_eq!(other.join().unwrap(), Some(1));
    });
}
