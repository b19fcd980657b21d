//! Requests: connections, TLS, retries, metrics, and the errors in answers.

pub(super) mod agent;
pub(super) mod answer;
mod connector;
mod notices;
pub(super) mod path;
pub(super) mod request_error;
pub(super) mod request_metrics;
mod resolver;
mod retry;
#[cfg(all(test, not(loom)))]
mod tests;
mod time_left;
mod tls;
pub(super) mod transport;
mod tunnel;

pub use self::request_error::RequestError;
pub use self::request_metrics::RequestMetrics;
