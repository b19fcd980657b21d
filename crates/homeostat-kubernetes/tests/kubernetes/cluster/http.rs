//! Plain HTTP requests to a server, independent of the client under test.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Request;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// Sends requests with a bearer token or a client certificate.
#[derive(Clone)]
pub(crate) struct Http {
    agent: Agent,
    url: String,
    token: Option<String>,
}

impl Http {
    /// Returns a client with a token that trusts this authority (PEM).
    pub(crate) fn new(url: &str, authority: &str, token: &str) -> Self {
        Self { agent: agent(authority, None), url: url.to_owned(), token: Some(token.to_owned()) }
    }

    /// Returns a client with the certificate that the directory of a cluster has.
    pub(crate) fn of_directory(directory: &Path, url: &str) -> Self {
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        let certificate = Certificate::from_pem(read("client.crt").as_bytes()).unwrap();
        let key = PrivateKey::from_pem(read("client.key").as_bytes()).unwrap();
        let identity = ClientCert::new_with_certs(&[certificate], key);
        Self { agent: agent(&read("ca.crt"), Some(identity)), url: url.to_owned(), token: None }
    }

    /// Sends a request, and returns the answer's status and body.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, String), ureq::Error> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url)).header("Content-Type", kind);
        let request = match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        };
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut answer = self.agent.run(request.body(text).unwrap())?;
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string()?;
        Ok((answer.status().as_u16(), text))
    }

    /// Returns the object or the list at a path.
    pub(crate) fn get(&self, path: &str) -> Value {
        self.json("GET", path, None)
    }

    /// Creates an object, unless it exists.
    pub(crate) fn create(&self, path: &str, object: &Value) -> Value {
        self.json("POST", path, Some(object))
    }

    fn json(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, text) = self.send(method, path, body).unwrap();
        assert!(status < 300 || (method == "POST" && status == 409), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }
}

fn agent(authority: &str, identity: Option<ClientCert>) -> Agent {
    let authority = Certificate::from_pem(authority.as_bytes()).unwrap();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::from(vec![authority]))
        .client_cert(identity)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    Agent::config_builder()
        .tls_config(tls)
        .proxy(None)
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(60)))
        .build()
        .new_agent()
}
