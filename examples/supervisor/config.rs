//! Reads the file of services: converts the TOML text to typed services, or returns one error with line and service.
//!
//! The text is read as a tree with positions, not with serde. Faults of syntax and of meaning are reported in the same
//! way, each with its line.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::cli::parse_duration;

/// The services of one file, in its order.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) services: Vec<Arc<Service>>,
}

/// The settings of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) name: Arc<str>,
    /// A change of these settings needs a new process. A running process adopts all other changes.
    pub(crate) launch: Launch,
    pub(crate) restart: Restart,
    pub(crate) stop_signal: StopSignal,
    pub(crate) stop_timeout: Duration,
}

/// The command of a process, and its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    /// Added to the supervisor's own environment.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) directory: Option<PathBuf>,
}

/// Whether to restart a process that ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    pub(crate) fn follows(self, success: bool) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => !success,
            Self::Never => false,
        }
    }
}

/// A signal that may ask a service to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StopSignal {
    name: &'static str,
    pub(crate) signal: Signal,
}

impl StopSignal {
    const ALL: [Self; 10] = [
        Self::new("TERM", Signal::TERM),
        Self::new("INT", Signal::INT),
        Self::new("QUIT", Signal::QUIT),
        Self::new("HUP", Signal::HUP),
        Self::new("USR1", Signal::USR1),
        Self::new("USR2", Signal::USR2),
        Self::new("ALRM", Signal::ALARM),
        Self::new("ABRT", Signal::ABORT),
        Self::new("WINCH", Signal::WINCH),
        Self::new("KILL", Signal::KILL),
    ];
    const TERM: Self = Self::ALL[0];

    const fn new(name: &'static str, signal: Signal) -> Self {
        Self { name, signal }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix("SIG").unwrap_or(text);
        let found = Self::ALL.iter().find(|known| known.name == bare);
        found.copied().ok_or_else(|| {
            let known = Self::ALL.map(|known| known.name).join(", ");
            format!("{text:?} is not a stop signal (known: {known})")
        })
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SIG{}", self.name)
    }
}

impl fmt::Debug for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SIG{}", self.name)
    }
}

/// Why a file was refused, in one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    path: PathBuf,
    line: usize,
    fault: Fault,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.path.display(), self.line)?;
        if let Some(service) = &self.fault.service {
            write!(f, "service {service}: ")?;
        }
        f.write_str(&self.fault.message)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads the content of the file at `path`. A relative `directory` starts at the folder of the file.
    pub(crate) fn read(content: &[u8], path: &Path) -> Result<Self, ConfigError> {
        let base = path.parent().unwrap_or(Path::new(""));
        let services = match std::str::from_utf8(content) {
            Ok(text) => parse(text, base),
            Err(error) => Err(Fault::new(error.valid_up_to(), "not UTF-8")),
        };
        services.map(|services| Self { services }).map_err(|fault| {
            let before = content.iter().take(fault.at);
            let line = before.filter(|byte| **byte == b'\n').count() + 1;
            ConfigError { path: path.to_owned(), line, fault }
        })
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Service>> {
        self.services.iter().find(|service| &*service.name == name)
    }
}

/// A fault at this byte of the text.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    at: usize,
    /// The service, ready to print: a name in quotes, or a number.
    service: Option<String>,
    message: String,
}

impl Fault {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, service: None, message: message.into() }
    }
}

type Value<'a> = Spanned<DeValue<'a>>;

fn parse(text: &str, base: &Path) -> Result<Vec<Arc<Service>>, Fault> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let Some(error) = syntax.first() else {
        return services(document.get_ref(), base);
    };
    let at = error.span().map_or(0, |span| span.start);
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    Err(Fault { at, service: enclosing(document.get_ref(), at), message })
}

fn services(root: &DeTable<'_>, base: &Path) -> Result<Vec<Arc<Service>>, Fault> {
    known_keys(root, &["service"])?;
    let Some(list) = root.get("service") else {
        return Err(Fault::new(0, "no services (write `service = []` to mean none)"));
    };
    let Some(items) = list.get_ref().as_array() else {
        return Err(Fault::new(
            list.span().start,
            "`service` must be an array: each service begins with `[[service]]`",
        ));
    };
    let mut services = Vec::with_capacity(items.len());
    let mut names = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let in_service = |mut fault: Fault| {
            fault.service = Some(label(item, index));
            fault
        };
        let service = service(item, base).map_err(in_service)?;
        if !names.insert(service.name.clone()) {
            let at = entry(item, "name").map_or(item.span().start, |name| name.span().start);
            return Err(in_service(Fault::new(at, "an earlier service has this name")));
        }
        services.push(Arc::new(service));
    }
    Ok(services)
}

fn service(item: &Value<'_>, base: &Path) -> Result<Service, Fault> {
    const KEYS: [&str; 8] = ["name", "command", "args", "env", "directory", "restart", "stop-signal", "stop-timeout"];
    let Some(table) = item.get_ref().as_table() else {
        return Err(Fault::new(item.span().start, expected("a table", item)));
    };
    known_keys(table, &KEYS)?;
    let required = |key| {
        let missing = || Fault::new(item.span().start, format!("`{key}` is missing"));
        parsed(item, key, |text| if text.is_empty() { Err("is empty".to_owned()) } else { Ok(text.to_owned()) })?
            .ok_or_else(missing)
    };
    let name: Arc<str> = required("name")?.into();
    if let Some(odd) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"-_.@".contains(*c)) {
        let at = entry(item, "name").map_or(0, |name| name.span().start);
        return Err(Fault::new(at, format!("`name` may hold letters, digits and -_.@, not {odd:?}")));
    }
    Ok(Service {
        launch: Launch {
            command: required("command")?,
            args: args(item)?,
            env: env(item)?,
            directory: parsed(item, "directory", |text| Ok(base.join(text)))?,
        },
        restart: parsed(item, "restart", restart)?.unwrap_or(Restart::Always),
        stop_signal: parsed(item, "stop-signal", StopSignal::parse)?.unwrap_or(StopSignal::TERM),
        stop_timeout: parsed(item, "stop-timeout", parse_duration)?.unwrap_or(Duration::from_secs(10)),
        name,
    })
}

fn restart(text: &str) -> Result<Restart, String> {
    match text {
        "always" => Ok(Restart::Always),
        "on-failure" => Ok(Restart::OnFailure),
        "never" => Ok(Restart::Never),
        _ => Err(format!("{text:?} is not a restart policy (\"always\", \"on-failure\" or \"never\")")),
    }
}

fn args(item: &Value<'_>) -> Result<Vec<String>, Fault> {
    let Some(list) = entry(item, "args") else {
        return Ok(Vec::new());
    };
    let Some(values) = list.get_ref().as_array() else {
        return Err(Fault::new(list.span().start, format!("`args`: {}", expected("an array of strings", list))));
    };
    values.iter().map(|value| Ok(string(value, "args")?.to_owned())).collect()
}

fn env(item: &Value<'_>) -> Result<BTreeMap<String, String>, Fault> {
    let Some(entries) = entry(item, "env") else {
        return Ok(BTreeMap::new());
    };
    let Some(table) = entries.get_ref().as_table() else {
        return Err(Fault::new(entries.span().start, format!("`env`: {}", expected("a table", entries))));
    };
    in_order(table)
        .into_iter()
        .map(|(key, value)| {
            let name = key.get_ref().as_ref();
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(Fault::new(key.span().start, format!("`env`: {name:?} cannot name a variable")));
            }
            Ok((name.to_owned(), string(value, &format!("env.{name}"))?.to_owned()))
        })
        .collect()
}

/// Parses the value of `key`, if it exists.
fn parsed<T>(item: &Value<'_>, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, Fault> {
    let Some(value) = entry(item, key) else {
        return Ok(None);
    };
    let text = string(value, key)?;
    let fault = |message| Fault::new(value.span().start, format!("`{key}`: {message}"));
    parse(text).map(Some).map_err(fault)
}

/// Returns a string that the operating system can accept.
fn string<'a>(value: &'a Value<'_>, key: &str) -> Result<&'a str, Fault> {
    let fault = |message: &str| Fault::new(value.span().start, format!("`{key}`: {message}"));
    let text = value.get_ref().as_str().ok_or_else(|| fault(&expected("a string", value)))?;
    if text.contains('\0') {
        return Err(fault("holds a NUL character"));
    }
    Ok(text)
}

fn expected(what: &str, found: &Value<'_>) -> String {
    format!("expected {what}, found {}", found.get_ref().type_str())
}

fn known_keys(table: &DeTable<'_>, known: &[&str]) -> Result<(), Fault> {
    let unknown = |(key, _): &(&Spanned<_>, _)| !known.contains(&AsRef::<str>::as_ref(key.get_ref()));
    match in_order(table).into_iter().find(unknown) {
        None => Ok(()),
        Some((key, _)) => {
            let message = format!("unknown key `{}` (known: {})", key.get_ref().escape_debug(), known.join(", "));
            Err(Fault::new(key.span().start, message))
        }
    }
}

/// The entries by position: the tree keeps them by name.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<(&'a Spanned<Cow<'i, str>>, &'a Value<'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn entry<'a, 'i>(item: &'a Value<'i>, key: &str) -> Option<&'a Value<'i>> {
    item.get_ref().as_table()?.get(key)
}

/// Returns the name of a service for messages, or its number if it has no name.
fn label(item: &Value<'_>, index: usize) -> String {
    let name = entry(item, "name").and_then(|name| name.get_ref().as_str());
    name.map_or_else(|| format!("number {}", index + 1), |name| format!("{name:?}"))
}

/// Returns the service that contains a syntax error. The readable part of the file still has positions.
fn enclosing(root: &DeTable<'_>, at: usize) -> Option<String> {
    let items = root.get("service")?.get_ref().as_array()?;
    let (index, item) = items.iter().enumerate().take_while(|(_, item)| item.span().start <= at).last()?;
    Some(label(item, index))
}
