//! Credential plugins: commands that print credentials.
//!
//! The protocol is `client.authentication.k8s.io` in the versions `v1` and `v1beta1`.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::field::{Field, FieldList};
use super::process::{self, Messages};
use super::secret::Secret;
use homeostat::base::CancellationToken;
use homeostat::rt::{debug_with_causes, one_line};

/// The protocol versions that this client supports.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// A plugin is killed after this time, so that the next run may succeed.
const LONGEST_RUN: Duration = Duration::from_secs(120);

/// The section `exec` of a kubeconfig's user.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ExecSettings {
    api_version: Field<String>,
    command: Field<String>,
    /// Arguments may contain passwords.
    args: FieldList<Secret<String>>,
    env: FieldList<Variable>,
    install_hint: Field<String>,
    interactive_mode: Field<String>,
    provide_cluster_info: Field<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Variable {
    name: Field<String>,
    value: Field<Secret<String>>,
}

/// A command that prints credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecPlugin {
    api_version: String,
    command: OsString,
    args: Vec<Secret<String>>,
    env: Vec<Variable>,
    /// Advice when the command is missing. May be empty.
    install_hint: String,
    /// Whether the plugin needs the server's description.
    pub(crate) wants_cluster: bool,
}

/// The credentials that a plugin has printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecCredentials {
    pub(crate) token: Option<Secret<String>>,
    /// A certificate and its key in PEM.
    pub(crate) certificate: Option<(String, Secret<String>)>,
    pub(crate) expires: Option<Timestamp>,
}

/// The error of a plugin: command, fault and standard error.
pub(crate) struct ExecError {
    command: OsString,
    fault: String,
    messages: String,
    hint: String,
}

/// The output of a plugin.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Output {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    status: Option<PluginStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PluginStatus {
    expiration_timestamp: Option<Timestamp>,
    token: Option<Secret<String>>,
    client_certificate_data: Option<String>,
    client_key_data: Option<Secret<String>>,
}

impl ExecPlugin {
    /// Checks the settings. A command with a slash is relative to the kubeconfig's directory. Returns the first fault.
    pub(crate) fn new(settings: ExecSettings, directory: &Path) -> Result<Self, String> {
        let ExecSettings { api_version, command, args, env, install_hint, interactive_mode, provide_cluster_info } =
            settings;
        if !VERSIONS.contains(&api_version.as_str()) {
            return Err(format!("apiVersion is {:?}, but must be {}", *api_version, VERSIONS.join(" or ")));
        }
        if command.is_empty() {
            return Err("command is empty".to_owned());
        }
        if *interactive_mode == "Always" {
            return Err(format!(
                "{} asks its user for input (interactiveMode: Always), but this program cannot ask",
                *command
            ));
        }
        let env: Vec<_> = env.0.into_iter().map(|variable| variable.0).collect();
        let is_unusable = |name: &str| name.is_empty() || name.contains(['=', '\0']);
        if let Some(variable) = env.iter().find(|variable| is_unusable(&variable.name)) {
            return Err(format!("env has a variable with the name {:?}", *variable.name));
        }
        let is_path = Path::new(&*command).components().count() > 1;
        let command = if is_path { directory.join(&*command).into_os_string() } else { command.0.into() };
        Ok(Self {
            api_version: api_version.0,
            command,
            args: args.0.into_iter().map(|argument| argument.0).collect(),
            env,
            install_hint: install_hint.0,
            wants_cluster: *provide_cluster_info,
        })
    }

    /// Runs the command, and returns the credentials that it prints. `cluster` describes the server to it.
    ///
    /// Blocks until the command ends. Kills it after two minutes, when `unwanted` is cancelled, and when it prints
    /// more than 1 MiB. Adds its standard error to `messages` as it runs.
    pub(crate) fn run(
        &self,
        cluster: Option<serde_json::Value>,
        messages: &Arc<Messages>,
        unwanted: &CancellationToken,
    ) -> Result<ExecCredentials, ExecError> {
        let mut info =
            json!({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": false}});
        if let Some(cluster) = cluster {
            info["spec"]["cluster"] = cluster;
        }
        let error = |fault: String| self.error(fault).with_messages(messages);
        let output =
            self.command(&info).and_then(|mut command| process::run(&mut command, LONGEST_RUN, messages, unwanted));
        let output = output.map_err(|cause| match cause.kind() {
            ErrorKind::FileTooLarge => error(format!("was killed, because {cause}")),
            ErrorKind::NotFound => {
                ExecError { hint: self.install_hint.clone(), ..error(format!("cannot be run: {cause}")) }
            }
            _ => error(format!("cannot be run: {cause}")),
        })?;
        let Some(output) = output else {
            return Err(error(format!("was killed, because it printed no credentials within {LONGEST_RUN:?}")));
        };
        if !output.status.success() {
            return Err(error(format!("failed with {}", output.status)));
        }
        self.read(&output.stdout).map_err(error)
    }

    /// Returns the command with its arguments and variables.
    fn command(&self, info: &serde_json::Value) -> io::Result<Command> {
        // Only the plugin may see these variables. If they include `PATH`, the system would also search the command in
        // that path.
        let mut command = Command::new(process::find(&self.command, env::var_os("PATH").as_deref())?);
        command.args(self.args.iter().map(Secret::reveal));
        command.envs(self.env.iter().map(|variable| (&*variable.name, variable.value.reveal())));
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        Ok(command)
    }

    /// Parses the command's output.
    fn read(&self, output: &[u8]) -> Result<ExecCredentials, String> {
        let Output { kind, api_version, status } = serde_json::from_slice(output)
            .map_err(|error| format!("printed no ExecCredential: {}", fault_of(&error)))?;
        if kind != "ExecCredential" || api_version != self.api_version {
            let expected = &self.api_version;
            return Err(format!("printed {api_version:?} {kind:?}, but must print {expected:?} \"ExecCredential\""));
        }
        let status = status.ok_or("printed an ExecCredential without a status")?;
        let token = status.token.filter(|token| !token.reveal().is_empty());
        let certificate = status.client_certificate_data.filter(|pem| !pem.is_empty());
        let key = status.client_key_data.filter(|pem| !pem.reveal().is_empty());
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) if token.is_some() => None,
            (None, None) => return Err("printed neither a token nor a client certificate".to_owned()),
            _ => return Err("printed only one of clientCertificateData and clientKeyData".to_owned()),
        };
        Ok(ExecCredentials { token, certificate, expires: status.expiration_timestamp })
    }

    /// Returns an error about this plugin. The text is the plugin's name followed by `fault`.
    pub(crate) fn error(&self, fault: impl Into<String>) -> ExecError {
        ExecError { command: self.command.clone(), fault: fault.into(), messages: String::new(), hint: String::new() }
    }
}

impl ExecError {
    /// Adds the plugin's standard error.
    pub(crate) fn with_messages(self, messages: &Messages) -> Self {
        let messages = messages.with(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
        Self { messages, ..self }
    }
}

/// Describes a parse error without values from the text, which may be credentials.
fn fault_of(error: &serde_json::Error) -> String {
    // Only data errors repeat a value.
    if error.is_data() {
        format!("a field has a value of the wrong type at line {} column {}", error.line(), error.column())
    } else {
        error.to_string()
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the credential plugin {} {}", one_line(self.command.display()), one_line(&self.fault))?;
        if !self.messages.is_empty() {
            write!(f, "; it says: {}", one_line(&self.messages))?;
        }
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", one_line(&self.hint)) }
    }
}

debug_with_causes!(ExecError);

impl std::error::Error for ExecError {}
