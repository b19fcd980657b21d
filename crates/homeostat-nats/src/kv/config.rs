//! The configuration of a bucket, and its translation to a stream.

use std::time::Duration;

use super::super::error::NatsError;
use super::api::{StreamConfig, nanos};
use super::key::check_bucket;

/// The largest number of revisions of a key that a bucket can keep.
pub(super) const MOST_HISTORY: u8 = 64;

/// The configuration of a bucket.
///
/// # Examples
///
/// ```no_run
/// use homeostat_nats::{KvBucket, KvConfig, NatsOptions};
///
/// let connection = NatsOptions::new("nats://localhost").connect()?;
/// let bucket = KvBucket::create(&connection, &KvConfig::new("vms").history(5))?;
/// bucket.put("web-1", b"running")?;
/// # Ok::<_, homeostat_nats::NatsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvConfig {
    pub(super) name: String,
    description: String,
    pub(crate) history: u8,
    pub(crate) max_age: Duration,
    max_value_size: Option<usize>,
    max_bytes: Option<usize>,
    memory: bool,
    pub(crate) replicas: u32,
    pub(super) marker_ttl: Duration,
}

impl KvConfig {
    /// Creates a configuration that keeps the last revision of each key, on disk, on one server.
    ///
    /// The name consists of letters, digits, `-` and `_`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            history: 1,
            max_age: Duration::ZERO,
            max_value_size: None,
            max_bytes: None,
            memory: false,
            replicas: 1,
            marker_ttl: Duration::ZERO,
        }
    }

    /// Sets the description.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Sets how many revisions of each key the bucket keeps, from 1 to 64. Default: 1.
    #[must_use]
    pub fn history(mut self, revisions: u8) -> Self {
        self.history = revisions;
        self
    }

    /// Sets the age at which entries expire. Default: never.
    ///
    /// Servers write no marker for an expired entry, so watches do not report it, unless
    /// [`marker_ttl`](Self::marker_ttl) is set.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Sets the largest value in bytes. Default: the server's limit for a message.
    #[must_use]
    pub fn max_value_size(mut self, bytes: usize) -> Self {
        self.max_value_size = Some(bytes);
        self
    }

    /// Sets the largest size of the bucket in bytes. Writes beyond it fail with an error that is
    /// [full](crate::NatsError::is_full). Default: no limit.
    ///
    /// Deletions still work in a full bucket, see [`KvBucket::delete`](super::KvBucket::delete). Servers before
    /// version 2.10.5 count too few bytes, and can drop the oldest entry of a bucket that reaches this limit: leave
    /// some room, or use a newer server.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Keeps the bucket in the server's memory. It is lost when the server stops.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.memory = true;
        self
    }

    /// Sets how many servers keep a copy of the bucket, from 1 to 5. Default: 1.
    ///
    /// Servers before version 2.10.19 can accept several writes of a replicated bucket that
    /// [expect](super::KvBucket::update) the same revision.
    ///
    /// A leader that has lost contact with the other servers answers reads for some seconds, until it notices. A watch
    /// that starts there meanwhile reports [synced](super::KvUpdate::Synced) with the entries that this server has. It
    /// reports later changes after the reconnect.
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Allows entries with a time to live. Sets how long the markers of expired entries stay, at least one second.
    ///
    /// Needs server version 2.11.
    #[must_use]
    pub fn marker_ttl(mut self, ttl: Duration) -> Self {
        self.marker_ttl = ttl;
        self
    }

    /// Returns the configuration of the bucket's stream.
    pub(super) fn stream(&self) -> Result<StreamConfig, NatsError> {
        check_bucket(&self.name)?;
        if self.history == 0 || self.history > MOST_HISTORY {
            return Err(NatsError::invalid("history", self.history, "from 1 to 64"));
        }
        if self.replicas == 0 || self.replicas > 5 {
            return Err(NatsError::invalid("replicas", self.replicas, "from 1 to 5"));
        }
        let short = Duration::from_millis(100);
        if !self.max_age.is_zero() && self.max_age < short {
            return Err(NatsError::invalid("max_age", self.max_age, "at least 100ms"));
        }
        if !self.marker_ttl.is_zero() && self.marker_ttl < Duration::from_secs(1) {
            return Err(NatsError::invalid("marker_ttl", self.marker_ttl, "at least 1s"));
        }
        let size = |option, value: Option<usize>| match value {
            None => Ok(-1),
            Some(bytes) => i64::try_from(bytes)
                .ok()
                .filter(|bytes| *bytes > 0)
                .ok_or_else(|| NatsError::invalid(option, bytes, "from 1 to 2^63 - 1 bytes")),
        };
        let max_age = nanos(self.max_age);
        let window = nanos(Duration::from_secs(120));
        Ok(StreamConfig {
            name: stream_name(&self.name),
            description: self.description.clone(),
            subjects: vec![format!("{}>", subject_prefix(&self.name))],
            retention: "limits".to_owned(),
            max_consumers: -1,
            max_msgs: -1,
            max_msgs_per_subject: i64::from(self.history),
            max_bytes: size("max_bytes", self.max_bytes)?,
            max_age,
            max_msg_size: size("max_value_size", self.max_value_size)?,
            storage: if self.memory { "memory" } else { "file" }.to_owned(),
            discard: "new".to_owned(),
            num_replicas: self.replicas,
            duplicate_window: if max_age == 0 { window } else { window.min(max_age) },
            deny_delete: true,
            allow_rollup_hdrs: true,
            allow_direct: true,
            allow_msg_ttl: !self.marker_ttl.is_zero(),
            subject_delete_marker_ttl: nanos(self.marker_ttl),
            mirror: None,
        })
    }
}

/// Returns the name of a bucket's stream.
pub(super) fn stream_name(bucket: &str) -> String {
    format!("KV_{bucket}")
}

/// Returns the subject prefix of a bucket's keys.
pub(super) fn subject_prefix(bucket: &str) -> String {
    format!("$KV.{bucket}.")
}

/// Checks that a stream has the layout of a bucket.
pub(super) fn check_layout(bucket: &str, found: &StreamConfig) -> Result<(), NatsError> {
    let option = |name: &str| format!("{name} of bucket {bucket:?}");
    if found.mirror.is_some() {
        return Err(NatsError::invalid(option("mirror"), "set", "unset: mirrors cannot be written to"));
    }
    let subjects = [format!("{}>", subject_prefix(bucket))];
    if found.subjects != subjects {
        return Err(NatsError::invalid(option("subjects"), &found.subjects, format!("{subjects:?}")));
    }
    if !(1..=i64::from(MOST_HISTORY)).contains(&found.max_msgs_per_subject) {
        return Err(NatsError::invalid(option("history"), found.max_msgs_per_subject, "from 1 to 64"));
    }
    if !found.allow_rollup_hdrs {
        return Err(NatsError::invalid(option("allow_rollup_hdrs"), false, "true: keys are purged with it"));
    }
    Ok(())
}

/// Checks that an existing stream has the wanted configuration.
pub(super) fn check_same(bucket: &str, found: &StreamConfig, wanted: &StreamConfig) -> Result<(), NatsError> {
    check_layout(bucket, found)?;
    let differ = |option: &str, found: String, wanted: String| {
        if found == wanted {
            return Ok(());
        }
        let option = format!("{option} of the existing bucket {bucket:?}");
        Err(NatsError::invalid(option, format_args!("{found}"), format!("{wanted}, as configured")))
    };
    let age = |nanos: u64| format!("{:?}", Duration::from_nanos(nanos));
    differ("history", found.max_msgs_per_subject.to_string(), wanted.max_msgs_per_subject.to_string())?;
    differ("max_age", age(found.max_age), age(wanted.max_age))?;
    differ("max_value_size", found.max_msg_size.to_string(), wanted.max_msg_size.to_string())?;
    differ("max_bytes", found.max_bytes.to_string(), wanted.max_bytes.to_string())?;
    differ("storage", found.storage.clone(), wanted.storage.clone())?;
    differ("replicas", found.num_replicas.to_string(), wanted.num_replicas.to_string())?;
    differ("marker_ttl", age(found.subject_delete_marker_ttl), age(wanted.subject_delete_marker_ttl))
}
