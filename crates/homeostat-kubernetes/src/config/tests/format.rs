//! Kubeconfig texts that `kubectl` reads, and faulty texts.

use std::fs;

use super::{SERVER, parse, with};
use crate::config::identity::Credentials;
use crate::config::secret::Secret;
use crate::config::{ClusterConfig, Impersonation, Kubeconfig};

const PLUGIN: &str = "exec: {apiVersion: client.authentication.k8s.io/v1, command: plugin}";

/// A usable kubeconfig with extra entries in its lists.
fn beside(contexts: &str, clusters: &str, users: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: main\n\
         contexts:\n- name: main\n  context: {{cluster: one, user: admin}}\n{contexts}\n\
         clusters:\n- name: one\n  cluster: {{{SERVER}}}\n{clusters}\n\
         users:\n- name: admin\n  user: {{token: example}}\n{users}\n"
    )
}

fn is_usable(config: &ClusterConfig) -> bool {
    let token = Credentials::Token(Secret::new("example".to_owned()));
    config.server() == "https://10.0.0.1:6443" && *config.credentials() == token
}

#[test]
fn null_is_a_field_that_is_not_set() {
    let contexts = [
        "- name: other",
        "- name: other\n  context:",
        "- name: other\n  context: {cluster: one, user: }",
        "- name: other\n  context: {cluster: ~, user: ~, namespace: ~}",
        "- {name: ~, context: ~}",
        "- ~",
        "-",
    ];
    let clusters = [
        "- name: other\n  cluster: {server: null}",
        "- name: other\n  cluster:",
        "- cluster: {server: 'https://127.0.0.1:1'}",
        "- name: other\n  cluster: {server: x, insecure-skip-tls-verify: ~, tls-server-name: ~, certificate-authority: ~,\
         \n    certificate-authority-data: ~, proxy-url: ~, extensions: [~, {name: ~, extension: ~}]}",
        "- ~",
    ];
    let users = [
        "- name: other\n  user:",
        "- name: other\n  user: {}",
        "- user: {token: other}",
        "- name: other\n  user: {token: ~, tokenFile: ~, username: ~, password: ~, client-certificate: ~, client-key: ~,\
         \n    client-certificate-data: ~, client-key-data: ~, auth-provider: ~, exec: ~, as: ~, as-uid: ~, as-groups: ~,\
         \n    as-user-extra: ~}",
        "- name: other\n  user: {as: me, as-groups: [~], as-user-extra: {a: ~, b: [~]}}",
        "- name: other\n  user: {exec: {apiVersion: ~, command: ~, args: ~, env: ~, installHint: ~, interactiveMode: ~,\
         \n    provideClusterInfo: ~}}",
        "- name: other\n  user: {exec: {args: [~], env: [~, {name: ~, value: ~}, {name: A}]}}",
        "-",
    ];
    let texts = contexts.iter().map(|entry| beside(entry, "", ""));
    let texts = texts.chain(clusters.iter().map(|entry| beside("", entry, "")));
    for text in texts.chain(users.iter().map(|entry| beside("", "", entry))) {
        let file = Kubeconfig::parse(&text, "/etc/app").unwrap_or_else(|error| panic!("{text}{error}"));
        assert!(is_usable(&file.config().unwrap()), "{text}");
    }
    for list in ["contexts", "clusters", "users", "current-context", "preferences"] {
        assert!(parse(&format!("{list}:")).is_empty());
    }
}

#[test]
fn null_in_the_entries_in_use_is_not_set_too() {
    let file = parse(&with(
        "server: 'https://10.0.0.1:6443', insecure-skip-tls-verify: null, tls-server-name: ~, proxy-url: ~",
        "token: example, as: jane, as-uid: ~, as-groups: [a, ~]",
    ));
    let config = file.config().unwrap();
    assert!(is_usable(&config));
    let expected = Impersonation {
        user: "jane".to_owned(),
        groups: vec!["a".to_owned(), String::new()],
        ..Impersonation::default()
    };
    assert_eq!(config.parts().acts_as, Some(expected));
    let exec = format!("{PLUGIN}}}").replace("}}", ", env: [{name: A, value: null}], args: [~, x], installHint: ~}");
    assert!(matches!(parse(&with(SERVER, &exec)).config().unwrap().credentials(), Credentials::Exec(_)));
}

/// This is the rule of Go's YAML library, which also reads JSON.
#[test]
fn the_last_of_two_equal_fields_counts() {
    let file = parse(&beside("", "", "").replace("kind: Config", "kind: Config\nkind: Config"));
    assert!(is_usable(&file.config().unwrap()));
    let file = parse(&with("server: 'https://first', server: 'https://10.0.0.1:6443'", "token: first, token: example"));
    assert!(is_usable(&file.config().unwrap()));
}

#[test]
fn only_the_first_document_counts() {
    let one = beside("", "", "");
    let second = beside("", "", "").replace("https://10.0.0.1:6443", "https://second").replace("main", "second");
    for text in [
        format!("{one}---\n{second}"),
        format!("{one}---\n"),
        format!("---\n{one}...\n"),
        format!("# comment\n---\n{one}---\n[not: a kubeconfig"),
    ] {
        let file = parse(&text);
        assert_eq!(file.contexts().collect::<Vec<_>>(), ["main"]);
        assert!(is_usable(&file.config().unwrap()));
    }
}

#[test]
fn a_file_may_be_utf_16_or_start_with_a_byte_order_mark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let text = beside("", "", "").replace("main", "größe");
    let units = || text.encode_utf16();
    let little: Vec<u8> = [0xff, 0xfe].into_iter().chain(units().flat_map(u16::to_le_bytes)).collect();
    let big: Vec<u8> = [0xfe, 0xff].into_iter().chain(units().flat_map(u16::to_be_bytes)).collect();
    for bytes in [little, big, format!("\u{feff}{text}").into_bytes()] {
        fs::write(&path, bytes).unwrap();
        let file = Kubeconfig::read(&path).unwrap();
        assert_eq!(file.current_context(), Some("größe"));
        assert!(is_usable(&file.config().unwrap()));
    }
    fs::write(&path, b"kind: \xff").unwrap();
    let error = Kubeconfig::read(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{}: is not a kubeconfig: the file is not text in UTF-8 or UTF-16", path.display()));
}

/// `kubectl` refuses them too. An entry in another file is not a duplicate.
#[test]
fn two_entries_of_one_name_in_a_file_are_refused() {
    let cases = [
        ("contexts", beside("- name: main\n  context: {cluster: one}", "", "")),
        ("clusters", beside("", "- name: one\n  cluster: {server: 'https://other'}", "")),
        ("users", beside("", "", "- name: admin\n  user: {token: other}")),
    ];
    for (list, text) in cases {
        let error = Kubeconfig::parse(&text, "/").unwrap_err().to_string();
        let name = ["main", "one", "admin"].into_iter().find(|name| error.contains(&format!("{name:?}"))).unwrap();
        let expected = format!(
            "kubeconfig: is not a kubeconfig: {list} has two entries with the name {name:?}: remove one of them"
        );
        assert_eq!(error, expected);
    }
    assert!(Kubeconfig::parse(&beside("-\n-", "-\n-", "- user: {token: a}\n- user: {token: b}"), "/").is_ok());
}

#[test]
fn a_fault_names_its_field_and_the_expected_value() {
    let cases = [
        ("users: [{name: u, user: {token: [s3cret]}}]", "users[0].user.token must be a text at line 1, column 33"),
        ("users: [~, {name: u, user: s3cret}]", "users[1].user must have fields (name: value) at line 1, column 28"),
        ("users: s3cret", "users must be a list at line 1, column 8"),
        ("- a list", "the file must have fields (name: value) at line 1, column 1"),
        (
            "clusters:\n- cluster:\n    insecure-skip-tls-verify: perhaps",
            "clusters[0].cluster.insecure-skip-tls-verify must be true or false at line 3, column 31",
        ),
        ("users: [{user: {exec: {args: s3cret}}}]", "users[0].user.exec.args must be a list at line 1, column 30"),
        ("users: [{name: 's3cret", "it is not YAML: unclosed quote at line 1, column 16"),
    ];
    for (text, fault) in cases {
        let error = Kubeconfig::parse(text, "/").unwrap_err().to_string();
        assert_eq!(error, format!("kubeconfig: is not a kubeconfig: {fault}"));
    }
}

/// A kubeconfig from a stranger may contain escape codes for the terminal that shows an error.
#[test]
fn escape_codes_of_names_do_not_reach_a_terminal() {
    let text = "contexts: [{name: \"\\e[31mred\"}]\nusers: [{name: a}]";
    let error = parse(text).config().unwrap_err().to_string();
    assert_eq!(error, "kubeconfig: current-context is not set; name one of the contexts: \\u{1b}[31mred");
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: \"\\e[31m\", interactiveMode: Always}";
    let error = parse(&with(SERVER, exec)).config().unwrap_err().to_string();
    assert!(error.contains("exec: \\u{1b}[31m asks its user"), "{error}");
}

/// client-go's `UpdateTransportConfig` ignores the plugin if there is a token, a user name or a certificate.
#[test]
fn static_credentials_win_over_a_plugin_and_an_auth_provider() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), "t").unwrap();
    let token = || Credentials::Token(Secret::new("t".to_owned()));
    let password = Credentials::Password { user: "u".to_owned(), password: Secret::new(String::new()) };
    let file = Credentials::TokenFile { path: folder.path().join("token"), first: None };
    let broken = "exec: {apiVersion: v0, command: '', interactiveMode: Always}";
    for other in [PLUGIN, broken, "auth-provider: {name: gcp}"] {
        let credentials = |user: &str| {
            let text = with(SERVER, &format!("{user}, {other}"));
            let config = Kubeconfig::parse(&text, &folder).unwrap().config().unwrap();
            (config.credentials().clone(), config.parts().certificate.is_some())
        };
        assert_eq!(credentials("token: t"), (token(), false));
        assert_eq!(credentials("token: t, username: u"), (token(), false));
        assert_eq!(credentials("tokenFile: token"), (file.clone(), false));
        assert_eq!(credentials("username: u"), (password.clone(), false));
        let certificate = "client-certificate-data: YQ==, client-key-data: YQ==";
        assert_eq!(credentials(certificate), (Credentials::None, true));
        assert_eq!(credentials(&format!("token: t, {certificate}")), (token(), true));
    }
    let config = parse(&with(SERVER, PLUGIN)).config().unwrap();
    assert!(matches!(config.credentials(), Credentials::Exec(_)));
    assert_eq!(*config.client_certificate("c", "k").credentials(), Credentials::None);
}
