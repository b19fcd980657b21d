//! The credentials of each request: kept, and renewed before they expire or after the server has refused them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use super::exec::{ExecCredentials, ExecError, ExecPlugin};
use super::identity::Credentials;
use super::secret::Secret;
use crate::base::clock::Clock;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::time::Nanos;

/// How long the content of a token file is used before the file is read again, as in client-go.
const FILE_PERIOD: Duration = Duration::from_secs(60);
/// How long before their end the credentials of a plugin are renewed.
const EARLY: Duration = Duration::from_secs(10);

/// Provides the credentials of requests. Threads that need new credentials at the same time wait for one renewal.
pub(crate) struct Authenticator {
    credentials: Credentials,
    /// The server, as plugins want to know it.
    cluster: serde_json::Value,
    clock: Clock,
    kept: Mutex<Kept>,
}

/// The last credentials.
#[derive(Default)]
struct Kept {
    token: Option<Secret<String>>,
    certificate: Option<(String, Secret<String>)>,
    /// When to renew them. They are missing at first.
    until: Until,
    plugin_runs: u64,
}

#[derive(Default)]
enum Until {
    /// They are missing, or the server has refused them.
    #[default]
    Now,
    At(Nanos),
    /// This time of day.
    Expiry(Timestamp),
    Forever,
}

/// The error of finding credentials.
#[derive(Debug)]
pub(crate) enum AuthError {
    File { path: PathBuf, error: std::io::Error },
    EmptyFile { path: PathBuf },
    Exec(ExecError),
}

impl Authenticator {
    pub(crate) fn new(credentials: Credentials, cluster: serde_json::Value, clock: Clock) -> Self {
        Self { credentials, cluster, clock, kept: Mutex::new(Kept::default()) }
    }

    /// Returns the value of the header `Authorization`; `None` if a request has none. May read a file or run a plugin.
    pub(crate) fn authorization(&self) -> Result<Option<Secret<String>>, AuthError> {
        let bearer = |token: &Secret<String>| Secret::new(format!("Bearer {}", token.reveal()));
        match &self.credentials {
            Credentials::None => Ok(None),
            Credentials::Token(token) => Ok(Some(bearer(token))),
            Credentials::Password { user, password } => {
                let pair = STANDARD.encode(format!("{user}:{}", password.reveal()));
                Ok(Some(Secret::new(format!("Basic {pair}"))))
            }
            Credentials::TokenFile { path, first } => {
                let mut kept = self.kept.lock();
                if self.is_due(&kept.until) {
                    self.read_file(&mut kept, path, first.as_ref())?;
                }
                Ok(kept.token.as_ref().map(bearer))
            }
            Credentials::Exec(plugin) => Ok(self.of_plugin(plugin)?.token.as_ref().map(bearer)),
        }
    }

    /// Returns the client certificate of a plugin and its key, in PEM; `None` without one. May run the plugin.
    pub(crate) fn certificate(&self) -> Result<Option<(String, Secret<String>)>, AuthError> {
        match &self.credentials {
            Credentials::Exec(plugin) => Ok(self.of_plugin(plugin)?.certificate.clone()),
            _ => Ok(None),
        }
    }

    /// Returns how often a plugin has run.
    pub(crate) fn plugin_runs(&self) -> u64 {
        self.kept.lock().plugin_runs
    }

    /// Called after the server has refused (401) the value of [`authorization`](Self::authorization), or a request without one.
    /// Returns whether another try makes sense, because the next value may be a new one.
    pub(crate) fn refused(&self, value: Option<&Secret<String>>) -> bool {
        let renewable = match self.credentials {
            Credentials::TokenFile { .. } => value.is_some(),
            Credentials::Exec(_) => true,
            _ => false,
        };
        if renewable {
            let mut kept = self.kept.lock();
            let token = value.and_then(|value| value.reveal().strip_prefix("Bearer "));
            // Another thread may have renewed the token meanwhile.
            if kept.token.as_ref().map(|token| token.reveal().as_str()) == token {
                kept.until = Until::Now;
            }
        }
        renewable
    }

    fn is_due(&self, until: &Until) -> bool {
        match until {
            Until::Now => true,
            Until::At(time) => self.clock.reached(*time),
            Until::Expiry(expiry) => {
                let now = Timestamp::try_from(self.clock.time_of_day()).unwrap_or(Timestamp::MAX);
                expiry.checked_sub(EARLY).is_ok_and(|early| early <= now)
            }
            Until::Forever => false,
        }
    }

    /// Reads a token file. If that fails, keeps the token that is known.
    fn read_file(&self, kept: &mut Kept, path: &PathBuf, first: Option<&Secret<String>>) -> Result<(), AuthError> {
        let read = std::fs::read_to_string(path).map_err(|error| AuthError::File { path: path.clone(), error });
        let read = read.and_then(|text| match text.trim() {
            "" => Err(AuthError::EmptyFile { path: path.clone() }),
            token => Ok(Secret::new(token.to_owned())),
        });
        match read {
            Ok(token) => kept.token = Some(token),
            Err(error) => {
                kept.token = Some(kept.token.take().or_else(|| first.cloned()).ok_or(error)?);
            }
        }
        kept.until = Until::At(self.clock.nanos().after(FILE_PERIOD));
        Ok(())
    }

    fn of_plugin(&self, plugin: &ExecPlugin) -> Result<MutexGuard<'_, Kept>, AuthError> {
        let mut kept = self.kept.lock();
        if self.is_due(&kept.until) {
            let cluster = plugin.wants_cluster.then(|| self.cluster.clone());
            let ExecCredentials { token, certificate, expires } = plugin.run(cluster).map_err(AuthError::Exec)?;
            let until = expires.map_or(Until::Forever, Until::Expiry);
            *kept = Kept { token, certificate, until, plugin_runs: kept.plugin_runs + 1 };
        }
        Ok(kept)
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, error } => write!(f, "the token file {} cannot be read: {error}", path.display()),
            Self::EmptyFile { path } => write!(f, "the token file {} is empty", path.display()),
            Self::Exec(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AuthError {}
