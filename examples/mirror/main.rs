//! Keeps a directory equal to another: copies what is new or has changed, deletes what is gone, and undoes what is changed
//! in the target by hand.
//!
//! ```sh
//! cargo run --example mirror -- examples /tmp/examples-mirrored
//! ```
//!
//! Two files are equal if they have the same length and the same time of modification, which the copy takes over from the
//! original, with the permissions. A file is written under another name and then renamed: nobody ever sees half of one.
//! What can be neither read nor written is tried again, each time later. Symbolic links, pipes and devices are named and
//! left as they are, in the source and in the target, and nothing is ever read or written through a link within them.
//!
//! If the source cannot be listed, nothing is deleted: an unmounted volume has not lost its files. All that is in the
//! target and not in the source is deleted, however; `mirror` makes one that does not exist.
//!
//! | signal | effect |
//! |---|---|
//! | SIGINT, SIGTERM | finish the files that are being copied, print the status table, and exit; a second one aborts |
//! | SIGUSR1 | print the status table to standard output |
//!
//! Exit codes: 0 when it was told to stop, and with `--once` only if all is equal; 1 when it was aborted, has failed, or
//! not all is equal; 2 when the command line was bad or a directory cannot be used.
//!
//! # How it is built
//!
//! | | |
//! |---|---|
//! | watches | the source and the target, each listed once for both controllers ([`Manager::watch`](homeostat::Manager::watch)) |
//! | controller [`files`] | key: a path. Copies a regular file, or deletes it |
//! | controller [`dirs`] | key: a path. Makes a directory, or removes it once it is empty; told of it by each file in it |
//! | functions | a look at whether both are equal, and the end of `--once`; the end of `--for` |
//!
//! What is wanted is what the [store](homeostat::Store) of the source says, and what there is is looked up in the target at
//! each run: whatever was missed, or happened out of order, the next run finds, and a resync brings one now and then for every
//! path. Neither controller waits for the other. One that needs something done first returns, and is called when the watch
//! tells that it is done.

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
