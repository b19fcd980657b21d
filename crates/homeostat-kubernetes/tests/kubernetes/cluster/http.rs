//! Plain HTTP requests to a server, independent of the client under test.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Request;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Sends requests with a bearer token.
#[derive(Clone)]
pub(crate) struct Http {
    agent: Agent,
    url: String,
    token: String,
}

impl Http {
    /// Returns a client that trusts this authority (PEM).
    pub(crate) fn new(url: &str, authority: &str, token: &str) -> Self {
        let authority = Certificate::from_pem(authority.as_bytes()).unwrap();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::from(vec![authority]))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .new_agent();
        Self { agent, url: url.to_owned(), token: token.to_owned() }
    }

    /// Sends a request, and returns the answer's status and body.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, String), ureq::Error> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Content-Type", kind);
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
