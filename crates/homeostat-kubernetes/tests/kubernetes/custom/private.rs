//! The second page of a list, after the server has discarded its version.

use std::time::Duration;

use homeostat_objects::{Api, Client, ClientError, DynamicObject, ObjectKey, ObjectWatch, Patch, PatchTarget, Query};
use homeostat_test_support::system::pause;
use homeostat_testing::conformance::WIDGET;
use serde_json::{Value, json};

use super::PATIENCE;
use crate::cases::{Follower, fresh};
use crate::cluster::{self, Options, Servers};
use crate::kinds;
use crate::until::within;

fn widget(name: &str, number: u32) -> Value {
    json!({"apiVersion": WIDGET.api_version(), "kind": WIDGET.name(),
        "metadata": {"namespace": "default", "name": name}, "spec": {"number": number}})
}

/// Starts a server that discards old versions within seconds.
fn forgetful(more: Option<&'static str>) -> Servers {
    let api_server = ["--etcd-compaction-interval=1s"].into_iter().chain(more).collect();
    let servers = cluster::private(&Options { api_server, ..Options::default() });
    let client = servers.client();
    kinds::install(&client);
    for number in 0..20 {
        let name = format!("widget-{number:02}");
        within(PATIENCE, "the widget is created", || client.create(&WIDGET, widget(&name, 0)).ok());
    }
    servers
}

/// Changes an object until the server has discarded the version of the first page. Returns the second page, if the
/// server still has it after 20 seconds.
fn second_page(servers: &Servers) -> Result<Vec<String>, ClientError> {
    let client = servers.client();
    let pages = Query::all().namespace("default").limit(10);
    let first = client.list(&WIDGET, &pages).unwrap();
    let next = pages.continue_from(first.continue_token.clone().unwrap());
    for number in 1..200 {
        let patch = Patch::Merge(json!({"spec": {"number": number}}));
        client.patch(&WIDGET, &ObjectKey::new("default", "widget-19"), &patch, PatchTarget::Object).unwrap();
        pause(Duration::from_millis(100));
        client.list(&WIDGET, &next)?;
    }
    let second = client.list(&WIDGET, &next)?;
    assert_eq!(second.version, first.version, "all pages have one version");
    Ok(super::names(&second))
}

#[test]
fn pages_after_a_compaction_are_gone_or_whole() {
    for cache in [None, Some("--watch-cache=false")] {
        let servers = forgetful(cache);
        let minor = cluster::minor(servers.directory.path());
        match second_page(&servers) {
            Err(error) => assert!(error.is_gone(), "{error:?}"),
            // Current servers keep snapshots of their cache.
            Ok(page) => {
                assert!(minor >= 34 && cache.is_none(), "the server has discarded the version");
                let expected: Vec<_> = (10..20).map(|number| format!("widget-{number:02}")).collect();
                assert_eq!(page, expected);
            }
        }
        // A watch that lists in pages is in sync nevertheless.
        let api = Api::<DynamicObject>::of_kind(super::shared(&servers.client()), WIDGET);
        let query = Query::all().namespace("default");
        let follower = Follower::of(ObjectWatch::new(api).query(query.clone().limit(3))).synced();
        follower.waits_until_equal(|| Some(fresh(&servers.client(), &WIDGET, &query)));
    }
}
