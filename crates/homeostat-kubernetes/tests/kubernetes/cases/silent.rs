//! Connections that fall silent, and objects that change meanwhile: cases 7 and 9.

use std::time::Duration;

use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::{Client, ObjectKey};

use super::{CONFIG_MAP, Follower, Scratch, delete, fresh};
use crate::cluster;
use crate::forwarder::{Flow, Forwarder};

/// Returns a client of the shared cluster that connects through a forwarder, and gives up silent connections after
/// this time.
pub(crate) fn client_through(forwarder: &Forwarder, silence: Duration) -> KubernetesClient {
    let config = cluster::config_through(&forwarder.address, &cluster::own().join("kubeconfig"));
    let builder = KubernetesClient::builder(config).watch_read_timeout(silence).read_timeout(silence);
    builder.connect_timeout(silence).build().unwrap()
}

/// Returns the host and port of the shared cluster.
pub(crate) fn target(client: &KubernetesClient) -> String {
    client.server().strip_prefix("https://").unwrap().to_owned()
}

#[test]
fn case_07_a_watch_recovers_from_a_silent_black_hole() {
    let scratch = Scratch::own("case-07");
    let forwarder = Forwarder::to(&target(&scratch.client));
    let client = client_through(&forwarder, Duration::from_secs(2));
    let follower = Follower::start(&client, &CONFIG_MAP, scratch.query()).synced();
    forwarder.set_flow(Flow::Lost);
    let created = scratch.client.create(&CONFIG_MAP, scratch.map("a")).unwrap();
    // The connection stays open and silent until the watch gives it up.
    let before = forwarder.accepted();
    crate::until::within(super::PATIENCE, "a new connection", || (forwarder.accepted() > before).then_some(()));
    assert!(!follower.watch.watch().store().contains(&created.key()));
    forwarder.set_flow(Flow::Passing);
    follower.waits_for(&created.key(), true);
}

#[test]
fn case_09_a_deletion_while_disconnected_is_delivered() {
    let scratch = Scratch::own("case-09");
    for name in ["a", "b"] {
        scratch.client.create(&CONFIG_MAP, scratch.map(name)).unwrap();
    }
    let forwarder = Forwarder::to(&target(&scratch.client));
    let client = client_through(&forwarder, Duration::from_secs(60));
    let follower = Follower::start(&client, &CONFIG_MAP, scratch.query()).synced();
    forwarder.refuse(true);
    forwarder.cut();
    let deleted: ObjectKey = scratch.key("a");
    delete(&scratch.client, &CONFIG_MAP, &deleted);
    let again = scratch.client.create(&CONFIG_MAP, scratch.map("c")).unwrap();
    forwarder.refuse(false);
    follower.waits_for(&again.key(), true);
    follower.waits_until_equal(|| Some(fresh(&scratch.client, &CONFIG_MAP, &scratch.query())));
    assert!(follower.deletions().contains(&deleted));
}
