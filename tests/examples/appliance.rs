//! The appliance, driven as a process: by `kubectl`, by the commands of the README, and over HTTP. `KUBECTL` names
//! another `kubectl` than the one in the path.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::Program;
use crate::until::until;
use homeostat_test_support::example;

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const MEDIA: &str = "examples/appliance/media.yaml";
const VOLUMES: &str = "/apis/example.com/v1/namespaces/default/volumes";

/// A running appliance, and the home of its user.
struct Appliance {
    program: Program,
    /// The address of its server, as in `127.0.0.1:8080`.
    address: String,
    home: TempDir,
}

impl Appliance {
    fn new() -> Self {
        Self::of(TempDir::new().unwrap())
    }

    /// Starts the appliance. Its data are in the home: it is the folder for temporary files.
    fn of(home: TempDir) -> Self {
        let mut command = Command::new(example!("appliance"));
        command.env("TMPDIR", home.path());
        let mut program = Program::start(command);
        let line = program.expect("The status page is http://").text;
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Self { program, address, home }
    }

    /// Returns a path below the folder of the data.
    fn path(&self, path: &str) -> PathBuf {
        self.home.path().join("homeostat-appliance").join(path)
    }

    /// Ends it with Ctrl-C, and returns the home.
    fn end(self) -> TempDir {
        let Self { mut program, home, .. } = self;
        program.signal(Signal::INT);
        assert!(program.ended().success(), "{:?}", program.unasked());
        program.expect("The appliance has ended.");
        home
    }

    /// Runs a shell script at the root of the repository, in which `kubectl` is the tested one.
    fn shell(&self, script: &str) -> Output {
        let kubectl = kubectl();
        let mut command = Command::new("sh");
        command.args(["-e", "-c", &format!("kubectl() {{ env \"$KUBECTL\" \"$@\"; }}\n{script}")]);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("KUBECTL", kubectl);
        command.env("HOME", self.home.path()).env("KUBECONFIG", self.path("kubeconfig")).env("no_proxy", "*");
        command.current_dir(ROOT).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a shell script that must succeed. Returns its output.
    #[track_caller]
    fn run(&self, script: &str) -> String {
        let output = self.shell(script);
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a shell script that must fail. Returns its error.
    #[track_caller]
    fn refused(&self, script: &str) -> String {
        let output = self.shell(script);
        assert!(!output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Sends a request. Returns the whole reply.
    fn request(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (host, length) = (&self.address, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}");
        stream.write_all(format!("{head}\r\nContent-Type: application/json\r\n\r\n{body}").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn get(&self, path: &str) -> String {
        self.request("GET", path, "")
    }
}

/// Returns the program `kubectl`, which must be installed.
fn kubectl() -> String {
    let program = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
    let started = Command::new(&program).args(["version", "--client"]).output();
    started.unwrap_or_else(|error| {
        panic!("{program} cannot be started ({error}): install it, for example by `apt-get install kubernetes-client`")
    });
    program
}

#[test]
fn kubectl_creates_shows_and_deletes_volumes_and_shares() {
    let appliance = Appliance::new();
    // The JavaScript client refuses plain HTTP otherwise.
    let settings = fs::read_to_string(appliance.path("kubeconfig")).unwrap();
    assert!(settings.contains(r#""insecure-skip-tls-verify":true"#), "{settings}");
    appliance.run(&format!("kubectl apply -f {MEDIA}"));
    appliance.run("kubectl wait --for=condition=Ready --timeout=60s volume/music share/music");
    let (file, export) = (appliance.path("volumes/default.music/data"), appliance.path("exports/default.music"));
    assert_eq!(fs::metadata(&file).unwrap().len(), 16 << 20);
    assert!(fs::read_to_string(&export).unwrap().contains(r#""readOnly":true"#));

    appliance.run("kubectl wait --for=condition=Ready=false --timeout=60s share/films");
    let table = appliance.run("kubectl get sh");
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "VOLUME", "PROTOCOL", "READY", "REASON", "AGE"]);
    assert_eq!(rows[1][..5], ["films", "films", "SMB", "False", "NoVolume"]);
    assert_eq!(rows[2][..5], ["music", "music", "NFS", "True", "Ready"]);
    let described = appliance.run("kubectl describe share films");
    assert!(described.contains("there is no volume films"), "{described}");
    until("the events are stored", || {
        let events = appliance.run("kubectl get events");
        ["NoVolume", "Made", "Exported"].iter().all(|reason| events.contains(reason))
    });
    until("the page shows the failing key", || appliance.get("/").contains("there is no volume films"));
    let explained = appliance.run("kubectl explain volume.spec.sizeMib");
    assert!(explained.contains("can grow, but not shrink"), "{explained}");

    appliance.run(
        "kubectl create -f - <<END\n{\"apiVersion\": \"example.com/v1\", \"kind\": \"Volume\", \"metadata\": {\"name\": \"films\"}, \
         \"spec\": {\"sizeMib\": 8}}\nEND",
    );
    appliance.run("kubectl wait --for=condition=Ready --timeout=60s share/films");
    appliance.run("kubectl patch volume music --type=merge -p '{\"spec\": {\"sizeMib\": 32}}'");
    until("the volume has grown", || fs::metadata(&file).unwrap().len() == 32 << 20);

    appliance.run("kubectl delete volume music");
    assert!(!file.exists());
    let share = "/apis/example.com/v1/namespaces/default/shares/music";
    until("the share is gone", || appliance.get(share).starts_with("HTTP/1.1 404 "));
    assert!(!export.exists() && appliance.path("exports/default.films").exists());
    appliance.end();
}

#[test]
fn a_share_that_is_orphaned_outlives_its_volume() {
    let appliance = Appliance::new();
    appliance.run(&format!("kubectl apply -f {MEDIA}"));
    appliance.run("kubectl wait --for=condition=Ready --timeout=60s share/music");
    let share = || appliance.get("/apis/example.com/v1/namespaces/default/shares/music");
    assert!(share().contains("ownerReferences"));
    appliance.run("kubectl delete volume music --cascade=orphan");
    // The controller has seen that the volume is gone, and the share is still there.
    until("the share misses its volume", || {
        let share = share();
        assert!(share.starts_with("HTTP/1.1 200 ") && !share.contains("deletionTimestamp"), "{share}");
        share.contains(r#""reason":"NoVolume""#)
    });
    assert!(!share().contains("ownerReferences"));
    appliance.end();
}

#[test]
fn invalid_objects_are_refused_by_their_field() {
    let appliance = Appliance::new();
    appliance.run(&format!("kubectl apply -f {MEDIA}"));
    for (object, fields, error) in [
        ("volume music", "{\"sizeMib\": 0}", "spec.sizeMib: Invalid value: 0: must be at least 1"),
        ("volume music", "{\"sizeMib\": 8}", "spec.sizeMib: Invalid value: \"8\": must not be smaller than before, 16"),
        ("share music", "{\"protocol\": \"FTP\"}", "spec.protocol: Unsupported value: \"FTP\""),
        ("share music", "{\"volume\": \"films\"}", "spec.volume: Invalid value: \"films\": must not change"),
    ] {
        let refused = appliance.refused(&format!("kubectl patch {object} --type=merge -p '{{\"spec\": {fields}}}'"));
        assert!(refused.contains(error), "{refused}");
    }
    let refused = appliance.request("POST", VOLUMES, r#"{"metadata": {"name": "huge"}, "spec": {"sizeMib": 2000}}"#);
    assert!(refused.starts_with("HTTP/1.1 422 ") && refused.contains(r#""field":"spec.sizeMib""#), "{refused}");
    appliance.end();
}

#[test]
fn a_second_start_finds_the_objects_and_a_second_process_is_refused() {
    let appliance = Appliance::new();
    let made = appliance.request("POST", VOLUMES, r#"{"metadata": {"name": "films"}, "spec": {"sizeMib": 8}}"#);
    assert!(made.starts_with("HTTP/1.1 201 "), "{made}");
    let ready = |appliance: &Appliance| appliance.get(&format!("{VOLUMES}/films")).contains(r#""reason":"Ready""#);
    until("the volume is ready", || ready(&appliance));
    for (path, content) in [
        ("/", "<title>appliance"),
        ("/readyz?verbose", "[+]data folder ok"),
        ("/metrics", "controller=\"volumes\""),
        ("/statusz", "\"name\":\"shares\""),
    ] {
        let reply = appliance.get(path);
        assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains(content), "{path}: {reply}");
    }

    let data = appliance.path("");
    let other = Command::new(example!("appliance")).arg("--data").arg(&data).output().unwrap();
    let error = String::from_utf8(other.stderr).unwrap();
    assert_eq!(other.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: ") && error.contains("objects.redb") && error.lines().count() == 1, "{error}");

    let home = appliance.end();
    let mut file = data.join("volumes/default.films");
    assert!(file.exists());
    fs::remove_dir_all(&file).unwrap();
    let appliance = Appliance::of(home);
    assert!(ready(&appliance));
    file.push("data");
    until("the file is made again", || fs::metadata(&file).is_ok_and(|file| file.len() == 8 << 20));
    appliance.end();
}

#[test]
fn the_commands_of_the_readme_work() {
    let readme = include_str!("../../README.md");
    let (_, tour) = readme.split_once("## A program for `kubectl`\n").unwrap();
    let (tour, _) = tour.split_once("\n## ").unwrap();
    let appliance = Appliance::new();
    let data = appliance.path("");
    let data = data.to_str().unwrap().trim_end_matches('/');
    let blocks = tour.split("```console\n").skip(1).filter_map(|block| block.split("```").next());
    let run = |script: &str| {
        appliance.run(&script.replace("/tmp/appliance", data).replace("127.0.0.1:8080", &appliance.address))
    };
    let [by_kubectl, by_curl] = blocks.collect::<Vec<_>>().try_into().unwrap();
    let shown = run(by_kubectl);
    assert!(
        shown.contains("share.example.com/music condition met") && shown.contains("share.example.com/films"),
        "{shown}"
    );
    let shown = run(by_curl);
    assert!(shown.contains(r#""name":"films""#) && shown.contains("[+]volumes ok"), "{shown}");
    appliance.end();
}

#[test]
fn the_appliance_has_help_and_refuses_bad_arguments() {
    let program = example!("appliance");
    let run = |arguments: &[&str]| {
        let output = Command::new(&program).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, help) = run(&["--help"]);
    assert!(code == Some(0) && help.contains("Usage: appliance") && help.contains("--data <PATH>"), "{help}");
    let (code, error) = run(&["--port", "70000"]);
    assert!(code == Some(2) && error.contains("70000"), "{error}");
    let file = Path::new(ROOT).join("README.md");
    let (code, error) = run(&["--data", file.to_str().unwrap()]);
    assert!(code == Some(1) && error.starts_with(&format!("error: {}: ", file.display())), "{error}");
}
