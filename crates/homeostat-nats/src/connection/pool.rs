//! Decides which server to try next, and when.

use std::time::Duration;

use super::super::address::ServerAddress;
use homeostat::base::Exponential;
use homeostat::rt::Draws;

/// A shorter connection counts as a failed attempt. Otherwise a server that accepts and closes would be called in a
/// loop.
const SHORT: Duration = Duration::from_secs(1);

/// The servers of a connection. Each attempt takes the next server. After a round without success, there is a delay.
#[derive(Debug)]
pub(super) struct ServerPool {
    entries: Vec<PoolEntry>,
    /// The attempts since the last delay.
    tried: usize,
    /// The number of rounds without success.
    rounds: u32,
    backoff: Exponential,
    draws: Draws,
}

#[derive(Debug)]
struct PoolEntry {
    address: ServerAddress,
    /// Whether the options name this server, rather than another server.
    configured: bool,
}

/// The next attempt.
#[derive(Debug, PartialEq)]
pub(super) enum Attempt {
    /// Connect to this server after a delay.
    Connect(Duration, ServerAddress),
    /// Stop: the backoff allows no further round.
    GiveUp,
}

impl ServerPool {
    /// Creates a pool of the configured servers. `shuffle` puts them in random order.
    pub(super) fn new(given: Vec<ServerAddress>, shuffle: bool, backoff: Exponential, draws: Draws) -> Self {
        let mut pool = Self { entries: Vec::new(), tried: 0, rounds: 0, backoff, draws };
        for address in given {
            if !pool.contains(&address) {
                pool.entries.push(PoolEntry { address, configured: true });
            }
        }
        if shuffle {
            for last in (1..pool.entries.len()).rev() {
                let other = pool.draw_below(last + 1);
                pool.entries.swap(last, other);
            }
        }
        pool
    }

    /// Returns the next attempt, and moves its server to the end.
    pub(super) fn next(&mut self) -> Attempt {
        let mut delay = Duration::ZERO;
        if self.tried >= self.entries.len() {
            self.tried = 0;
            self.rounds = self.rounds.saturating_add(1);
            if self.backoff.retries().is_some_and(|most| self.rounds > most) {
                return Attempt::GiveUp;
            }
            delay = self.backoff.jittered(self.rounds, self.draws.draw());
        }
        self.tried += 1;
        if self.entries.is_empty() {
            return Attempt::GiveUp;
        }
        let entry = self.entries.remove(0);
        let address = entry.address.clone();
        self.entries.push(entry);
        Attempt::Connect(delay, address)
    }

    /// Returns whether each server was tried since the last success or delay.
    pub(super) fn is_round_over(&self) -> bool {
        self.tried >= self.entries.len()
    }

    /// Records that a connection has ended after the time `lived`. Returns the delay before the next attempt.
    pub(super) fn ended(&mut self, lived: Duration) -> Duration {
        if lived >= SHORT {
            self.rounds = 0;
            self.tried = 0;
            // All clients of a server lose it at the same time, so their delays must differ.
            return self.backoff.first_step().mul_f64(Draws::unit(self.draws.draw()));
        }
        self.rounds = self.rounds.saturating_add(1);
        self.tried = 0;
        self.backoff.jittered(self.rounds, self.draws.draw())
    }

    /// Updates the pool with the servers that the current server announces. Adds new ones, and removes announced
    /// servers that it no longer lists. Configured servers stay, and the current server stays, which is the last
    /// entry. As in the official clients, new entries get the credentials and the certificate name of the current
    /// server.
    pub(super) fn update(&mut self, named: &[ServerAddress]) {
        let current = self.entries.last().map(|current| current.address.clone());
        let last = self.entries.len().saturating_sub(1);
        let mut at = 0;
        self.entries.retain(|entry| {
            let keep =
                entry.configured || at == last || named.iter().any(|address| address.is_same_place(&entry.address));
            at += 1;
            keep
        });
        for address in named {
            let named = || current.as_ref().map_or_else(|| address.clone(), |current| current.announced(address));
            match self.entries.iter_mut().find(|entry| entry.address.is_same_place(address)) {
                // A server without credentials announced this one first.
                Some(entry) if !entry.configured && entry.address.login.is_none() => entry.address = named(),
                Some(_) => {}
                None => {
                    // Insert at a random place, so that clients choose different next servers.
                    let (address, place) = (named(), self.draw_below(self.entries.len().max(1)));
                    self.entries.insert(place, PoolEntry { address, configured: false });
                }
            }
        }
        self.tried = self.tried.min(self.entries.len());
    }

    /// Returns the servers, in the order of the next attempts.
    pub(super) fn places(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.address.to_string()).collect()
    }

    fn contains(&self, address: &ServerAddress) -> bool {
        self.entries.iter().any(|entry| entry.address.is_same_place(address))
    }

    fn draw_below(&mut self, end: usize) -> usize {
        usize::try_from(self.draws.draw() % u64::try_from(end.max(1)).unwrap_or(1)).unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[expect(clippy::unwrap_used, reason = "the test's own addresses are valid")]
    fn addresses(names: &[&str]) -> Vec<ServerAddress> {
        names.iter().map(|name| ServerAddress::parse(name).unwrap()).collect()
    }

    fn pool(names: &[&str]) -> ServerPool {
        let backoff = Exponential::new(Duration::from_millis(100), Duration::from_secs(1)).jitter(0.0);
        ServerPool::new(addresses(names), false, backoff, Draws::new(7))
    }

    fn attempt(pool: &mut ServerPool) -> String {
        match pool.next() {
            Attempt::Connect(delay, address) => format!("{address} {delay:?}"),
            Attempt::GiveUp => "give up".to_owned(),
        }
    }

    #[test]
    fn each_round_tries_all_servers_and_then_waits_longer() {
        let mut pool = pool(&["a:1", "b:1", "a:1"]);
        let attempts: Vec<_> = (0..7).map(|_| attempt(&mut pool)).collect();
        assert_eq!(attempts, ["a:1 0ns", "b:1 0ns", "a:1 100ms", "b:1 0ns", "a:1 200ms", "b:1 0ns", "a:1 400ms"]);
    }

    /// From nats.rs' `server_pool_parity_tests` (Apache-2.0): a client does not spin on a server that fails fast, and
    /// stops at the limit of attempts.
    #[test]
    fn the_limit_of_retries_counts_rounds() {
        let backoff = Exponential::new(Duration::from_millis(100), Duration::from_secs(1)).jitter(0.0).max_retries(1);
        let mut pool = ServerPool::new(addresses(&["a:1", "b:1"]), false, backoff, Draws::new(7));
        let attempts: Vec<_> = (0..5).map(|_| attempt(&mut pool)).collect();
        assert_eq!(attempts, ["a:1 0ns", "b:1 0ns", "a:1 100ms", "b:1 0ns", "give up"]);
    }

    #[test]
    fn a_server_that_accepts_and_closes_is_called_ever_more_rarely() {
        let mut pool = pool(&["a:1"]);
        let mut delays = Vec::new();
        for _ in 0..6 {
            assert!(matches!(pool.next(), Attempt::Connect(Duration::ZERO, _)));
            delays.push(pool.ended(Duration::from_millis(5)).as_millis());
        }
        assert_eq!(delays, [100, 200, 400, 800, 1_000, 1_000]);
        assert!(matches!(pool.next(), Attempt::Connect(Duration::ZERO, _)));
        assert!(pool.ended(SHORT) < Duration::from_millis(100), "a long connection ends the backoff");
    }

    #[test]
    fn the_next_server_is_another_one() {
        let mut pool = pool(&["a:1", "b:1", "c:1"]);
        assert_eq!(attempt(&mut pool), "a:1 0ns");
        pool.ended(SHORT);
        assert_eq!(attempt(&mut pool), "b:1 0ns");
    }

    #[test]
    fn announced_servers_change_but_configured_and_current_ones_stay() {
        let mut pool = pool(&["a:1"]);
        assert_eq!(attempt(&mut pool), "a:1 0ns");
        pool.update(&addresses(&["a:1", "b:1", "c:1"]));
        let mut known = pool.places();
        assert_eq!(known.pop().as_deref(), Some("a:1"), "the current server stays the last");
        known.sort();
        assert_eq!(known, ["b:1", "c:1"]);
        pool.update(&addresses(&["c:1"]));
        assert_eq!(pool.places(), ["c:1", "a:1"]);
        assert_eq!(attempt(&mut pool), "c:1 0ns");
        pool.update(&[]);
        assert_eq!(pool.places(), ["a:1", "c:1"], "the connection is to c");
        assert_eq!(attempt(&mut pool), "a:1 100ms", "both were tried");
        pool.update(&[]);
        assert_eq!(pool.places(), ["a:1"]);
    }

    /// From nats.go's `addURLToPool` (Apache-2.0).
    #[test]
    fn named_servers_get_the_credentials_of_the_server_that_names_them() {
        let mut pool = pool(&["me:secret@a:1", "b:1"]);
        assert_eq!(attempt(&mut pool), "a:1 0ns");
        pool.update(&addresses(&["a:1", "b:1", "c:1"]));
        while !attempt(&mut pool).starts_with("b:1") {}
        pool.update(&addresses(&["a:1", "b:1", "c:1", "d:1"]));
        let user = |name: &str| {
            let mut entries = pool.entries.iter();
            let entry = entries.find(|entry| entry.address.host == name)?;
            entry.address.login.as_ref().map(|(user, _)| user.as_str())
        };
        assert_eq!(["a", "b", "c", "d"].map(user), [Some("me"), None, Some("me"), None]);
        while !attempt(&mut pool).starts_with("a:1") {}
        pool.update(&addresses(&["a:1", "b:1", "c:1", "d:1"]));
        let user = |name: &str| {
            let entry = pool.entries.iter().find(|entry| entry.address.host == name)?;
            entry.address.login.as_ref().map(|(user, _)| user.as_str())
        };
        assert_eq!(["b", "d"].map(user), [None, Some("me")], "a server with credentials has named it later");
    }

    #[test]
    fn shuffled_pools_have_all_servers() {
        let names = ["a:1", "b:1", "c:1", "d:1"];
        let mut orders = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let pool = ServerPool::new(addresses(&names), true, Exponential::default(), Draws::new(seed));
            let mut places = pool.places();
            orders.insert(places.clone());
            places.sort();
            assert_eq!(places, names);
        }
        assert_eq!(orders.len(), 24);
    }
}
