//! Host name look-ups with a deadline.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use homeostat::base::{CancellationToken, Clock, ThreadOptions};
use homeostat::rt::{Monitor, Nanos, debug_with_causes};

use crate::sync::Mutex;

/// How long an unread result is kept.
const KEPT: Duration = Duration::from_secs(60);

/// The host name look-ups of a client. Clones share them.
///
/// A call to the system's resolver cannot be interrupted, and may take a minute. It runs on a separate thread, which
/// ends with that call and is never joined. Callers stop waiting at their deadline. Later callers of the same name wait
/// for the same look-up, so each name has at most one thread.
///
/// All callers that wait get the result, and the next caller asks again. If all of them have given up, the result is
/// kept for the next caller, for at most a minute.
///
/// # Examples
///
/// ```
/// use homeostat::Clock;
/// use homeostat_net::NameLookUps;
/// use std::time::Duration;
///
/// let clock = Clock::system();
/// let look_ups = NameLookUps::new(clock.clone(), "client-resolver");
/// let deadline = clock.nanos().after(Duration::from_secs(10));
/// let addresses = look_ups.find("127.0.0.1", 4222, deadline, None)?;
/// assert_eq!(addresses, ["127.0.0.1:4222".parse().unwrap()]);
/// # Ok::<_, homeostat_net::LookUpError>(())
/// ```
#[derive(Clone)]
pub struct NameLookUps(Arc<SharedLookUps>);

struct SharedLookUps {
    clock: Clock,
    /// The name of the threads.
    thread: String,
    ask: Box<AskForName>,
    /// Running look-ups, and ended ones with an unread result.
    by_name: Mutex<HashMap<HostAndPort, Arc<LookUp>>>,
}

type AskForName = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

type HostAndPort = (String, u16);

/// A look-up, and its result once it has ended.
type LookUp = Monitor<Option<LookUpResult>>;

#[derive(Clone)]
struct LookUpResult {
    /// The kind and the text of an error can be copied for each caller.
    addresses: Result<Vec<SocketAddr>, (ErrorKind, String)>,
    ended: Nanos,
}

/// The reason why a look-up has no addresses for its caller.
pub enum LookUpError {
    /// The deadline has passed. The look-up continues.
    TimedOut,
    /// The caller's stop token was cancelled. The look-up continues.
    Stopped,
    /// The look-up failed.
    Failed(io::Error),
}

impl NameLookUps {
    /// Creates look-ups that ask the system's resolver. Deadlines follow `clock`; `thread` is the name of the threads.
    #[must_use]
    pub fn new(clock: Clock, thread: impl Into<String>) -> Self {
        Self::with_resolver(clock, thread, |host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    /// Creates look-ups that call `ask` with a host and a port, in place of the system's resolver.
    ///
    /// # Examples
    ///
    /// A name that only this program knows:
    ///
    /// ```
    /// use homeostat::{Clock, rt::Nanos};
    /// use homeostat_net::NameLookUps;
    ///
    /// let clock = Clock::system();
    /// let ask = |host: &str, port| match host {
    ///     "store" => Ok(vec![([10, 0, 0, 1], port).into()]),
    ///     _ => Err(std::io::Error::other("no such host")),
    /// };
    /// let look_ups = NameLookUps::with_resolver(clock, "resolver", ask);
    /// assert_eq!(look_ups.find("store", 80, Nanos::NEVER, None)?, ["10.0.0.1:80".parse().unwrap()]);
    /// assert!(look_ups.find("shop", 80, Nanos::NEVER, None).is_err());
    /// # Ok::<_, homeostat_net::LookUpError>(())
    /// ```
    #[must_use]
    pub fn with_resolver(
        clock: Clock,
        thread: impl Into<String>,
        ask: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        let (thread, ask) = (thread.into(), Box::new(ask));
        Self(Arc::new(SharedLookUps { clock, thread, ask, by_name: Mutex::default() }))
    }

    /// Returns the addresses of a host, with `port`. An address in place of a name needs no look-up; an IPv6 address
    /// may be in brackets.
    ///
    /// Blocks until the look-up has ended, until `deadline`, or until `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// If the name has no address, the system's resolver fails, or the thread cannot be started;
    /// if the deadline passes; if `stop` is cancelled.
    pub fn find(
        &self,
        host: &str,
        port: u16,
        deadline: Nanos,
        stop: Option<&CancellationToken>,
    ) -> Result<Vec<SocketAddr>, LookUpError> {
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let name = (host.to_owned(), port);
        let look_up = self.join(&name)?;
        let woken = Arc::clone(&look_up);
        let _guard = stop.map(|stop| stop.on_cancel(move || woken.change(|_| ())));
        let result = look_up.wait_for_some(deadline, |result| {
            let is_stopped = stop.is_some_and(CancellationToken::is_cancelled);
            if is_stopped { Some(Err(LookUpError::Stopped)) } else { result.clone().map(Ok) }
        });
        let result = result.unwrap_or(Err(LookUpError::TimedOut))?;
        self.forget(&name, &look_up);
        result.addresses.map_err(|(kind, text)| LookUpError::Failed(io::Error::new(kind, text)))
    }

    /// Returns the look-up of a name. Starts one if none is usable.
    fn join(&self, name: &HostAndPort) -> Result<Arc<LookUp>, LookUpError> {
        let SharedLookUps { clock, thread, by_name, .. } = &*self.0;
        let now = clock.nanos();
        let is_usable =
            |result: &mut Option<LookUpResult>| result.as_ref().is_none_or(|result| now.since(result.ended) < KEPT);
        let look_up = {
            let mut by_name = by_name.lock();
            if let Some(look_up) = by_name.get(name).filter(|look_up| look_up.with(is_usable)) {
                return Ok(Arc::clone(look_up));
            }
            let look_up = Monitor::of(clock.clone(), None);
            by_name.insert(name.clone(), Arc::clone(&look_up));
            look_up
        };
        let (shared, end, (host, port)) = (Arc::clone(&self.0), EndOfLookUp(Arc::clone(&look_up)), name.clone());
        let work = move || {
            let found = (shared.ask)(&host, port).map_err(|error| (error.kind(), error.to_string()));
            end.set(found);
        };
        if let Err(error) = ThreadOptions::new().spawn(thread.clone(), work) {
            self.forget(name, &look_up);
            return Err(LookUpError::Failed(error));
        }
        Ok(look_up)
    }

    /// Removes a look-up, so that the next caller asks again.
    fn forget(&self, name: &HostAndPort, look_up: &Arc<LookUp>) {
        let mut by_name = self.0.by_name.lock();
        if by_name.get(name).is_some_and(|current| Arc::ptr_eq(current, look_up)) {
            by_name.remove(name);
        }
    }
}

/// Ends the waits for a look-up, even if its thread panics or cannot start.
struct EndOfLookUp(Arc<LookUp>);

impl EndOfLookUp {
    fn set(&self, found: Result<Vec<SocketAddr>, (ErrorKind, String)>) {
        let addresses = found.and_then(|found| {
            if found.is_empty() { Err((ErrorKind::NotFound, "the name has no address".to_owned())) } else { Ok(found) }
        });
        let ended = self.0.clock().nanos();
        self.0.change(|result| {
            result.get_or_insert(LookUpResult { addresses, ended });
        });
    }
}

impl Drop for EndOfLookUp {
    fn drop(&mut self) {
        self.set(Err((ErrorKind::Other, "the look-up has failed".to_owned())));
    }
}

impl fmt::Debug for NameLookUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameLookUps").field("thread", &self.0.thread).finish_non_exhaustive()
    }
}

impl fmt::Display for LookUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the system does not answer in time"),
            Self::Stopped => f.write_str("the wait for the system's answer was stopped"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

debug_with_causes!(LookUpError);

impl std::error::Error for LookUpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) => error.source(),
            Self::TimedOut | Self::Stopped => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use homeostat::ManualClock;
    use homeostat_test_support::until::until;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A resolver that counts its calls, and answers each of them when the test allows it.
    fn waiting(clock: &ManualClock) -> (NameLookUps, CancellationToken, Arc<AtomicUsize>) {
        let (answers, asked) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let (allowed, count) = (answers.clone(), Arc::clone(&asked));
        let look_ups = NameLookUps::with_resolver(clock.clock(), "resolver", move |_, port| {
            count.fetch_add(1, Ordering::SeqCst);
            allowed.wait();
            Ok(vec![([10, 0, 0, 1], port).into()])
        });
        (look_ups, answers, asked)
    }

    fn address(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    /// Waits until the look-up of `k:7` has a result.
    fn until_ended(look_ups: &NameLookUps) {
        until("the look-up has ended", || {
            let by_name = look_ups.0.by_name.lock();
            by_name.get(&("k".to_owned(), 7)).is_some_and(|look_up| look_up.with(|result| result.is_some()))
        });
    }

    /// Each caller waits no longer than it wants, and starts no second thread.
    #[test]
    fn callers_of_a_look_up_that_hangs_end_at_their_deadline_or_with_their_stop() {
        let clock = ManualClock::new();
        let (look_ups, answers, asked) = waiting(&clock);
        let (look_ups, stop) = (&look_ups, &CancellationToken::new());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let deadline = clock.clock().nanos().after(SECOND);
                let waits = scope.spawn(move || look_ups.find("k", 7, deadline, Some(stop)).unwrap_err());
                clock.wait_for_sleepers(1);
                clock.advance(SECOND);
                assert!(matches!(waits.join().unwrap(), LookUpError::TimedOut));
            }
            let waits = scope.spawn(move || look_ups.find("k", 7, Nanos::NEVER, Some(stop)).unwrap_err());
            clock.wait_for_sleepers(1);
            stop.cancel();
            assert!(matches!(waits.join().unwrap(), LookUpError::Stopped));
        });
        until("the look-up has begun", || asked.load(Ordering::SeqCst) > 0);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(look_ups.find("[::1]", 7, Nanos::NEVER, None).unwrap(), ["[::1]:7".parse().unwrap()]);
        answers.cancel();
    }

    #[test]
    fn callers_that_wait_share_an_answer_and_the_next_caller_asks_again() {
        let clock = ManualClock::new();
        let (look_ups, answers, asked) = waiting(&clock);
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..20)
                .map(|_| {
                    let look_ups = look_ups.clone();
                    scope.spawn(move || look_ups.find("k", 7, Nanos::NEVER, None).unwrap())
                })
                .collect();
            clock.wait_for_sleepers(20);
            answers.cancel();
            for caller in callers {
                assert_eq!(caller.join().unwrap(), [address(7)]);
            }
        });
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(look_ups.0.by_name.lock().is_empty());
        assert_eq!(look_ups.find("k", 7, Nanos::NEVER, None).unwrap(), [address(7)]);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert_eq!(look_ups.find("k", 8, Nanos::NEVER, None).unwrap(), [address(8)]);
    }

    /// A name that takes longer than the patience of each caller is found nevertheless.
    #[test]
    fn an_answer_that_nobody_waited_for_is_for_the_next_caller_unless_it_is_old() {
        let clock = ManualClock::new();
        let (look_ups, answers, asked) = waiting(&clock);
        assert!(matches!(look_ups.find("k", 7, Nanos::ZERO, None), Err(LookUpError::TimedOut)));
        answers.cancel();
        until_ended(&look_ups);
        clock.advance(KEPT / 2);
        assert_eq!(look_ups.find("k", 7, Nanos::ZERO, None).unwrap(), [address(7)]);
        assert_eq!(asked.load(Ordering::SeqCst), 1);

        // The first answer was read, so this caller asks again, and gives up at once.
        if look_ups.find("k", 7, Nanos::ZERO, None).is_err() {
            until_ended(&look_ups);
        }
        clock.advance(KEPT);
        assert_eq!(look_ups.find("k", 7, Nanos::NEVER, None).unwrap(), [address(7)]);
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_failure_has_its_reason_and_the_next_caller_asks_again() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let look_ups = NameLookUps::with_resolver(Clock::system(), "resolver", move |host, _| {
            count.fetch_add(1, Ordering::SeqCst);
            match host {
                "fails" => Err(io::Error::new(ErrorKind::NotFound, "no such host")),
                "panics" => panic!("the look-up panics"),
                _ => Ok(Vec::new()),
            }
        });
        let cases =
            [("fails", "no such host"), ("panics", "the look-up has failed"), ("empty", "the name has no address")];
        for (number, (host, reason)) in cases.into_iter().enumerate() {
            for attempt in 1..=2 {
                let error = look_ups.find(host, 7, Nanos::NEVER, None).unwrap_err();
                assert_eq!(error.to_string(), reason);
                assert_eq!(asked.load(Ordering::SeqCst), 2 * number + attempt);
            }
        }
        assert!(look_ups.0.by_name.lock().is_empty());
    }
}
