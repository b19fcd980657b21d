//! Tokens, users, keys and credentials files.
//!
//! The cases follow nats.rs' `nkey_tests` and `jwt_tests` (Apache-2.0) and are rewritten here: a login, and a login
//! after a reconnect to another server. The tests create their own keys.

use std::fs;

use homeostat_nats::{NatsError, NatsErrorKind, NatsOptions};

use crate::support::keys::{Keys, credentials};
use crate::support::options;
use crate::support::server::TestServer;

/// Checks that the connection transports messages.
fn works(options: NatsOptions) {
    let connection = options.connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    connection.publish("a", b"1").unwrap();
    assert_eq!(subscription.recv().unwrap().payload, b"1");
}

fn unauthorized(options: NatsOptions) -> NatsError {
    let error = options.connect().unwrap_err();
    assert_eq!(error.kind(), NatsErrorKind::Unauthorized, "{error}");
    assert!(error.to_string().contains("refuses the credentials: Authorization Violation"), "{error}");
    error
}

#[test]
fn a_token_is_in_an_option_or_in_the_address() {
    let server = TestServer::with_config("authorization { token: \"s3cr3t@x\" }");
    works(options(&server.url()).token("s3cr3t@x"));
    works(options(&server.url().replace("nats://", "nats://s3cr3t%40x@")));
    unauthorized(options(&server.url()));
    let error = unauthorized(options(&server.url()).token("t0psecret"));
    assert!(!error.to_string().contains("t0psecret"));
}

#[test]
fn a_user_is_in_an_option_or_in_the_address() {
    let server = TestServer::with_config("authorization { user: \"me\", password: \"p:w\" }");
    works(options(&server.url()).user("me", "p:w"));
    works(options(&server.url().replace("nats://", "nats://me:p%3Aw@")));
    let error = unauthorized(options(&server.url()).user("me", "wr0ng"));
    assert!(!error.to_string().contains("wr0ng"));
}

#[test]
fn a_key_signs_the_challenge_of_each_new_server() {
    let user = Keys::user();
    let config = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", user.public());
    each_server_after_the_other(&config, &[], |options| options.nkey(user.seed()));
    let server = TestServer::with_config(&config);
    let error = unauthorized(options(&server.url()).nkey(Keys::user().seed()));
    assert!(!error.to_string().contains(&user.seed()));
    let plain = TestServer::with_arguments(&[]);
    let error = options(&plain.url()).nkey(user.seed()).connect().unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("the server sends no nonce to sign: it is not configured for nkeys or JWTs"), "{text}");
}

#[test]
fn a_credentials_file_is_used_with_each_new_server() {
    let (operator, account, user) = (Keys::operator(), Keys::account(), Keys::user());
    let config = format!(
        "operator: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {} }}\n",
        operator.token("op", &operator, &serde_json::json!({"type": "operator", "version": 2})),
        account.public(),
        operator.token("acc", &account, &Keys::account_claims()),
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("user.creds");
    fs::write(&path, credentials(&account.token("user", &user, &Keys::user_claims()), &user.seed())).unwrap();
    each_server_after_the_other(&config, &[], |options| options.credentials_file(&path));
    // An editor on Windows has saved the file.
    let text = fs::read_to_string(&path).unwrap().replace('\n', "\r\n");
    fs::write(&path, format!("\u{feff}{text}")).unwrap();

    // A changed file is used for the next connection.
    let server = TestServer::with_config(&config);
    let connection = options(&server.url()).credentials_file(&path).connect().unwrap();
    let stranger = Keys::user();
    fs::write(&path, credentials(&stranger.token("user", &stranger, &Keys::user_claims()), &stranger.seed())).unwrap();
    unauthorized(options(&server.url()).credentials_file(&path));
    assert!(connection.status().connected);
}

/// Starts three servers, and kills one after the other. Each time the connection continues.
fn each_server_after_the_other(config: &str, files: &[(&str, &str)], login: impl Fn(NatsOptions) -> NatsOptions) {
    let mut servers: Vec<_> = (0..3).map(|_| TestServer::with_files(config, files)).collect();
    let all = servers.iter().skip(1).fold(options(&servers[0].url()), |all, server| all.server(server.url()));
    let connection = login(all).connect().unwrap();
    let subscription = connection.subscribe("test").unwrap();
    loop {
        connection.publish("test", b"data").unwrap();
        assert_eq!(subscription.recv().unwrap().payload, b"data");
        let status = connection.status();
        let (current, connects) = (status.server, status.connects);
        servers.retain(|server| server.url() != format!("nats://{current}"));
        if servers.is_empty() {
            break;
        }
        crate::until::until("next server", || (connection.status().connects > connects).then_some(()));
    }
    assert_eq!(connection.status().connects, 3);
}

#[test]
fn faults_of_the_options_are_reported_before_the_first_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("user.creds");
    let shown = format!("credentials file is {path:?}, but must be");
    let nowhere = "nats://127.0.0.1:1";
    let text = options(nowhere).credentials_file(&path).connect().unwrap_err().to_string();
    assert!(text.starts_with(&format!("{shown} a readable file: No such file")), "{text}");
    fs::write(&path, "nothing").unwrap();
    let text = options(nowhere).credentials_file(&path).connect().unwrap_err().to_string();
    assert_eq!(text, format!("{shown} a file with a section \"-----BEGIN NATS USER JWT-----\""));
    fs::write(&path, credentials("a.b.c", "SUAAA")).unwrap();
    let error = options(nowhere).credentials_file(&path).connect().unwrap_err();
    assert!(error.is_invalid() && !error.to_string().contains("SUAAA"), "{error}");
    assert!(options(nowhere).nkey("SUAAA").connect().unwrap_err().is_invalid());
    let text = options(nowhere).root_certificates("/nowhere.pem").connect().unwrap_err().to_string();
    assert!(
        text.starts_with("root_certificates is \"/nowhere.pem\", but must be a PEM file with certificates"),
        "{text}"
    );
    let zero = std::time::Duration::ZERO;
    let text = options(nowhere).ping_interval(zero).connect().unwrap_err().to_string();
    assert_eq!(text, "ping_interval is 0ns, but must be at least 1ms");
    for prefix in ["", "a b", "a..b", "a.*", "a.>"] {
        let text = options(nowhere).inbox_prefix(prefix).connect().unwrap_err().to_string();
        assert_eq!(text, format!("inbox_prefix is {prefix:?}, but must be a subject without wildcards"));
    }
}

#[test]
fn debug_output_shows_no_secret() {
    let seed = Keys::user().seed();
    for options in [
        options("nats://me:s3cr3t@host").token("s3cr3t"),
        options("nats://s3cr3t@host").user("me", "s3cr3t"),
        options("nats://host").nkey(&seed),
    ] {
        let text = format!("{options:?}");
        assert!(!text.contains("s3cr3t") && !text.contains(&seed), "{text}");
        assert!(text.contains("host:4222"), "{text}");
    }
}
