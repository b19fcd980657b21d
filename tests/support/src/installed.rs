//! Programs that the scripts of `.ci` have installed.

use std::env;
use std::path::{Path, PathBuf};

/// The versions that `.ci/clients` installs.
const VERSIONS: &str = include_str!("../../../.ci/clients.txt");

/// Returns the cache folder of the scripts in `.ci`.
pub fn cache() -> PathBuf {
    let below = |name: &str, folder: &str| Some(Path::new(&env::var_os(name)?).join(folder));
    below("HOMEOSTAT_CACHE", "")
        .or_else(|| below("XDG_CACHE_HOME", "homeostat"))
        .or_else(|| below("HOME", ".cache/homeostat"))
        .unwrap_or_default()
}

/// Returns a program, or another file, of a part that `.ci/clients` has installed.
///
/// # Panics
///
/// Panics if the part is missing or has other versions. The message names the command that installs it.
pub fn client(part: &str, file: &str) -> PathBuf {
    let folder = cache().join("clients").join(part);
    let lines = VERSIONS.lines().filter_map(|line| line.strip_prefix(part)?.strip_prefix(' '));
    let found = std::fs::read_to_string(folder.join("lines")).unwrap_or_default();
    assert!(
        found.lines().eq(lines) && folder.join(file).exists(),
        "{} is missing or has other versions: run .ci/clients {part}",
        folder.display()
    );
    folder.join(file)
}
