//! An operator of Kubernetes on a server of this crate: its access rules for leases, and its definition.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use homeostat::base::Running;
use homeostat::rt::Chain;
use homeostat::{Context, Elector};
use homeostat_kubernetes::{ClusterConfig, CustomResourceDefinition, KubernetesClient, RbacRules};
use homeostat_objects::{Client, Kind, KindDefinition, LeaseElector, LeaseTiming, Members, MemoryClient};
use homeostat_serve::{Access, AccessTarget, ObjectApi, ObjectApiBuilder, Server, ServerControl};
use parking_lot::Mutex;

use crate::until::until;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");
const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
const PATIENCE: Duration = Duration::from_secs(30);

type Verbs = Arc<Mutex<BTreeSet<&'static str>>>;

/// Starts a server of these kinds. It records the verbs of the requests for leases.
fn start(kinds: &[Kind]) -> (Running<ServerControl>, Arc<dyn Client>, Verbs) {
    let api = ObjectApi::builder(Arc::new(MemoryClient::new()));
    let api = kinds.iter().cloned().fold(api, ObjectApiBuilder::serve).build().unwrap();
    let verbs = Verbs::default();
    let seen = Arc::clone(&verbs);
    let server = Server::builder((Ipv4Addr::LOCALHOST, 0)).objects(&api).authorize(move |request| {
        if matches!(&request.target, AccessTarget::Objects { resource, .. } if resource == "leases") {
            seen.lock().insert(request.verb);
        }
        Access::Allow
    });
    let server = server.build().unwrap().start().unwrap();
    let client = KubernetesClient::new(ClusterConfig::new(&server.url()).unwrap()).unwrap();
    (server, Arc::new(client), verbs)
}

/// Returns the verbs that the rules permit for leases.
fn permitted(rules: &RbacRules) -> BTreeSet<&'static str> {
    let all = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    all.into_iter().filter(|verb| rules.allows(&LEASE, verb)).collect()
}

#[test]
fn the_rules_of_an_elector_permit_exactly_its_requests() {
    let (_server, client, verbs) = start(&[LEASE]);
    let elector = LeaseElector::builder(client, "default", "sites").identity("one").build().unwrap();
    drop(elector.campaign(&Context::detached()).unwrap());
    assert_eq!(*verbs.lock(), permitted(&RbacRules::new().elect_leader()));
}

#[test]
fn the_rules_of_members_permit_exactly_their_requests() {
    let (_server, client, verbs) = start(&[LEASE]);
    let timing = LeaseTiming::new(Duration::from_secs(3));
    let start = |name: &str| {
        let members = Members::builder(client.clone(), "default", "sites").identity(name).timing(timing);
        members.build().unwrap().start().unwrap()
    };
    let [one, two] = ["one", "two"].map(start);
    until("both have joined", || [&one, &two].iter().all(|members| members.status().members.len() == 2));
    one.shutdown(PATIENCE).unwrap();
    until("the other member has all keys", || {
        let status = two.status();
        status.members.len() == 1 && status.waits_for.is_empty()
    });
    // The next assignment no longer names the member that has left, so its lease is deleted.
    let three = start("three");
    until("the lease is deleted", || verbs.lock().contains("delete"));
    three.shutdown(PATIENCE).unwrap();
    two.shutdown(PATIENCE).unwrap();
    assert_eq!(*verbs.lock(), permitted(&RbacRules::new().divide_keys()));
}

#[test]
fn an_operator_installs_its_definition_where_its_kind_is_served() {
    let definition = CustomResourceDefinition::new(&KindDefinition::new(SITE)).unwrap();
    let install = |client: &dyn Client| definition.install(&Context::detached(), client, "tests", PATIENCE);
    let (_server, client, _) = start(&[SITE]);
    install(&*client).unwrap();

    let (_server, client, _) = start(&[LEASE]);
    let error = Chain(&install(&*client).unwrap_err()).to_string();
    let begin = "definition sites.example.com: cannot be applied: CustomResourceDefinition sites.example.com: the server \
                 does not serve CustomResourceDefinition.apiextensions.k8s.io/v1: ";
    assert!(error.starts_with(begin), "{error}");
    assert!(error.ends_with(" (the server accepts no definitions: let its program serve the kind)"), "{error}");

    // One version of two is not enough.
    let newer = KindDefinition::new(Kind::namespaced("example.com", "v2", "Site"));
    let both = definition.clone().with_version(&newer).unwrap();
    let (_server, client, _) = start(&[SITE]);
    assert!(both.install(&Context::detached(), &*client, "tests", PATIENCE).is_err());
}
