//! `kubectl` against a server in this process. The variable `KUBECTL` can name another program.

mod access;
mod changes;
mod events;
mod reads;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::time::Duration;

use crate::until::until;
use homeostat::Running;
use homeostat_objects::{Client, Kind, KindDefinition, MemoryClient, ObjectKey, Patch, PatchTarget, PrintColumn};
use homeostat_serve::{
    Access, AccessTarget, ObjectApi, ObjectApiBuilder, Rejection, ServedResource, Server, ServerControl,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");

/// A server with sites, and a user's home directory with a kubeconfig.
pub(crate) struct Door {
    pub(crate) client: MemoryClient,
    home: TempDir,
    api: ObjectApi,
    address: SocketAddr,
    server: Running<ServerControl>,
}

/// The result of a command.
#[derive(Debug)]
struct Outcome {
    success: bool,
    out: String,
    err: String,
}

impl Outcome {
    /// Returns the output of a command that must succeed.
    #[track_caller]
    fn ok(self) -> String {
        assert!(self.success, "{self:?}");
        self.out
    }

    /// Returns the error of a command that must fail.
    #[track_caller]
    fn fails(self) -> String {
        assert!(!self.success, "{self:?}");
        self.err
    }
}

fn sites() -> ServedResource {
    let spec = json!({
        "type": "object", "required": ["title"], "description": "The wish of the owner.",
        "properties": {
            "title": {"type": "string", "minLength": 1, "description": "The title in the browser."},
            "pages": {"type": "integer", "minimum": 0, "default": 1},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    });
    let condition = json!({"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}});
    let conditions = json!({"type": "array", "items": condition});
    let status = json!({"type": "object", "properties": {"phase": {"type": "string"}, "conditions": conditions}});
    let properties = json!({"spec": spec, "status": status});
    let definition = KindDefinition::new(SITE)
        .short_name("si")
        .category("all")
        .column(PrintColumn::string("Title", ".spec.title"))
        .column(PrintColumn::integer("Pages", ".spec.pages").wide())
        .schema(json!({"type": "object", "description": "A website.", "required": ["spec"], "properties": properties}));
    ServedResource::new(definition).validate(|_, site| match site["spec"]["title"].as_str() {
        Some("Taken") => Err(Rejection::invalid("spec.title", "Taken", "is the title of another site")),
        _ => Ok(()),
    })
}

fn serve(api: &ObjectApi, address: SocketAddr) -> Running<ServerControl> {
    let server = Server::builder(address).objects(api).authorize(|request| match &request.target {
        AccessTarget::Objects { resource, .. } if resource == "secrets" => {
            Access::Deny("secrets are closed".to_owned())
        }
        _ => Access::Allow,
    });
    server.build().unwrap().start().unwrap()
}

impl Door {
    fn new() -> Self {
        Self::with(|api| api.serve(ServedResource::core_events()))
    }

    /// Starts a server that also serves other kinds.
    pub(crate) fn with(others: impl FnOnce(ObjectApiBuilder) -> ObjectApiBuilder) -> Self {
        let client = MemoryClient::builder().versions_by_time().build();
        let api = ObjectApi::builder(Arc::new(client.clone()))
            .serve(sites())
            .serve(KindDefinition::new(Kind::namespaced("", "v1", "ConfigMap")).short_name("cm").with_status(false));
        let api = others(api).build().unwrap();
        let server = serve(&api, (Ipv4Addr::LOCALHOST, 0).into());
        let address = server.addresses()[0];
        let home = TempDir::new().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "door",
            "clusters": [{"name": "door", "cluster": {
                "server": format!("http://{address}"),
                // The JavaScript client refuses plain HTTP without this line.
                "insecure-skip-tls-verify": true,
            }}],
            "contexts": [{"name": "door", "context": {"cluster": "door", "user": "me", "namespace": "default"}}],
            "users": [{"name": "me", "user": {}}],
        });
        std::fs::write(home.path().join("config"), config.to_string()).unwrap();
        Self { client, home, api, address, server }
    }

    /// Stops the server, and starts another one at the same address with the same objects.
    #[cfg(target_os = "linux")]
    pub(crate) fn restart(&mut self) {
        self.server.stop();
        self.server.join_timeout(Duration::from_secs(60)).unwrap();
        self.server = serve(&self.api, self.address);
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the user's home directory.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned()));
        command.args(arguments);
        command
    }

    /// Returns a command that runs a program as this user.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let (mut command, home) = (Command::new(program), self.home.path());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", home).env("TMPDIR", home).env("KUBECONFIG", home.join("config"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        self.run_with(arguments, "")
    }

    /// Runs a command with this input.
    fn run_with(&self, arguments: &[&str], input: &str) -> Outcome {
        Self::finish(self.command(arguments), input)
    }

    fn finish(mut command: Command, input: &str) -> Outcome {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| missing(&error));
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Outcome { success: output.status.success(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Starts a command that prints lines until it is stopped.
    fn follow(&self, arguments: &[&str]) -> Followed {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| missing(&error));
        let lines = BufReader::new(child.stdout.take().unwrap());
        Followed { child, lines }
    }

    /// Writes a file into the home directory, and returns its path.
    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Creates a site.
    fn create(&self, name: &str, title: &str) {
        self.run_with(&["create", "-f", "-"], &site(name, title).to_string()).ok();
    }

    /// Writes the status of a site, as a controller does.
    fn set_status(&self, name: &str, status: &Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.client.patch(&SITE, &ObjectKey::new("default", name), &patch, PatchTarget::Status).unwrap();
    }

    /// Waits until a command watches objects.
    fn wait_for_watch(&self) {
        until("a command watches", || self.server.counts().open_streams > 0);
    }

    fn get(&self, name: &str) -> Value {
        serde_json::from_str(&self.run(&["get", "site", name, "-o", "json"]).ok()).unwrap()
    }
}

/// A command that keeps running.
struct Followed {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Followed {
    /// Returns the words of the next line.
    fn words(&mut self) -> Vec<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn missing(error: &std::io::Error) -> ! {
    panic!("kubectl cannot be started ({error}): install it, for example by `apt-get install kubernetes-client`")
}

fn site(name: &str, title: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Site",
        "metadata": {"name": name, "namespace": "default", "labels": {"name": name}}, "spec": {"title": title},
    })
}
