//! The directories, child processes and lock files of one machine, for the controllers of [`homeostat`].
//!
//! | purpose | names |
//! |---|---|
//! | enqueue the files that change in a directory, on any file system | `Directory`, `FileState` (Unix) |
//! | enqueue a key when a child process ends | `watch_child` (Unix) |
//! | elect a leader among the processes of one machine | [`FileElector`] |
//! | delay the start of a process that soon ends again | [`CrashLoopGuard`] |
//!
//! Two processes that share the file of a [`FileElector`] never lead at once, even if a leader is killed, as long as
//! nobody replaces the file. A volume that is unmounted under a `Directory` reports no deletions.
//!
//! # Add it to a program
//!
//! No version is on crates.io yet. These commands use a checkout of the repository, next to the program:
//!
//! ```console
//! cargo add --path ../homeostat
//! cargo add --path ../homeostat/crates/homeostat-host
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(unix, not(any(target_os = "netbsd", target_os = "openbsd", target_os = "redox"))))]
mod child;
mod crash_loop;
#[cfg(unix)]
mod directory;
mod file_elector;
mod lock_text;
mod sync;

#[cfg(all(unix, not(any(target_os = "netbsd", target_os = "openbsd", target_os = "redox"))))]
pub use self::child::watch_child;
pub use self::crash_loop::CrashLoopGuard;
#[cfg(unix)]
pub use self::directory::{Directory, FileState};
pub use self::file_elector::FileElector;
