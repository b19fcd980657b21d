//! Servers and waits for the tests.

pub(crate) mod cluster;
pub(crate) mod keys;
pub(crate) mod scripted;
pub(crate) mod server;

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) use homeostat_test_support::system::{number_of, pause};

use crate::until::within;
use homeostat::Exponential;
use homeostat_nats::{NatsConnection, NatsOptions};

/// How long a wait may take before it fails. Only failing tests wait this long.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Options with short delays between attempts.
pub(crate) fn options(url: &str) -> NatsOptions {
    NatsOptions::new(url)
        .request_timeout(Duration::from_secs(20))
        .backoff(Exponential::new(Duration::from_millis(5), Duration::from_millis(100)))
}

#[expect(clippy::disallowed_methods, reason = "sockets and other processes know no held clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a thread of the test's own, which it joins or which ends with it")]
pub(crate) fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    thread::spawn(body)
}

/// Blocks until `check` returns a value. An election in a cluster takes up to ten seconds, or longer on a busy
/// machine.
pub(crate) fn wait_for_long<R>(what: &str, check: impl FnMut() -> Option<R>) -> R {
    within(LONG * 6, what, check)
}

/// Returns whether a server has at least this version.
pub(crate) fn is_at_least(version: &str, least: [u32; 3]) -> bool {
    let mut numbers = version.split(['.', '-']).map(|number| number.parse().unwrap_or_default());
    [0; 3].map(|none| numbers.next().unwrap_or(none)) >= least
}

/// Returns whether markers can be removed. Purges on older servers make watches miss changes.
pub(crate) fn removes_markers(connection: &NatsConnection) -> bool {
    is_at_least(&connection.status().version, [2, 9, 12])
}
