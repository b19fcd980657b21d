//! Resolves the host names of servers.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::Uri;
use ureq::Error;
use ureq::config::Config;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::connector::check_time_left;
use super::request_error::ConnectError;
use crate::config::cluster::port_of;
use crate::sync::Mutex;
use homeostat::base::{CancellationToken, Clock, ThreadOptions};
use homeostat::rt::{Monitor, Nanos};

/// Resolves a server's host name. Numeric addresses do not involve the system's resolver.
pub(crate) struct AddressResolver {
    /// Ends the wait for the system's resolver.
    stop: Option<CancellationToken>,
    shared: LookUps,
}

/// The current look-ups of a client by host and port. Callers that need the same name wait for one look-up.
///
/// The system may need a minute for a name. Without this sharing, each request in that minute would leave another
/// thread behind.
#[derive(Clone)]
pub(crate) struct LookUps {
    under_way: Arc<Mutex<HashMap<String, Arc<LookUp>>>>,
    ask: AskSystem,
}

/// Asks the system for the addresses of a name.
type AskSystem = fn(&Uri, &Config) -> Result<ResolvedSocketAddrs, Error>;

/// A look-up and its result.
type LookUp = Monitor<Option<Result<Vec<SocketAddr>, (ErrorKind, String)>>>;

/// Ends a look-up when its thread ends.
struct EndOfLookUp {
    shared: LookUps,
    name: String,
    look_up: Arc<LookUp>,
}

impl Default for LookUps {
    fn default() -> Self {
        // With a timeout, the resolver would start its own thread.
        Self::with_resolver(|uri, config| DefaultResolver::default().resolve(uri, config, NextTimeout::default()))
    }
}

impl LookUps {
    fn with_resolver(ask: AskSystem) -> Self {
        Self { under_way: Arc::default(), ask }
    }

    /// Returns the look-up of a name, starting it if none is running.
    ///
    /// It runs on a thread, because a call to the system's resolver cannot be interrupted. The thread ends with that
    /// call.
    fn join(&self, uri: &Uri, config: &Config) -> io::Result<Arc<LookUp>> {
        let name = uri.authority().map_or("", http::uri::Authority::as_str).to_owned();
        let look_up = {
            let mut under_way = self.under_way.lock();
            if let Some(look_up) = under_way.get(&name) {
                return Ok(Arc::clone(look_up));
            }
            let look_up = Monitor::of(Clock::system(), None);
            under_way.insert(name.clone(), Arc::clone(&look_up));
            look_up
        };
        let end = EndOfLookUp { shared: self.clone(), name, look_up: Arc::clone(&look_up) };
        let (uri, config, ask) = (uri.clone(), config.clone(), self.ask);
        let work = move || {
            let found = match ask(&uri, &config) {
                Ok(found) => Ok(found.iter().copied().collect()),
                Err(Error::Io(error)) => Err((error.kind(), error.to_string())),
                Err(other) => Err((ErrorKind::NotFound, other.to_string())),
            };
            end.look_up.change(|result| *result = Some(found));
        };
        ThreadOptions::new().spawn("kubernetes-resolver".to_owned(), work)?;
        Ok(look_up)
    }
}

impl Drop for EndOfLookUp {
    fn drop(&mut self) {
        self.shared.under_way.lock().remove(&self.name);
        // The thread could not be started, or it panicked.
        self.look_up.change(|result| {
            result.get_or_insert_with(|| Err((ErrorKind::Other, "the look-up has failed".to_owned())));
        });
    }
}

impl AddressResolver {
    /// Creates a resolver. Cancelling `stop` ends its waits.
    pub(crate) fn new(stop: Option<CancellationToken>, shared: LookUps) -> Self {
        Self { stop, shared }
    }

    /// Waits for the addresses of a name.
    fn look_up(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let limit = check_time_left(timeout)?;
        let look_up = self.shared.join(uri, config)?;
        let woken = Arc::clone(&look_up);
        let _guard = self.stop.as_ref().map(|token| token.on_cancel(move || woken.change(|_| ())));
        let until = limit.not_zero().map_or(Nanos::NEVER, |limit| look_up.clock().nanos().after(*limit));
        let found = look_up.wait_for_some(until, |found| match found {
            _ if self.stop.as_ref().is_some_and(CancellationToken::is_cancelled) => {
                Some(Err((ErrorKind::Interrupted, "it was stopped".to_owned())))
            }
            found => found.clone(),
        });
        match found {
            None => Err(Error::Timeout(limit.reason)),
            Some(Err((kind, text))) => Err(io::Error::new(kind, text).into()),
            Some(Ok(found)) => {
                let mut addresses = self.empty();
                for address in found {
                    addresses.push(address);
                }
                Ok(addresses)
            }
        }
    }
}

impl fmt::Debug for AddressResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressResolver").finish_non_exhaustive()
    }
}

impl Resolver for AddressResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let port = uri.authority().map_or(Ok(None), port_of).map_err(|()| {
            let authority = uri.authority().map_or("", http::uri::Authority::as_str).rsplit('@').next();
            Error::Other(Box::new(ConnectError::new(
                format!("{:?} has an impossible port", authority.unwrap_or_default()),
                None,
            )))
        })?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let Ok(address) = host.parse::<IpAddr>() else {
            return self.look_up(uri, config, timeout).map_err(|error| match error {
                Error::Io(error) => {
                    let what = format!("the address of the host {host:?} cannot be found");
                    Error::Other(Box::new(ConnectError::new(what, Some(error))))
                }
                other => other,
            });
        };
        let port = port.unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let mut found = self.empty();
        found.push(SocketAddr::new(address, port));
        Ok(found)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread::scope;
    use std::time::Duration;

    use ureq::Timeout;

    use super::*;

    const CALLERS: usize = 20;

    fn uri() -> Uri {
        Uri::from_static("https://k:6443")
    }

    fn limited(milliseconds: u64) -> NextTimeout {
        let (after, reason) = (Duration::from_millis(milliseconds).into(), Timeout::Resolve);
        NextTimeout { after, reason, ..NextTimeout::default() }
    }

    #[test]
    fn a_look_up_that_hangs_ends_in_time_or_with_a_stop() {
        let stop = CancellationToken::new();
        let ask: AskSystem = |_, _| loop {
            std::thread::park();
        };
        let resolver = AddressResolver::new(Some(stop.clone()), LookUps::with_resolver(ask));
        let config = Config::default();
        let error = resolver.resolve(&uri(), &config, limited(100)).unwrap_err();
        assert!(matches!(error, Error::Timeout(Timeout::Resolve)), "{error:?}");
        scope(|scope| {
            let waits = scope.spawn(|| resolver.resolve(&uri(), &config, NextTimeout::default()));
            stop.cancel();
            assert!(waits.join().unwrap().is_err());
        });
    }

    /// The default port could belong to a stranger.
    #[test]
    fn an_impossible_port_is_not_replaced_by_the_default() {
        let ask: AskSystem = |_, _| panic!("the system is not asked");
        let resolver = AddressResolver::new(None, LookUps::with_resolver(ask));
        for place in ["10.0.0.1:99999", "me@k:0", "[::1]:65536"] {
            let uri: Uri = format!("https://{place}").parse().unwrap();
            let error = resolver.resolve(&uri, &Config::default(), NextTimeout::default()).unwrap_err();
            let place = place.trim_start_matches("me@");
            assert!(error.to_string().contains(&format!("{place:?} has an impossible port")), "{error}");
        }
    }

    #[test]
    fn callers_of_one_name_share_a_look_up() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static ANSWERS: OnceLock<CancellationToken> = OnceLock::new();
        let answers = ANSWERS.get_or_init(CancellationToken::new);
        let ask: AskSystem = |_, _| {
            ASKED.fetch_add(1, SeqCst);
            ANSWERS.get().unwrap().wait();
            let mut found = AddressResolver::new(None, LookUps::default()).empty();
            found.push(SocketAddr::from(([10, 0, 0, 1], 6443)));
            Ok(found)
        };
        let (shared, config) = (LookUps::with_resolver(ask), Config::default());
        // Each caller has its own resolver, and gives up.
        for _ in 0..CALLERS {
            let resolver = AddressResolver::new(None, shared.clone());
            assert!(matches!(resolver.resolve(&uri(), &config, limited(1)), Err(Error::Timeout(_))));
        }
        assert_eq!(shared.under_way.lock().len(), 1);
        answers.cancel();
        let resolver = AddressResolver::new(None, shared.clone());
        let found = resolver.resolve(&uri(), &config, NextTimeout::default()).unwrap();
        assert_eq!(found[..], [SocketAddr::from(([10, 0, 0, 1], 6443))]);
        // The last caller may have arrived after the answer, and then asked again.
        assert!(ASKED.load(SeqCst) <= 2);
    }

    #[test]
    fn a_look_up_that_panics_is_a_failure_and_the_next_caller_asks_again() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let ask: AskSystem = |_, _| {
            ASKED.fetch_add(1, SeqCst);
            panic!("the look-up panics");
        };
        let shared = LookUps::with_resolver(ask);
        let resolver = AddressResolver::new(None, shared.clone());
        for count in 1..=2 {
            let error = resolver.resolve(&uri(), &Config::default(), NextTimeout::default()).unwrap_err();
            assert!(error.to_string().contains("the address of the host \"k\" cannot be found"), "{error}");
            assert_eq!(ASKED.load(SeqCst), count);
        }
        assert!(shared.under_way.lock().is_empty());
    }
}
