//! The options of a connection.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::address::ServerAddress;
use super::error::NatsError;
use super::protocol::{FrameLimits, check_subject};
use homeostat::base::{Clock, Exponential, ThreadOptions};

/// The options of a [`NatsConnection`](super::NatsConnection).
///
/// # Examples
///
/// ```no_run
/// use homeostat_nats::NatsOptions;
/// use std::time::Duration;
///
/// let connection = NatsOptions::new("tls://nats-1.example.com")
///     .server("tls://nats-2.example.com")
///     .name("vm-operator")
///     .credentials_file("/etc/vm-operator/nats.creds")
///     .request_timeout(Duration::from_secs(2))
///     .connect()?;
/// connection.publish("events.started", b"vm-operator")?;
/// # Ok::<_, homeostat_nats::NatsError>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until `connect` is called"]
pub struct NatsOptions {
    pub(super) servers: Vec<String>,
    pub(super) discover: bool,
    pub(super) inbox_prefix: String,
    pub(super) shuffle: bool,
    pub(super) name: String,
    pub(super) login: Login,
    pub(super) tls: TlsOptions,
    pub(super) connect_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) write_timeout: Duration,
    pub(super) ping_interval: Duration,
    pub(super) pings_out: u32,
    pub(super) backoff: Exponential,
    pub(super) retry_first: bool,
    pub(super) outbound: usize,
    pub(super) buffered_messages: usize,
    pub(super) buffered_bytes: usize,
    pub(super) limits: FrameLimits,
    pub(super) clock: Clock,
    pub(super) threads: ThreadOptions,
}

/// The way to prove the user's identity.
#[derive(Clone)]
pub(super) enum Login {
    Anonymous,
    Token(String),
    User { user: String, password: String },
    NKey(String),
    File(PathBuf),
}

/// The options of TLS.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsOptions {
    pub(super) required: bool,
    pub(super) first: bool,
    pub(super) roots: Option<PathBuf>,
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

impl NatsOptions {
    /// Creates options with one server, such as `nats://localhost:4222`.
    ///
    /// The scheme is `nats`, or `tls` to require TLS. The default port is 4222.
    ///
    /// User name and password, or a token, may precede the host. The connection also uses them for the servers that
    /// this server announces. It does not use them for other servers of these options: give each address its own, or
    /// set [`user`](Self::user) for all. If an announced server has a numeric address, its certificate must have the
    /// name of this server.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            servers: vec![server.into()],
            discover: true,
            inbox_prefix: "_INBOX".to_owned(),
            shuffle: true,
            name: "nats".to_owned(),
            login: Login::Anonymous,
            tls: TlsOptions::default(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(10),
            ping_interval: Duration::from_secs(20),
            pings_out: 2,
            backoff: Exponential::new(Duration::from_millis(50), Duration::from_secs(8)).jitter(0.3),
            retry_first: false,
            outbound: 8 << 20,
            buffered_messages: 65_536,
            buffered_bytes: 64 << 20,
            limits: FrameLimits::default(),
            clock: Clock::system(),
            threads: ThreadOptions::new(),
        }
    }

    /// Adds a server.
    pub fn server(mut self, server: impl Into<String>) -> Self {
        self.servers.push(server.into());
        self
    }

    /// Sets whether the connection also uses the cluster's other servers, which a server announces. Default: true.
    pub fn discover_servers(mut self, discover: bool) -> Self {
        self.discover = discover;
        self
    }

    /// Sets whether servers are tried in random order. Default: true. Otherwise they are tried in the given order.
    pub fn shuffle_servers(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Sets the connection's name, for threads, logs and the server. Default: `nats`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Authenticates with a token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.login = Login::Token(token.into());
        self
    }

    /// Authenticates with a user name and a password.
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Login::User { user: user.into(), password: password.into() };
        self
    }

    /// Authenticates with the seed of a user's `nkey`, such as `SUAC…`.
    pub fn nkey(mut self, seed: impl Into<String>) -> Self {
        self.login = Login::NKey(seed.into());
        self
    }

    /// Authenticates with a credentials file, which has a JWT and a seed. Each new connection reads the file again.
    pub fn credentials_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.login = Login::File(path.into());
        self
    }

    /// Requires TLS for every server.
    ///
    /// By default, TLS is used for servers that require it, and for addresses of the scheme `tls`.
    pub fn require_tls(mut self) -> Self {
        self.tls.required = true;
        self
    }

    /// Starts the TLS handshake before the server's first frame. The server needs its option `handshake_first`.
    pub fn tls_first(mut self) -> Self {
        self.tls.first = true;
        self.require_tls()
    }

    /// Trusts the certificate authorities in a PEM file instead of the system's.
    ///
    /// A server's own certificate in this file is trusted too, with or without `CA:TRUE`, which `openssl req -x509`
    /// sets. Its names and its validity period are still checked.
    pub fn root_certificates(mut self, path: impl Into<PathBuf>) -> Self {
        self.tls.roots = Some(path.into());
        self
    }

    /// Presents a client certificate to servers. Both files are PEM.
    ///
    /// The certificate may be X.509 version 1 or 3. The key must not be encrypted. The key is RSA with 2048 to 4096
    /// bits, EC on the curve P-256 or P-384, or Ed25519. The curve P-521 and shorter RSA keys, which other clients
    /// accept, are an error.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the timeout of each attempt to connect, from the name look-up to the last handshake. Default: 5 seconds.
    ///
    /// A slower look-up continues on its own thread, which is never joined. The next attempt waits for its result.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the timeout of each request. Default: 5 seconds. Time spent reconnecting counts.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets the time after which a server that accepts no bytes counts as lost. Default: 10 seconds.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout;
        self
    }

    /// Sets the interval of pings. Default: 20 seconds.
    pub fn ping_interval(mut self, interval: Duration) -> Self {
        self.ping_interval = interval;
        self
    }

    /// Sets the number of unanswered pings after which a server counts as lost. Default: 2.
    pub fn max_pings_out(mut self, pings: u32) -> Self {
        self.pings_out = pings;
        self
    }

    /// Sets the delays between rounds. A round tries each server once. Default: 50 ms to 8 s, with ± 30 % jitter.
    ///
    /// A retry limit closes the connection after that many failed rounds. Without a limit, the connection keeps
    /// trying.
    pub fn backoff(mut self, backoff: Exponential) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets whether [`connect`](Self::connect) succeeds while no server is reachable. Default: false.
    ///
    /// If true, calls wait for a server, for at most their timeout.
    pub fn retry_first_connect(mut self, retry: bool) -> Self {
        self.retry_first = retry;
        self
    }

    /// Sets the prefix of the subjects on which answers and changes arrive. Default: `_INBOX`.
    ///
    /// The user needs the permission to subscribe to `PREFIX.>`. Give each user a different prefix, so that no user
    /// can read another user's answers.
    pub fn inbox_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.inbox_prefix = prefix.into();
        self
    }

    /// Sets how many bytes may wait for the socket. Default: 8 MiB. A call that finds no room blocks.
    pub fn outbound_buffer(mut self, bytes: usize) -> Self {
        self.outbound = bytes;
        self
    }

    /// Sets how many messages and bytes each subscription buffers. Default: 65,536 messages and 64 MiB.
    ///
    /// A subscription at its limit drops new messages and reports the loss to its reader.
    pub fn subscription_buffer(mut self, messages: usize, bytes: usize) -> Self {
        (self.buffered_messages, self.buffered_bytes) = (messages, bytes);
        self
    }

    /// Sets the limits for frames from a server.
    pub fn frame_limits(mut self, limits: FrameLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the clock for pings, timeouts and backoff. Socket timeouts always use the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the options of the connection's two threads.
    pub fn threads(mut self, threads: ThreadOptions) -> Self {
        self.threads = threads;
        self
    }

    /// Checks all options that need neither a file nor a server.
    pub(super) fn check(&self) -> Result<(), NatsError> {
        for server in &self.servers {
            ServerAddress::parse(server)?;
        }
        for (option, value) in [
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("write_timeout", self.write_timeout),
            ("ping_interval", self.ping_interval),
        ] {
            // Sockets round timeouts down to microseconds, and treat zero as "no timeout".
            if value < Duration::from_millis(1) {
                return Err(NatsError::invalid(option, value, "at least 1ms"));
            }
        }
        for (option, value) in [
            ("max_pings_out", usize::try_from(self.pings_out).unwrap_or(usize::MAX)),
            ("outbound_buffer", self.outbound),
            ("subscription_buffer", self.buffered_messages.min(self.buffered_bytes)),
        ] {
            if value == 0 {
                return Err(NatsError::invalid(option, value, "at least 1"));
            }
        }
        let mut parts = self.inbox_prefix.split('.');
        if check_subject(&self.inbox_prefix).is_err() || parts.any(|part| matches!(part, "*" | ">")) {
            return Err(NatsError::invalid("inbox_prefix", &self.inbox_prefix, "a subject without wildcards"));
        }
        if self.name.contains('\0') || self.name.is_empty() {
            return Err(NatsError::invalid("name", &self.name, "a text without NUL that is not empty"));
        }
        Ok(())
    }
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().filter_map(|server| ServerAddress::parse(server).ok()).collect();
        f.debug_struct("NatsOptions")
            .field("name", &self.name)
            .field("servers", &servers)
            .field("login", &self.login)
            .finish_non_exhaustive()
    }
}

/// Shows the kind of login, without secrets.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("anonymous"),
            Self::Token(_) => f.write_str("token"),
            Self::User { user, .. } => write!(f, "user {user:?}"),
            Self::NKey(_) => f.write_str("nkey"),
            Self::File(path) => write!(f, "credentials file {path:?}"),
        }
    }
}
