//! The error for connection settings that cannot be found or read.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use homeostat::rt::{debug_with_causes, one_line};
use homeostat::run::BoxError;

/// The error for connection settings that cannot be found or read. It names the file and the field, and never shows a
/// secret.
///
/// # Examples
///
/// ```
/// use homeostat_kubernetes::Kubeconfig;
///
/// let error = Kubeconfig::parse("clusters: []", "/etc/app").and_then(|file| file.config()).unwrap_err();
/// assert_eq!(error.to_string(), "kubeconfig: current-context is not set; name one of the contexts: (none)");
/// ```
pub struct ConfigError {
    /// The file or other source of the settings.
    origin: String,
    fault: String,
    source: Option<BoxError>,
}

impl ConfigError {
    pub(crate) fn new(origin: impl Into<String>, fault: impl Into<String>) -> Self {
        Self { origin: origin.into(), fault: fault.into(), source: None }
    }

    /// Creates an error about a file.
    pub(crate) fn of_file(path: &Path, fault: impl Into<String>) -> Self {
        Self::new(path.display().to_string(), fault)
    }

    /// Adds the cause, which the error's text includes.
    pub(crate) fn caused_by(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names in settings may contain escape codes for terminals.
        write!(f, "{}: {}", one_line(&self.origin), one_line(&self.fault))?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {}", one_line(source)))
    }
}

debug_with_causes!(ConfigError);

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The text already includes the cause itself.
        self.source.as_ref().and_then(|source| source.source())
    }
}

/// Reads a file that a field names.
pub(crate) fn read_file(path: &Path, origin: &str, field: &str) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|error| {
        let fault = format!("{field} names {}, which cannot be read", path.display());
        ConfigError::new(origin, fault).caused_by(error)
    })
}

/// A value in the settings, or the file with the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileOrInline<T> {
    Inline(T),
    /// The file is read again for each new connection, because it may be replaced.
    File(PathBuf),
}

impl<T: Clone> FileOrInline<T> {
    /// Returns the value. For a file, reads it.
    pub(crate) fn read(&self, origin: &str, field: &str, wrap: impl Fn(Vec<u8>) -> T) -> Result<T, ConfigError> {
        match self {
            Self::Inline(value) => Ok(value.clone()),
            Self::File(path) => read_file(path, origin, field).map(wrap),
        }
    }
}
