//! Resolves the host names of servers.

use std::fmt;
use std::io::{self, ErrorKind};

use http::Uri;
use ureq::Error;
use ureq::config::Config;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::request_error::ConnectError;
use super::time_left::{check_time_left, deadline};
use crate::config::cluster::port_of;
use homeostat::base::{CancellationToken, Clock};
use homeostat_net::{LookUpError, NameLookUps};

/// Resolves a server's host name. Numeric addresses do not involve the system's resolver.
pub(crate) struct AddressResolver {
    /// Ends the wait for the system's resolver.
    stop: Option<CancellationToken>,
    look_ups: NameLookUps,
}

impl AddressResolver {
    /// Creates a resolver. Cancelling `stop` ends its waits.
    pub(crate) fn new(stop: Option<CancellationToken>, look_ups: NameLookUps) -> Self {
        Self { stop, look_ups }
    }
}

impl fmt::Debug for AddressResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressResolver").finish_non_exhaustive()
    }
}

impl Resolver for AddressResolver {
    fn resolve(&self, uri: &Uri, _: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let port = uri.authority().map_or(Ok(None), port_of).map_err(|()| {
            let authority = uri.authority().map_or("", http::uri::Authority::as_str).rsplit('@').next();
            Error::Other(Box::new(ConnectError::new(
                format!("{:?} has an impossible port", authority.unwrap_or_default()),
                None,
            )))
        })?;
        let port = port.unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let host = uri.host().unwrap_or_default();
        let limit = check_time_left(timeout)?;
        let deadline = deadline(&Clock::system(), limit);
        let found = self.look_ups.find(host, port, deadline, self.stop.as_ref()).map_err(|error| {
            let cause = match error {
                LookUpError::TimedOut => return Error::Timeout(limit.reason),
                LookUpError::Stopped => io::Error::new(ErrorKind::Interrupted, "it was stopped"),
                LookUpError::Failed(error) => error,
            };
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let fault = format!("the address of the host {host:?} cannot be found");
            Error::Other(Box::new(ConnectError::new(fault, Some(cause))))
        })?;
        let mut addresses = self.empty();
        for address in found {
            if addresses.try_push(address).is_err() {
                break;
            }
        }
        Ok(addresses)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread::scope;
    use std::time::Duration;

    use ureq::Timeout;

    use super::*;

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
        let look_ups = NameLookUps::with_resolver(Clock::system(), "resolver", |_, _| {
            loop {
                std::thread::park();
            }
        });
        let resolver = AddressResolver::new(Some(stop.clone()), look_ups);
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
        let ask = |_: &str, _| panic!("the system is not asked");
        let resolver = AddressResolver::new(None, NameLookUps::with_resolver(Clock::system(), "resolver", ask));
        for place in ["10.0.0.1:99999", "me@k:0", "[::1]:65536"] {
            let uri: Uri = format!("https://{place}").parse().unwrap();
            let error = resolver.resolve(&uri, &Config::default(), NextTimeout::default()).unwrap_err();
            let place = place.trim_start_matches("me@");
            assert!(error.to_string().contains(&format!("{place:?} has an impossible port")), "{error}");
        }
    }
}
