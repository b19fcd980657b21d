//! Records whether the object store works, and logs why it does not.

use std::time::Duration;

use crate::log_limiter::{LogLimiter, omitted_lines};
use crate::sync::Mutex;
use homeostat::base::Clock;
use homeostat::rt::{Nanos, one_line};

/// The component name of object APIs in the log.
const COMPONENT: &str = "objects";
/// How long a failure counts.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Whether the object store has failed recently.
pub(crate) struct StoreHealth {
    clock: Clock,
    log: LogLimiter<StoreUse>,
    /// The last failures of reads and of writes.
    failures: Mutex<[Option<StoreFailure>; 2]>,
}

/// How a request uses the store. For example, a full disk fails writes but not reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StoreUse {
    Read,
    Write,
}

struct StoreFailure {
    since: Nanos,
    last: Nanos,
    cause: String,
}

impl StoreUse {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
        }
    }
}

impl StoreHealth {
    pub(super) fn new(clock: Clock) -> Self {
        let log = LogLimiter::new(clock.clone());
        Self { clock, log, failures: Mutex::default() }
    }

    /// Records that the store has answered.
    pub(super) fn worked(&self, used: StoreUse) {
        let failure = self.failures.lock()[used as usize].take();
        if failure.is_some() {
            let component = COMPONENT;
            log::info!(component; "{component}: {} of the store work again", used.name());
        }
    }

    /// Records and logs a failure of the store. The client does not see the cause, which may show paths and addresses.
    pub(super) fn failed(&self, used: StoreUse, cause: &str) {
        let (now, cause) = (self.clock.nanos(), one_line(cause));
        if let Some(missing) = self.log.allow(used) {
            let (component, used, error, more) = (COMPONENT, used.name(), cause.as_str(), omitted_lines(missing));
            log::warn!(
                component, error;
                "{component}: {used} of the store fail, and clients get status 500: {error}{more}"
            );
        }
        let mut failures = self.failures.lock();
        let since = failures[used as usize].as_ref().map_or(now, |failure| failure.since);
        failures[used as usize] = Some(StoreFailure { since, last: now, cause });
    }

    /// Returns why the store is not ready: its last read or write failed within the last minute.
    pub(crate) fn fault(&self) -> Option<String> {
        let now = self.clock.nanos();
        let failures = self.failures.lock();
        let mut faults = Vec::new();
        for used in [StoreUse::Read, StoreUse::Write] {
            if let Some(StoreFailure { since, last, cause }) = &failures[used as usize]
                && now.since(*last) < FORGET_AFTER
            {
                let seconds = now.since(*since).as_secs();
                faults.push(format!("{} of the store have failed for {seconds} s: {cause}", used.name()));
            }
        }
        (!faults.is_empty()).then(|| faults.join("; "))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use homeostat::ManualClock;

    #[test]
    fn a_store_is_not_ready_until_it_works_again_or_has_not_failed_for_a_minute() {
        let clock = ManualClock::new();
        let store = StoreHealth::new(clock.clock());
        assert_eq!(store.fault(), None);
        store.failed(StoreUse::Write, "the disk\nis full");
        clock.advance(Duration::from_secs(7));
        store.worked(StoreUse::Read);
        let fault = store.fault().unwrap_or_default();
        assert_eq!(fault, "writes of the store have failed for 7 s: the disk\\nis full");
        store.worked(StoreUse::Write);
        assert_eq!(store.fault(), None);
        store.failed(StoreUse::Read, "no route");
        clock.advance(Duration::from_secs(59));
        assert!(store.fault().is_some());
        clock.advance(Duration::from_secs(1));
        assert_eq!(store.fault(), None);
    }
}
