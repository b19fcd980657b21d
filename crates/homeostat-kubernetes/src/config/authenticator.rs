//! The credentials of requests. They are cached, and renewed before they expire or after the server has refused them.

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
use crate::sync::Mutex;
use homeostat::base::{CancellationToken, Clock, ThreadOptions};
use homeostat::rt::{Monitor, Nanos, debug_with_causes, shielded};

/// How long a token file's content is used before the file is read again, as in client-go.
const FILE_PERIOD: Duration = Duration::from_secs(60);
/// How long before their expiry a plugin's credentials are renewed.
const EARLY: Duration = Duration::from_secs(10);
/// The shortest interval between two runs of a plugin while its credentials are valid.
const EARLY_PERIOD: Duration = Duration::from_secs(1);
/// How long a plugin's failure counts for all requests before the plugin runs again.
const FAILURE_PERIOD: Duration = Duration::from_secs(2);

/// Provides the credentials of requests. Threads that need new credentials at the same time wait for one renewal. An
/// early renewal does not delay requests.
pub(crate) struct Authenticator {
    credentials: Credentials,
    /// The server's description for plugins.
    cluster: ClusterInfo,
    clock: Clock,
    cached: Arc<Mutex<CachedCredentials>>,
    /// Cancelled on drop, to kill a running plugin.
    dropped: CancellationToken,
}

/// The last credentials.
#[derive(Default)]
struct CachedCredentials {
    token: Option<Secret<String>>,
    certificate: Option<(String, Secret<String>)>,
    /// How long the credentials are valid.
    until: ValidUntil,
    plugin_runs: u64,
    /// The plugin's current run.
    run: Option<Arc<PluginRun>>,
    /// The earliest time of the next run while the credentials are valid.
    next_early: Nanos,
    /// The plugin's last failure, and until when requests fail with it.
    failure: Option<(Arc<ExecError>, Nanos)>,
}

/// A run of a plugin.
struct PluginRun {
    /// Set when the run has ended.
    result: Arc<Monitor<Option<PluginResult>>>,
    /// The run's standard error so far.
    messages: Arc<Messages>,
}

type PluginResult = Result<Option<Secret<String>>, Arc<ExecError>>;

#[derive(Default)]
enum ValidUntil {
    /// There are no credentials, or the server has refused them.
    #[default]
    Now,
    At(Nanos),
    /// Until this time of day.
    Expiry(Timestamp),
    Forever,
}

/// Whether the credentials need renewal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Renewal {
    NotYet,
    /// They are valid, but not for long.
    Early,
    Due,
}

/// The error when no credentials can be provided.
pub(crate) enum AuthError {
    File { path: PathBuf, error: std::io::Error },
    EmptyFile { path: PathBuf },
    Exec(Arc<ExecError>),
}

impl Authenticator {
    pub(crate) fn new(credentials: Credentials, cluster: ClusterInfo, clock: Clock) -> Self {
        Self { credentials, cluster, clock, cached: Arc::default(), dropped: CancellationToken::new() }
    }

    /// Returns the value of the header `Authorization`, or `None` if requests have none.
    ///
    /// May read a file or run a plugin. Waits for the plugin only without valid credentials. Returns an error at the
    /// time `until`, or when `stop` is cancelled; the plugin then continues for other calls.
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
                let mut cached = self.cached.lock();
                if self.renewal(&cached.until) == Renewal::Due {
                    self.read_file(&mut cached, path, first.as_ref())?;
                }
                Ok(cached.token.as_ref().map(bearer))
            }
            Credentials::Exec(plugin) => Ok(self.of_plugin(plugin, until, stop)?.as_ref().map(bearer)),
        }
    }

    /// Returns the client certificate and key in PEM that a plugin printed last, if any. Runs no plugin, so call
    /// [`authorization`](Self::authorization) first.
    pub(crate) fn certificate(&self) -> Option<(String, Secret<String>)> {
        self.cached.lock().certificate.clone()
    }

    /// Returns how often a plugin has provided credentials.
    pub(crate) fn plugin_runs(&self) -> u64 {
        self.cached.lock().plugin_runs
    }

    /// Handles that the server has refused (401) this value of [`authorization`](Self::authorization), or a request
    /// without one. Returns whether another try makes sense, because the next value may differ.
    pub(crate) fn refused(&self, value: Option<&Secret<String>>) -> bool {
        let renewable = match self.credentials {
            Credentials::TokenFile { .. } => value.is_some(),
            Credentials::Exec(_) => true,
            _ => false,
        };
        if renewable {
            let mut cached = self.cached.lock();
            let token = value.and_then(|value| value.reveal().strip_prefix("Bearer "));
            // Another thread may already have renewed the token.
            if cached.token.as_ref().map(|token| token.reveal().as_str()) == token {
                cached.until = ValidUntil::Now;
            }
        }
        renewable
    }

    /// Blocks until the plugin's current run has ended.
    #[cfg(all(test, unix))]
    pub(crate) fn wait_for_run(&self) {
        let run = self.cached.lock().run.clone();
        let _ = run.map(|run| wait(&run, Nanos::NEVER, None));
    }

    /// Blocks until the running plugin has written to its standard error.
    #[cfg(all(test, unix))]
    pub(crate) fn wait_for_messages(&self) {
        let run = self.cached.lock().run.clone();
        let wait =
            |run: &PluginRun| run.messages.wait_for_some(Nanos::NEVER, |bytes| (!bytes.is_empty()).then_some(()));
        let _ = run.map(|run| wait(&run));
    }

    fn renewal(&self, until: &ValidUntil) -> Renewal {
        let is_due = match until {
            ValidUntil::Now => true,
            ValidUntil::At(time) => self.clock.reached(*time),
            ValidUntil::Expiry(expiry) => {
                let now = Timestamp::try_from(self.clock.time_of_day()).unwrap_or(Timestamp::MAX);
                if *expiry > now && expiry.checked_sub(EARLY).is_ok_and(|early| early <= now) {
                    return Renewal::Early;
                }
                *expiry <= now
            }
            ValidUntil::Forever => false,
        };
        if is_due { Renewal::Due } else { Renewal::NotYet }
    }

    /// Reads a token file. If that fails, keeps the known token.
    fn read_file(
        &self,
        cached: &mut CachedCredentials,
        path: &PathBuf,
        first: Option<&Secret<String>>,
    ) -> Result<(), AuthError> {
        let read = std::fs::read_to_string(path).map_err(|error| AuthError::File { path: path.clone(), error });
        let read = read.and_then(|text| match text.trim() {
            "" => Err(AuthError::EmptyFile { path: path.clone() }),
            token => Ok(Secret::new(token.to_owned())),
        });
        match read {
            Ok(token) => cached.token = Some(token),
            Err(error) => {
                cached.token = Some(cached.token.take().or_else(|| first.cloned()).ok_or(error)?);
            }
        }
        cached.until = ValidUntil::At(self.clock.nanos().after(FILE_PERIOD));
        Ok(())
    }

    /// Returns a plugin's token, or `None` if the plugin provides only a certificate.
    fn of_plugin(
        &self,
        plugin: &ExecPlugin,
        until: Nanos,
        stop: Option<&CancellationToken>,
    ) -> Result<Option<Secret<String>>, AuthError> {
        let mut cached = self.cached.lock();
        let renewal = self.renewal(&cached.until);
        let token = cached.token.clone();
        match renewal {
            Renewal::NotYet => return Ok(token),
            // A thread renews them. Meanwhile all calls use the old ones, which are still valid.
            Renewal::Early if cached.run.is_some() || !self.clock.reached(cached.next_early) => return Ok(token),
            Renewal::Early => cached.next_early = self.clock.nanos().after(EARLY_PERIOD),
            Renewal::Due => match &cached.failure {
                Some((error, until)) if !self.clock.reached(*until) => return Err(AuthError::Exec(Arc::clone(error))),
                _ => {}
            },
        }
        let under_way = cached.run.clone();
        let run = under_way.clone().unwrap_or_else(|| {
            let result = Monitor::of(self.clock.clone(), None);
            Arc::new(PluginRun { result, messages: Messages::of(Clock::system(), Vec::new()) })
        });
        cached.run = Some(Arc::clone(&run));
        drop(cached);
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
                let error = plugin.error("did not print credentials in time").with_messages(&run.messages);
                Err(AuthError::Exec(Arc::new(error)))
            }
        }
    }

    /// Runs a plugin on a thread. Dropping the authenticator kills the plugin.
    fn start(&self, plugin: &ExecPlugin, run: &Arc<PluginRun>) {
        let cluster = plugin.wants_cluster.then(|| self.cluster.clone());
        let (dropped, command) = (self.dropped.clone(), plugin.clone());
        let (cached, clock, running) = (Arc::clone(&self.cached), self.clock.clone(), Arc::clone(run));
        let work = move || {
            let mut result = Err(command.error("cannot be run: its thread panicked"));
            shielded("the thread of a credential plugin", || {
                let cluster = cluster.as_ref().map(ClusterInfo::to_json).transpose();
                let cluster =
                    cluster.map_err(|error| command.error(format!("cannot be given its cluster's settings: {error}")));
                result = cluster.and_then(|cluster| command.run(cluster, &running.messages, &dropped));
            });
            finish(&cached, &clock, &running, result);
        };
        if let Err(error) = ThreadOptions::new().spawn("kubernetes-plugin".to_owned(), work) {
            finish(&self.cached, &self.clock, run, Err(plugin.error(format!("cannot be run: {error}"))));
        }
    }
}

/// Waits for the result of a run. Returns `None` at the time `until`, and when `stop` is cancelled.
fn wait(run: &Arc<PluginRun>, until: Nanos, stop: Option<&CancellationToken>) -> Option<PluginResult> {
    let wake = Arc::clone(&run.result);
    let _guard = stop.map(|stop| stop.on_cancel(move || wake.change(|_| ())));
    let is_stopped = || stop.is_some_and(CancellationToken::is_cancelled);
    let result =
        run.result.wait_for_some(until, |result| result.clone().map(Some).or_else(|| is_stopped().then_some(None)));
    result.flatten()
}

/// Records the result of a run, and passes it to the waiting threads.
fn finish(
    cached: &Mutex<CachedCredentials>,
    clock: &Clock,
    run: &PluginRun,
    result: Result<ExecCredentials, ExecError>,
) {
    let mut cached = cached.lock();
    cached.run = None;
    let result = match result {
        Ok(ExecCredentials { token, certificate, expires }) => {
            (cached.token, cached.certificate, cached.failure) = (token.clone(), certificate, None);
            cached.until = expires.map_or(ValidUntil::Forever, ValidUntil::Expiry);
            cached.plugin_runs += 1;
            Ok(token)
        }
        Err(error) => {
            let error = Arc::new(error);
            cached.failure = Some((Arc::clone(&error), clock.nanos().after(FAILURE_PERIOD)));
            Err(error)
        }
    };
    drop(cached);
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

debug_with_causes!(AuthError);

impl std::error::Error for AuthError {}
