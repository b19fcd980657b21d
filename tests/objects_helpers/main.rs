//! What is built on any client: finalizers, garbage collection, events, tracking.

mod client;
mod events;
mod finalizer;
mod garbage;
mod tracker;
