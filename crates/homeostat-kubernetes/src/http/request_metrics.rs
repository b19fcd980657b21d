//! Metrics about requests.

use std::time::Duration;

use http::Method;

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Metrics about a client's requests since its creation. Counters never decrease.
///
/// With the feature `metrics`, the same numbers are also recorded under client-go's names:
/// `rest_client_requests_total` (by `code`, `method` and `host`), `rest_client_request_duration_seconds`,
/// `rest_client_request_size_bytes` and `rest_client_response_size_bytes` (by `verb` and `host`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestMetrics {
    /// The number of requests, including those that could not be sent. Each repetition counts.
    pub requests: u64,
    /// The number of requests without a usable answer.
    pub failures: u64,
    /// The number of requests that the server answered with a status of 400 or above.
    pub refusals: u64,
    /// The total time of all requests until the end of their answers. A watch counts only until it starts.
    pub duration: Duration,
    /// The total size of all bodies sent, in bytes.
    pub sent_bytes: u64,
    /// The total size of all bodies received, in bytes.
    pub received_bytes: u64,
}

/// Counts the requests of a client.
#[derive(Debug)]
pub(crate) struct RequestCounters {
    /// The server's host and port.
    #[cfg(feature = "metrics")]
    host: String,
    requests: AtomicU64,
    failures: AtomicU64,
    refusals: AtomicU64,
    nanos: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl RequestCounters {
    pub(crate) fn new(server: &str) -> Self {
        #[cfg(feature = "metrics")]
        describe();
        #[cfg(not(feature = "metrics"))]
        let _ = server;
        Self {
            #[cfg(feature = "metrics")]
            host: server.split("://").last().and_then(|rest| rest.split('/').next()).unwrap_or_default().to_owned(),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
        }
    }

    /// Counts a request. `code` is `None` if there was no usable answer.
    pub(crate) fn record(&self, method: &Method, code: Option<u16>, took: Duration, sent: usize, received: usize) {
        self.requests.fetch_add(1, Relaxed);
        match code {
            None => self.failures.fetch_add(1, Relaxed),
            Some(code) => self.refusals.fetch_add(u64::from(code >= 400), Relaxed),
        };
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.sent_bytes.fetch_add(sent as u64, Relaxed);
        #[cfg(feature = "metrics")]
        self.export(method, code, took, sent, received);
        #[cfg(not(feature = "metrics"))]
        let _ = method;
        self.receive(received);
    }

    /// Counts received bytes, such as the events of a watch.
    pub(crate) fn receive(&self, received: usize) {
        self.received_bytes.fetch_add(received as u64, Relaxed);
    }

    #[cfg(feature = "metrics")]
    fn export(&self, method: &Method, code: Option<u16>, took: Duration, sent: usize, received: usize) {
        let (method, host) = (method.to_string(), self.host.clone());
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let labels = [("verb", method.clone()), ("host", host.clone())];
        metrics::histogram!("rest_client_request_duration_seconds", &labels).record(took);
        if sent > 0 {
            metrics::histogram!("rest_client_request_size_bytes", &labels).record(float(sent));
        }
        if received > 0 {
            metrics::histogram!("rest_client_response_size_bytes", &labels).record(float(received));
        }
        metrics::counter!("rest_client_requests_total", "code" => code, "method" => method, "host" => host)
            .increment(1);
    }

    pub(crate) fn read(&self) -> RequestMetrics {
        RequestMetrics {
            requests: self.requests.load(Relaxed),
            failures: self.failures.load(Relaxed),
            refusals: self.refusals.load(Relaxed),
            duration: Duration::from_nanos(self.nanos.load(Relaxed)),
            sent_bytes: self.sent_bytes.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
        }
    }
}

#[cfg(feature = "metrics")]
fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(feature = "metrics")]
fn describe() {
    use metrics::{Unit, describe_counter, describe_histogram};

    describe_counter!("rest_client_requests_total", Unit::Count, "Requests by status, method and host");
    describe_histogram!("rest_client_request_duration_seconds", Unit::Seconds, "How long requests took");
    describe_histogram!("rest_client_request_size_bytes", Unit::Bytes, "The sizes of requests");
    describe_histogram!("rest_client_response_size_bytes", Unit::Bytes, "The sizes of answers, without watches");
}

#[cfg(all(test, not(loom), feature = "metrics"))]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    #[test]
    fn requests_are_recorded_with_the_names_of_client_go() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            let counters = RequestCounters::new("https://k:6443/prefix");
            counters.record(&Method::GET, Some(200), Duration::from_millis(5), 0, 30);
            counters.record(&Method::POST, None, Duration::from_millis(7), 20, 0);
            counters.record(&Method::POST, Some(409), Duration::from_millis(8), 20, 10);
            counters.receive(100);
            let sum = RequestMetrics {
                requests: 3,
                failures: 1,
                refusals: 1,
                duration: Duration::from_millis(20),
                sent_bytes: 40,
                received_bytes: 140,
            };
            assert_eq!(counters.read(), sum);
        });
        let mut lines: Vec<_> = snapshotter
            .snapshot()
            .into_vec()
            .into_iter()
            .map(|(key, _, _, value)| {
                let labels: Vec<_> =
                    key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
                let value = match value {
                    DebugValue::Counter(count) => count,
                    DebugValue::Histogram(samples) => samples.len() as u64,
                    DebugValue::Gauge(_) => 0,
                };
                format!("{} {} {value}", key.key().name(), labels.join(" "))
            })
            .collect();
        lines.sort();
        let expected = [
            "rest_client_request_duration_seconds verb=GET host=k:6443 1",
            "rest_client_request_duration_seconds verb=POST host=k:6443 2",
            "rest_client_request_size_bytes verb=POST host=k:6443 2",
            "rest_client_requests_total code=200 method=GET host=k:6443 1",
            "rest_client_requests_total code=409 method=POST host=k:6443 1",
            "rest_client_requests_total code=<error> method=POST host=k:6443 1",
            "rest_client_response_size_bytes verb=GET host=k:6443 1",
            "rest_client_response_size_bytes verb=POST host=k:6443 1",
        ];
        assert_eq!(lines, expected);
    }
}
