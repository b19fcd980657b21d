//! Keeps one directory equal to another: copies new and changed files, deletes the rest, and undoes changes in the
//! target.
//!
//! ```sh
//! cargo run --example mirror -- examples /tmp/examples-mirrored
//! ```
//!
//! Try this while it runs: change files in the source, delete files in the target, send it SIGUSR1, end it with Ctrl-C.
//!
//! Two files are equal if they have the same length and the same modification time. The copy gets that time and the
//! permissions from the original. A file is written under another name and then renamed, so other programs never see
//! half a file. Failed reads and writes are retried after growing delays. Symbolic links, pipes and devices are
//! reported and left alone, in the source and in the target. Nothing is read or written through a link.
//!
//! If the source cannot be listed, nothing is deleted: an unmounted volume has not lost its files. **Every file that is
//! only in the target is deleted.** If the target does not exist, it is created.
//!
//! | signal | effect |
//! |---|---|
//! | SIGINT, SIGTERM | finish the current copies, print the status table, and exit; a second signal aborts |
//! | SIGUSR1 | print the status table to standard output |
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | it was stopped; with `--once`, the directories are equal |
//! | 1 | it was aborted or has failed; with `--once`, the directories differ |
//! | 2 | the command line was invalid, or a directory cannot be used |
//!
//! # How it is built
//!
//! | part | here |
//! |---|---|
//! | watches | the source and the target, each listed once for both controllers ([`Manager::watch`](homeostat::Manager::watch)) |
//! | controller [`files`] | key: a path. Copies a regular file, or deletes it |
//! | controller [`dirs`] | key: a path. Makes a directory, or removes it once it is empty. Each file enqueues its directory |
//! | functions | one ends `--once` when both are equal, one ends `--for` |
//!
//! The desired state is the [store](homeostat::Store) of the source. Each run reads the actual state from the target.
//! If an event is missed, the next run repairs the damage, and a resync runs every path from time to time. The
//! controllers do not wait for each other: if a run needs the other controller to act first, it returns, and a watch
//! enqueues its key later.

#[path = "../cli/mod.rs"]
mod cli;
mod dirs;
mod files;
mod run;
#[cfg(unix)]
#[path = "../cli/signals.rs"]
mod signal_thread;
#[cfg(unix)]
mod signals;
mod trees;

fn main() -> std::process::ExitCode {
    run::main()
}
