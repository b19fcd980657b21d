//! A controller runtime on plain OS threads.

mod sync;
