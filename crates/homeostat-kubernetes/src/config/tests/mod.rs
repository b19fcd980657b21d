//! Tests of kubeconfigs, pods and credentials, with files in a temporary folder.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test, or its helper, that cannot continue has failed")]

mod addresses;
mod certificates;
mod format;
#[cfg(unix)]
mod plugins;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;

use super::authenticator::Authenticator;
use super::cluster_info::ClusterInfo;
use super::identity::Credentials;
use super::in_cluster;
use super::secret::Secret;
use super::*;
use crate::KubernetesClient;
use homeostat::base::ManualClock;
use homeostat::rt::Nanos;

fn parse(text: &str) -> Kubeconfig {
    Kubeconfig::parse(text, "/etc/app").unwrap()
}

/// A kubeconfig with one context and these fields for its cluster and its user.
fn with(cluster: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

const SERVER: &str = "server: 'https://10.0.0.1:6443'";

fn error_of(cluster: &str, user: &str) -> String {
    parse(&with(cluster, user)).config().unwrap_err().to_string()
}

fn write(folder: &TempDir, name: &str, content: &str) -> std::path::PathBuf {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

/// The merge rules of `kubectl config view`: the first file wins, and relative paths belong to their file.
#[test]
fn the_first_of_several_files_wins_and_paths_are_relative_to_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(
        &folder,
        "one/config",
        "clusters: [{name: k, cluster: {server: 'https://first:6443', certificate-authority: pki/ca.crt}}]\n\
         contexts: [{name: shared, context: {cluster: k, user: u, namespace: one}}]",
    );
    write(&folder, "one/pki/ca.crt", "first authority");
    let second = write(
        &folder,
        "two/config",
        "current-context: shared\n\
         clusters: [{name: k, cluster: {server: 'https://second:6443'}}]\n\
         contexts: [{name: shared, context: {cluster: k, user: u, namespace: two}}, {name: own, context: {cluster: k}}]\n\
         users: [{name: u, user: {tokenFile: ../tokens/u}}]",
    );
    write(&folder, "tokens/u", "token\n");
    let third = write(&folder, "three", "current-context: own");

    let merged = Kubeconfig::read_all([&first, &second, &third]).unwrap();
    assert_eq!(merged.contexts().collect::<Vec<_>>(), ["own", "shared"]);
    assert_eq!(merged.current_context(), Some("shared"));
    let config = merged.config().unwrap();
    assert_eq!((config.server(), config.namespace()), ("https://first:6443", "one"));
    let shown = format!("{config:?}");
    assert!(shown.contains("one/pki/ca.crt") && shown.contains("tokens/u"), "{shown}");
    assert_eq!(merged.config_of("own").unwrap().namespace(), "default");

    let missing = folder.path().join("missing");
    assert_eq!(Kubeconfig::read_existing(&[missing.clone(), third]).unwrap().current_context(), Some("own"));
    let error = Kubeconfig::read(&missing).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: the kubeconfig cannot be read: ", missing.display())), "{error}");
}

#[test]
fn an_error_names_the_entry_that_is_missing_and_those_that_exist() {
    let none = parse("");
    assert!(none.is_empty());
    let error = none.config().unwrap_err().to_string();
    assert_eq!(error, "kubeconfig: current-context is not set; name one of the contexts: (none)");
    let file = parse(
        "contexts: [{name: a, context: {cluster: k}}, {name: b, context: {cluster: l, user: u}}]\nclusters: [{name: l}]",
    );
    let error = |context: &str| file.config_of(context).unwrap_err().to_string();
    assert_eq!(error("x"), "kubeconfig: there is no context \"x\"; the contexts are: a, b");
    assert_eq!(error("a"), "kubeconfig: context \"a\" names the cluster \"k\"; the clusters are: l");
    assert_eq!(error("b"), "kubeconfig: context \"b\" names the user \"u\"; the users are: (none)");
}

#[test]
fn a_text_that_is_no_kubeconfig_is_refused_and_shows_no_secret() {
    let cases = [
        "- a list",
        "clusters: 3",
        "users: [{name: u, user: {token: [s3cret]}}]",
        "users: [{name: u, user: {token: 's3cret",
        "users: [{name: u, user: s3cret}]",
        "users: [{name: u, user: {exec: s3cret}}]",
        "users: [{name: u, user: {exec: {args: --client-secret=s3cret}}}]",
        "clusters: [{name: k, cluster: {proxy-url: ['http://me:s3cret@proxy']}}]",
        "\u{0}",
    ];
    for text in cases {
        let error = Kubeconfig::parse(text, "/etc/app").unwrap_err().to_string();
        assert!(error.starts_with("kubeconfig: is not a kubeconfig: "), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    // A file with only comments is empty, and unknown fields are ignored.
    assert!(parse("# nothing").is_empty());
    assert!(
        parse("apiVersion: v1\nkind: ClusterConfig\npreferences: {colors: true}\nextensions: [{name: x}]").is_empty()
    );
}

#[test]
fn settings_that_contradict_each_other_or_are_gone_are_errors() {
    let broken = [
        (
            "server: ''",
            "",
            "kubeconfig: the server of the cluster \"k\" is \"\", but must be a URL such as https://10.0.0.1:6443",
        ),
        (
            "server: 'ftp://x'",
            "",
            "kubeconfig: the server of the cluster \"k\" is \"ftp://x\", but must be a URL such as https://10.0.0.1:6443",
        ),
        (
            "server: 'https://me:pw@x'",
            "",
            "kubeconfig: the server of the cluster \"k\" must have neither a user nor a query, but is a URL of the host \"x\"",
        ),
        (
            "server: 'https://x', insecure-skip-tls-verify: true, certificate-authority-data: YQ==",
            "",
            "kubeconfig: cluster \"k\" sets both a certificate authority and insecure-skip-tls-verify; remove one of them",
        ),
        (
            "server: 'https://x', certificate-authority-data: '%'",
            "",
            "kubeconfig: cluster \"k\": certificate-authority-data is not base64: Invalid symbol 37, offset 0.",
        ),
        (
            SERVER,
            "client-certificate-data: YQ==",
            "kubeconfig: user \"u\" has a client certificate without a client key",
        ),
        (SERVER, "client-key-data: YQ==", "kubeconfig: user \"u\" has a client key without a client certificate"),
        (
            SERVER,
            "auth-provider: {name: oidc, config: {id-token: t}}",
            "kubeconfig: user \"u\" uses the auth-provider \"oidc\", which is built into kubectl, but not into this client; use an exec plugin or a token",
        ),
        (
            SERVER,
            "auth-provider: {name: mine}",
            "kubeconfig: user \"u\" uses the auth-provider \"mine\", which this client does not know; use an exec plugin or a token",
        ),
        (
            SERVER,
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, env: [{value: s3cret}]}",
            "kubeconfig: user \"u\": exec: env has a variable with the name \"\"",
        ),
        (
            SERVER,
            "auth-provider: {name: gcp}",
            "kubeconfig: user \"u\" uses the auth-provider \"gcp\", which Kubernetes has removed; use an exec plugin",
        ),
        (SERVER, "as-groups: [a]", "kubeconfig: user \"u\" sets as-uid, as-groups or as-user-extra without as"),
        (
            SERVER,
            "exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: x}",
            "kubeconfig: user \"u\": exec: apiVersion is \"client.authentication.k8s.io/v1alpha1\", but must be client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1",
        ),
        (
            SERVER,
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Always}",
            "kubeconfig: user \"u\": exec: login asks its user for input (interactiveMode: Always), but this program cannot ask",
        ),
    ];
    for (cluster, user, expected) in broken {
        assert_eq!(error_of(cluster, user), expected);
    }
    for (cluster, user) in [("server: 'https://x', certificate-authority: no.crt", ""), (SERVER, "tokenFile: no.txt")] {
        let error = error_of(cluster, user);
        assert!(error.contains("names /etc/app/no.") && error.contains("which cannot be read: "), "{error}");
    }
}

#[test]
fn debug_shows_no_secret() {
    let key = STANDARD.encode("s3cret");
    let users = [
        "token: s3cret".to_owned(),
        "username: me, password: s3cret".to_owned(),
        format!("client-certificate-data: YQ==, client-key-data: {key}"),
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, env: [{name: PW, value: s3cret}]}".to_owned(),
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, args: [--client-secret=s3cret]}".to_owned(),
    ];
    let clusters = [SERVER.to_owned(), format!("{SERVER}, proxy-url: 'http://me:s3cret/@s3cret@proxy:3128'")];
    for (user, cluster) in users.iter().flat_map(|user| clusters.iter().map(move |cluster| (user, cluster))) {
        let file = parse(&with(cluster, user));
        let config = file.config().unwrap();
        let builder = format!("{:?}", KubernetesClient::builder(config.clone()));
        for shown in [format!("{file:?}"), format!("{config:?}"), format!("{config}"), builder] {
            assert!(!shown.contains("s3cret") && !shown.contains(&key) && !shown.contains("115, 51"), "{shown}");
        }
        assert_eq!(format!("{config:?}").contains("proxy:3128"), cluster != SERVER);
    }
}

/// The variables of an environment.
fn vars(values: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> + use<> {
    let values: HashMap<_, _> =
        values.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
    move |name| values.get(name).cloned()
}

#[test]
fn a_pod_uses_its_service_account() {
    let folder = tempfile::tempdir().unwrap();
    let pod = |host| vars(&[("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", "443")]);
    assert!(in_cluster::config(&vars(&[]), &folder).is_none());
    let error = in_cluster::config(&pod("10.0.0.1"), &folder).unwrap().unwrap_err().to_string();
    assert!(error.starts_with("in-cluster settings: the service account names ") && error.contains("token"), "{error}");
    write(&folder, "token", "t");
    write(&folder, "ca.crt", "c");
    let config = in_cluster::config(&pod("10.0.0.1"), &folder).unwrap().unwrap();
    assert_eq!((config.server(), config.namespace()), ("https://10.0.0.1:443", "default"));
    write(&folder, "namespace", "apps\n");
    let config = in_cluster::config(&pod("fd00::1"), &folder).unwrap().unwrap();
    assert_eq!((config.server(), config.namespace()), ("https://[fd00::1]:443", "apps"));
}

fn authenticator(credentials: Credentials, clock: &ManualClock) -> Authenticator {
    let config = ClusterConfig::new("https://10.0.0.1:6443").unwrap();
    Authenticator::new(credentials, ClusterInfo::of(config.parts()), clock.clock())
}

fn value(authenticator: &Authenticator) -> String {
    authenticator.authorization(Nanos::NEVER, None).unwrap().map_or_else(String::new, |value| value.reveal().clone())
}

#[test]
fn a_token_file_is_trimmed_and_read_again_after_a_minute_or_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "token", " one\n");
    let clock = ManualClock::new();
    let file = authenticator(Credentials::TokenFile { path: path.clone(), first: None }, &clock);
    assert_eq!(value(&file), "Bearer one");
    fs::write(&path, "two\n").unwrap();
    clock.advance(Duration::from_secs(59));
    assert_eq!(value(&file), "Bearer one");
    clock.advance(Duration::from_secs(1));
    assert_eq!(value(&file), "Bearer two");
    fs::write(&path, "three").unwrap();
    let used = file.authorization(Nanos::NEVER, None).unwrap().unwrap();
    assert!(file.refused(Some(&used)));
    assert_eq!(value(&file), "Bearer three");
    // A late refusal of the previous token does not affect the current one.
    fs::write(&path, "four").unwrap();
    assert!(file.refused(Some(&used)));
    assert_eq!(value(&file), "Bearer three");
    // If the file becomes empty or disappears, the last token stays.
    for broken in [fs::write(&path, " \n"), fs::remove_file(&path)] {
        broken.unwrap();
        clock.advance(Duration::from_secs(60));
        assert_eq!(value(&file), "Bearer three");
    }
    let missing = authenticator(Credentials::TokenFile { path: path.clone(), first: None }, &clock);
    let error = missing.authorization(Nanos::NEVER, None).unwrap_err().to_string();
    assert!(error.starts_with(&format!("the token file {} cannot be read: ", path.display())), "{error}");
    let first = Some(Secret::new("first".to_owned()));
    assert_eq!(value(&authenticator(Credentials::TokenFile { path, first }, &clock)), "Bearer first");
    let fixed = authenticator(Credentials::Token(Secret::new("t".to_owned())), &clock);
    assert!(!fixed.refused(Some(&Secret::new("Bearer t".to_owned()))));
    let password = Credentials::Password { user: "me".to_owned(), password: Secret::new("pw".to_owned()) };
    assert_eq!(value(&authenticator(password, &clock)), "Basic bWU6cHc=");
}
