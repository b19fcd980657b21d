//! The requests of a watch about its consumers and its bucket's last revision.

use std::time::Duration;

use super::super::error::NatsError;
use super::super::protocol::NatsMessage;
use super::api::{self, ConsumerConfig, NO_MESSAGE, STREAM_NOT_FOUND};
use super::config::stream_name;
use super::entry::StoredMessage;
use super::ordered::StartAt;
use super::watch::KvWatch;
use homeostat::rt::Nanos;

impl KvWatch {
    /// Requests the creation of a consumer, and the deletion of the previous one.
    pub(super) fn create(&mut self, serial: u64, start: StartAt, now: Nanos, draw: u64) -> Result<(), NatsError> {
        self.delete_consumers();
        self.held.clear();
        let (stream, name) = (stream_name(&self.bucket), self.consumer_name(serial));
        let filter = format!("{}{}", self.prefix, self.options.filter);
        self.current.clone_from(&name);
        let (deliver_policy, opt_start_seq) = match start {
            StartAt::LastOfEach => ("last_per_subject", None),
            StartAt::All => ("all", None),
            // An empty bucket has position 0, and sequences start at 1.
            StartAt::After(position) => ("by_start_sequence", Some(position.saturating_add(1))),
        };
        let deliver_subject = format!("{}.m{serial}", self.inbox);
        self.delivery = Some(self.subscription.subscribe_also(&deliver_subject)?);
        let config = ConsumerConfig {
            name: &name,
            deliver_subject: &deliver_subject,
            deliver_policy,
            opt_start_seq,
            ack_policy: "none",
            replay_policy: "instant",
            max_deliver: 1,
            filter_subject: &filter,
            flow_control: true,
            idle_heartbeat: api::nanos(self.options.heartbeat),
            inactive_threshold: api::nanos(self.options.heartbeat.max(Duration::from_secs(1)).saturating_mul(6)),
            headers_only: self.options.keys_only,
            mem_storage: true,
            num_replicas: 1,
        };
        let body = serde_json::json!({"stream_name": stream, "config": config});
        let payload = serde_json::to_vec(&body).map_err(|error| NatsError::answer("a consumer", error))?;
        let subject = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}.{filter}");
        let reply = format!("{}.a.c{serial}", self.inbox);
        if self.connection.try_publish(&subject, Some(&reply), &payload) {
            self.present.insert(serial);
        } else {
            self.ordered.refused(serial, now, draw);
        }
        Ok(())
    }

    pub(super) fn inspect(&mut self, serial: u64, now: Nanos, draw: u64) {
        let subject = format!("$JS.API.STREAM.INFO.{}", stream_name(&self.bucket));
        if !self.connection.try_publish(&subject, Some(&format!("{}.a.i{serial}", self.inbox)), b"") {
            self.ordered.refused(serial, now, draw);
        }
    }

    /// Asks the server that orders all writes for the last revision of the watched keys.
    pub(super) fn ask_end(&mut self, number: u64, now: Nanos) {
        let subject = format!("$JS.API.STREAM.MSG.GET.{}", stream_name(&self.bucket));
        let body = serde_json::json!({"last_by_subj": format!("{}{}", self.prefix, self.options.filter)});
        let reply = format!("{}.a.l{number}", self.inbox);
        if !self.connection.try_publish(&subject, Some(&reply), body.to_string().as_bytes()) {
            self.progress.unheard(number, now);
        }
    }

    /// Handles the answer about the last revision of the watched keys.
    pub(super) fn take_end(&mut self, number: u64, message: &NatsMessage, now: Nanos) -> Result<(), NatsError> {
        if message.headers.status().is_some() {
            self.progress.unheard(number, now);
            return Ok(());
        }
        match api::parse::<StoredMessage>("the last message", &message.payload)? {
            Ok(stored) => self.progress.answered(number, stored.sequence()),
            Err(error) if error.err_code == NO_MESSAGE => self.progress.answered(number, 0),
            Err(error) if error.err_code == STREAM_NOT_FOUND => self.ordered.deleted(),
            Err(error) if (400..500).contains(&error.code) => {
                return Err(error.into_error(&self.connection, &self.what()));
            }
            Err(_) => self.progress.unheard(number, now),
        }
        Ok(())
    }

    /// Returns the error for a request that the server refused. Repeating it would not help.
    pub(super) fn forbidden(&self, kind: char, number: u64, message: &NatsMessage) -> Result<(), NatsError> {
        let is_needed = match kind {
            'l' => !self.progress.is_synced(),
            _ => number == self.ordered.serial() && self.ordered.is_confirming(),
        };
        if is_needed {
            Err(NatsError::permissions_violation(&String::from_utf8_lossy(&message.payload)))
        } else {
            Ok(())
        }
    }

    fn consumer_name(&self, serial: u64) -> String {
        format!("{}-{serial}", self.consumer)
    }

    /// Asks the server to delete all consumers of this watch.
    ///
    /// A request may be lost with its connection. Each creation therefore follows a deletion of all consumers that may
    /// exist. Without a connection, the server deletes them after a while.
    pub(super) fn delete_consumers(&self) {
        let stream = stream_name(&self.bucket);
        for serial in &self.present {
            let subject = format!("$JS.API.CONSUMER.DELETE.{stream}.{}", self.consumer_name(*serial));
            self.connection.try_publish(&subject, Some(&format!("{}.a.d{serial}", self.inbox)), b"");
        }
    }
}
