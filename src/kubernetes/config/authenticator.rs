//! The credentials of each request: kept, and renewed before they expire or after the server has refused them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use super::cluster_info::ClusterInfo;
use super::exec::{ExecCredentials, ExecError, ExecPlugin};
use super::identity::Credentials;
use super::process::Messages;
use super::secret::Secret;
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::thread::{ThreadOptions, shielded};
use crate::base::time::Nanos;
use crate::base::wait::Monitor;

/// How long the content of a token file is used before the file is read again, as in client-go.
const FILE_PERIOD: Duration = Duration::from_secs(60);
/// How long before their end the credentials of a plugin are renewed.
const EARLY: Duration = Duration::from_secs(10);
/// The shortest time between two runs of a plugin while its credentials are valid.
const EARLY_PERIOD: Duration = Duration::from_secs(1);
/// How long the failure of a plugin is the answer to all, before the plugin runs again.
const FAILURE_PERIOD: Duration = Duration::from_secs(2);

/// Provides the credentials of requests. Threads that need new credentials at the same time wait for one renewal. An early renewal
/// delays no request.
pub(crate) struct Authenticator {
    credentials: Credentials,
    /// The server, as plugins want to know it.
    cluster: ClusterInfo,
    clock: Clock,
    kept: Arc<Mutex<Kept>>,
    /// Cancelled by the drop. It kills a plugin that still runs.
    dropped: CancellationToken,
}

/// The last credentials.
#[derive(Default)]
struct Kept {
    token: Option<Secret<String>>,
    certificate: Option<(String, Secret<String>)>,
    /// When to renew them. They are missing at first.
    until: Until,
    plugin_runs: u64,
    /// The run of the plugin that is under way.
    run: Option<Arc<PluginRun>>,
    /// The time of the next run while the credentials are valid.
    next_early: Nanos,
    /// The last failure of the plugin, and the time until which it is the answer.
    failure: Option<(Arc<ExecError>, Nanos)>,
}

/// A run of a plugin.
struct PluginRun {
    /// Set when it has ended.
    result: Arc<Monitor<Option<PluginResult>>>,
    /// Its standard error so far.
    messages: Arc<Messages>,
}

type PluginResult = Result<Option<Secret<String>>, Arc<ExecError>>;

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

/// Whether credentials must be renewed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Renewal {
    NotYet,
    /// They are still valid, but not for long.
    Early,
    Due,
}

/// The error of finding credentials.
#[derive(Debug)]
pub(crate) enum AuthError {
    File { path: PathBuf, error: std::io::Error },
    EmptyFile { path: PathBuf },
    Exec(Arc<ExecError>),
}

impl Authenticator {
    pub(crate) fn new(credentials: Credentials, cluster: ClusterInfo, clock: Clock) -> Self {
        Self { credentials, cluster, clock, kept: Arc::default(), dropped: CancellationToken::new() }
    }

    /// Returns the value of the header `Authorization`; `None` if a request has none.
    ///
    /// May read a file, or run a plugin. Waits for the plugin only if no valid credentials are known. The wait ends with an error at the time `until` and when `stop` is
    /// cancelled. Then the plugin goes on for other calls.
    pub(crate) fn authorization(
        &self,
        until: Nanos,
        stop: Option<&CancellationToken>,
    ) -> Result<Option<Secret<String>>, AuthError> {
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
                if self.renewal(&kept.until) == Renewal::Due {
                    self.read_file(&mut kept, path, first.as_ref())?;
                }
                Ok(kept.token.as_ref().map(bearer))
            }
            Credentials::Exec(plugin) => Ok(self.of_plugin(plugin, until, stop)?.as_ref().map(bearer)),
        }
    }

    /// Returns the client certificate that a plugin has printed last, and its key, in PEM; `None` without one. Runs no plugin: call
    /// [`authorization`](Self::authorization) first.
    pub(crate) fn certificate(&self) -> Option<(String, Secret<String>)> {
        self.kept.lock().certificate.clone()
    }

    /// Returns how often a plugin has provided credentials.
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

    /// Blocks until the run of the plugin that is under way has ended.
    #[cfg(all(test, unix))]
    pub(crate) fn wait_for_run(&self) {
        let run = self.kept.lock().run.clone();
        let _ = run.map(|run| wait(&run, Nanos::NEVER, None));
    }

    /// Blocks until the plugin that runs has written to its standard error.
    #[cfg(all(test, unix))]
    pub(crate) fn wait_for_messages(&self) {
        let run = self.kept.lock().run.clone();
        let wait =
            |run: &PluginRun| run.messages.wait_for_some(Nanos::NEVER, |bytes| (!bytes.is_empty()).then_some(()));
        let _ = run.map(|run| wait(&run));
    }

    fn renewal(&self, until: &Until) -> Renewal {
        let is_due = match until {
            Until::Now => true,
            Until::At(time) => self.clock.reached(*time),
            Until::Expiry(expiry) => {
                let now = Timestamp::try_from(self.clock.time_of_day()).unwrap_or(Timestamp::MAX);
                if *expiry > now && expiry.checked_sub(EARLY).is_ok_and(|early| early <= now) {
                    return Renewal::Early;
                }
                *expiry <= now
            }
            Until::Forever => false,
        };
        if is_due { Renewal::Due } else { Renewal::NotYet }
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

    /// Returns the token of a plugin; `None` if it has only a certificate.
    fn of_plugin(
        &self,
        plugin: &ExecPlugin,
        until: Nanos,
        stop: Option<&CancellationToken>,
    ) -> Result<Option<Secret<String>>, AuthError> {
        let mut kept = self.kept.lock();
        let renewal = self.renewal(&kept.until);
        let token = kept.token.clone();
        match renewal {
            Renewal::NotYet => return Ok(token),
            // A thread renews them. All calls go on with those that are still valid.
            Renewal::Early if kept.run.is_some() || !self.clock.reached(kept.next_early) => return Ok(token),
            Renewal::Early => kept.next_early = self.clock.nanos().after(EARLY_PERIOD),
            Renewal::Due => match &kept.failure {
                Some((error, until)) if !self.clock.reached(*until) => return Err(AuthError::Exec(Arc::clone(error))),
                _ => {}
            },
        }
        let under_way = kept.run.clone();
        let run = under_way.clone().unwrap_or_else(|| {
            let result = Monitor::of(self.clock.clone(), None);
            Arc::new(PluginRun { result, messages: Messages::of(Clock::system(), Vec::new()) })
        });
        kept.run = Some(Arc::clone(&run));
        drop(kept);
        if under_way.is_none() {
            self.start(plugin, &run);
        }
        if renewal == Renewal::Early {
            return Ok(token);
        }
        match wait(&run, until, stop) {
            Some(Ok(token)) => Ok(token),
            Some(Err(error)) => Err(AuthError::Exec(error)),
            None => {
                let error = plugin.error("has printed no credentials in time").with_messages(&run.messages);
                Err(AuthError::Exec(Arc::new(error)))
            }
        }
    }

    /// Runs a plugin on a thread. It ends by itself, and the drop of this value ends it.
    fn start(&self, plugin: &ExecPlugin, run: &Arc<PluginRun>) {
        let cluster = plugin.wants_cluster.then(|| self.cluster.clone());
        let (dropped, command) = (self.dropped.clone(), plugin.clone());
        let (kept, clock, running) = (Arc::clone(&self.kept), self.clock.clone(), Arc::clone(run));
        let work = move || {
            let mut result = Err(command.error("cannot be run: its thread panicked"));
            shielded("the thread of a credential plugin", || {
                let cluster = cluster.as_ref().map(ClusterInfo::to_json).transpose();
                let cluster = cluster.map_err(|error| command.error(format!("cannot be told its cluster: {error}")));
                result = cluster.and_then(|cluster| command.run(cluster, &running.messages, &dropped));
            });
            finish(&kept, &clock, &running, result);
        };
        if let Err(error) = ThreadOptions::new().spawn("kubernetes-plugin".to_owned(), work) {
            finish(&self.kept, &self.clock, run, Err(plugin.error(format!("cannot be run: {error}"))));
        }
    }
}

/// Waits for the result of a run. Returns `None` at the time `until` and when `stop` is cancelled.
fn wait(run: &Arc<PluginRun>, until: Nanos, stop: Option<&CancellationToken>) -> Option<PluginResult> {
    let wake = Arc::clone(&run.result);
    let _guard = stop.map(|stop| stop.on_cancel(move || wake.change(|_| ())));
    let is_stopped = || stop.is_some_and(CancellationToken::is_cancelled);
    let result =
        run.result.wait_for_some(until, |result| result.clone().map(Some).or_else(|| is_stopped().then_some(None)));
    result.flatten()
}

/// Keeps the result of a run, and passes it to the waiting threads.
fn finish(kept: &Mutex<Kept>, clock: &Clock, run: &PluginRun, result: Result<ExecCredentials, ExecError>) {
    let mut kept = kept.lock();
    kept.run = None;
    let result = match result {
        Ok(ExecCredentials { token, certificate, expires }) => {
            (kept.token, kept.certificate, kept.failure) = (token.clone(), certificate, None);
            kept.until = expires.map_or(Until::Forever, Until::Expiry);
            kept.plugin_runs += 1;
            Ok(token)
        }
        Err(error) => {
            let error = Arc::new(error);
            kept.failure = Some((Arc::clone(&error), clock.nanos().after(FAILURE_PERIOD)));
            Err(error)
        }
    };
    drop(kept);
    run.result.change(|ended| *ended = Some(result));
}

impl Drop for Authenticator {
    fn drop(&mut self) {
        self.dropped.cancel();
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
