//! Credential plugins, as scripts in a temporary folder.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tempfile::TempDir;

use super::{SERVER, authenticator, value, with, write};
use crate::config::Kubeconfig;
use crate::config::authenticator::Authenticator;
use crate::config::cluster_info::ClusterInfo;
use crate::config::identity::Credentials;
use homeostat::base::{CancellationToken, ManualClock};
use homeostat::rt::Nanos;

/// The credentials of a kubeconfig with this script as its plugin, stored beside the kubeconfig.
fn plugin(folder: &Path, script: &str, settings: &str) -> Credentials {
    use std::os::unix::fs::PermissionsExt;

    let path = folder.join("plugin.sh");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let exec = format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: ./plugin.sh, {settings}}}");
    let config = Kubeconfig::parse(&with(SERVER, &exec), folder).unwrap().config().unwrap();
    config.credentials().clone()
}

const PRINTED: &str = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":"#;

#[test]
fn a_plugin_runs_again_shortly_before_its_credentials_expire_and_after_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let now = jiff::Timestamp::try_from(clock.clock().time_of_day()).unwrap();
    let expires = now.checked_add(Duration::from_secs(60)).unwrap();
    let script = format!(
        "printf x >> runs\nprintf '%s' \"$KUBERNETES_EXEC_INFO\" > info\n\
         echo '{PRINTED}{{\"token\":\"'$TOKEN-$1-$(wc -c < runs | tr -d ' ')'\",\"expirationTimestamp\":\"{expires}\"}}}}'"
    );
    // The script works in its own folder.
    let script = format!("cd \"$(dirname \"$0\")\"\n{script}");
    let settings = "args: [a], env: [{name: TOKEN, value: t}], provideClusterInfo: true, interactiveMode: IfAvailable";
    let exec = authenticator(plugin(folder.path(), &script, settings), &clock);
    assert_eq!(value(&exec), "Bearer t-a-1");
    clock.advance(Duration::from_secs(49));
    assert_eq!(value(&exec), "Bearer t-a-1");
    clock.advance(Duration::from_secs(1));
    assert_eq!(value(&exec), "Bearer t-a-1", "the request does not wait for the renewal");
    exec.wait_for_run();
    assert_eq!(value(&exec), "Bearer t-a-2");
    let used = exec.authorization(Nanos::NEVER, None).unwrap().unwrap();
    assert_eq!(used.reveal(), "Bearer t-a-2", "the plugin has just run");
    assert!(exec.refused(Some(&used)));
    assert_eq!(value(&exec), "Bearer t-a-3");
    let info: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("info")).unwrap()).unwrap();
    let spec = json!({"interactive": false, "cluster": {"server": "https://10.0.0.1:6443"}});
    assert_eq!(info, json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": spec}));
}

#[test]
fn a_plugin_receives_all_settings_of_its_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let info = |cluster: &str| {
        let config = Kubeconfig::parse(&with(&format!("{SERVER}, {cluster}"), ""), &folder).unwrap().config().unwrap();
        ClusterInfo::of(config.parts())
    };
    write(&folder, "ca.crt", "one");
    let all = info(
        "certificate-authority: ca.crt, tls-server-name: k8s, proxy-url: 'http://me:pw@proxy:1', extensions: [\
         {name: other, extension: {1: a, c: 2024-01-01, d: ~, e: 1.10}}, {name: none}, \
         {extension: {audience: s3cret}, name: client.authentication.k8s.io/exec}]",
    );
    let expected = |authority: &str| {
        json!({
            "server": "https://10.0.0.1:6443", "certificate-authority-data": STANDARD.encode(authority),
            "tls-server-name": "k8s", "proxy-url": "http://me:pw@proxy:1", "config": {"audience": "s3cret"},
        })
    };
    assert_eq!(all.to_json().unwrap(), expected("one"));
    assert!(!format!("{all:?}").contains("s3cret"));
    // The file may be replaced.
    write(&folder, "ca.crt", "two");
    assert_eq!(all.to_json().unwrap(), expected("two"));
    let trusting = info("insecure-skip-tls-verify: true").to_json().unwrap();
    assert_eq!(trusting, json!({"server": "https://10.0.0.1:6443", "insecure-skip-tls-verify": true}));
}

#[test]
fn a_plugin_can_provide_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let script = format!("echo '{PRINTED}{{\"clientCertificateData\":\"CERT\",\"clientKeyData\":\"KEY\"}}}}'");
    let exec = authenticator(plugin(folder.path(), &script, ""), &clock);
    assert_eq!(value(&exec), "");
    let (certificate, key) = exec.certificate().unwrap();
    assert_eq!((certificate.as_str(), key.reveal().as_str()), ("CERT", "KEY"));
}

#[test]
fn a_plugin_that_fails_or_prints_rubbish_is_an_error_with_its_messages() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let fails = |script: &str, expected: &str| {
        let exec = authenticator(plugin(folder.path(), script, "installHint: get it at example.com"), &clock);
        let error = exec.authorization(Nanos::NEVER, None).unwrap_err().to_string();
        let command = folder.path().join("./plugin.sh");
        let start = format!("the credential plugin {} ", command.display());
        let fault = error.strip_prefix(&start).unwrap_or_else(|| panic!("{error}"));
        assert_eq!(fault, expected);
    };
    fails("echo 'please log in' >&2; exit 3", "failed with exit status: 3; it says: please log in");
    fails("echo hello", "printed no ExecCredential: expected value at line 1 column 1");
    // No error shows the credentials that a plugin prints.
    let wrong = "printed no ExecCredential: a field has a value of the wrong type at line 1 column ";
    fails(&format!("echo '{PRINTED}\"s3cret\"}}'"), &format!("{wrong}89"));
    fails(&format!("echo '{PRINTED}{{\"token\":7}}}}'"), &format!("{wrong}91"));
    fails("echo '{}'", "printed \"\" \"\", but must print \"client.authentication.k8s.io/v1\" \"ExecCredential\"");
    fails(&format!("echo '{PRINTED}null}}'"), "printed an ExecCredential without a status");
    fails(&format!("echo '{PRINTED}{{}}}}'"), "printed neither a token nor a client certificate");
    let half = format!("echo '{PRINTED}{{\"token\":\"t\",\"clientKeyData\":\"k\"}}}}'");
    fails(&half, "printed only one of clientCertificateData and clientKeyData");
    let gone = plugin(folder.path(), "", "installHint: get it at example.com");
    fs::remove_file(folder.path().join("plugin.sh")).unwrap();
    let error = authenticator(gone, &clock).authorization(Nanos::NEVER, None).unwrap_err().to_string();
    assert!(error.ends_with("cannot be run: No such file or directory (os error 2); get it at example.com"), "{error}");
}

/// A device-code login prints its code to standard error.
#[test]
fn a_plugin_that_takes_too_long_is_an_error_with_its_messages() {
    let plugin = ScriptedPlugin::new("printf 'visit \\033[1mexample.com\\n' >&2\nread _ <line");
    let _line = plugin.open_pipe("line");
    let (exec, clock, second) = (&plugin.exec, &plugin.clock, Duration::from_secs(1));
    let error = std::thread::scope(|scope| {
        let waits = scope.spawn(|| exec.authorization(clock.nanos().after(second), None).unwrap_err().to_string());
        clock.wait_for_sleepers(1);
        exec.wait_for_messages();
        clock.advance(second);
        waits.join().unwrap()
    });
    let expected = "plugin.sh did not print credentials in time; it says: visit \\u{1b}[1mexample.com";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn the_path_of_a_plugin_does_not_decide_where_its_command_is_found() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    // Two commands, one in this program's `PATH` and one outside it.
    for name in ["cat", "only-here"] {
        let path = write(&folder, name, "#!/bin/sh\necho chosen by env >&2; exit 9\n");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let status = format!("{PRINTED}{{\"token\":\"t\"}}}}");
    let printed = write(&folder, "printed", &status);
    let run = |command: &str| {
        let exec = format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: {command}, args: [{:?}], \
             env: [{{name: PATH, value: {:?}}}], installHint: \"get\\e[31m it\"}}",
            printed,
            folder.path()
        );
        let config = Kubeconfig::parse(&with(SERVER, &exec), &folder).unwrap().config().unwrap();
        let exec = authenticator(config.credentials().clone(), &ManualClock::new());
        exec.authorization(Nanos::NEVER, None).map(|_| value(&exec)).map_err(|error| error.to_string())
    };
    assert_eq!(run("cat").unwrap(), "Bearer t");
    let expected = "the credential plugin only-here cannot be run: no folder of this program's PATH has this command; \
                    get\\u{1b}[31m it";
    assert_eq!(run("only-here").unwrap_err(), expected);
}

/// A plugin in its own folder, where it counts its runs, and the clock.
struct ScriptedPlugin {
    folder: TempDir,
    clock: ManualClock,
    exec: Authenticator,
}

impl ScriptedPlugin {
    fn new(script: &str) -> Self {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let script = format!("cd \"$(dirname \"$0\")\"\nprintf x >> runs\n{script}");
        let exec = authenticator(plugin(folder.path(), &script, ""), &clock);
        Self { folder, clock, exec }
    }

    /// Creates a named pipe, and returns its path.
    fn pipe(&self, name: &str) -> std::path::PathBuf {
        let path = self.folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    /// Creates a named pipe and opens both ends, so that neither waits for the other.
    fn open_pipe(&self, name: &str) -> fs::File {
        fs::OpenOptions::new().read(true).write(true).open(self.pipe(name)).unwrap()
    }

    fn runs(&self) -> usize {
        fs::read(self.folder.path().join("runs")).unwrap_or_default().len()
    }

    /// Sets the token that the plugin prints, and its expiry in seconds since the clock was created.
    fn prints(&self, token: &str, expires: u64) {
        let expires = jiff::Timestamp::UNIX_EPOCH.checked_add(Duration::from_secs(expires)).unwrap();
        let status = format!("{{\"token\":\"{token}\",\"expirationTimestamp\":\"{expires}\"}}");
        write(&self.folder, "credential", &format!("{PRINTED}{status}}}"));
    }

    fn error(&self) -> String {
        self.exec.authorization(Nanos::NEVER, None).unwrap_err().to_string()
    }
}

#[test]
fn a_hanging_plugin_delays_no_call_past_its_deadline_and_dies_with_its_client() {
    // The plugin ends with this test at the latest.
    let plugin = ScriptedPlugin::new("exec 3>alive\necho up >&3\nsh -c 'read _ <line'\ntrue");
    let (alive, _line) = (plugin.pipe("alive"), plugin.open_pipe("line"));
    let (exec, clock, second) = (&plugin.exec, &plugin.clock, Duration::from_secs(1));
    let stop = CancellationToken::new();
    let mut alive = std::thread::scope(|scope| {
        let waits = scope.spawn(|| exec.authorization(clock.nanos().after(second), None).unwrap_err().to_string());
        let mut alive = BufReader::new(fs::File::open(alive).unwrap());
        alive.read_line(&mut String::new()).unwrap();
        clock.wait_for_sleepers(1);
        clock.advance(second);
        let error = waits.join().unwrap();
        assert!(error.ends_with("plugin.sh did not print credentials in time"), "{error}");
        // The next thread waits for the same run.
        let waits = scope.spawn(|| exec.authorization(Nanos::NEVER, Some(&stop)).is_err());
        clock.wait_for_sleepers(1);
        stop.cancel();
        assert!(waits.join().unwrap());
        alive
    });
    assert_eq!(plugin.runs(), 1);
    drop(plugin.exec);
    // The pipe ends when the plugin and its child have died.
    assert_eq!(alive.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn a_failure_of_a_plugin_is_the_answer_to_all_threads() {
    let plugin = ScriptedPlugin::new("read _ <line\necho the vault is sealed >&2\nexit 3");
    let mut line = plugin.open_pipe("line");
    let errors: Vec<_> = std::thread::scope(|scope| {
        let waits: Vec<_> = (0..5).map(|_| scope.spawn(|| plugin.error())).collect();
        plugin.clock.wait_for_sleepers(5);
        line.write_all(b"\n").unwrap();
        waits.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for error in errors {
        assert!(error.ends_with("failed with exit status: 3; it says: the vault is sealed"), "{error}");
    }
    plugin.error();
    assert_eq!(plugin.runs(), 1);
    // After two seconds, the plugin runs again.
    plugin.clock.advance(Duration::from_secs(2));
    line.write_all(b"\n").unwrap();
    plugin.error();
    assert_eq!(plugin.runs(), 2);
}

#[test]
fn a_valid_token_is_kept_while_its_renewal_fails_or_brings_no_other() {
    let plugin = ScriptedPlugin::new("test ! -e fails || exit 7\ncat credential");
    let fails = plugin.folder.path().join("fails");
    let advance = |seconds| plugin.clock.advance(Duration::from_secs(seconds));
    // The second request happens after the renewal.
    let value_twice = || {
        let first = value(&plugin.exec);
        plugin.exec.wait_for_run();
        (first, value(&plugin.exec), plugin.runs())
    };
    let expected = |token: &str, runs| (format!("Bearer {token}"), format!("Bearer {token}"), runs);
    plugin.prints("one", 60);
    assert_eq!(value_twice(), expected("one", 1));
    // The early renewals begin, at most one run per second.
    advance(50);
    fs::write(&fails, "").unwrap();
    assert_eq!(value_twice(), expected("one", 2));
    advance(1);
    assert_eq!(value_twice(), expected("one", 3));
    fs::remove_file(&fails).unwrap();
    advance(1);
    assert_eq!(value_twice(), expected("one", 4), "the plugin has printed the same token again");
    advance(1);
    plugin.prints("two", 120);
    assert_eq!(value_twice(), ("Bearer one".to_owned(), "Bearer two".to_owned(), 5));
    // An expired token is not used.
    fs::write(&fails, "").unwrap();
    advance(66);
    assert_eq!(value_twice(), expected("two", 6));
    advance(1);
    assert!(plugin.error().ends_with("failed with exit status: 7"));
    assert_eq!(plugin.runs(), 6);
    fs::remove_file(&fails).unwrap();
    plugin.prints("three", 1_000);
    advance(1);
    assert_eq!(value_twice(), expected("three", 7));
}

/// The plugin may take longer than the timeout of a call.
#[test]
fn an_early_renewal_delays_no_request() {
    let plugin = ScriptedPlugin::new("test ! -e hangs || read _ <line\ncat credential");
    let mut line = plugin.open_pipe("line");
    plugin.prints("one", 60);
    assert_eq!(value(&plugin.exec), "Bearer one");
    plugin.prints("two", 120);
    fs::write(plugin.folder.path().join("hangs"), "").unwrap();
    plugin.clock.advance(Duration::from_secs(52));
    for _ in 0..3 {
        assert_eq!(value(&plugin.exec), "Bearer one");
    }
    line.write_all(b"\n").unwrap();
    plugin.exec.wait_for_run();
    assert_eq!((value(&plugin.exec), plugin.runs()), ("Bearer two".to_owned(), 2));
}
