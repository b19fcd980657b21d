//! The requests of a watch about its consumers.

use std::time::Duration;

use super::super::error::NatsError;
use super::api::{self, ConsumerConfig};
use super::config::stream_name;
use super::ordered::StartAt;
use super::watch::KvWatch;
use crate::base::time::Nanos;

impl KvWatch {
    /// Sends the creation of a consumer, and the deletion of the one before.
    pub(super) fn create(&mut self, serial: u64, start: StartAt, now: Nanos, draw: u64) -> Result<(), NatsError> {
        self.delete_consumers();
        self.held.clear();
        let (stream, name) = (stream_name(&self.bucket), self.consumer_name(serial));
        let filter = format!("{}{}", self.prefix, self.options.filter);
        self.current.clone_from(&name);
        let (deliver_policy, opt_start_seq) = match start {
            StartAt::LastOfEach => ("last_per_subject", None),
            StartAt::All => ("all", None),
            // An empty bucket is at 0, and sequences begin at 1.
            StartAt::After(position) => ("by_start_sequence", Some(position.saturating_add(1))),
        };
        let deliver_subject = format!("{}.m{serial}", self.inbox);
        self.delivery = Some(self.subscription.also(&deliver_subject)?);
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
            inactive_threshold: api::nanos(self.options.heartbeat.max(Duration::from_secs(1)) * 6),
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

    fn consumer_name(&self, serial: u64) -> String {
        format!("{}-{serial}", self.consumer)
    }

    /// Asks the server to delete all consumers of this watch.
    ///
    /// A request may be lost with its connection, so each creation is preceded by the deletion of all consumers that may exist.
    /// Without a connection, the server deletes them after a while.
    pub(super) fn delete_consumers(&self) {
        let stream = stream_name(&self.bucket);
        for serial in &self.present {
            let subject = format!("$JS.API.CONSUMER.DELETE.{stream}.{}", self.consumer_name(*serial));
            self.connection.try_publish(&subject, Some(&format!("{}.a.d{serial}", self.inbox)), b"");
        }
    }
}
