//! The error of an installation that fails.

use std::error::Error;
use std::fmt;

use homeostat::rt::debug_with_causes;
use homeostat::run::BoxError;

/// The error of an [installation](super::CustomResourceDefinition::install): the server refuses the definition, or
/// does not serve the kind in time.
pub struct InstallError {
    definition: String,
    fault: String,
    is_timeout: bool,
    source: Option<BoxError>,
}

impl InstallError {
    pub(super) fn new(definition: &str, fault: impl Into<String>) -> Self {
        Self { definition: definition.to_owned(), fault: fault.into(), is_timeout: false, source: None }
    }

    pub(super) fn timeout(definition: &str, fault: impl Into<String>) -> Self {
        Self { is_timeout: true, ..Self::new(definition, fault) }
    }

    /// Adds the cause.
    pub(super) fn caused_by(self, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Returns whether the kind was not served in time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.is_timeout
    }
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "definition {}: {}", self.definition, self.fault)
    }
}

debug_with_causes!(InstallError);

impl Error for InstallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::ConfigError;
    use crate::http::RequestError;
    use crate::http::request_error::RequestFault;

    #[test]
    fn errors_print_their_text_and_their_causes() {
        let text = |error: &(dyn Error + 'static)| format!("{error:?}");
        let lost = RequestError::new("GET", "https://k/api", RequestFault::Lost("reset".to_owned()));
        assert_eq!(text(&lost), "GET https://k/api: the connection broke: reset");
        let refused = InstallError::new("sites.example.com", "the server refuses it").caused_by(lost);
        assert_eq!(
            text(&refused),
            "definition sites.example.com: the server refuses it\nCaused by: GET https://k/api: the connection broke: reset"
        );
        let config = ConfigError::new("kubeconfig", "token cannot be read").caused_by("it is empty");
        assert_eq!(text(&config), "kubeconfig: token cannot be read: it is empty");
    }
}
