//! The addresses of servers.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::Uri;
use ureq::Error;
use ureq::config::Config;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::connector::unspent;
use super::request_error::Unsent;
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::thread::ThreadOptions;
use crate::base::time::Nanos;
use crate::base::wait::Monitor;

/// Finds the addresses of a server. The system's resolver is asked for names only.
pub(crate) struct AddressResolver {
    /// Ends the wait for the system's resolver.
    stop: Option<CancellationToken>,
    look_up: LookUp,
}

/// A function that asks the system for the addresses of a name.
type LookUp = fn(&Uri, &Config) -> Result<ResolvedSocketAddrs, Error>;

impl AddressResolver {
    /// Creates a resolver. A cancellation of `stop` ends its waits.
    pub(crate) fn new(stop: Option<CancellationToken>) -> Self {
        // Without a time-out, it starts no thread of its own.
        Self { stop, look_up: |uri, config| DefaultResolver::default().resolve(uri, config, NextTimeout::default()) }
    }

    /// Looks a name up on a thread, because no call to the system's resolver can be ended. The thread ends with that call.
    fn look_up(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let limit = unspent(timeout)?;
        let found = Monitor::of(Clock::system(), None);
        let (finds, look_up) = (Arc::clone(&found), self.look_up);
        let (uri, config) = (uri.clone(), config.clone());
        let work = move || {
            let result = look_up(&uri, &config);
            finds.change(|found| *found = Some(result));
        };
        ThreadOptions::new().spawn("kubernetes-resolver".to_owned(), work)?;
        let stopped = Arc::clone(&found);
        let stop = move || stopped.change(|found| *found = Some(Err(io::Error::from(ErrorKind::Interrupted).into())));
        let _guard = self.stop.as_ref().map(|token| token.on_cancel(stop));
        let until = limit.not_zero().map_or(Nanos::NEVER, |limit| found.clock().nanos().after(*limit));
        found.wait_for_some(until, Option::take).unwrap_or(Err(Error::Timeout(limit.reason)))
    }
}

impl fmt::Debug for AddressResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressResolver").finish_non_exhaustive()
    }
}

impl Resolver for AddressResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let Ok(address) = host.parse::<IpAddr>() else {
            return self.look_up(uri, config, timeout).map_err(|error| match error {
                Error::Io(error) => {
                    let what = format!("the address of the host {host:?} cannot be found");
                    Error::Other(Box::new(Unsent::new(what, Some(error))))
                }
                other => other,
            });
        };
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let mut found = self.empty();
        found.push(SocketAddr::new(address, port));
        Ok(found)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use ureq::Timeout;

    use super::*;

    #[test]
    fn a_look_up_that_hangs_ends_in_time_or_with_a_stop() {
        let stop = CancellationToken::new();
        let look_up: LookUp = |_, _| loop {
            std::thread::park();
        };
        let resolver = AddressResolver { stop: Some(stop.clone()), look_up };
        let (uri, config) = ("https://k".parse().unwrap(), Config::default());
        let (after, reason) = (Duration::from_millis(100).into(), Timeout::Resolve);
        let limited = NextTimeout { after, reason, ..NextTimeout::default() };
        let error = resolver.resolve(&uri, &config, limited).unwrap_err();
        assert!(matches!(error, Error::Timeout(Timeout::Resolve)), "{error:?}");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| resolver.resolve(&uri, &config, NextTimeout::default()));
            stop.cancel();
            assert!(waits.join().unwrap().is_err());
        });
    }
}
