//! Slows clients that guess credentials.
//!
//! Valid credentials are always served at once, so nobody can lock out another user. The answer to wrong ones comes
//! late if its address has failed often. It keeps its connection until then, and the connections of an address are
//! limited, which bounds its guesses and the threads that wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::Nanos;

/// The failures of one address that are answered at once.
const FREE: u32 = 10;
/// The delay of the next one. It doubles with each further failure.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The number of times that the delay doubles: up to 3.2 s.
const DOUBLINGS: u32 = 5;
/// The time after which one failure is forgotten.
const FORGETS: Duration = Duration::from_secs(10);
/// The most addresses that are remembered.
const MOST_ADDRESSES: usize = 4_096;

/// The recent failures to authenticate, by address.
#[derive(Debug, Default)]
pub(super) struct GuessThrottle(Mutex<HashMap<IpAddr, AddressFailures>>);

#[derive(Clone, Copy, Debug)]
struct AddressFailures {
    count: u32,
    /// The time from which the next failure is forgotten.
    since: Nanos,
}

impl GuessThrottle {
    /// Counts a failure. Returns the delay of its answer.
    pub(super) fn delay(&self, client: IpAddr, now: Nanos) -> Duration {
        let mut known = self.0.lock();
        if known.len() >= MOST_ADDRESSES && !known.contains_key(&client) {
            known.retain(|_, failures| failures.at(now).count > 0);
            if known.len() >= MOST_ADDRESSES {
                return FIRST_DELAY * (1 << DOUBLINGS);
            }
        }
        let failures = known.entry(client).or_insert(AddressFailures { count: 0, since: now });
        *failures = failures.at(now);
        failures.count = (failures.count + 1).min(FREE + 1 + DOUBLINGS);
        match failures.count.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_DELAY * (1 << doublings),
        }
    }
}

impl AddressFailures {
    /// Forgets old failures.
    fn at(self, now: Nanos) -> Self {
        let forgotten = now.since(self.since).as_secs() / FORGETS.as_secs();
        let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX);
        match self.count.checked_sub(forgotten) {
            None | Some(0) => Self { count: 0, since: now },
            Some(count) => Self { count, since: self.since.after(FORGETS * forgotten) },
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn the_delay_grows_with_the_failures_of_an_address_and_falls_with_time() {
        let (throttle, mut now) = (GuessThrottle::default(), Nanos::ZERO);
        for _ in 0..FREE {
            assert_eq!(throttle.delay(address(1), now), Duration::ZERO);
        }
        let delays: Vec<_> = (0..8).map(|_| throttle.delay(address(1), now).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 3_200, 3_200]);
        assert_eq!(throttle.delay(address(2), now), Duration::ZERO, "another address");
        now = now.after(FORGETS * 3);
        assert_eq!(throttle.delay(address(1), now).as_millis(), 800);
        now = now.after(FORGETS * 1_000);
        assert_eq!(throttle.delay(address(1), now), Duration::ZERO);
    }

    #[test]
    fn addresses_without_recent_failures_are_forgotten() {
        let throttle = GuessThrottle::default();
        let most = u32::try_from(MOST_ADDRESSES).unwrap();
        for number in 0..most {
            assert_eq!(throttle.delay(address(number), Nanos::ZERO), Duration::ZERO);
        }
        assert_eq!(throttle.delay(address(most), Nanos::ZERO).as_millis(), 3_200, "too many addresses guess");
        assert_eq!(throttle.delay(address(most), Nanos::ZERO.after(FORGETS)), Duration::ZERO);
        assert_eq!(throttle.0.lock().len(), 1);
    }
}
