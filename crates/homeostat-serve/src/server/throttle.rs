//! Slows down clients that guess credentials.
//!
//! Valid credentials are always served at once, so nobody can lock out another user. The answer to wrong credentials
//! is delayed if their address has failed often. Until then the connection stays open. Because the connections of an
//! address are limited, its guesses and the waiting threads are limited too.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::sync::Mutex;
use homeostat::rt::Nanos;

/// How many failures of one address are answered without a delay.
const FREE_FAILURES: u32 = 10;
/// The delay of the next answer. It doubles with each further failure.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// How often the delay doubles, up to 3.2 s.
const DOUBLINGS: u32 = 5;
/// How long it takes until one failure is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(10);
/// The largest number of addresses that are remembered.
const MOST_ADDRESSES: usize = 4_096;

/// The recent authentication failures by address.
#[derive(Debug, Default)]
pub(super) struct GuessThrottle(Mutex<HashMap<IpAddr, AddressFailures>>);

#[derive(Clone, Copy, Debug)]
struct AddressFailures {
    count: u32,
    /// The next failure is forgotten [`FORGET_AFTER`] after this time.
    since: Nanos,
}

impl GuessThrottle {
    /// Counts a failure. Returns the delay before it is answered.
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
        failures.count = (failures.count + 1).min(FREE_FAILURES + 1 + DOUBLINGS);
        match failures.count.checked_sub(FREE_FAILURES + 1) {
            None => Duration::ZERO,
            Some(doublings) => FIRST_DELAY * (1 << doublings),
        }
    }
}

impl AddressFailures {
    /// Forgets old failures.
    fn at(self, now: Nanos) -> Self {
        let forgotten = now.since(self.since).as_secs() / FORGET_AFTER.as_secs();
        let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX);
        match self.count.checked_sub(forgotten) {
            None | Some(0) => Self { count: 0, since: now },
            Some(count) => Self { count, since: self.since.after(FORGET_AFTER * forgotten) },
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
        for _ in 0..FREE_FAILURES {
            assert_eq!(throttle.delay(address(1), now), Duration::ZERO);
        }
        let delays: Vec<_> = (0..8).map(|_| throttle.delay(address(1), now).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 3_200, 3_200]);
        assert_eq!(throttle.delay(address(2), now), Duration::ZERO, "another address");
        now = now.after(FORGET_AFTER * 3);
        assert_eq!(throttle.delay(address(1), now).as_millis(), 800);
        now = now.after(FORGET_AFTER * 1_000);
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
        assert_eq!(throttle.delay(address(most), Nanos::ZERO.after(FORGET_AFTER)), Duration::ZERO);
        assert_eq!(throttle.0.lock().len(), 1);
    }
}
