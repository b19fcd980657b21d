//! The JSON of `INFO` and `CONNECT` frames.

use serde::{Deserialize, Serialize};

use super::super::address::ServerAddress;
use super::super::error::NatsError;
use super::super::nkey::{UserKey, read_credentials};
use super::super::options::{Login, NatsOptions};

/// `INFO`: a server's description of itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "the server's JSON")]
pub(super) struct ServerInfo {
    pub(super) server_name: String,
    pub(super) version: String,
    pub(super) max_payload: Option<usize>,
    pub(super) headers: bool,
    pub(super) jetstream: bool,
    pub(super) tls_required: bool,
    pub(super) tls_available: bool,
    pub(super) nonce: Option<String>,
    pub(super) connect_urls: Option<Vec<String>>,
    /// Lame duck mode: the server will shut down soon.
    pub(super) ldm: bool,
}

impl ServerInfo {
    pub(super) fn parse(json: &str) -> Result<Self, NatsError> {
        serde_json::from_str(json)
            .map_err(|error| NatsError::connect(format!("the server's INFO is malformed: {error}")))
    }

    /// Returns the addresses of the cluster's servers, without malformed ones.
    pub(super) fn servers(&self, tls: bool) -> Vec<ServerAddress> {
        let named = self.connect_urls.iter().flatten();
        let addresses = named.filter_map(|server| ServerAddress::parse(server).ok());
        addresses.map(|address| ServerAddress { tls, login: None, ..address }).collect()
    }
}

/// `CONNECT`: a client's description of itself.
#[derive(Debug, Default, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the server's JSON")]
struct Introduction<'a> {
    verbose: bool,
    pedantic: bool,
    tls_required: bool,
    name: &'a str,
    lang: &'static str,
    version: &'static str,
    protocol: u8,
    echo: bool,
    headers: bool,
    no_responders: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nkey: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
}

/// Checks credentials without a server.
pub(super) fn check_login(login: &Login) -> Result<(), NatsError> {
    match login {
        Login::NKey(seed) => UserKey::from_seed("nkey", seed).map(drop),
        Login::File(path) => read_credentials(path).map(drop),
        _ => Ok(()),
    }
}

/// Returns the JSON of `CONNECT`, with the credentials for a server.
pub(super) fn introduction(
    options: &NatsOptions,
    address: &ServerAddress,
    info: &ServerInfo,
    tls: bool,
) -> Result<String, NatsError> {
    let mut said = Introduction {
        tls_required: tls,
        name: &options.name,
        lang: "rust",
        version: env!("CARGO_PKG_VERSION"),
        protocol: 1,
        echo: true,
        headers: true,
        no_responders: true,
        ..Introduction::default()
    };
    let sign = |key: &UserKey| {
        let nonce = info.nonce.as_deref().ok_or_else(|| {
            NatsError::connect("the server sends no nonce to sign: it is not configured for nkeys or JWTs")
        })?;
        Ok::<_, NatsError>(Some(key.sign(nonce)))
    };
    match &options.login {
        Login::Token(token) => said.auth_token = Some(token),
        Login::User { user, password } => (said.user, said.pass) = (Some(user.as_str()), Some(password.as_str())),
        Login::NKey(seed) => {
            let key = UserKey::from_seed("nkey", seed)?;
            (said.nkey, said.sig) = (Some(key.public()), sign(&key)?);
        }
        Login::File(path) => {
            let credentials = read_credentials(path)?;
            said.sig = sign(&credentials.key)?;
            said.jwt = Some(credentials.jwt);
        }
        Login::Anonymous => match &address.login {
            Some((user, Some(password))) => (said.user, said.pass) = (Some(user.as_str()), Some(password.as_str())),
            Some((token, None)) => said.auth_token = Some(token),
            None => {}
        },
    }
    serde_json::to_string(&said).map_err(|error| NatsError::connect(format!("CONNECT cannot be written: {error}")))
}
