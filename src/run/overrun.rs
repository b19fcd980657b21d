//! The report of a run that continues after its deadline.

use std::fmt;
use std::time::Duration;

use super::histogram::Counter;
use crate::base::group::Overrun;
use crate::base::text::ShownKey;
use crate::base::thread::shielded;
use crate::base::time::Rounded;
use crate::queue::{Key, QueueShared};

/// Counts and logs an overrun. Called by the watchdog.
pub(crate) fn report_overrun<K: Key + fmt::Debug>(
    controller: &str,
    queue: &QueueShared<K>,
    timeout: Duration,
    overruns: &Counter,
    overrun: &Overrun<'_>,
) {
    overruns.count();
    let (thread, timeout) = (overrun.thread, Rounded(timeout));
    shielded("the report of an overrun", || {
        // Cloning and showing the key is user code. If the run ends now, the key may no longer belong to it.
        if let Some(key) = queue.key_in_process(overrun.record).filter(|_| overrun.goes_on()) {
            let key = &ShownKey(&key);
            log::warn!(
                controller, thread, key:?, timeout:%;
                "{controller}: the run of {key:?} has passed its deadline and still runs, after {timeout}, on {thread}"
            );
        } else {
            log::warn!(
                controller, thread, timeout:%;
                "{controller}: a run has passed its deadline of {timeout} and has ended since, on {thread}"
            );
        }
    });
}
