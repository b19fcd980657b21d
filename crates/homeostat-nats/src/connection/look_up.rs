//! Host name look-ups with a timeout.
//!
//! A call to the system's resolver cannot be interrupted and may take a minute. It runs on its own thread, which is
//! never joined. The caller stops waiting at its deadline. A later caller waits for the same look-up, so each name has
//! at most one thread.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use super::super::address::ServerAddress;
use super::super::error::{NatsError, NatsErrorKind};
use super::super::options::NatsOptions;
use homeostat::base::ThreadOptions;
use homeostat::rt::{Monitor, Nanos};

/// A function that asks the system for the addresses of a host and port.
type AskForName = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The host name look-ups of a connection.
#[derive(Debug)]
pub(super) struct NameLookUps {
    state: Arc<Monitor<LookUpState>>,
    ask: AskForName,
    /// The name of the threads.
    thread: String,
}

#[derive(Debug, Default)]
struct LookUpState {
    /// Look-ups by host and port. `None` while a look-up runs, `Some` once its result is ready to be read.
    by_name: HashMap<String, Option<Result<Vec<SocketAddr>, String>>>,
    is_closed: bool,
}

impl NameLookUps {
    pub(super) fn new(options: &NatsOptions) -> Self {
        Self::with_resolver(options, |host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    fn with_resolver(options: &NatsOptions, ask: AskForName) -> Self {
        let state = Monitor::of(options.clock.clone(), LookUpState::default());
        Self { state, ask, thread: format!("{}-resolver", options.name) }
    }

    /// Ends all waits with an error.
    pub(super) fn close(&self) {
        self.state.change(|state| state.is_closed = true);
    }

    /// Returns the addresses of a server. Blocks until the system has found them, until `deadline`, or until a close.
    pub(super) fn find(&self, address: &ServerAddress, deadline: Nanos) -> Result<Vec<SocketAddr>, NatsError> {
        let ServerAddress { host, port, .. } = address;
        if let Ok(number) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(number, *port)]);
        }
        let fail =
            |error: &dyn std::fmt::Display| Err(NatsError::connect(format!("the name cannot be resolved: {error}")));
        let name = address.to_string();
        let is_new = self.state.with(|state| {
            let is_new = !state.by_name.contains_key(&name);
            state.by_name.entry(name.clone()).or_default();
            is_new
        });
        if is_new && let Err(error) = self.start(&name, host.clone(), *port) {
            self.state.with(|state| state.by_name.remove(&name));
            return fail(&error);
        }
        let found = self.state.wait_for_some(deadline, |state| {
            if state.is_closed {
                return Some(Err(NatsError::new(NatsErrorKind::Closed)));
            }
            let found = state.by_name.get_mut(&name)?.take()?;
            state.by_name.remove(&name);
            Some(Ok(found))
        });
        match found {
            Some(Ok(Ok(found))) => Ok(found),
            Some(Ok(Err(error))) => fail(&error),
            Some(Err(closed)) => Err(closed),
            None => fail(&"the system does not answer within the connect timeout"),
        }
    }

    fn start(&self, name: &str, host: String, port: u16) -> io::Result<()> {
        let (state, ask, name) = (Arc::clone(&self.state), self.ask, name.to_owned());
        let work = move || {
            let found = ask(&host, port).map_err(|error| error.to_string());
            state.change(|state| state.by_name.insert(name, Some(found)));
        };
        ThreadOptions::new().spawn(self.thread.clone(), work).map(drop)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::until::until;
    use homeostat::ManualClock;

    static HANGS: AtomicUsize = AtomicUsize::new(0);

    fn hang(_: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        HANGS.fetch_add(1, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    }

    #[expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]
    fn address(text: &str) -> ServerAddress {
        ServerAddress::parse(text).unwrap()
    }

    /// Each connection attempt waits no longer than its timeout, and starts no second thread.
    #[test]
    fn a_look_up_that_hangs_ends_at_the_deadline_or_with_the_connection() {
        let clock = ManualClock::new();
        let look_ups = &NameLookUps::with_resolver(&NatsOptions::new("a").clock(clock.clock()), hang);
        let second = Duration::from_secs(1);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let deadline = clock.clock().nanos().after(second);
                let find = move || look_ups.find(&address("nats://slow:1"), deadline).unwrap_err().to_string();
                let waits = scope.spawn(find);
                clock.wait_for_sleepers(1);
                until("the look-up begins", || HANGS.load(Ordering::SeqCst) > 0);
                clock.advance(second);
                let text = "the name cannot be resolved: the system does not answer within the connect timeout";
                assert_eq!(waits.join().unwrap(), text);
            }
            let waits = scope.spawn(|| look_ups.find(&address("nats://slow:1"), Nanos::NEVER).unwrap_err());
            clock.wait_for_sleepers(1);
            look_ups.close();
            assert!(waits.join().unwrap().is_closed());
        });
        assert_eq!(HANGS.load(Ordering::SeqCst), 1);
        let found = look_ups.find(&address("nats://[::1]:7"), Nanos::NEVER).unwrap();
        assert_eq!(found, ["[::1]:7".parse().unwrap()], "a number needs no look-up");
    }

    #[test]
    fn each_attempt_asks_again_and_reports_the_reason_of_a_failure() {
        fn ask(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            if host == "b" { Err(io::Error::other("no such host")) } else { Ok(vec![([10, 0, 0, 1], port).into()]) }
        }
        let look_ups = NameLookUps::with_resolver(&NatsOptions::new("a"), ask);
        for _ in 0..2 {
            let found = look_ups.find(&address("nats://a:7"), Nanos::NEVER).unwrap();
            assert_eq!(found, ["10.0.0.1:7".parse().unwrap()]);
            let error = look_ups.find(&address("nats://b:7"), Nanos::NEVER).unwrap_err();
            assert_eq!(error.to_string(), "the name cannot be resolved: no such host");
        }
        assert!(look_ups.state.with(|state| state.by_name.is_empty()));
    }
}
