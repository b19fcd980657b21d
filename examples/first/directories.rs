//! The program of the README: it keeps two directories in existence until Ctrl-C.
//!
//! ```sh
//! cargo run --example directories
//! ```
//!
//! It creates `inbox` and `outbox` in the current directory. Delete one of them: within a second it exists again. End
//! the program with Ctrl-C.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use homeostat::{Action, BoxError, Context, Controller, Manager};
use std::{path::PathBuf, time::Duration};

/// Keeps two directories in existence until Ctrl-C.
fn main() -> Result<(), BoxError> {
    let missing = |_cx: &Context| {
        let wanted = ["inbox", "outbox"].map(PathBuf::from);
        Ok::<_, BoxError>(wanted.into_iter().filter(|path| !path.is_dir()).collect::<Vec<_>>())
    };
    let create = |_cx: &Context, path: &PathBuf| -> Result<Action, BoxError> {
        std::fs::create_dir_all(path)?; // an error is retried with backoff
        println!("created {}", path.display());
        Ok(Action::await_change())
    };
    let manager = Manager::builder().build()?;
    manager.add(Controller::builder("directories", create).poll(Duration::from_secs(1), missing).build()?)?;
    Ok(manager.run_until_signal()?)
}
