//! Credential plugins: commands that print credentials.
//!
//! The protocol is the one of `client.authentication.k8s.io` in the versions `v1` and `v1beta1`.

use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::process;
use super::secret::Secret;
use crate::base::cancel::CancellationToken;
use crate::base::text::OneLine;

/// The versions of the protocol that this client speaks.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// The longest run of a plugin. Then it is killed, so that the next run may succeed.
const LONGEST_RUN: Duration = Duration::from_secs(120);

/// The section `exec` of a user in a kubeconfig.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecSettings {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    command: String,
    /// They may have passwords.
    #[serde(default)]
    args: Option<Vec<Secret<String>>>,
    #[serde(default)]
    env: Option<Vec<Variable>>,
    #[serde(default)]
    install_hint: Option<String>,
    #[serde(default)]
    interactive_mode: Option<String>,
    #[serde(default)]
    provide_cluster_info: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Variable {
    name: String,
    value: Secret<String>,
}

/// A command that prints credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecPlugin {
    api_version: String,
    command: OsString,
    args: Vec<Secret<String>>,
    env: Vec<Variable>,
    install_hint: Option<String>,
    /// Whether the plugin wants to know the server.
    pub(crate) wants_cluster: bool,
}

/// The credentials that a plugin has printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExecCredentials {
    pub(crate) token: Option<Secret<String>>,
    /// A certificate and its key, in PEM.
    pub(crate) certificate: Option<(String, Secret<String>)>,
    pub(crate) expires: Option<Timestamp>,
}

/// The error of a plugin: the command, its fault, and its standard error.
#[derive(Debug)]
pub(crate) struct ExecError {
    command: OsString,
    fault: String,
    messages: String,
    hint: Option<String>,
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
    /// Checks the settings. A command with a slash is relative to the directory of the kubeconfig. Returns a fault.
    pub(crate) fn new(settings: ExecSettings, directory: &Path) -> Result<Self, String> {
        let ExecSettings { api_version, command, args, env, install_hint, interactive_mode, provide_cluster_info } =
            settings;
        if !VERSIONS.contains(&api_version.as_str()) {
            return Err(format!("apiVersion is {api_version:?}, but must be {}", VERSIONS.join(" or ")));
        }
        if command.is_empty() {
            return Err("command is empty".to_owned());
        }
        if interactive_mode.as_deref() == Some("Always") {
            return Err(format!(
                "{command} asks its user for input (interactiveMode: Always), but nobody answers here"
            ));
        }
        let is_path = Path::new(&command).components().count() > 1;
        let command = if is_path { directory.join(&command).into_os_string() } else { command.into() };
        Ok(Self {
            api_version,
            command,
            args: args.unwrap_or_default(),
            env: env.unwrap_or_default(),
            install_hint,
            wants_cluster: provide_cluster_info,
        })
    }

    /// Runs the command, and returns the credentials that it prints. `cluster` tells it the server.
    ///
    /// Blocks until the command ends. It is killed after two minutes, when `unwanted` is cancelled, and if it prints more than 1 MiB.
    pub(crate) fn run(
        &self,
        cluster: Option<serde_json::Value>,
        unwanted: &CancellationToken,
    ) -> Result<ExecCredentials, ExecError> {
        let mut info =
            json!({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": false}});
        if let Some(cluster) = cluster {
            info["spec"]["cluster"] = cluster;
        }
        let mut command = Command::new(&self.command);
        command.args(self.args.iter().map(Secret::reveal));
        command.envs(self.env.iter().map(|variable| (&variable.name, variable.value.reveal())));
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        let output = process::run(&mut command, LONGEST_RUN, unwanted).map_err(|error| {
            let is_missing = error.kind() == ErrorKind::NotFound;
            let hint = self.install_hint.clone().filter(|hint| is_missing && !hint.is_empty());
            let is_too_long = error.kind() == ErrorKind::FileTooLarge;
            let fault = if is_too_long { "was killed, because" } else { "cannot be run:" };
            ExecError { hint, ..self.error(format!("{fault} {error}")) }
        })?;
        let Some(output) = output else {
            return Err(self.error(format!("was killed, because it printed no credentials within {LONGEST_RUN:?}")));
        };
        let error = |fault: String| ExecError {
            messages: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ..self.error(fault)
        };
        if !output.status.success() {
            return Err(error(format!("failed with {}", output.status)));
        }
        self.read(&output.stdout).map_err(error)
    }

    /// Reads the output of the command.
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

    /// Returns an error of this plugin. `fault` goes on after its name.
    pub(crate) fn error(&self, fault: impl Into<String>) -> ExecError {
        ExecError { command: self.command.clone(), fault: fault.into(), messages: String::new(), hint: None }
    }
}

/// Describes an error without the values of the text, which may be credentials.
fn fault_of(error: &serde_json::Error) -> String {
    // Only errors of data repeat a value.
    if error.is_data() {
        format!("a field has a value of the wrong type at line {} column {}", error.line(), error.column())
    } else {
        error.to_string()
    }
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the credential plugin {} {}", self.command.display(), self.fault)?;
        if !self.messages.is_empty() {
            write!(f, "; it says: {}", OneLine(&self.messages))?;
        }
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for ExecError {}
