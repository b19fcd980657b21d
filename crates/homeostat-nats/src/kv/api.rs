//! The requests of the `JetStream` API and their JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::connection::NatsConnection;
use super::super::error::{NatsError, NatsErrorKind};
use super::super::protocol::{NatsHeaders, NatsMessage};
use homeostat::rt::Nanos;

/// The prefix of the names of all consumers that watches create.
pub(super) const WATCHES: &str = "homeostat-";

pub(super) const STREAM_NOT_FOUND: u64 = 10_059;
pub(super) const STREAM_EXISTS: u64 = 10_058;
pub(super) const NO_MESSAGE: u64 = 10_037;
pub(super) const CONSUMER_NOT_FOUND: u64 = 10_014;
/// The second code comes from a replicated stream while it stores another write of the subject (nats.go, pull request
/// 2098).
pub(super) const WRONG_LAST_SEQUENCE: [u64; 2] = [10_071, 10_164];
const NOT_ENABLED: [u64; 3] = [10_035, 10_039, 10_076];
/// The stream cannot store a message. The error's description has the reason.
const STORE_FAILED: u64 = 10_077;
/// Limits of the account, of its watches and buckets, and of the server's disk or memory.
const FULL: [(u64, &str); 6] = [
    (10_002, "the account is full: delete keys in any of its buckets, or raise its limits"),
    (10_026, "end other watches, or raise the limit of the bucket or the account"),
    (10_027, "delete a bucket or stream, or raise the limit of the account"),
    (10_023, SERVER_FULL),
    (10_028, SERVER_FULL),
    (10_047, SERVER_FULL),
];
const SERVER_FULL: &str = "the server is full: delete keys, or raise its limits of memory or storage";
const BUCKET_FULL: &str = "the bucket is full: delete keys, or raise its limit";

/// The pause before an unheard request is repeated.
const PAUSE: Duration = Duration::from_millis(100);
const REPEATS: u32 = 3;
/// How long a read waits for its answer before it is repeated.
const ANSWER: Duration = Duration::from_secs(2);

/// The part of a stream's configuration that concerns a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "the server's JSON")]
pub(super) struct StreamConfig {
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) description: String,
    pub(super) subjects: Vec<String>,
    pub(super) retention: String,
    pub(super) max_consumers: i64,
    pub(super) max_msgs: i64,
    pub(super) max_msgs_per_subject: i64,
    pub(super) max_bytes: i64,
    /// In nanoseconds.
    pub(super) max_age: u64,
    pub(super) max_msg_size: i64,
    pub(super) storage: String,
    pub(super) discard: String,
    pub(super) num_replicas: u32,
    pub(super) duplicate_window: u64,
    pub(super) deny_delete: bool,
    pub(super) allow_rollup_hdrs: bool,
    pub(super) allow_direct: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) allow_msg_ttl: bool,
    /// In nanoseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) subject_delete_marker_ttl: u64,
    #[serde(skip_serializing)]
    pub(super) mirror: Option<Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamState {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    pub(super) consumer_count: usize,
    /// The number of messages by subject, if the request asked for it.
    pub(super) subjects: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct StreamInfo {
    pub(super) config: StreamConfig,
    /// The stream's creation time, which identifies it.
    pub(super) created: String,
    #[serde(default)]
    pub(super) state: StreamState,
}

#[derive(Debug, Deserialize)]
pub(super) struct PubAck {
    pub(super) seq: u64,
}

/// The configuration of an ordered consumer.
#[derive(Debug, Serialize)]
pub(super) struct ConsumerConfig<'a> {
    pub(super) name: &'a str,
    pub(super) deliver_subject: &'a str,
    pub(super) deliver_policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) opt_start_seq: Option<u64>,
    pub(super) ack_policy: &'static str,
    pub(super) replay_policy: &'static str,
    pub(super) max_deliver: i64,
    pub(super) filter_subject: &'a str,
    pub(super) flow_control: bool,
    /// In nanoseconds.
    pub(super) idle_heartbeat: u64,
    pub(super) inactive_threshold: u64,
    pub(super) headers_only: bool,
    pub(super) mem_storage: bool,
    pub(super) num_replicas: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConsumerInfo {
    pub(super) num_pending: u64,
}

/// The error in an answer.
#[derive(Debug, Deserialize)]
pub(super) struct ApiError {
    #[serde(default)]
    pub(super) code: u64,
    #[serde(default)]
    pub(super) err_code: u64,
    #[serde(default)]
    pub(super) description: String,
}

#[derive(Deserialize)]
struct Refused {
    error: Option<ApiError>,
}

/// Parses an answer, which is a value or an error. `what` names the request in errors.
pub(super) fn parse<R: DeserializeOwned>(what: &str, payload: &[u8]) -> Result<Result<R, ApiError>, NatsError> {
    let fault = |error| NatsError::answer(what, error);
    if let Some(error) = serde_json::from_slice::<Refused>(payload).map_err(fault)?.error {
        return Ok(Err(error));
    }
    serde_json::from_slice(payload).map(Ok).map_err(fault)
}

impl ApiError {
    pub(super) fn into_error(self, connection: &NatsConnection, what: &str) -> NatsError {
        let Self { code, err_code, description } = self;
        if NOT_ENABLED.contains(&err_code) {
            return no_jetstream(connection);
        }
        match remedy(err_code, &description) {
            Some(remedy) => NatsError::full(what, err_code, &description, remedy),
            None => NatsError::jetstream(what, code, err_code, &description),
        }
    }
}

/// Returns advice if this error reports a limit.
fn remedy(err_code: u64, description: &str) -> Option<&'static str> {
    if err_code == STORE_FAILED {
        // Other reasons are "message size exceeds maximum allowed" and disk failures.
        let is_limit = description.starts_with("maximum ") && description.ends_with(" exceeded");
        return is_limit.then_some(BUCKET_FULL);
    }
    FULL.iter().find(|(code, _)| *code == err_code).map(|(_, remedy)| *remedy)
}

pub(super) fn no_jetstream(connection: &NatsConnection) -> NatsError {
    NatsError::no_jetstream(&connection.status().server)
}

/// Sends an API request, and parses its answer. If `is_read`, repeats it after a disconnect or without an answer.
pub(super) fn call<R: DeserializeOwned>(
    connection: &NatsConnection,
    method: &str,
    body: &impl Serialize,
    is_read: bool,
) -> Result<Result<R, ApiError>, NatsError> {
    let what = format!("JetStream request {method}");
    let payload = serde_json::to_vec(body).map_err(|error| NatsError::answer(&what, error))?;
    let subject = format!("$JS.API.{method}");
    match send(connection, &subject, &NatsHeaders::new(), &payload, is_read, connection.request_timeout()) {
        Ok(answer) => parse(&what, &answer.payload),
        Err(error) if error.kind() == NatsErrorKind::NoResponders => Err(no_jetstream(connection)),
        Err(error) => Err(error),
    }
}

/// Sends a request within `timeout`. Repeats it if it was not heard. Repeats a read after a disconnect too, and without
/// an answer.
///
/// `JetStream` does not listen during the election of a leader, or while its servers are unreachable. In a cluster, no
/// server answers a question about a consumer that is being removed.
pub(super) fn send(
    connection: &NatsConnection,
    subject: &str,
    headers: &NatsHeaders,
    payload: &[u8],
    is_read: bool,
    timeout: Duration,
) -> Result<NatsMessage, NatsError> {
    let clock = connection.clock();
    let deadline = clock.nanos().after(timeout);
    let mut repeats = 0;
    loop {
        let left = deadline.since(clock.nanos());
        let wait = if is_read { left.min(ANSWER) } else { left };
        let error = match connection.request_with_headers(subject, headers, payload, wait) {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_timeout() && wait < left => continue,
            Err(error) if error.is_timeout() => {
                return Err(NatsError::timed_out(format!("the request to {subject:?}"), timeout));
            }
            Err(error) => error,
        };
        let unheard = error.kind() == NatsErrorKind::NoResponders && repeats < REPEATS;
        if left.is_zero() || !(unheard || (is_read && error.kind() == NatsErrorKind::Disconnected)) {
            return Err(error);
        }
        if unheard {
            repeats += 1;
            connection.pause(clock.nanos().after(PAUSE).min(deadline))?;
        }
    }
}

/// Converts a duration to the nanoseconds of the API.
pub(super) fn nanos(duration: Duration) -> u64 {
    Nanos::ZERO.after(duration).0
}

/// Checks that the server has at least this version, which the feature `what` needs.
pub(crate) fn need_version(connection: &NatsConnection, option: &str, needs: &'static str) -> Result<(), NatsError> {
    let status = connection.status();
    if numbers(&status.version) >= numbers(needs) {
        return Ok(());
    }
    Err(NatsError::unsupported(option, needs, format_args!("{} has version {}", status.server, status.version)))
}

/// Parses the numbers of a version such as `2.11.0-beta`.
fn numbers(version: &str) -> [u32; 3] {
    let mut numbers = version.split(['.', '-']).map(|number| number.parse().unwrap_or_default());
    [0; 3].map(|none| numbers.next().unwrap_or(none))
}

/// The first version that supports entries with a time to live.
pub(super) const TTL: &str = "2.11";

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn errors_of_limits_have_a_way_out() {
        for code in [10_002, 10_023, 10_026, 10_027, 10_028, 10_047] {
            assert!(remedy(code, "any text").is_some(), "{code}");
        }
        for limit in ["maximum bytes exceeded", "maximum messages exceeded", "maximum messages per subject exceeded"] {
            assert!(remedy(STORE_FAILED, limit).is_some(), "{limit}");
        }
        assert_eq!(remedy(STORE_FAILED, "message size exceeds maximum allowed"), None);
        assert_eq!(remedy(10_071, "wrong last sequence: 7"), None);
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let sorted = ["", "2.9.10", "2.10.18", "2.10.19", "2.11", "2.11.1-beta.1", "3"];
        assert!(sorted.windows(2).all(|pair| numbers(pair[0]) < numbers(pair[1])));
        assert_eq!(numbers("2.11"), numbers("2.11.0-beta"));
    }
}
