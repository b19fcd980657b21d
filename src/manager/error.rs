//! The error of a manager.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::base::error::StartError;
use crate::run::error::BoxError;

/// The error of a manager: the first failure, and the threads that did not end.
#[derive(Clone, Debug)]
pub struct ManagerError {
    pub(super) failure: Option<(String, Arc<BoxError>)>,
    pub(super) still_running: Vec<String>,
}

impl ManagerError {
    #[cfg(all(unix, feature = "signals"))]
    pub(super) fn of(component: &str, error: impl Into<BoxError>) -> Self {
        Self { failure: Some((component.to_owned(), Arc::new(error.into()))), still_running: Vec::new() }
    }

    /// Returns the name of the component that failed first. `None` if threads did not end, but no component failed.
    #[must_use]
    pub fn component(&self) -> Option<&str> {
        self.failure.as_ref().map(|(component, _)| component.as_str())
    }

    /// Returns the names of the threads that had not ended when the manager gave up.
    #[must_use]
    pub fn still_running(&self) -> &[String] {
        &self.still_running
    }
}

impl fmt::Display for ManagerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((component, error)) = &self.failure {
            // An error about the manager itself already contains its name.
            match error.downcast_ref::<StartError>() {
                Some(error) if error.is_about("manager", component) => write!(f, "{error}")?,
                _ => write!(f, "{component}: {error}")?,
            }
        }
        match (&self.failure, self.still_running.is_empty()) {
            (_, true) => Ok(()),
            (None, false) => write!(f, "still running: {}", self.still_running.join(", ")),
            (Some(_), false) => write!(f, "; still running: {}", self.still_running.join(", ")),
        }
    }
}

impl Error for ManagerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failure.as_ref().and_then(|(_, error)| error.source())
    }
}
