//! Tokens and certificates that are replaced while a program runs: cases 12 and 14.

use std::fs;

use homeostat_kubernetes::{Kubeconfig, KubernetesClient};
use homeostat_objects::{Client, ClientErrorKind, ObjectKey, Query};
use serde_json::json;

use crate::cases::{CONFIG_MAP, Follower, fresh, map};
use crate::cluster::servers::{ADMIN, OTHER_ADMIN};
use crate::cluster::{self, Options, Servers};

fn restart(servers: &mut Servers) {
    servers.api_server.kill();
    servers.api_server.start();
    servers.wait_until_ready();
}

fn client_of(servers: &Servers, user: &serde_json::Value) -> KubernetesClient {
    let kubeconfig = Kubeconfig::parse(&servers.kubeconfig(user), servers.directory.path()).unwrap();
    KubernetesClient::new(kubeconfig.config().unwrap()).unwrap()
}

#[test]
fn case_12_and_14_tokens_and_certificates_are_rotated_under_running_watches() {
    let mut servers = cluster::private(&Options::default());
    let token = servers.directory.write("token", format!("{OTHER_ADMIN}\n"));
    let by_token = client_of(&servers, &json!({"tokenFile": "token"}));
    let files = json!({"client-certificate": "client.pem", "client-key": "client.pem"});
    let by_certificate = client_of(&servers, &files);
    let query = Query::all().namespace("default");
    let followers = [&by_token, &by_certificate].map(|client| Follower::start(client, &CONFIG_MAP, query.clone()));
    let followers = followers.map(Follower::synced);
    for round in 0..2 {
        let new_token = format!("new-token-{round}");
        servers.write_tokens(&[ADMIN, &new_token]);
        servers.rotate_certificates(&format!("authority {}", round + 2));
        restart(&mut servers);
        // The server refuses the old token, and the file still has it.
        assert!(*by_token.list(&CONFIG_MAP, &query).unwrap_err().kind() == ClientErrorKind::Unauthorized);
        fs::write(&token, format!("{new_token}\n")).unwrap();
        for (client, user) in [(&by_token, "token"), (&by_certificate, "certificate")] {
            let name = format!("{user}-{round}");
            client.create(&CONFIG_MAP, map("default", &name, 0)).unwrap();
            for follower in &followers {
                follower.waits_for(&ObjectKey::new("default", &name), true);
            }
        }
        for follower in &followers {
            follower.waits_until_equal(|| Some(fresh(&servers.client(), &CONFIG_MAP, &query)));
        }
    }
}
