//! Checks whether services can be started, without starting them.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::config::{Config, Launch};

/// Returns one line for each missing directory and for each command that cannot be run.
pub(crate) fn faults(config: &Config) -> Vec<String> {
    let of_service = |service: &crate::config::Service| {
        let fault = directory(&service.launch).or_else(|| command(&service.launch))?;
        Some(format!("service {:?}: {fault}", service.name))
    };
    config.services.iter().filter_map(|service| of_service(service)).collect()
}

/// Returns why a service cannot be started in its directory.
pub(crate) fn directory(launch: &Launch) -> Option<String> {
    let directory = launch.directory.as_deref()?;
    match fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => None,
        Ok(_) => Some(format!("{}: not a directory", directory.display())),
        Err(error) => Some(format!("{}: {error}", directory.display())),
    }
}

/// Returns why a command cannot be run. A name without a slash is searched in `PATH`.
fn command(launch: &Launch) -> Option<String> {
    let name = &launch.command;
    if name.contains('/') {
        let path = launch.directory.as_deref().unwrap_or(Path::new("")).join(name);
        return match fs::metadata(&path) {
            Err(error) => Some(format!("{}: {error}", path.display())),
            Ok(_) if is_executable(&path) => None,
            Ok(_) => Some(format!("{}: not an executable file", path.display())),
        };
    }
    let paths = launch.env.get("PATH").map(Into::into).or_else(|| env::var_os("PATH")).unwrap_or_default();
    let mut places = env::split_paths(&paths).map(|folder: PathBuf| folder.join(name));
    if places.any(|path| is_executable(&path)) { None } else { Some(format!("{name}: no such command in PATH")) }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
