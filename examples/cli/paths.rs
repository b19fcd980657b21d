//! Errors that name a path.

use std::io;
use std::path::Path;

use homeostat::BoxError;

/// Adds the path to an error.
pub(crate) fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, BoxError> {
    result.map_err(|error| format!("{}: {error}", path.display()).into())
}
